#include "notes.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/asked.h"

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#endif

namespace flashladder {
namespace {

std::vector<CaseResult> results;
std::uint64_t case_seed = 1;
bool looks_for_causes = false;

void reseed() {
#ifndef FLASHLADDER_GPU
    emulator::reseed(case_seed);
#endif
}

/// "found 3, expected 4 (tiles)" of CHECK(tiles == 4); of another comparison what it says, with its values.
std::string found_and_expected(const std::string& expression, const std::string& values) {
    const std::string equal = " == ";
    const std::size_t at = values.find(equal), sides = expression.find(equal);
    if (at == std::string::npos || sides == std::string::npos) return fmt::format("{} is {}", expression, values);
    return fmt::format("found {}, expected {} ({})", values.substr(0, at), values.substr(at + equal.size()),
                       expression.substr(0, sides));
}

/// The innermost first: a check's own message, behind which stands where it was made.
std::string with_contexts(std::string text) {
    for (int i = doctest::IReporter::get_num_active_contexts(); i-- > 0;) {
        std::ostringstream context;
        doctest::IReporter::get_active_contexts()[i]->stringify(&context);
        text += fmt::format("{}{}", text.empty() ? "" : "\n", context.str());
    }
    return text;
}

std::string message_of(const doctest::AssertData& assertion) {
    std::string text;
    if (assertion.m_threw) {
        text = assertion.m_exception.c_str();
    } else if (const std::string values = assertion.m_decomp.c_str();
               values != "" && values != "true" && values != "false" && values.find("{?}") == values.npos) {
        text = found_and_expected(assertion.m_expr, values);
    }
    text = with_contexts(text);
    return text.empty() ? assertion.m_expr : text;
}

/// What the launch of a variant says in a program that has none: operations/attention/launch_forward.h.
constexpr const char* without_variants = "compiled without variants";

/// A report that needs no other cause: the numbers of an index or the way to a barrier are seldom made by a race, but a
/// thread that is where it should not be often races too.
bool says_why(const std::string& message) {
    return std::ranges::any_of(std::array{"out of bounds: ", "misaligned: ", "a barrier not reached by all: ", "endless: ",
                                          "too early: ", without_variants},
                               [&](const char* words) { return message.find(words) != std::string::npos; });
}

/// What is wrong with the kernel that the stage ran last: numbers that a race has made say nothing.
std::string find_cause() {
#ifndef FLASHLADDER_GPU
    const Asked* asked = last_asked();
    if (!asked || !asked->again) return "";  // looking for races takes several times as long; 10 s for the slowest rung
    const std::function<void()> again = asked->again;
    try {
        return emulator::find_race(again);
    } catch (const std::exception&) {
        return "";  // the stage refuses it
    }
#else
    return "";
#endif
}

struct Notes : doctest::IReporter {
    explicit Notes(const doctest::ContextOptions&) {}

    void test_case_start(const doctest::TestCaseData& data) override {
        results.emplace_back().name = data.m_name;
        forget_asked();
        reseed();
    }
    void test_case_reenter(const doctest::TestCaseData&) override { reseed(); }
    void log_assert(const doctest::AssertData& assertion) override {
        if (!assertion.m_failed) return;
        if (assertion.m_at & doctest::assertType::is_warn)
            return results.back().remarks.push_back(message_of(assertion));
        note(message_of(assertion));
        results.back().asserted = true;
    }
    void log_message(const doctest::MessageData& message) override {  // FAIL and FAIL_CHECK assert, too
        if (message.m_severity & doctest::assertType::is_warn) return;
        note(with_contexts(message.m_string.c_str()));
        results.back().asserted = true;
    }
    void test_case_exception(const doctest::TestCaseException& e) override {
        note(e.error_string.c_str());
        results.back().threw = true;
    }
    void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
        results.back().needs_variants = results.back().message.find(without_variants) != std::string::npos;
        results.back().ran = stats.numAssertsCurrentTest > 0 || results.back().threw;
    }

    void report_query(const doctest::QueryData&) override {}
    void test_run_start() override {}
    void test_run_end(const doctest::TestRunStats&) override {}
    void subcase_start(const doctest::SubcaseSignature&) override {}
    void subcase_end() override {}
    void test_case_skipped(const doctest::TestCaseData&) override {}

private:
    static void note(const std::string& message) {
#ifndef FLASHLADDER_GPU
        if (message.find("endless: ") != std::string::npos)  // nor will other launches end, and nobody should wait for each
            emulator::settings().longest_launch = std::min(emulator::settings().longest_launch, 3);
#endif
        CaseResult& result = results.back();
        if (result.asserted || result.threw) return;
        result.message = message;
        if (const Asked* asked = last_asked()) result.asked = asked->problem;
        if (looks_for_causes && !says_why(message)) result.cause = find_cause();
    }
};

REGISTER_LISTENER("notes", 1, Notes);

}  // namespace

const std::vector<CaseResult>& case_results() { return results; }
void forget_cases() { results.clear(); }
void look_for_causes(bool look) { looks_for_causes = look; }
void set_case_seed(std::uint64_t seed) { case_seed = seed; }

void write_report(const std::string& path) {
    nlohmann::json cases = nlohmann::json::array();
    for (const CaseResult& r : results)
        cases.push_back({{"name", r.name},
                         {"passed", !r.asserted && !r.threw},
                         {"ran", r.ran},
                         {"needs_variants", r.needs_variants},
                         {"asked", r.asked},
                         {"message", r.message},
                         {"cause", r.cause},
                         {"remarks", r.remarks}});
    std::ofstream(path) << cases.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

}  // namespace flashladder
