#include "test.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "blame.h"
#include "exercises.h"
#include "files.h"
#include "harness/project_root.h"
#include "harness/whole_number.h"
#include "list.h"
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

/// A test case and what became of it, as tests/notes.h has it.
struct Case {
    std::string name;
    bool passed = false, ran = false, needs_variants = false;
    std::string asked, message, cause;  // of the first failure
    std::vector<std::string> remarks;

    bool failed() const { return !passed && !needs_variants; }
};

/// What became of one run of a test program.
struct Outcome {
    int status = 0;
    std::vector<Case> cases;
    fs::path log;
};

/// The report that tests/notes.cpp writes; nothing if it came to none.
std::vector<Case> cases_of(const fs::path& report) {
    std::vector<Case> cases;
    if (!fs::exists(report)) return cases;
    for (const auto& c : nlohmann::json::parse(read_file(report.string())))
        cases.push_back({c.at("name"), c.at("passed"), c.at("ran"), c.at("needs_variants"), c.at("asked"), c.at("message"),
                         c.at("cause"), c.at("remarks")});
    return cases;
}

std::string command_of(const std::string& program, const std::string& filter) {
    // --foreground: who ends us ends the program too, which is of the same process group then
    return fmt::format("cd {} && timeout --foreground {} {} {}", quoted(project_root()), time_limit_seconds,
                       quoted((build_folder() / "bin" / program).string()), filter);
}

