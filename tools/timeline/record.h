// What a rung noted while it ran.
#pragma once

#include <string>
#include <vector>

namespace flashladder {

/// A moment of the first warp of a warpgroup of the chosen block: what it was about to do, or had done.
struct Noted {
    int warp;
    long long clock;  // of the multiprocessor
    std::string what;
    int line;          // of the file that called the instruction
    std::string file;  // in the project's folder
};

struct NotedTimeline {
    std::vector<Noted> moments;  // warp by warp, each in its order
    double nanoseconds_per_clock = 0;
};

/// Forgets what was noted before. From now on this block is noted, x fastest.
void forget_timeline(unsigned block);
/// What has been noted since. Waits for the GPU. How long a clock is, the GPU's timer says, from the first load to the
/// last; where they are too close to tell, the highest clock of the multiprocessors.
NotedTimeline noted_timeline();

}  // namespace flashladder
