// `ladder test NN`: a learner's chapter, or a solution, against its tests.
#pragma once

#include <cstdint>
#include <string>

#include "chapters.h"

namespace flashladder {

struct TestOptions {
    bool solution = false;
    std::uint64_t seed = 1;
    int seeds = 1;
    bool verbose = false;
    bool watched =
        false;  // for a screen that is written again and again: what is green in few words, one error, a hint
};

/// The exercises first: while one is open, the rest cannot pass and only takes time. Prints every test case, and the first
/// failure. Returns the exit status.
int test_chapter(const Chapter& chapter, const TestOptions& options);

/// A report of what went wrong: first the place in `file`, a path from the project's folder, that it is about.
std::string told_report(const std::string& report, const std::string& file);
void print_report(const std::string& report, const std::string& file);

}  // namespace flashladder
