// The main function of every test program: doctest's options, and
//   --seed=S            or LADDER_SEED: inputs and the emulator's order; without it a fresh one, which is printed
//   --seeds=K           or LADDER_SEEDS: runs everything K times, with seeds S, S + 1, ...
//   --expect-red=CASE   runs the test cases that match and succeeds if each fails, by an assertion and not otherwise;
//   if
//                       one stays green, with the next seed, up to ten: not every input or order shows every mistake
//   --remarks=fail      a remark is a failure, as it is for --expect-red: of a solution
//   --report=FILE       writes what became of each test case, and why, for `ladder test`: by the first seed that fails,
//                       with which it ends, else by the last; of many combinations that are much alike it takes half
// Ends with 77 and one line if the stages in the program need a newer GPU than this.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#endif
#include "environment.h"
#include "harness/stage.h"
#include "harness/whole_number.h"
#include "notes.h"
#include "test_seed.h"

namespace flashladder {
namespace {

constexpr int skipped = 77;  // for ctest and `ladder test`
constexpr int most_seeds_until_red = 10;
[[maybe_unused]] constexpr int longest_launch = 30;  // seconds of the processor: the longest of any test takes some

std::uint64_t current_seed = 1;
bool somebody_waits = false;

/// The value of --name=value, which is taken out of the arguments; `otherwise` if it is not there.
std::string take_option(std::vector<char*>& arguments, const std::string& name, const std::string& otherwise) {
    const std::string start = "--" + name + "=";
    std::string value = otherwise;
    std::erase_if(arguments, [&](char* argument) {
        if (!std::string_view(argument).starts_with(start)) return false;
        value = argument + start.size();
        return true;
    });
    return value;
}

int judge_red(const std::string& expected) {
    bool all_red = !case_results().empty();
    for (const CaseResult& result : case_results()) {
        const bool red = (result.asserted || !result.remarks.empty()) && !result.threw;
        all_red &= red;
        fmt::print("{}: {}\n  {}\n",
                   red            ? "red, as expected"
                   : result.threw ? "FAILED WITHOUT A CHECK"
                                  : "STILL GREEN",
                   result.name, result.asserted || result.remarks.empty() ? result.message : result.remarks.front());
    }
    if (case_results().empty()) fmt::print("NO TEST CASE matches {}\n", expected);
    return all_red ? 0 : 1;
}

}  // namespace

std::uint64_t test_seed() { return current_seed; }

bool takes_combination(std::size_t i, std::size_t of) {
    if (!somebody_waits) return true;
    std::seed_seq drawn{current_seed / of, std::uint64_t(i)};
    return (std::mt19937(drawn)() + current_seed) % of == 0;
}

int test_main(std::vector<char*> arguments) {
    const std::string given = take_option(arguments, "seed", environment("LADDER_SEED", ""));
    const std::string times = take_option(arguments, "seeds", environment("LADDER_SEEDS", "1"));
    const std::string red = take_option(arguments, "expect-red", "");
    const std::string report = take_option(arguments, "report", "");
    const bool remarks_fail = take_option(arguments, "remarks", "") == "fail";
    std::uint64_t first = std::random_device()() % 1000000, seeds = 1;
    try {
        if (!given.empty()) first = whole_number("--seed", given);
        seeds = whole_number("--seeds", times);
        if (seeds == 0) throw std::invalid_argument("--seeds is 0");  // which would pass without a test
    } catch (const std::invalid_argument&) {
        fmt::print(stderr, "--seed (or LADDER_SEED) and --seeds take whole numbers, not '{}' and '{}'\n", given, times);
        return 2;
    }

    const auto needs_newer_gpu = [](const Stage& stage) { return !why_not_on_this_gpu(stage).empty(); };
    if (const std::vector<StageRef> all = stages(); !all.empty() && std::ranges::all_of(all, needs_newer_gpu)) {
        fmt::print("{}\n", why_not_on_this_gpu(all.front()));
        return skipped;
    }

#ifndef FLASHLADDER_GPU
    emulator::settings().longest_launch = longest_launch;
#endif
    look_for_causes(!report.empty());
    somebody_waits = !report.empty();
    if (!red.empty()) seeds = most_seeds_until_red;
    int status = 0;
    for (std::uint64_t k = 0; k < seeds; ++k) {
        current_seed = first + k;
        set_case_seed(current_seed);
        forget_cases();
        doctest::Context context(static_cast<int>(arguments.size()), arguments.data());
        std::ostringstream unwanted;
        if (!red.empty()) {
            context.addFilter("test-case", red.c_str());
            context.setOption("abort-after", 1);  // one failed check is enough
            context.setCout(&unwanted);           // doctest would shout about the failure that is wanted
        }
        int result = context.run();
        if (context.shouldExit()) return result;
        if (!red.empty()) result = judge_red(red);
        else if (remarks_fail &&
                 std::ranges::any_of(case_results(), [](const CaseResult& r) { return !r.remarks.empty(); }))
            result |= 1;
        if (!report.empty()) {
            write_report(report);
            const auto passed = [](const CaseResult& r) { return r.needs_variants || (!r.asserted && !r.threw); };
            if (std::ranges::all_of(case_results(), passed)) result = 0;  // a learner's program has no variants
        }
        if (result != 0) fmt::print("reproduce with LADDER_SEED={}\n", current_seed);
        if (!red.empty() && (result == 0 || std::ranges::any_of(case_results(), &CaseResult::threw))) return result;
        if (red.empty() && !report.empty() && result != 0) return result;  // the report is of one seed: this one
        status |= result;
    }
    return status;
}

}  // namespace flashladder

int main(int argc, char** argv) { return flashladder::test_main({argv, argv + argc}); }
