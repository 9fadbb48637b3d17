// `ladder run`, the main job: every rung against the reference, and on a GPU against the clock.
#pragma once

#include <cstdint>
#include <string>

namespace flashladder {

struct RunOptions {
    std::uint64_t seed = 1;
    std::string json;     // where to write the results; "" for nowhere
    bool timing = true;   // on a GPU
    std::string operation = "";  // whose rungs; "": all
};

/// Prints the ladder table. Returns the exit status: 1 if a rung disagrees with the reference or fails.
int run_ladder(const RunOptions& options);

}  // namespace flashladder
