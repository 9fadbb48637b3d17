// Which exercise a failure belongs to. What a test says of one exercise may come from another: so the learner's answers
// are tried one at a time, each in a kernel in which all others are the solution's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace flashladder {

/// An exercise's lines in a learner's file, markers included, counted from 1.
struct Answer {
    std::string id;  // "5.1"
    int first = 0, last = 0;
    bool open = false;  // it is still the starter's, comments and spaces aside
};

/// The answers in a learner's file, in its order. An exercise whose markers are gone is missing.
std::vector<Answer> answers(std::string_view learners, std::string_view starter);

/// True if something is changed outside all exercises, comments and spaces aside.
bool changed_outside(std::string_view learners, std::string_view starter);

/// A learner's file in which all answers but `own` are the solution's; and for each of its lines which one of the
/// learner's file it is, or where the exercise begins whose solution it is.
struct Trial {
    struct Line {
        int number;
        std::string exercise;  // "" of the learner's own
    };
    std::string text;
    std::vector<Line> lines;
};
Trial trial_of(std::string_view learners, std::string_view solution, std::string_view own);

/// Behind a place where the solution's answer stood instead of the learner's; then the number of the exercise.
constexpr std::string_view instead_of_theirs = ", by the solution's ";

/// A report with places in the trial's file ("trials/05.cu:17") given as the learner's
/// ("chapters/.../attention.cu:15", or "chapters/.../attention.cu:15, by the solution's 5.1").
std::string with_learners_lines(std::string_view report, std::string_view trial_file, const Trial& trial,
                                const std::string& learners_file);

/// The exercises in which the lines lie that a report names, each once: from "source" on, then in its order.
std::vector<std::string> named_in(std::string_view report, const std::string& learners_file,
                                  const std::vector<Answer>& answers);

}  // namespace flashladder
