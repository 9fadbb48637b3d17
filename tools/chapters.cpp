#include "chapters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "exercises.h"
#include "files.h"
#include "harness/inputs.h"
#include "programs.h"

namespace flashladder {
namespace {

namespace fs = std::filesystem;

constexpr int time_limit_seconds = 300;
constexpr int timed_out = 124;  // what timeout(1) exits with
constexpr int needs_newer_gpu = 77;  // what a test program exits with, having said so

std::string in_project(const std::string& path) { return project_root() + "/" + path; }

void check_is_there(const Chapter& chapter, const std::string& file) {
    if (!fs::exists(in_project(file)))
        throw std::invalid_argument(fmt::format("{} is missing (./ladder reset {} makes it)", file, chapter.number()));
}

struct Outcome {
    int status = 0;
    nlohmann::json cases = nlohmann::json::array();
    fs::path log;
};

Outcome run_tests(const std::string& target, const std::string& filter, const TestOptions& options) {
    const fs::path report = build_folder() / (target + "-report.json");
    Outcome outcome{0, nlohmann::json::array(), build_folder() / (target + "-test.log")};
    fs::remove(report);
    const std::string command =
        fmt::format("cd {} && timeout {} {} {} --report={} --seeds={} --seed={}", quoted(project_root()),
                    time_limit_seconds, quoted((build_folder() / "bin" / target).string()), filter,
                    quoted(report.string()), options.seeds, options.seed);
    outcome.status = run_logged(command, outcome.log);
    if (fs::exists(report)) outcome.cases = nlohmann::json::parse(read_file(report.string()), nullptr, false);
    return outcome;
}

/// "1.2" of "EXERCISE 1.2: merging"; "" for another test case.
std::string exercise_of(const std::string& test_case) {
    const std::string start = "EXERCISE ";
    if (!test_case.starts_with(start)) return "";
    return test_case.substr(start.size(), test_case.find(':') - start.size());
}

std::string indented(const std::string& text) {
    std::string result = "  ";
    for (char c : text) result += c == '\n' ? std::string("\n  ") : std::string(1, c);
    return result;
}

/// Line of the file in which an exercise begins, or 0.
int line_of(const std::string& text, const std::string& exercise) {
    const std::size_t at = text.find(fmt::format("// EXERCISE {} ", exercise));
    return at == std::string::npos
               ? 0
               : 1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<long>(at), '\n'));
}

void print_crash(const Outcome& outcome) {
    if (outcome.status == timed_out)
        fmt::print("gave up after {} s: a loop that never ends?\n", time_limit_seconds);
    else
        fmt::print("the test program ended with status {}; its output:\n{}\n", outcome.status,
                   read_file(outcome.log.string()));
}

/// Prints the exercises and the first failure, the lowest exercise first; the number of failures.
int print_cases(const Outcome& outcome, const std::string& file) {
    int failures = 0;
    const nlohmann::json* first = nullptr;
    for (const auto& test : outcome.cases) {
        const bool passed = test.at("passed");
        fmt::print("  {}  {}\n", passed ? "ok  " : "FAIL", test.at("case").get<std::string>());
        failures += !passed;
        if (!passed && !first) first = &test;
    }
    if (first) {
        const std::string name = first->at("case"), exercise = exercise_of(name);
        fmt::print("\n{}\n{}\n", name, indented(first->at("message")));
        if (!exercise.empty())
            fmt::print("\n  your code goes to {}:{}; a hint: ./ladder hint {}\n", file,
                       line_of(read_file(in_project(file)), exercise), exercise);
    }
    return failures;
}

/// Puts `text` into the learner's file; what was there is kept beside it unless it is a copy of something in the
/// project.
void replace_learners_file(const Chapter& chapter, const std::string& text) {
    const std::string path = in_project(chapter.file());
    const std::string old = fs::exists(path) ? read_file(path) : "";
    if (!old.empty() && old != text && old != starter_of(chapter) && old != read_file(in_project(chapter.solution()))) {
        int n = 1;
        while (fs::exists(fmt::format("{}.{}", path, n))) ++n;
        write_file(fmt::format("{}.{}", path, n), old);
        fmt::print("your version is kept as {}.{}\n", chapter.file(), n);
    }
    write_file(path, text);
}

}  // namespace

std::vector<Chapter> chapters() {
    std::vector<Chapter> found;
    for (const auto& entry : fs::directory_iterator(in_project("solutions")))
        if (entry.is_directory()) found.push_back({entry.path().filename().string()});
    std::sort(found.begin(), found.end(), [](const Chapter& a, const Chapter& b) { return a.name < b.name; });
    return found;
}

