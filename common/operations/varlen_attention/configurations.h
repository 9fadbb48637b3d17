// What a rung of packed sequences is built of: rung 14's tiles, for many tasks.
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
    Configuration{.d = 128, .consumers = 3, .B_c = 64, .stages = 4},
    Configuration{.d = 128, .consumers = 3, .B_c = 64, .stages = 4, .turns = false},
    Configuration{.d = 128, .consumers = 2, .B_c = 128, .stages = 2},
    Configuration{.d = 256, .consumers = 2, .B_c = 64, .stages = 2, .own_slots = 1},
};
constexpr std::size_t first_of(int d) {
    std::size_t i = 0;
    while (configurations[i].d != d) ++i;
    return i;
}

}  // namespace flashladder::varlen_attention
