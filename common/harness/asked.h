// What a stage was last asked to do, so that a test that fails can say it, and do it again.
#pragma once

#include <functional>
#include <string>

namespace flashladder {

struct Asked {
    std::string problem;          // "B 4 H 16 N 4096 d 64 causal f32"
    std::function<void()> again;  // runs the stage on the same inputs; empty if that would take long
};
/// Null if there was nothing since it was forgotten.
const Asked* last_asked();
void note_asked(Asked asked);
void forget_asked();

}  // namespace flashladder
