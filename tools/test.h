// `ladder test NN`: a learner's chapter, or a solution, against its tests.
#pragma once

#include <cstdint>

#include "chapters.h"

namespace flashladder {

struct TestOptions {
    bool solution = false;
    std::uint64_t seed = 1;
    int seeds = 1;
    bool verbose = false;
};

/// The exercises first: while one is open, the rest cannot pass and only takes time. Prints every test case, and the first
/// failure. Returns the exit status.
int test_chapter(const Chapter& chapter, const TestOptions& options);

}  // namespace flashladder
