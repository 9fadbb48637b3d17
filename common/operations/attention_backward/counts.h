// What a stage asks of the (virtual) GPU, counted by the emulator.
#pragma once

#include "harness/counts.h"
#include "operations/attention_backward/comparison.h"
#include "operations/attention_backward/stage.h"

namespace flashladder::attention_backward {

/// Runs the stage once and counts. Throws what run() throws.
StageCounts count_stage(const Stage& stage, const Inputs& inputs);

}  // namespace flashladder::attention_backward
