#include "list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "blame.h"
#include "exercises.h"
#include "files.h"
#include "harness/project_root.h"
#include "programs.h"
#include "table.h"

namespace flashladder {
namespace {

namespace fs = std::filesystem;

constexpr const char* green = "green";

/// Its first line are the words, the rest is the text that they are of.
std::string result_file(const Chapter& chapter) { return (build_folder() / "tested" / chapter.number()).string(); }

/// The exercises of the solution, by what has become of them in the learner's file.
struct Exercises {
    std::vector<std::string> begun, open, gone;  // gone: without its markers
};

Exercises exercises_in(const std::vector<Answer>& answers, const std::string& solution) {
    Exercises all;
    std::vector<Exercise> by_number = exercises(solution);  // a file may need them in another order
    std::ranges::sort(by_number, {}, &Exercise::id);
    for (const Exercise& exercise : by_number) {
        const auto answer = std::ranges::find(answers, exercise.id, &Answer::id);
        (answer == answers.end() ? all.gone : answer->open ? all.open : all.begun).push_back(exercise.id);
    }
    return all;
}

std::string state_of(const Exercises& all, bool edited_outside) {
    if (all.begun.empty() && all.gone.empty() && !edited_outside) return "not begun";
    std::string state =
        fmt::format("{} of {} begun", all.begun.size(), all.begun.size() + all.open.size() + all.gone.size());
    if (!all.begun.empty()) state += fmt::format(": {}", fmt::join(all.begun, " "));
    if (!all.open.empty()) state += fmt::format(", open {}", fmt::join(all.open, " "));
    if (all.begun.empty() && edited_outside) state += ", changed outside the exercises";
    if (!all.gone.empty()) state += fmt::format(", markers gone {}", fmt::join(all.gone, " "));
    return state;
}

}  // namespace

void remember_result(const Chapter& chapter, const std::string& text, const std::string& words) {
    write_file(result_file(chapter), words + "\n" + text);
}

std::string remembered_result(const Chapter& chapter, const std::string& text) {
    const std::string file = result_file(chapter);
    if (!fs::exists(file)) return "";
    const std::string kept = read_file(file);
    const std::size_t end = std::min(kept.find('\n'), kept.size());
    return kept.compare(std::min(end + 1, kept.size()), std::string::npos, text) == 0 ? kept.substr(0, end) : "";
}

Progress progress_of(const Chapter& chapter) {
    const std::string path = project_root() + "/" + chapter.file();
    Progress progress;
    if (!fs::exists(path)) {
        progress.state = "missing";
        progress.next = fmt::format("./ladder reset {} makes {}", chapter.number(), chapter.file());
        return progress;
    }
    const std::string text = read_file(path), solution = read_file(project_root() + "/" + chapter.solution()),
                      starter = starter_of(chapter);
    const std::vector<Answer> found = answers(text, starter);
    const Exercises all = exercises_in(found, solution);
    const bool is_solution = text == solution;
    progress.state = is_solution ? "the solution" : state_of(all, changed_outside(text, starter));
    progress.begun = progress.state != "not begun";
    if (progress.begun) progress.result = remembered_result(chapter, text);  // that a starter is red is no news
    progress.done = is_solution || progress.result == green;

    // The exercise that the test named, else the first that is open.
    const std::string red = "red at ";
    const std::string wanted = progress.result.starts_with(red) ? progress.result.substr(red.size())
                               : all.open.empty()               ? ""
                                                                : all.open.front();
    const auto answer = std::ranges::find(found, wanted, &Answer::id);
    progress.next = fmt::format("./ladder test {}", chapter.number());
    if (!progress.begun) progress.next = fmt::format("read {}; {}", chapter.lesson(), progress.next);
    if (answer != found.end())
        progress.next += fmt::format(", exercise {} at {}:{}", wanted, chapter.file(), answer->first);
    return progress;
}

int list_chapters() {
    Table table({"chapter", "your file", "last test of this text"});
    std::string begun, not_begun;
    for (const Chapter& chapter : chapters()) {
        const Progress progress = progress_of(chapter);
        table.add({chapter.name, progress.state, progress.result});
        if (progress.done) continue;
        std::string& next = progress.begun ? begun : not_begun;
        if (next.empty()) next = progress.next;
    }
    const std::string next = !begun.empty() ? begun : not_begun;
    fmt::print("{}\n{}\n", table.plain(),
               next.empty() ? "every chapter is green or the solution: ./ladder profile 14 --mine" : "next: " + next);
    return 0;
}

}  // namespace flashladder
