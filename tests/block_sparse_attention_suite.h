// What the test files of rungs of block-sparse attention share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "harness/run.h"
#include "operations/block_sparse_attention/operation.h"
#include "operations/block_sparse_attention/stage.h"
#include "suite.h"
#include "test_seed.h"

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#include "harness/counts.h"
#endif

namespace flashladder::block_sparse_attention {

using attention::Values;

/// The stage under test: the only one that is linked into the program.
const Stage& stage_under_test();

/// One batch of so many heads, of the first dtype of the stage under test.
AttentionShape shape_of(int heads, int n_q, int n_k, int head_dim, bool causal = false);

/// Lists from `rows`: the first of each block of queries, of a head, or of all heads.
Lists lists_of(const AttentionShape& shape, const std::vector<std::vector<int>>& rows);

/// Any lists, of several densities, some of them empty; what `causal` hides as a whole may be in them.
Lists drawn_lists(std::mt19937_64& random, const AttentionShape& shape, bool per_head = false);

/// The shape, and its lists: "B 1 H 2 N 200 d 64 bf16, lists [0 2] [] [1]"; of many lists the first ones.
std::string words(const AttentionShape& shape, const Lists& lists);

/// Runs the stage under test and compares O and LSE. What is wrong, in words; "" if nothing is. A scale of 0 is the usual
/// one.
std::string fault(const AttentionShape& shape, const Lists& lists, Values values, std::uint64_t seed, double scale = 0);
void check_agrees(const AttentionShape& shape, const Lists& lists, Values values, std::uint64_t seed);

#ifndef FLASHLADDER_GPU
/// What the stage under test does with normal values, with LSE; nothing where the kernel stops, and then the test has
/// failed.
StageCounts counts_of(const AttentionShape& shape, const Lists& lists);

/// The rows of K that tasks ask for, and as many of V, of all heads and batches: those of the blocks in each list, but
/// for those that `causal` hides from all queries of the block.
std::uint64_t listed_keys(const AttentionShape& shape, const Lists& lists);
#endif

}  // namespace flashladder::block_sparse_attention
