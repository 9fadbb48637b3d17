#pragma once

#include <cstddef>
#include <cstdint>

namespace flashladder {

/// The seed of this run. Test inputs are drawn from it, so that every run tests fresh ones and every failure can be
/// repeated.
std::uint64_t test_seed();

/// Whether this run takes the i-th of many combinations that are much alike. A learner waits for `ladder test`, which takes
/// one in `of`, drawn from the seed: each once by a seed that is a multiple of `of` and those behind it up to the next
/// multiple. Other runs take all.
bool takes_combination(std::size_t i, std::size_t of = 2);

}  // namespace flashladder
