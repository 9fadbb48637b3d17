// The learner's kernel in a program that was built with it: `--mine`.
#pragma once

#include <string>

#include "chapters.h"
#include "harness/stage.h"

namespace flashladder {

/// Throws std::runtime_error, naming the file, if it registers none.
const Stage& learners_stage(const Chapter& chapter);

/// Prints the report of the learner's kernel that has failed, as `ladder test` does; a page, which may show an older run,
/// is one of this report then. Returns the exit status, 1.
int tell_failure(const Chapter& chapter, const std::string& report, const std::string& page = "");

}  // namespace flashladder
