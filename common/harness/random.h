// Random numbers that are the same on every machine.
#pragma once

#include <cstdint>
#include <vector>

namespace flashladder {

/// Fills all of `values` with standard normal numbers, numbers `first`, `first` + 1, ... of those that belong to the seed.
void fill_with_normal(std::vector<float>& values, std::uint64_t seed, std::size_t first = 0);

}  // namespace flashladder
