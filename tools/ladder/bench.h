// `ladder bench`: rungs against the clock of a GPU, or by their counted work where there is none.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/stage.h"

namespace flashladder {

struct BenchOptions {
    std::vector<std::string> rungs;  // "13", "13-lean-softmax"; none: all
    std::optional<int> head_dim, n, batch, heads, kv_heads;
    bool causal = false;
    std::string dtype;  // "": of each rung the first that it supports
    std::string json;   // where to write the results; "" for nowhere
    bool mine = false;  // the learner's file too
    std::uint64_t seed = 1;
};

/// Up to this N the grid has all rungs; above it those without tensor cores only if they are asked for.
inline constexpr int small_n = 1024;

/// The grid, or as much of it as the options leave; each in f32. 16384 tokens and heads = 2048 / d unless the options say
/// otherwise. Throws std::invalid_argument with one line, naming the value.
std::vector<AttentionShape> bench_problems(const BenchOptions& options);

/// A stage on a problem, in its own dtype.
struct Entrant {
    const Stage* stage;
    AttentionShape shape;
    int below;          // index of the entrant to compare with; -1: none
    bool mine = false;  // not a solution
    std::string name() const { return stage->name() + (mine ? " (yours)" : ""); }
};

/// Those of `all`, lowest first, that take part in a problem: the named ones and the one below the lowest of them, or all.
std::vector<Entrant> entrants(std::span<const Stage> all, const AttentionShape& problem, const BenchOptions& options);

/// One line that says why nobody, or not somebody who was named, takes part in any of the problems; "" if all is well.
std::string why_no_bench(std::span<const Stage> all, const std::vector<AttentionShape>& problems,
                         const BenchOptions& options);

/// A problem of the same kind, but with at most so many batches, heads of K and V, and rows.
AttentionShape cut_down(AttentionShape shape, int batch, int kv_heads, int n);

/// `arguments` are those of the program, for the one that has the learner's kernel too. Returns the exit status: 1 if a
/// rung is wrong.
int bench(BenchOptions options, const std::vector<std::string>& arguments);

}  // namespace flashladder
