// How long a stage takes on a GPU.
#pragma once

#include <functional>
#include <vector>

#include "harness/run.h"

namespace flashladder {

/// Milliseconds a launch, measured with CUDA events.
struct Timing {
    double ms = 0;  // median
    double ms_min = 0, ms_max = 0;
    int samples = 0;
};

/// What the last kernel that a stage launches takes of a multiprocessor.
struct Resources {
    int registers = 0;    // of a thread
    int local_bytes = 0;  // of a thread: spilled registers and arrays
    std::size_t shared_bytes = 0;  // of a block
    int blocks_per_sm = 0;
};

/// A stage on one problem.
struct TimedStage {
    Timing timing;
    Resources resources;
    Outputs outputs;  // of its first launch, into poisoned memory
};

struct TimingOptions {
    int max_samples = 30;
    int min_samples = 3;
    double seconds = 1;  // a stage and a shape: enough samples are taken to spend this long, within the bounds above
};

/// Times each stage on the same inputs: warm-up first, then the stages take turns, so that a card that slows down slows
/// all of them. Between launches the inputs change, so that none finds its own in the L2 cache.
/// Throws what run() throws.
std::vector<TimedStage> time_stages(const std::vector<const Stage*>& stages, const Inputs& inputs,
                                    const TimingOptions& options = {});

}  // namespace flashladder
