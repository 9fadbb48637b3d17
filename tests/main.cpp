// The main function of every test program: doctest's options, and
//   --seed=S            or LADDER_SEED: inputs and the emulator's order; without it a fresh one, which is printed
//   --seeds=K           or LADDER_SEEDS: runs everything K times, with seeds S, S + 1, ...
//   --expect-red=CASE   runs the test cases that match and succeeds if each fails, by an assertion and not otherwise; if
//                       one stays green, with the next seed, up to ten: not every input or order shows every mistake
//   --report=FILE       writes what became of each test case, for `ladder test`, by the first seed that fails, with
//                       which it ends, else by the last
// Ends with 77 and one line if the stages in the program need a newer GPU than this.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "harness/stage.h"
#include "harness/whole_number.h"
#include "test_seed.h"

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#endif

namespace flashladder {
namespace {

constexpr int skipped = 77;  // for ctest and `ladder test`
constexpr int most_seeds_until_red = 10;

std::uint64_t current_seed = 1;

struct CaseResult {
    std::string name;
    bool asserted = false;  // a check failed
    bool threw = false;     // or it crashed: no sign that a check would have failed
    std::string message;    // of the first failure
};
std::vector<CaseResult> results;

/// Notes what becomes of each test case, and starts each from the same seed whatever ran before it.
struct Notes : doctest::IReporter {
    explicit Notes(const doctest::ContextOptions&) {}

    void test_case_start(const doctest::TestCaseData& data) override {
        results.push_back({data.m_name, false, false, ""});
        reseed();
    }
    void test_case_reenter(const doctest::TestCaseData&) override { reseed(); }
    void log_assert(const doctest::AssertData& assertion) override {
        if (!assertion.m_failed) return;
        std::ostringstream text;
        for (int i = 0; i < get_num_active_contexts(); ++i) {
            if (i > 0) text << "\n";
            get_active_contexts()[i]->stringify(&text);
        }
        if (text.str().empty()) text << assertion.m_expr;
        note(results.back().asserted, text.str());
    }
    void test_case_exception(const doctest::TestCaseException& e) override {
        note(results.back().threw, e.error_string.c_str());
    }

    void report_query(const doctest::QueryData&) override {}
    void test_run_start() override {}
    void test_run_end(const doctest::TestRunStats&) override {}
    void test_case_end(const doctest::CurrentTestCaseStats&) override {}
    void subcase_start(const doctest::SubcaseSignature&) override {}
    void subcase_end() override {}
    void log_message(const doctest::MessageData&) override {}
    void test_case_skipped(const doctest::TestCaseData&) override {}

private:
    static void note(bool& flag, const std::string& message) {
        flag = true;
        if (results.back().message.empty()) results.back().message = message;
    }
    static void reseed() {
#ifndef FLASHLADDER_GPU
        emulator::reseed(current_seed);
#endif
    }
};

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
    bool all_red = !results.empty();
    for (const CaseResult& result : results) {
        const bool red = result.asserted && !result.threw;
        all_red &= red;
        fmt::print("{}: {}\n  {}\n",
                   red            ? "red, as expected"
                   : result.threw ? "FAILED WITHOUT A CHECK"
                                  : "STILL GREEN",
                   result.name, result.message);
    }
    if (results.empty()) fmt::print("NO TEST CASE matches {}\n", expected);
    return all_red ? 0 : 1;
}

/// A line for each case, which begins with "passed" or "FAILED", and its message below, indented.
void write_report(const std::string& path) {
    std::ofstream file(path);
    for (const CaseResult& r : results) {
        file << (r.asserted || r.threw ? "FAILED " : "passed ") << r.name << "\n";
        std::istringstream message(r.message);
        for (std::string line; std::getline(message, line);) file << "  " << line << "\n";
    }
}

}  // namespace

std::uint64_t test_seed() { return current_seed; }

int test_main(std::vector<char*> arguments) {
    const auto environment = [](const char* name, const char* otherwise) {
        const char* value = std::getenv(name);
        return std::string(value ? value : otherwise);
    };
    const std::string given = take_option(arguments, "seed", environment("LADDER_SEED", ""));
    const std::string times = take_option(arguments, "seeds", environment("LADDER_SEEDS", "1"));
    const std::string red = take_option(arguments, "expect-red", "");
    const std::string report = take_option(arguments, "report", "");
    std::uint64_t first = std::random_device()() % 1000000, seeds = 1;
    try {
        if (!given.empty()) first = whole_number("--seed", given);
        seeds = whole_number("--seeds", times);
        if (seeds == 0) throw std::invalid_argument("--seeds is 0");  // which would pass without a test
    } catch (const std::invalid_argument&) {
        fmt::print(stderr, "--seed (or LADDER_SEED) and --seeds take whole numbers, not '{}' and '{}'\n", given, times);
        return 2;
    }

    const auto needs_newer_gpu = [](const Stage& stage) { return !why_not_on_this_gpu(stage.supports).empty(); };
    if (!stages().empty() && std::ranges::all_of(stages(), needs_newer_gpu)) {
        fmt::print("{}\n", why_not_on_this_gpu(stages().front().supports));
        return skipped;
    }

    if (!red.empty()) seeds = most_seeds_until_red;
    int status = 0;
    for (std::uint64_t k = 0; k < seeds; ++k) {
        current_seed = first + k;
        results.clear();
        doctest::Context context(static_cast<int>(arguments.size()), arguments.data());
        std::ostringstream unwanted;
        if (!red.empty()) {
            context.addFilter("test-case", red.c_str());
            context.setOption("abort-after", 1);  // one failed check is enough
            context.setCout(&unwanted);  // doctest would shout about the failure that is wanted
        }
        int result = context.run();
        if (context.shouldExit()) return result;
        if (!red.empty()) result = judge_red(red);
        if (!report.empty()) write_report(report);
        if (result != 0) fmt::print("reproduce with LADDER_SEED={}\n", current_seed);
        if (!red.empty() && (result == 0 || std::ranges::any_of(results, &CaseResult::threw))) return result;
        if (red.empty() && !report.empty() && result != 0) return result;  // the report is of one seed: this one
        status |= result;
    }
    return status;
}

REGISTER_LISTENER("notes", 1, Notes);

}  // namespace flashladder

int main(int argc, char** argv) { return flashladder::test_main({argv, argv + argc}); }
