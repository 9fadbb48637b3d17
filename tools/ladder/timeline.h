// `ladder timeline`: who does what when in one block of a rung.
#pragma once

#include <cstdint>
#include <string>

#include "chapters.h"
#include "harness/operation.h"

namespace flashladder {

struct TimelineOptions {
    GivenSizes sizes;
    int block = 0;      // x fastest
    std::string trace;  // a JSON file that Chrome and Perfetto open
    std::string svg;
    std::string page;   // of HTML, to zoom in
    bool mine = false;  // of the learner's kernel
    std::uint64_t seed = 1;
};

/// Records one block of a rung, on the emulator or on the GPU, and prints who did what; with the options, writes it to
/// files. Returns the exit status. Throws std::invalid_argument where this cannot be recorded.
int show_timeline(const Chapter& chapter, const TimelineOptions& options);

}  // namespace flashladder
