#pragma once

#include <cstddef>
#include <cstdint>

namespace flashladder {

/// The seed of this run. Test inputs are drawn from it, so that every run tests fresh ones and every failure can be
/// repeated.
std::uint64_t test_seed();

/// Whether this run takes the i-th of many combinations that are much alike. A learner waits for `ladder test`, which takes
/// half of them, drawn from the seed; by an even seed and the odd one behind it that is each once. Other runs take all.
bool takes_combination(std::size_t i);

}  // namespace flashladder
