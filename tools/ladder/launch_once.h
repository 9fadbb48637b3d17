// `ladder launch`: a rung on one problem, checked.
#pragma once

#include <cstdint>

#include "chapters.h"
#include "harness/operation.h"

namespace flashladder {

struct LaunchOptions {
    GivenSizes sizes;
    bool mine = false;  // the learner's kernel
    std::uint64_t seed = 1;
};

/// Runs it once on random inputs, of the first dtype that it supports, and compares it with the reference. Returns the
/// exit status: 1 if it is wrong or fails. Throws std::invalid_argument for a problem that it does not support.
int launch_once(const Chapter& chapter, const LaunchOptions& options);

}  // namespace flashladder
