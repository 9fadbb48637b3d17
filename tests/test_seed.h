#pragma once

#include <cstdint>

namespace flashladder {

/// The seed of this run. Test inputs are drawn from it, so that every run tests fresh ones and every failure can be
/// repeated.
std::uint64_t test_seed();

}  // namespace flashladder
