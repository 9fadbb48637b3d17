// Result files: what was measured, where, when, with which code. Tables and pictures are made from these alone.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "harness/run.h"
#include "harness/timing.h"

namespace flashladder {

/// {gpu, driver, cuda, commit, date, clocks, rows: []}; `gpu` is "emulator" on the CPU backend. A commit whose files were
/// changed afterwards ends in "-dirty".
nlohmann::json new_results();

/// One row: a stage on a shape. Times are null where nothing was timed.
nlohmann::json result_row(const Stage& stage, const AttentionShape& shape, const Comparison& comparison, const Timing* timing);

/// First line of a command's output, without its end; "" if it fails. Its errors go nowhere.
std::string first_line_of(const std::string& command);

}  // namespace flashladder
