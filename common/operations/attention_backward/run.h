// Running a stage on given inputs, and judging what came out.
#pragma once

#include <cstddef>

#include "harness/device_buffer.h"
#include "operations/attention/layout.h"
#include "operations/attention_backward/comparison.h"
#include "operations/attention_backward/stage.h"

namespace flashladder::attention_backward {

/// All device memory that one run of a stage needs, and the arguments that point to it.
struct DeviceProblem {
    /// Outputs and scratch are full of NaN. Throws CudaError.
    DeviceProblem(const Stage& stage, const Inputs& inputs, attention::Layout layout = attention::Layout::heads_first);
    BackwardArgs args() const;
    /// Brings back what the stage wrote.
    Outputs outputs() const;

    AttentionShape shape;
    float scale;
    attention::LaidOut Q, K, V, O, dO, dQ, dK, dV;
    DeviceBuffer lse, scratch;
};

/// Launches the stage once, waits, and brings the results back. Throws std::invalid_argument (unsupported), CudaError (the
/// kernel failed).
Outputs run(const Stage& stage, const Inputs& inputs, attention::Layout layout = attention::Layout::heads_first);

/// Compares with the reference, all rows, or `most` of each gradient; and names the usual mistakes.
Comparison judged(const Outputs& outputs, const Inputs& inputs, attention::Judge judge = attention::Judge::both_rules,
                  std::size_t most = std::size_t(1) << 20);
/// run and judged in one.
Comparison check(const Stage& stage, const Inputs& inputs, attention::Judge judge = attention::Judge::both_rules,
                 std::size_t most = std::size_t(1) << 20, attention::Layout layout = attention::Layout::heads_first);

}  // namespace flashladder::attention_backward
