// What a stage asks of the (virtual) GPU, counted by the emulator.
#pragma once

#include "harness/counts.h"
#include "operations/attention/comparison.h"
#include "operations/attention/stage.h"

namespace flashladder::attention {

struct StageCounts : flashladder::StageCounts {
    Outputs outputs;  // what it computed meanwhile
};

/// Runs the stage once and counts. Throws what run() throws.
StageCounts count_stage(const Stage& stage, const Inputs& inputs, bool wants_lse = false);

}  // namespace flashladder::attention
