// What becomes of each test case: for --expect-red, and for `ladder test`, which tells it to a learner.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace flashladder {

struct CaseResult {
    std::string name;
    bool ran = false;       // something was checked: a rung without masks has nothing to check of them
    bool asserted = false;  // a check failed
    bool threw = false;     // or it crashed: no sign that a check would have failed
    bool needs_variants = false;  // it came to a variant, which this program was compiled without, and nothing before failed
    // Of the first failure:
    std::string asked;    // the shape that the stage was last asked to compute; "" if none was
    std::string message;  // with what was found and expected
    std::string cause;    // what the emulator says when it computes the same again and looks for races; "" if nothing
    std::vector<std::string> remarks;  // of right code, by WARN_MESSAGE: it does more than is needed
};

/// Those of the last run, in its order.
const std::vector<CaseResult>& case_results();
void forget_cases();

/// Whether a failed check is followed by a second look, for races: `cause`.
void look_for_causes(bool look);

/// Decides the order of the emulator from the start of each test case on, whatever ran before it.
void set_case_seed(std::uint64_t seed);

/// Writes the results as JSON, as tools/ladder/test.cpp reads them.
void write_report(const std::string& path);

}  // namespace flashladder
