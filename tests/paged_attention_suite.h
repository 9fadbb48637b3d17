// What the test files of rungs of paged attention share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "harness/run.h"
#include "operations/paged_attention/operation.h"
#include "operations/paged_attention/stage.h"
#include "suite.h"
#include "test_seed.h"

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#include "harness/counts.h"
#endif

namespace flashladder::paged_attention {

using attention::Values;

/// The stage under test: the only one that is linked into the program. And one of its variants.
const Stage& stage_under_test();
const Stage& variant(std::string_view name);

/// A problem with its table and lengths.
struct Case {
    AttentionShape shape;
    Pool pool;
    Sequences sequences;

    /// "B 2 H 2 N 1x40 d 64, pages of 16, given sequences bf16: 3, 40 keys, tables [7] [2 0 5]"; of many sequences the
    /// first ones.
    std::string words() const;
    /// The used entries of a row of the table.
    std::vector<int> pages_of_sequence(int b) const;
};

/// Sequences of these lengths, of one head and the first dtype of the stage under test, n_k as the longest needs it.
/// Their pages are drawn from a pool that has some more.
Case case_of(std::mt19937_64& random, const std::vector<int>& lengths, int page_size, int head_dim, int n_q = 1,
             bool causal = false, int heads = 1, int kv_heads = 1);

/// Numbers of a problem; what is in no sequence is NaN.
Data inputs_of_case(const Case& c, Values values, std::uint64_t seed);

/// Runs the stage and compares O and LSE. What is wrong, in words; "" if nothing is. A scale of 0 is the usual one.
std::string fault(const Stage& stage, const Case& c, Values values, std::uint64_t seed, double scale = 0);
/// Returns whether nothing is.
bool check_agrees(const Case& c, Values values, std::uint64_t seed);

/// The rows that boxes bring of K, and as many of V, of all heads and sequences, if no row comes twice that need not:
/// those of the pages, box by box, of the blocks of keys that a tile of queries sees.
std::uint64_t loaded_rows(const Case& c);
/// And how many boxes have a key.
std::uint64_t boxes_with_keys(const Case& c);

}  // namespace flashladder::paged_attention
