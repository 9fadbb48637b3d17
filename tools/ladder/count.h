// `ladder count`: the work that the emulator counts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#ifndef FLASHLADDER_GPU
#include <nlohmann/json.hpp>

#include "emulator/emulator.h"
#include "harness/counts.h"
#include "table.h"
#endif

namespace flashladder {

struct CountOptions {
    std::vector<std::string> rungs;  // "13", "13-lean-softmax"; none: all. Only for the table
    std::string json;   // where to write the results; "" for nowhere
    std::string check;  // a result file; its counts must be what is counted now; "" for none
    std::size_t sample = 0;  // of `check`, so many rows alone, drawn; 0 for all
};

/// Counts what every rung, or each of those that are named, does on a few fixed problems. Returns the exit status: 1 if `check` is stale.
int count_rungs(const CountOptions& options);

/// The table of it for a small problem, and a row of each rung in `results`. Nothing on a GPU.
void print_counted_work(nlohmann::json& results);

#ifndef FLASHLADDER_GPU
/// The same problem in the first dtype that the stage supports, and with the shared memory that a block has if nobody says
/// otherwise.
CountedProblem for_stage(const Stage& stage, CountedProblem problem);
StageCounts count(const Stage& stage, const CountedProblem& problem, std::uint64_t seed);
/// A row of a result file.
nlohmann::json row_of(const Stage& stage, const CountedProblem& problem, const StageCounts& counts);

/// The part of the wavefronts that bank conflicts cost.
double conflict_share(const emulator::SharedWork& work);
/// "78%", and "0.25" or, where b is 0, "".
std::string percent(double part);
std::string quotient(double a, double b);

/// An empty table of counted work, and what there is to know of one stage on one problem.
Table counts_table(const Operation& operation);
struct CountedRow {
    std::vector<std::string> cells;  // of that table
    nlohmann::json json;             // a row of a result file
    Data outputs;
};
CountedRow count_for_table(const Stage& stage, const Data& inputs);
#endif

}  // namespace flashladder
