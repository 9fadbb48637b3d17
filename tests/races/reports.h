// What the race detector says of a kernel, by several seeds.
#pragma once

#include <cstdint>
#include <string>

#include "mutants.h"

namespace flashladder {

constexpr int seeds = 10;  // that each kernel is run with

/// By one seed: the report, or "" and whether the result is right.
struct Outcome {
    std::string report;
    bool right = false;
    int lines[noted_lines] = {};

    /// What comes before the first colon of the report.
    std::string kind() const { return report.substr(0, report.find(':')); }
};
Outcome look_for_races(const SyncKernel& kernel, std::uint64_t seed);

/// True if the report is this one: its kind, its words, the lines that were noted in this run.
bool matches(const Verdict& verdict, const Outcome& outcome);

}  // namespace flashladder
