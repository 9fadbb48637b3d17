// What `./ladder` was asked for. Two programs read it: `ladder` (ladder.cpp), which needs no kernel and is there soon, and
// `stages` (stages.cpp), which has them all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench.h"
#include "chapters.h"
#include "check.h"
#include "launch_once.h"
#include "profile.h"
#include "run.h"
#include "test.h"
#include "timeline.h"

namespace flashladder {

struct CommandLine {
    std::string verb = "run";
    std::string chapter, exercise;  // of verbs that take one
    std::uint64_t seed = 1;         // --seed, else LADDER_SEED, else a fresh one; also in the options below

    TestOptions test;
    RunOptions run;
    BenchOptions bench;
    ProfileOptions profile;
    TimelineOptions timeline;
    LaunchOptions launch;
    CheckOptions check_program;
    std::string json, check_json;   // of count
    std::vector<std::string> rungs;
    std::size_t check_sample = 0;
    bool check = false;             // of docs
    bool answers = false;           // of diff

    /// Where there is nothing to do: asked for help, or in words that nobody understands, and told so.
    std::optional<int> exit_status;
};

/// Throws std::invalid_argument, naming it, if LADDER_SEED is no number.
CommandLine parse(int argc, char** argv);

}  // namespace flashladder
