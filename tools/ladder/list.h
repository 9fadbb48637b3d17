// `ladder list`: how far a learner is, and what is next.
#pragma once

#include <string>
#include <vector>

#include "chapters.h"

namespace flashladder {

/// Keeps what `ladder test` said of this text of the learner's file: "green", "red at 1.2", ...; "" for nothing.
void remember_result(const Chapter& chapter, const std::string& text, const std::string& words);

/// What it said last, if that was of this very text; else "".
std::string remembered_result(const Chapter& chapter, const std::string& text);

/// How far a learner is with one chapter.
struct Progress {
    std::string state;   // "not begun", "2 of 3 begun: 1.1 1.2, open 1.3", ...
    std::string result;  // of the last test, if it was of this text; else ""
    bool begun = false, done = false;
    std::string next;  // what to do about it
};
Progress progress_of(const Chapter& chapter);

/// Prints that of every chapter, and what is next: the lowest chapter that is begun and not green, else the lowest that
/// is not begun. Builds nothing. Returns the exit status.
int list_chapters();

}  // namespace flashladder
