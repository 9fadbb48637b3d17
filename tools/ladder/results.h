// Result files: what was measured, where, when, with which code. Tables and pictures are made from these alone.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "harness/timing.h"

namespace flashladder {

/// {gpu, multiprocessors, cuda, commit, date, rows: []}. A commit whose files were changed afterwards ends in "-dirty";
/// LADDER_COMMIT, if it is set, is believed instead.
nlohmann::json new_results();

/// Clocks, power, and what slows the card, as nvidia-smi tells them now; "unknown" where it does not.
nlohmann::json gpu_state();

/// Adds the driver and gpu_state() as "clocks". To be called right after the last timed kernel.
void note_gpu_state(nlohmann::json& results);

/// Sizes by name; flags are true or false.
nlohmann::json to_json(const Problem& problem);

/// One row: a stage on a problem. Without times and resources where nothing was timed: null.
nlohmann::json result_row(const Stage& stage, const Problem& problem, const Judgement& judgement, const TimedStage* timed);

}  // namespace flashladder
