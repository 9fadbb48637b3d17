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

struct TimingOptions {
    int max_samples = 30;
    int min_samples = 3;
    double seconds = 2;  // a stage and a shape: enough samples are taken to spend this long, within the bounds above
};

/// Times each stage on the same inputs: warm-up first, then the stages take turns, so that a card that slows down slows
/// all of them. Between launches the inputs change, so that none finds its own in the L2 cache.
/// Throws what run() throws.
std::vector<Timing> time_stages(const std::vector<const Stage*>& stages, const AttentionShape& shape,
                                const TimingOptions& options = {});

}  // namespace flashladder
