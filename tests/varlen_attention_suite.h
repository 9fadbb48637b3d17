// What the test files of rungs of packed sequences share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "harness/run.h"
#include "operations/varlen_attention/configurations.h"
#include "operations/varlen_attention/operation.h"
#include "operations/varlen_attention/plan.h"
#include "operations/varlen_attention/stage.h"
#include "suite.h"
#include "test_seed.h"

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#include "harness/counts.h"
#endif

namespace flashladder::varlen_attention {

using attention::Values;

/// The stage under test: the only one that is linked into the program. And one of its variants.
const Stage& stage_under_test();
const Stage& variant(std::string_view name);
/// What the stage under test is built of.
constexpr const Configuration& tiles_of(int head_dim) { return configurations[number_for(head_dim, head_dim)]; }
inline const Configuration& tiles_of(const Shape& s) {
    return configurations[number_for(s.head_dim, s.columns_of_V())];
}

/// A head size for each number of columns that its products have: this one, or a lower one.
std::vector<int> drawn_head_dims(std::mt19937_64& random);

/// A problem with its lists.
struct Case {
    Shape shape;  // packed
    Sequences sequences;

    /// "B 2 H 1 rows 25x40 d 64, given sequences bf16: 5 on 10, 20 on 30": queries on keys; of many sequences the first
    /// ones.
    std::string words() const;
};
/// Sequences of these lengths, of the first dtype of the stage under test.
Case case_of(const std::vector<int>& n_q, const std::vector<int>& n_k, int head_dim, bool causal = false, int heads = 1,
             int kv_heads = 1);

Data inputs_of_case(const Case& c, Values values, std::uint64_t seed);

/// Runs the stage and compares O and LSE. What is wrong, in words; "" if nothing is. A scale of 0 is the usual one.
std::string fault(const Stage& stage, const Case& c, Values values, std::uint64_t seed, double scale = 0);
/// Returns whether nothing is.
bool check_agrees(const Case& c, Values values, std::uint64_t seed);

/// Runs the stage where all that does not belong to sequence b is NaN. What of it has reached b, in words; "" if
/// nothing has.
std::string reached_by_others(const Case& c, int b, std::uint64_t seed);

/// What tasks are, in the order of sequences.
struct ExpectedTask {
    int sequence, i, units, steps;
    int last;  // query of the task
};
std::vector<ExpectedTask> expected_tasks(const Case& c, const Configuration& tiles);

/// Of all heads: rows of K that boxes bring, and as many of V; matrix instructions of blocks of keys that units of
/// queries see.
std::uint64_t loaded_rows(const Case& c, const Configuration& tiles);
std::uint64_t products(const Case& c, const Configuration& tiles);

}  // namespace flashladder::varlen_attention
