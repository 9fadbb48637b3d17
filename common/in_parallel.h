// Host work that consists of equal parts, on all cores.
#pragma once

#include <algorithm>
#include <cstddef>
#include <thread>
#include <vector>

namespace flashladder {

/// Calls f(first, end) for parts of 0 to n, one on each core, none of less than `least`; the parts begin at multiples
/// of `least`. f does not throw.
template <class F>
void in_parallel(std::size_t n, std::size_t least, F f) {
    const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
    const std::size_t parts = std::clamp<std::size_t>(n / least, 1, cores);
    const auto begin_of = [&](std::size_t part) { return part == parts ? n : n / least * part / parts * least; };
    std::vector<std::thread> others;
    for (std::size_t part = 1; part < parts; ++part) others.emplace_back(f, begin_of(part), begin_of(part + 1));
    f(0, begin_of(1));
    for (auto& thread : others) thread.join();
}

}  // namespace flashladder
