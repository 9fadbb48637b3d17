// How the blocks of a grid come by their tasks (rung 11).
#pragma once

namespace flashladder::lcsf {

/// One each, on a grid of all; on a grid as large as the GPU each gridDim.x-th, or whichever nobody has taken yet.
enum class Schedule { one_each, fixed, dynamic };

/// What the K and V of heads that take turns may fill of L2, in percent, where nothing else is better.
inline constexpr int most_of_L2 = 67;

constexpr const char* to_string(Schedule schedule) {
    return schedule == Schedule::one_each ? "one block each" : schedule == Schedule::fixed ? "fixed" : "dynamic";
}

}  // namespace flashladder::lcsf