Chapter find_chapter(const std::string& name) {
    const auto all = chapters();
    const std::string padded = name.size() == 1 ? "0" + name : name;
    std::vector<std::string> names;
    for (const Chapter& chapter : all) {
        if (chapter.name == padded || chapter.number() == padded) return chapter;
        names.push_back(chapter.number());
    }
    throw std::invalid_argument(fmt::format("there is no chapter {} (there are {})", name, fmt::join(names, ", ")));
}

std::string starter_of(const Chapter& chapter) {
    return make_starter(read_file(in_project(chapter.solution())), "all");
}

int list_chapters() {
    for (const Chapter& chapter : chapters()) {
        const std::string solution = read_file(in_project(chapter.solution()));
        const std::string mine = fs::exists(in_project(chapter.file())) ? read_file(in_project(chapter.file())) : "";
        const std::string state = mine.empty()                    ? "missing (./ladder reset " + chapter.number() + ")"
                                  : mine == starter_of(chapter) ? "not begun"
                                  : mine == solution            ? "the solution"
                                                                : "yours";
        fmt::print("{:<26} {} exercises   {}\n", chapter.name, exercises(solution).size(), state);
    }
    return 0;
}

int test_chapter(const Chapter& chapter, const TestOptions& options) {
    const std::string target = (options.solution ? "rung-" : "chapter-") + chapter.number();
    const std::string file = options.solution ? chapter.solution() : chapter.file();
    check_is_there(chapter, file);
    if (!build_target(target, file)) return 1;
    fmt::print("{}\n", file);
    // The exercises first: while one is open, the rest cannot pass and only takes time.
    for (const char* filter : {"--test-case='EXERCISE*'", "--test-case-exclude='EXERCISE*'"}) {
        const Outcome outcome = run_tests(target, filter, options);
        if (outcome.status == needs_newer_gpu) {
            fmt::print("{}", read_file(outcome.log.string()));
            return 1;
        }
        if (options.verbose) fmt::print("{}", read_file(outcome.log.string()));
        const int failures = outcome.cases.is_array() ? print_cases(outcome, file) : 0;
        if (failures == 0 && outcome.status != 0) print_crash(outcome);
        if (outcome.status != 0) {
            fmt::print("\nseed {0}: --seed {0}{1} repeats this run\n", options.seed,
                       options.seeds > 1 ? fmt::format(" --seeds {}", options.seeds) : "");
            return 1;
        }
    }
    fmt::print("\nall green\n");
    return 0;
}

int run_with_chapter(const Chapter& chapter, const std::vector<std::string>& arguments) {
    constexpr const char* within = "LADDER_WITH_CHAPTER";
    if (std::getenv(within))
        throw std::runtime_error(fmt::format("{} registers no stage: its last lines should", chapter.file()));
    check_is_there(chapter, chapter.file());
    const std::string target = "mine-" + chapter.number();
    if (!build_target(target, chapter.file())) return 1;
    std::string command = fmt::format("{}=1 timeout {} {}", within, time_limit_seconds,
                                      quoted((build_folder() / "bin" / target).string()));
    for (const std::string& argument : arguments) command += fmt::format(" {}", quoted(argument));
    const int status = run_command(command);
    if (status == timed_out) fmt::print("gave up after {} s: a loop that never ends?\n", time_limit_seconds);
    return status;
}

int show_hint(const std::string& exercise) {
    const Chapter chapter = find_chapter(exercise.substr(0, exercise.find('.')));
    const auto known = exercises(read_file(in_project(chapter.solution())));
    const std::string wanted = fmt::format("{}{}", std::stoi(chapter.number()),
                                           exercise.substr(std::min(exercise.find('.'), exercise.size())));
    std::vector<std::string> ids;
    for (const Exercise& e : known) {
        ids.push_back(e.id);
        if (e.id != wanted) continue;
        fmt::print("{}  {}\n\n{}\n", e.id, e.statement,
                   hint(read_file(in_project("chapters/" + chapter.name + "/hints.md")), e.id));
        return 0;
    }
    throw std::invalid_argument(
        fmt::format("there is no exercise {} (chapter {} has {})", exercise, chapter.number(), fmt::join(ids, ", ")));
}

int solve_chapter(const Chapter& chapter) {
    replace_learners_file(chapter, read_file(in_project(chapter.solution())));
    fmt::print("{} is the solution now\n", chapter.file());
    return 0;
}

int reset_chapter(const Chapter& chapter) {
    replace_learners_file(chapter, starter_of(chapter));
    fmt::print("{} is the starter now\n", chapter.file());
    return 0;
}

}  // namespace flashladder
