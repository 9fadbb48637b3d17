// What the test files of rungs of ring attention share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "harness/run.h"
#include "operations/attention/comparison.h"
#include "operations/ring_attention/operation.h"
#include "operations/ring_attention/stage.h"
#include "suite.h"
#include "test_seed.h"

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#include "harness/counts.h"
#endif

namespace flashladder::ring_attention {

using attention::Values;

/// The stage under test: the only one that is linked into the program.
const Stage& stage_under_test();

struct Case {
    AttentionShape shape;  // of the whole sequence
    int ranks;

    /// "B 1 H 2 N 132 d 64 causal bf16 on 3 ranks"
    std::string words() const;
    int rows_of_shard() const { return shape.n_q / ranks; }
};

/// Shards of so many rows, or one more where they must be even, of the first dtype of the stage under test.
Case case_of(int ranks, int rows_of_shard, int head_dim, bool causal, int heads = 1, int kv_heads = 1, int batch = 1);

/// Runs the stage and compares O and LSE. What is wrong, in words; "" if nothing is. A scale of 0 is the usual one.
std::string fault(const Case& c, Values values, std::uint64_t seed, double scale = 0);
/// The same of inputs, of this case.
std::string fault(const Case& c, const Data& data, attention::Judge judge = attention::Judge::both_rules);
/// Returns whether nothing is.
bool check_agrees(const Case& c, Values values, std::uint64_t seed);

/// Shards of a case, each in memory of its own, behind rows that hold NaN, and ranks with streams of their own.
struct Ranks {
    Case c;
    Args args;

    /// Outputs and scratch are full of NaN.
    Ranks(const Case& c, const Data& data);
    ~Ranks();
    Ranks(const Ranks&) = delete;
    Data outputs() const;
    /// What to launch one round with: K and V where the other rank has them.
    RoundArgs round(int rank, int round) const;
    ring_attention::State state(int rank) const;
    AttentionShape shard() const { return shard_of(c.shape, c.ranks); }

private:
    std::vector<DeviceBuffer> buffers_;
};

}  // namespace flashladder::ring_attention
