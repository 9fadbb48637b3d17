// What a rung of packed sequences is built of: rung 14's tiles, for many tasks, and some for other head sizes. d columns of a
// tile are multiplied: those of any head size up to d, and zeros behind them.
#pragma once

#include <array>
#include <cstddef>

#include "operations/attention/configurations.h"

namespace flashladder::varlen_attention {

using attention::Configuration;

/// The first one of each head size is the stage, the others are variants.
inline constexpr std::array configurations = {
    Configuration{.d = 64, .consumers = 4, .B_c = 64, .stages = 4},
    Configuration{.d = 64, .consumers = 3, .B_c = 128, .stages = 4},
    Configuration{.d = 96, .consumers = 3, .B_c = 64, .stages = 4},
    Configuration{.d = 128, .consumers = 3, .B_c = 64, .stages = 4},
    Configuration{.d = 128, .consumers = 3, .B_c = 64, .stages = 4, .turns = false},
    Configuration{.d = 128, .consumers = 2, .B_c = 128, .stages = 2},
    Configuration{.d = 192, .consumers = 2, .B_c = 96, .stages = 2, .own_slots = 1},
    Configuration{.d = 256, .consumers = 2, .B_c = 64, .stages = 2, .own_slots = 1},
};
/// That of the stage for heads of so many columns, up to 256.
constexpr std::size_t first_for(int head_dim) {
    std::size_t i = 0;
    while (configurations[i].d < head_dim) ++i;
    return i;
}

}  // namespace flashladder::varlen_attention
