// Running a stage on given inputs, in any layout, and judging what came out.
#pragma once

#include "harness/device_buffer.h"
#include "operations/attention/comparison.h"
#include "operations/attention/layout.h"
#include "operations/attention/stage.h"

namespace flashladder::attention {

/// All device memory that one run of a stage needs, and the arguments that point to it.
struct DeviceProblem {
    DeviceProblem(const Stage& stage, const Inputs& inputs, bool wants_lse, Layout layout = Layout::heads_first);
    ForwardArgs args() const;
    /// Brings back what the stage wrote.
    Outputs outputs() const;

    AttentionShape shape;
    float scale;
    LaidOut Q, K, V, O;
    DeviceBuffer lse, scratch;
    bool wants_lse;
};

/// Poisons the outputs, launches the stage once, waits, and brings the results back.
/// Throws std::invalid_argument (unsupported), CudaError (the kernel failed).
Outputs run(const Stage& stage, const Inputs& inputs, bool wants_lse = false, Layout layout = Layout::heads_first);

/// run and compare in one, on the rows of rows_to_check.
Comparison check(const Stage& stage, const Inputs& inputs, Judge judge = Judge::both_rules, bool wants_lse = false,
                 Layout layout = Layout::heads_first);

}  // namespace flashladder::attention
