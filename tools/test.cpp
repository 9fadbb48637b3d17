#include "test.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "files.h"
#include "harness/inputs.h"
#include "harness/whole_number.h"
#include "programs.h"

namespace flashladder {
namespace {

namespace fs = std::filesystem;

constexpr int time_limit_seconds = 300;
constexpr int timed_out = 124;       // what timeout(1) exits with
constexpr int needs_newer_gpu = 77;  // what a test program exits with, having said so

/// The test cases that a program is asked for.
constexpr const char* exercises_alone = "--test-case='EXERCISE*'";
constexpr const char* all_but_exercises = "--test-case-exclude='EXERCISE*'";

struct Case {
    bool passed;
    std::string name, message;  // of the first failure, its lines indented
};

/// What became of one run of a test program.
struct Outcome {
    int status = 0;
    std::vector<Case> cases;
    fs::path log;
};

/// The report that tests/main.cpp writes; nothing if it came to none.
std::vector<Case> cases_of(const fs::path& report) {
    std::vector<Case> cases;
    std::ifstream file(report);
    for (std::string line; std::getline(file, line);) {
        constexpr std::size_t word = std::string_view("passed ").size();
        if (!line.starts_with("  "))
            cases.push_back({line.starts_with("passed"), line.substr(std::min(word, line.size())), ""});
        else if (!cases.empty())
            cases.back().message += line + "\n";
    }
    return cases;
}

std::string command_of(const std::string& program, const std::string& filter) {
    return fmt::format("cd {} && timeout {} {} {}", quoted(project_root()), time_limit_seconds,
                       quoted((build_folder() / "bin" / program).string()), filter);
}

/// Runs the test cases that pass the filter; `part` tells their files from those of others that run beside them.
Outcome run_tests(const std::string& program, const std::string& filter, const TestOptions& options, int part) {
    const fs::path report = build_folder() / fmt::format("{}-report-{}.txt", program, part);
    Outcome outcome{0, {}, build_folder() / fmt::format("{}-test-{}.log", program, part)};
    fs::remove(report);
    outcome.status = run_logged(fmt::format("{} --report={} --seeds={} --seed={}", command_of(program, filter),
                                            quoted(report.string()), options.seeds, options.seed),
                                outcome.log);
    outcome.cases = cases_of(report);
    return outcome;
}

/// How many runs a program's cases are worth: on the emulator one for each, so that all cores take part. A GPU is one.
int parts_of([[maybe_unused]] const std::string& program, [[maybe_unused]] const std::string& filter) {
#ifdef FLASHLADDER_GPU
    return 1;
#else
    const std::string count = first_line_of(command_of(program, filter) + " --count | grep -oE '[0-9]+$'");
    return count.empty() ? 1 : std::max(1, static_cast<int>(whole_number("the number of test cases", count)));
#endif
}

/// "1.2" of "EXERCISE 1.2: merging"; "" for another test case.
std::string exercise_of(const std::string& test_case) {
    const std::string start = "EXERCISE ";
    if (!test_case.starts_with(start)) return "";
    return test_case.substr(start.size(), test_case.find(':') - start.size());
}

/// Line of the file in which an exercise begins, or 0.
int line_of(const std::string& text, const std::string& exercise) {
    const std::size_t at = text.find(fmt::format("// EXERCISE {} ", exercise));
    return at == std::string::npos
               ? 0
               : 1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<long>(at), '\n'));
}

/// What a program said that ended without a failed test case.
void print_crash(const Outcome& outcome) {
    if (outcome.status == timed_out)
        fmt::print("gave up after {} s: a loop that never ends?\n", time_limit_seconds);
    else
        fmt::print("the test program ended with status {}; its output:\n{}\n", outcome.status,
                   read_file(outcome.log.string()));
}

/// Runs the test cases of a filter, on all cores, and prints each as it comes, in their order; then the first failure, the
/// lowest exercise first. Returns the status of that one, or 0.
int run_and_print(const std::string& program, const std::string& filter, const std::string& file,
                  const TestOptions& options) {
    const int parts = parts_of(program, filter);
    std::vector<std::promise<Outcome>> outcomes(static_cast<std::size_t>(parts));
    std::atomic<int> next = 0;
    std::vector<std::jthread> runners;
    const int most = std::min(parts, std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
    for (int i = 0; i < most; ++i)
        runners.emplace_back([&] {
            for (int part; (part = next++) < parts;) {
                const std::string only = parts == 1 ? "" : fmt::format(" --first={0} --last={0}", part + 1);
                outcomes[static_cast<std::size_t>(part)].set_value(run_tests(program, filter + only, options, part));
            }
        });

    std::optional<Outcome> first;
    for (auto& promise : outcomes) {
        const Outcome outcome = promise.get_future().get();
        if (options.verbose || outcome.status == needs_newer_gpu) fmt::print("{}", read_file(outcome.log.string()));
        if (outcome.status == needs_newer_gpu) return outcome.status;
        for (const Case& test : outcome.cases) fmt::print("  {}  {}\n", test.passed ? "ok  " : "FAIL", test.name);
        std::fflush(stdout);
        if (outcome.status != 0 && !first) first = outcome;
    }
    if (!first) return 0;
    const auto failed = std::ranges::find_if(first->cases, [](const Case& test) { return !test.passed; });
    if (failed == first->cases.end()) {
        print_crash(*first);
    } else {
        fmt::print("\n{}\n{}", failed->name, failed->message);
        if (const std::string exercise = exercise_of(failed->name); !exercise.empty())
            fmt::print("\n  your code goes to {}:{}; a hint: ./ladder hint {}\n", file,
                       line_of(read_file(project_root() + "/" + file), exercise), exercise);
    }
    fmt::print("\nseed {0}: --seed {0}{1} repeats this run\n", options.seed,
               options.seeds > 1 ? fmt::format(" --seeds {}", options.seeds) : "");
    return first->status;
}

}  // namespace

int test_chapter(const Chapter& chapter, const TestOptions& options) {
    const std::string file = options.solution ? chapter.solution() : chapter.file();
    const std::string whole = (options.solution ? "rung-" : "chapter-") + chapter.number();
    const std::string quick = options.solution ? whole : "exercises-" + chapter.number();
    if (!options.solution) check_is_there(chapter);
    if (!build_target(quick, file)) return 1;
    fmt::print("{}\n", file);
    std::fflush(stdout);
    // While the exercises run, the program for all else is built.
    const BackgroundBuild build(whole);
    if (run_and_print(quick, exercises_alone, file, options) != 0) return 1;
    if (!build.wait() && !build_target(whole, file)) return 1;
    if (run_and_print(whole, all_but_exercises, file, options) != 0) return 1;
    fmt::print("\nall green\n");
    return 0;
}

}  // namespace flashladder
