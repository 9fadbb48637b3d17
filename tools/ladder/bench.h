// `ladder bench`: rungs against the clock of a GPU, or by their counted work where there is none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "given_sizes.h"
#include "harness/stage.h"

namespace flashladder {

struct BenchOptions {
    std::vector<std::string> rungs;  // "13", "13-lean-softmax"; none: all
    GivenOptions given;  // sizes; the others are those of the operation's grid
    std::string dtype;  // "": of each rung the first that it supports
    std::string json;   // where to write the results; "" for nowhere
    bool mine = false;  // the learner's file too
    std::uint64_t seed = 1;
};

/// The grids of all operations, or of those of the named rungs; as much of them as the options leave. Throws
/// std::invalid_argument with one line, naming the value.
std::vector<Problem> bench_problems(const BenchOptions& options);

/// A stage on a problem, in its own dtype.
struct Entrant {
    const Stage* stage;
    Problem problem;
    int below;          // index of the entrant to compare with; -1: none
    bool mine = false;  // not a solution
    std::string name() const { return stage->name() + (mine ? " (yours)" : ""); }
};

/// Those of `all`, lowest first, that take part in a problem: the named ones and the one below the lowest of them, or all.
std::vector<Entrant> entrants(const std::vector<StageRef>& all, const Problem& problem, const BenchOptions& options);

/// One line that says why nobody, or not somebody who was named, takes part in any of the problems; "" if all is well.
std::string why_no_bench(const std::vector<StageRef>& all, const std::vector<Problem>& problems,
                         const BenchOptions& options);

/// `arguments` are those of the program, for the one that has the learner's kernel too. Returns the exit status: 1 if a
/// rung is wrong.
int bench(BenchOptions options, const std::vector<std::string>& arguments);

}  // namespace flashladder