/// Runs the test cases that pass the filter; `part` tells their files from those of others that run beside them.
Outcome run_tests(const std::string& program, const std::string& filter, const TestOptions& options, int part) {
    const fs::path report = build_folder() / fmt::format("{}-report-{}.json", program, part);
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

/// What a program said that ended without a failed test case.
void print_crash(const Outcome& outcome) {
    if (outcome.status == timed_out)
        fmt::print("gave up after {} s: a loop that never ends?\n", time_limit_seconds);
    else
        fmt::print("the test program ended with status {}; its output:\n{}\n", outcome.status,
                   read_file(outcome.log.string()));
}

/// Whether a launch has not come to its end.
bool never_ends(const Case& test) { return test.message.find("endless: ") != std::string::npos; }
bool never_ends(const Outcome& outcome) {
    return outcome.status == timed_out || std::ranges::any_of(outcome.cases, [](const Case& c) { return never_ends(c); });
}

/// Runs the test cases of a filter, on all cores, and calls visit(outcome) in their order. Once one has shown that the
/// kernel never ends, the others are left out: nobody should wait for each.
template <class Visit>
void run_all(const std::string& program, const std::string& filter, const TestOptions& options, Visit visit) {
    const int parts = parts_of(program, filter);
    std::vector<std::promise<Outcome>> outcomes(static_cast<std::size_t>(parts));
    std::atomic<int> next = 0;
    std::atomic<bool> endless = false;
    std::vector<std::jthread> runners;
    const int most = std::min(parts, std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
    for (int i = 0; i < most; ++i)
        runners.emplace_back([&] {
            for (int part; (part = next++) < parts;) {
                const std::string only = parts == 1 ? "" : fmt::format(" --first={0} --last={0}", part + 1);
                Outcome outcome = endless ? Outcome{} : run_tests(program, filter + only, options, part);
                if (never_ends(outcome)) endless = true;
                outcomes[static_cast<std::size_t>(part)].set_value(std::move(outcome));
            }
        });
    for (auto& promise : outcomes) visit(promise.get_future().get());
}

std::string indented(const std::string& text) {
    std::string result;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
        if (!line.empty()) result += fmt::format("  {}\n", line);
    return result;
}

void print_line(const Case& test, const TestOptions& options) {
    const char* why_not = test.needs_variants            ? " (needs the solution's variants)"
                          : !test.ran && test.passed ? " (not of this rung)"
                                                         : "";
    fmt::print("  {}  {}{}\n", test.failed() ? "FAIL" : *why_not ? "-   " : "ok  ", test.name, why_not);
    for (const std::string& remark : test.remarks) fmt::print("        remark: {}\n", remark);
    if (!test.failed() || options.watched) return;  // a screen has room for one failure, which comes at the end
    const std::string what = first_line(test.cause.empty() ? test.message : test.cause);
    const std::string sizes =
        test.asked.substr(0, test.asked.find(','));  // behind it, what tests say in words of theirs
    fmt::print("        {}{}\n", what,
               sizes.empty() || what.find(sizes) != std::string::npos ? "" : fmt::format(" ({})", test.asked));
}

/// Under which exercise a failure is told, with what its test says of it. Under none if it comes from what lies outside
/// them, or if nobody knows.
struct Verdict {
    std::string exercise;
    Case told;
    bool outside = false;
};

/// Test cases of these names; doctest takes a comma for the end of one.
std::string filter_of(const std::vector<Case>& cases) {
    std::string names;
    for (const Case& test : cases) names += fmt::format("{}{}", names.empty() ? "" : ",", test.name);
    for (const Case& test : cases) {
        const std::size_t at = names.find(test.name);
        std::replace(names.begin() + static_cast<long>(at), names.begin() + static_cast<long>(at + test.name.size()),
                     ',', '?');
    }
    return fmt::format("--test-case={}", flashladder::quoted(names));
}

/// A learner's chapter, whose failures are to be told.
class Learner {
public:
    Learner(const Chapter& chapter, const TestOptions& options)
        : chapter_(chapter),
          options_(options),
          text_(read_file(project_root() + "/" + chapter.file())),
          solution_(read_file(project_root() + "/" + chapter.solution())),
          answers_(answers(text_, starter_of(chapter))),
          edited_outside_(changed_outside(text_, starter_of(chapter))) {}

    const Answer* answer(const std::string& id) const {
        const auto found = std::ranges::find(answers_, id, &Answer::id);
        return found == answers_.end() ? nullptr : &*found;
    }

    /// Which exercise `failed` is told under, and how. `filter` is that of the test cases that were run.
    Verdict judge(const std::vector<Case>& failed, const std::string& filter) const {
        std::vector<std::string> suspects;  // the likeliest first
        bool only_outside = edited_outside_;  // are lines of their file that reports name
        const auto suspect = [&](const std::string& id) {
            const Answer* theirs = answer(id);
            if (theirs && !theirs->open && !std::ranges::count(suspects, id)) suspects.push_back(id);
        };
        for (const Case& test : failed)
            for (const std::string& text : {test.cause, test.message}) {
                const std::vector<std::string> named = named_in(text, chapter_.file(), answers_);
                for (const std::string& id : named) suspect(id);
                only_outside &= named.empty();
            }
        for (const Case& test : failed) suspect(exercise_of(test.name));
        for (const Answer& theirs : answers_) suspect(theirs.id);

        const Case& lowest = failed.front();
        const std::string exercise = exercise_of(lowest.name);
        // To try each answer alone would take as long again.
        if (never_ends(lowest))
            if (const auto named = named_in(lowest.message, chapter_.file(), answers_); !named.empty())
                return {named.front(), lowest};
        // Nobody else can be guilty; or all that comes before is right as far as its own tests say.
        const bool last_begun = !suspects.empty() && exercise == std::ranges::max(suspects);
        if (!edited_outside_ && (suspects.empty() || (last_begun && suspects.front() == exercise)))
            return {exercise, lowest};
        if (edited_outside_)
            if (const std::optional<Case> told = try_alone("", filter, &failed)) {
                // In their own file it names their lines, which in a trial are the solution's.
                const auto theirs = std::ranges::find(failed, told->name, &Case::name);
                return {"", theirs == failed.end() ? *told : *theirs, true};
            }
        for (const std::string& id : suspects)
            if (const std::optional<Case> told = try_alone(id, filter)) return {id, *told};
        // Not every order of threads shows it.
        const bool names_lines = (lowest.cause + lowest.message).find(chapter_.file()) != std::string::npos;
        if (only_outside && names_lines) return {"", lowest, true};
        // Nor can all of the suite be tried with one answer alone: then the line that a report names says whose it is.
        if (exercise.empty())
            if (const auto named = named_in(lowest.cause + lowest.message, chapter_.file(), answers_); !named.empty())
                return {named.front(), lowest};
        return {exercise, lowest};
    }

private:
    /// Whether of two failures that an exercise is guilty of the first tells more: a line of the answer, or, where both or
    /// neither name one, the exercise's own test.
    bool says_more(const Case& now, const Case& before, const std::string& id) const {
        const auto rank = [&](const Case& test) {
            const std::vector<std::string> named = named_in(test.cause + test.message, chapter_.file(), answers_);
            return std::pair(std::ranges::count(named, id) > 0, exercise_of(test.name) == id);
        };
        return rank(now) > rank(before);
    }

    /// What fails with this answer alone, if anything does: nothing if the kernel cannot be put together. With `of_theirs`,
    /// nothing either if a test fails that is green with all of theirs: then what was changed outside belongs to an answer.
    std::optional<Case> try_alone(const std::string& id, const std::string& filter,
                                  const std::vector<Case>* of_theirs = nullptr) const {
        const std::string program = fmt::format("trial-{}", chapter_.number());
        const fs::path file = build_folder() / "trials" / (chapter_.number() + ".cu");
        const Trial trial = trial_of(text_, solution_, id);
        write_file(file.string(), trial.text);
        if (!try_to_build(program)) return {};
        std::optional<Case> told;
        bool only_theirs = true;
        run_all(program, filter, options_, [&](const Outcome& outcome) {
            for (const Case& test : outcome.cases) {
                only_theirs &= !test.failed() || !of_theirs || std::ranges::count(*of_theirs, test.name, &Case::name) > 0;
                if (!test.failed()) continue;
                Case now = test;
                for (std::string* text : {&now.message, &now.cause})
                    *text = with_learners_lines(*text, fmt::format("trials/{}.cu", chapter_.number()), trial,
                                                chapter_.file());
                if (!told || says_more(now, *told, id)) told = now;
            }
        });
        return only_theirs ? told : std::nullopt;
    }

    Chapter chapter_;
    TestOptions options_;
    std::string text_, solution_;
    std::vector<Answer> answers_;
    bool edited_outside_;
};

/// The lines of a file that exercises are, markers included, counted from 1.
std::vector<bool> lines_of_exercises(const std::string& file) {
    std::vector<bool> is_one{false};
    std::ifstream text(fs::path(project_root()) / file);
    bool inside = false;
    for (std::string line; std::getline(text, line);) {
        inside |= line.find("// EXERCISE ") != std::string::npos;
        is_one.push_back(inside);
        if (line.find("// END ") != std::string::npos) inside = false;
    }
    return is_one;
}

/// The place in a file that a report is about, "chapters/.../attention.cu:17": where the kernel was, or else the first
/// that it names; "" if it names none. If that is a function which is given, the exercise's line that has called it. A line
/// that was the solution's when it happened is that only where there is no other of an exercise.
std::string place_in(const std::string& report, const std::string& file) {
    const std::size_t where = std::min(report.find("\n  source "), report.size());
    const auto end_of = [&](std::size_t at) { return report.find_first_not_of("0123456789", at + file.size() + 1); };
    const auto place_at = [&](std::size_t at) { return report.substr(at, end_of(at) - at); };
    const std::vector<bool> is_of_exercise = lines_of_exercises(file);
    for (const std::size_t from : {where, std::size_t(0)})
        for (std::size_t at = report.find(file + ":", from); at != std::string::npos; at = report.find(file + ":", at + 1)) {
            const auto line = std::size_t(std::atoi(report.c_str() + at + file.size() + 1));
            const auto behind = std::string_view(report).substr(std::min(end_of(at), report.size()));
            const bool was_solved = behind.starts_with(instead_of_theirs);
            if (line < is_of_exercise.size() && is_of_exercise[line] && !was_solved) return place_at(at);
        }
    std::size_t at = report.find(file + ":", where);
    if (at == std::string::npos) at = report.find(file + ":");
    return at == std::string::npos ? "" : place_at(at);
}

/// The cause first, as compilers say it: numbers that a race has made say nothing. `guilty` is the exercise that it comes from.
void print_failure(const Case& told, const std::string& file, const std::string& guilty = "") {
    const std::string exercise = exercise_of(told.name);
    if (guilty.empty() || guilty == exercise)
        fmt::print("\n{}\n", told.name);
    else if (exercise.empty())
        fmt::print("\nEXERCISE {}, by the test: {}\n", guilty, told.name);
    else
        fmt::print("\nEXERCISE {}, by the test of {}\n", guilty, told.name.substr(told.name.find(exercise)));
    const std::string& what = told.cause.empty() ? told.message : told.cause;
    print_report(what, file);
    const std::string first = first_line(what), kind = first.substr(0, first.find(':') + 1);
    if (!told.cause.empty() && told.message.find(kind) == std::string::npos)
        fmt::print("  and so\n{}", indented(told.message));
}

/// Whether a message is about what a kernel asks for, of which `profile` knows the lines. A GPU counts nothing.
[[maybe_unused]] bool is_about_work(const Case& told) {
    return told.cause.empty() && std::ranges::any_of(std::array{"wavefronts", "sectors", "bytes that", "bytes read"},
                                                     [&](const char* words) {
                                                         return told.message.find(words) != std::string::npos;
                                                     });
}

/// Under the exercise that is guilty. Returns where it is red, for `ladder list`.
std::string tell(const Chapter& chapter, const std::vector<Case>& failed, [[maybe_unused]] const std::string& filter,
                 const TestOptions& options) {
    if (options.solution) return print_failure(failed.front(), chapter.solution()), "red";
#ifdef FLASHLADDER_GPU
    print_failure(failed.front(), chapter.file());
    return "red";
#else
    const Learner learner(chapter, options);
    const Verdict verdict = learner.judge(failed, filter);
    print_failure(verdict.told, chapter.file(), verdict.exercise);
    const Answer* guilty = learner.answer(verdict.exercise);
    if (!guilty) {
        if (verdict.outside) fmt::print("\n  it comes from a change outside the exercises\n");
        return "red outside the exercises";
    }
    std::string affected, open;
    for (const Case& test : failed) {
        const std::string id = exercise_of(test.name);
        if (id.empty() || id == verdict.exercise || !learner.answer(id)) continue;
        std::string& which = learner.answer(id)->open ? open : affected;
        if (which.find(id) == std::string::npos) which += fmt::format("{}{}", which.empty() ? "" : ", ", id);
    }
    if (is_about_work(verdict.told)) fmt::print("\n  which lines ask for it: ./ladder profile {} --mine\n", chapter.number());
    if (!affected.empty()) fmt::print("\n  also affected: {}\n", affected);
    if (!open.empty()) fmt::print("\n  also red, and not begun: {}\n", open);
    fmt::print("\n  your code {} {}:{}; {}\n", guilty->open ? "goes to" : "is at", chapter.file(), guilty->first,
               chapter.is_capstone() ? "its contract: " + chapter.lesson() : "a hint: ./ladder hint " + guilty->id);
    const std::vector<std::string> hints = hints_of(chapter, guilty->id);
    if (options.watched && !hints.empty()) fmt::print("  it begins: {}\n", first_line(hints.front()));
    return "red at " + guilty->id;
#endif
}

/// What became of a program's test cases: a status, 0 if all are green, and a few words for `ladder list`.
struct Result {
    int status = 0;
    std::string words;
};

/// Runs the test cases of a filter and prints each as it comes; then the first failure.
Result run_and_print(const std::string& program, const std::string& filter, const Chapter& chapter,
                     const TestOptions& options) {
    std::optional<Outcome> first;
    std::vector<Case> failed;
    int status = 0;
    run_all(program, filter, options, [&](const Outcome& outcome) {
        if (status == needs_newer_gpu) return;
        if (options.verbose || outcome.status == needs_newer_gpu) fmt::print("{}", read_file(outcome.log.string()));
        if (outcome.status == needs_newer_gpu) {
            status = outcome.status;
            return;
        }
        for (const Case& test : outcome.cases) {
            if (!options.watched || test.failed() || filter == exercises_alone) print_line(test, options);
            if (test.failed()) failed.push_back(test);
        }
        std::fflush(stdout);
        if (outcome.status != 0 && !first) first = outcome;
    });
    if (status != 0) return {status, ""};
    if (!first) return {0, "green"};
    std::string words = "red";
    if (failed.empty())
        print_crash(*first);
    else
        words = tell(chapter, failed, filter == exercises_alone ? filter : filter_of(failed), options);
    if (never_ends(*first)) fmt::print("\n  test cases that had not begun by then were not run\n");
    if (options.watched)
        fmt::print("\nseed {0}: ./ladder test {1} --seed {0} repeats this run\n", options.seed, chapter.number());
    else
        fmt::print("\nseed {0}: --seed {0}{1} repeats this run; --verbose prints all that the tests say\n",
                   options.seed, options.seeds > 1 ? fmt::format(" --seeds {}", options.seeds) : "");
    return {first->status, words};
}

#ifdef FLASHLADDER_GPU
/// A GPU gives numbers, and may be lucky; the emulator knows who has raced with whom, what each access costs, and whose
/// answer is guilty. Both have to be green.
Result also_on_the_emulator(const Chapter& chapter, const TestOptions& options, const Result& here) {
    fmt::print("\nThe same chapter on the emulator, which sees races, counts, and knows the guilty exercise:\n\n");
    std::fflush(stdout);
    const int status =
        run_command(fmt::format("{} test {} --backend cpu --seed {} --seeds {}", quoted(project_root() + "/ladder"),
                                chapter.number(), options.seed, options.seeds));
    if (here.status != 0 && status == 0)
        fmt::print("There it is right. So it is the order of things on this GPU: --seeds 20 draws others.\n");
    return here.status != 0 || status == 0 ? here : Result{1, "red on the emulator"};
}
#endif

/// Builds a program of the file; if that fails, says so.
bool built(const std::string& program, const std::string& file, const TestOptions& options) {
    return options.watched ? build_or_first_error(program, file) : build_target(program, file);
}

Result test_here(const Chapter& chapter, const TestOptions& options) {
    const std::string file = options.solution ? chapter.solution() : chapter.file();
    const std::string whole = (options.solution ? "rung-" : "chapter-") + chapter.number();
    const std::string quick = options.solution ? whole : "exercises-" + chapter.number();
    if (!built(quick, file, options)) return {1, "does not compile"};
    if (!options.watched) fmt::print("{}\n", file);
    std::fflush(stdout);
    // While the exercises run, the program for all else is built.
    const BackgroundBuild build(whole);
    if (const Result exercises = run_and_print(quick, exercises_alone, chapter, options); exercises.status != 0)
        return exercises;
    if (options.watched) fmt::print("\nthe exercises are green; now all else\n"), std::fflush(stdout);
    if (!build.wait() && !built(whole, file, options)) return {1, "does not compile"};
    const Result rest = run_and_print(whole, all_but_exercises, chapter, options);
    if (rest.status == 0) fmt::print("\nall green\n");
    return rest;
}

Result test_file(const Chapter& chapter, const TestOptions& options) {
    const Result here = test_here(chapter, options);
#ifdef FLASHLADDER_GPU
    if (!options.solution && (here.words == "green" || here.words == "red"))
        return also_on_the_emulator(chapter, options, here);
#endif
    return here;
}

}  // namespace

std::string told_report(const std::string& report, const std::string& file) {
    const std::string place = place_in(report, file), first = first_line(report);
    std::string text = place.empty() ? fmt::format("  {}\n", first) : fmt::format("  {}: {}\n", place, first);
    // Of an exercise whose answer was the solution's when it happened, the place is its marker.
    if (const std::string line = place.empty() ? "//" : source_line(place, whole_line); !line.starts_with("//"))
        text += fmt::format("      {}\n", line);
    return text + indented(report.substr(first.size()));
}

void print_report(const std::string& report, const std::string& file) { fmt::print("{}", told_report(report, file)); }

int test_chapter(const Chapter& chapter, const TestOptions& options) {
    if (options.solution) return test_file(chapter, options).status == 0 ? 0 : 1;
    const std::string text = text_to_build(chapter);
    const Result result = test_file(chapter, options);
    // A save meanwhile: which of the two texts was tested?
    const bool same = read_file(project_root() + "/" + chapter.file()) == text;
    remember_result(chapter, text, same ? result.words : "");
    return result.status == 0 ? 0 : 1;
}

}  // namespace flashladder
