#include "harness/random.h"

#include <cmath>
#include <numbers>

#include "in_parallel.h"

namespace flashladder {
namespace {

/// Number `index` of standard normal numbers that depend on the seed alone: <random>'s distributions differ between
/// libraries. Two of them come from two uniform ones (Box-Muller), each a hash of its place (splitmix64).
float normal(std::uint64_t seed, std::size_t index) {
    const auto uniform = [&](std::size_t place) {  // in (0, 1]
        std::uint64_t z = seed + (place + 1) * 0x9E3779B97F4A7C15u;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        return (static_cast<double>((z ^ z >> 31) >> 11) + 1) * 0x1p-53;
    };
    const std::size_t pair = index / 2 * 2;
    const double radius = std::sqrt(-2 * std::log(uniform(pair))), angle = 2 * std::numbers::pi * uniform(pair + 1);
    return static_cast<float>(radius * (index % 2 ? std::sin(angle) : std::cos(angle)));
}

}  // namespace

void fill_with_normal(std::vector<float>& values, std::uint64_t seed, std::size_t first) {
    in_parallel(values.size(), 1 << 14, [=, x = values.data()](std::size_t i, std::size_t end) {
        for (; i < end; ++i) x[i] = normal(seed, first + i);
    });
}

}  // namespace flashladder
