// What a rung changes: the difference between its kernel and that of the rung below.
#pragma once

#include <string>

#include "chapters.h"

namespace flashladder {

/// As diff(1) shows it, of the solutions without their exercise markers, and behind it what stands in common/ now; "" for
/// the lowest rung. Without `answers` the upper one is the starter, with what it asks for.
/// Throws std::runtime_error where there is no diff(1).
std::string diff_from_below(const Chapter& chapter, bool answers);

/// Prints it; without the answers if they are not asked for and the learner's chapter is not green. Returns the exit status.
int show_diff(const Chapter& chapter, bool answers);

}  // namespace flashladder
