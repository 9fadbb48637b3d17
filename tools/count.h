// `ladder count` and `ladder profile`: the work that the emulator counts.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "chapters.h"
#include "problem.h"

#ifndef FLASHLADDER_GPU
#include <nlohmann/json.hpp>

#include "harness/run.h"
#include "table.h"
#endif

namespace flashladder {

struct CountOptions {
    std::string json;   // where to write the results; "" for nowhere
    std::string check;  // a result file; its counts must be what is counted now; "" for none
};

/// Counts what every rung does on a few fixed problems. Returns the exit status: 1 if `check` is stale.
int count_rungs(const CountOptions& options);

/// The table of it for a small problem, and a row of each rung in `results`. Nothing on a GPU.
void print_counted_work(nlohmann::json& results);

#ifndef FLASHLADDER_GPU
/// An empty table of counted work, and what there is to know of one stage on one problem.
Table counts_table();
struct CountedRow {
    std::vector<std::string> cells;  // of that table
    nlohmann::json json;             // a row of a result file
    Outputs outputs;
};
CountedRow count_for_table(const Stage& stage, const Inputs& inputs);
#endif

struct ProfileOptions {
    AttentionShape shape;
    bool lse = false;
    std::size_t shared_bytes = 0;  // that a block may have; 0: as the virtual GPU is
    int lines = 12;                // of the source that are shown
    std::string json;
    std::uint64_t seed = 1;
};

/// Counts one rung on one problem: by kernel, by tensor and by source line, worst first. Returns the exit status.
int profile_rung(const Chapter& chapter, const ProfileOptions& options);

}  // namespace flashladder
