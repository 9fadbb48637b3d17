// What a rung of packed sequences is built of: rung 14's tiles, for many tasks, and some for other head sizes. d columns of
// Q and K are multiplied, and d_v of V: those that heads have, and zeros behind them.
#pragma once

#include <array>
#include <cstddef>

#include "operations/attention/configurations.h"

namespace flashladder::varlen_attention {

using attention::Configuration;

/// The first one of each d and d_v is the stage's, the others are variants.
inline constexpr std::array configurations = {
    Configuration{.d = 64, .consumers = 4, .B_c = 64, .stages = 4},
    Configuration{.d = 64, .consumers = 3, .B_c = 128, .stages = 4},
    Configuration{.d = 96, .consumers = 3, .B_c = 64, .stages = 4},
    Configuration{.d = 128, .consumers = 3, .B_c = 64, .stages = 4},
    Configuration{.d = 128, .consumers = 3, .B_c = 64, .stages = 4, .turns = false},
    Configuration{.d = 128, .consumers = 2, .B_c = 128, .stages = 2},
    Configuration{.d = 192, .consumers = 2, .B_c = 128, .stages = 2, .own_slots = 1, .d_v = 128},
    Configuration{.d = 192, .consumers = 2, .B_c = 96, .stages = 2, .own_slots = 1},
    Configuration{.d = 256, .consumers = 2, .B_c = 64, .stages = 2, .own_slots = 1},
};
constexpr int d_v_of(const Configuration& c) { return c.d_v > 0 ? c.d_v : c.d; }
/// The number of the stage's for heads of so many columns, of V too, up to 256: the narrowest that has them.
constexpr std::size_t number_for(int head_dim, int value_dim) {
    std::size_t i = 0;
    while (configurations[i].d < head_dim || d_v_of(configurations[i]) < value_dim) ++i;
    return i;
}

}  // namespace flashladder::varlen_attention
