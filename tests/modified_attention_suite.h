// What the test files of kernels of attention with modified scores share.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "operations/modified_attention/operation.h"
#include "operations/modified_attention/stage.h"
#include "suite.h"
#include "test_seed.h"

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#include "harness/counts.h"
#endif

namespace flashladder::modified_attention {

/// The stage under test: the only one that is linked into the program.
const Stage& stage_under_test();

/// One batch of so many heads, of the first dtype of the stage under test, with a window that hides nothing and scores
/// that nothing is done to.
Shape shape_of(int heads, int n_q, int n_k, int head_dim);

/// A number from `least` to `most`: a multiple of `tile`, one less, one more, or any of them.
int drawn_length(std::mt19937_64& random, int tile, int least, int most);

/// Launches the stage under test on fresh inputs in which V makes O show the weights that queries give to keys, for
/// keys `first_key` on, one for each of the d columns of O. What is wrong with the first weight that is: which query
/// and key, and what it looks like; "" if nothing is.
std::string wrong_weight(const Shape& shape, attention::Values values, int first_key, std::uint64_t seed);

/// The same for all keys.
std::string wrong_weights(const Shape& shape, attention::Values values, std::uint64_t seed);

/// Runs the stage under test and compares O and LSE, if it has it. What is wrong, in words; "" if nothing is.
std::string fault(const Shape& shape, attention::Values values, std::uint64_t seed);
std::string fault(const Data& inputs);

/// With scores that are 0 for the keys that this query sees, and 200 for all others. What is wrong with its O and LSE, in
/// words; "" if nothing is. The shape has one head, and nothing is done to its scores.
std::string fault_with_hidden_scores(const Shape& shape, int query, std::uint64_t seed);

#ifndef FLASHLADDER_GPU
/// What the stage under test does, counted; nothing where the kernel stops, and then the test has failed.
StageCounts counts_of(const Shape& shape, bool wants_lse = false);

/// Fails with "what: found 3, expected at most 2 (where)".
void check_at_most(const std::string& what, double found, double most, const Shape& where);

/// Keys that blocks of so many queries see, each block for itself, of one head.
std::uint64_t keys_of_blocks(const Shape& shape, int queries);
#endif

}  // namespace flashladder::modified_attention
