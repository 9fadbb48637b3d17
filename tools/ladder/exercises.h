// The exercises of a rung: regions that its solution marks, from which starters are made.
//
//   // EXERCISE 5.1 What to do, in a sentence or more,
//   // as long as comment lines follow.
//   // STARTER a line that stands here in the learner's file; as many as it needs, or one with nothing
//   the solution's lines
//   // END 5.1
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace flashladder {

struct Exercise {
    std::string id;         // "5.1"
    std::string statement;  // on one line
};

/// The exercises in the order of the file. Throws std::runtime_error, naming the line, where markers do not match.
std::vector<Exercise> exercises(std::string_view solution);

/// The solution with the exercise `open` replaced by its starter lines under a TODO, or every exercise if `open` is
/// "all". What stays solved loses its markers but for the number. Throws std::runtime_error if there is no such
/// exercise.
std::string make_starter(std::string_view solution, std::string_view open);

/// The solution without its markers: what there is to read.
std::string without_markers(std::string_view solution);

/// `text` with `from` replaced by `to`. Throws std::runtime_error unless `from` occurs exactly once.
std::string replace_once(std::string_view text, std::string_view from, std::string_view to);

/// The hints for an exercise in a hints.md, from a question to the shape of the lines: the items "1. ...", "2. ..." below
/// its heading ("## 5.1"), without their numbers. None if it has none; all in one if they are not numbered.
std::vector<std::string> hints_for(std::string_view hints, std::string_view id);

}  // namespace flashladder
