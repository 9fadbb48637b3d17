// What a stage asks of the (virtual) GPU, counted by the emulator.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "emulator/counters.h"
#include "harness/run.h"

namespace flashladder {

/// What kernels do to one tensor.
struct TensorWork {
    emulator::GlobalWork read, written;
};

struct StageCounts {
    emulator::CountedWork work;                 // of the stage's launches alone
    std::map<std::string, TensorWork> tensors;  // by name; "scratch"; "other" for what the stage has allocated
    std::size_t peak_scratch_bytes = 0;         // device memory at most, beyond inputs and outputs
    Data outputs;                               // what it computed meanwhile

    std::uint64_t requested_bytes() const { return work.total().all_global().requested_bytes; }
    std::uint64_t distinct_bytes() const;  // read and written, each launch for itself
};

/// Runs the stage once and counts. Throws what run() throws.
StageCounts count_stage(const Stage& stage, const Data& inputs);

nlohmann::json to_json(const StageCounts& counts);

}  // namespace flashladder
