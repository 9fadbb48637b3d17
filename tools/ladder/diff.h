// What a rung changes: the difference between its kernel and that of the rung below.
#pragma once

#include <string>

#include "chapters.h"

namespace flashladder {

/// As diff(1) shows it, of the solutions without their exercise markers, and behind it what stands in common/ now; "" for
/// the lowest rung.
/// Throws std::runtime_error where there is no diff(1).
std::string diff_from_below(const Chapter& chapter);

/// Prints it. Returns the exit status.
int show_diff(const Chapter& chapter);

}  // namespace flashladder
