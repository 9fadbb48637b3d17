// What a rung noted while it ran.
#pragma once

#include <string>
#include <vector>

namespace flashladder {

/// A moment of a warp of block 0: what it was about to do, or had done.
struct Noted {
    int warp;
    long long clock;  // of the multiprocessor
    std::string what;
    int line;  // of the file that called the instruction
};

/// Forgets what was noted before.
void forget_timeline();
/// What has been noted since, warp by warp, each in its order. Waits for the GPU.
std::vector<Noted> noted_timeline();

}  // namespace flashladder
