// How the blocks of a grid come by their tasks (rung 11).
#pragma once

namespace flashladder::lcsf {

/// One each, on a grid of all; on a grid as large as the GPU each gridDim.x-th, or whichever nobody has taken yet.
enum class Schedule { one_each, fixed, dynamic };

constexpr const char* to_string(Schedule schedule) {
    return schedule == Schedule::one_each ? "one block each" : schedule == Schedule::fixed ? "fixed" : "dynamic";
}

}  // namespace flashladder::lcsf
