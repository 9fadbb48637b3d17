// Attention of packed sequences as harness and tools see it.
#pragma once

#include <cstdint>

#include "harness/operation.h"
#include "operations/attention/comparison.h"
#include "operations/attention/inputs.h"
#include "operations/varlen_attention/reference.h"

namespace flashladder::varlen_attention {

const Operation& operation();

/// Sequences that are drawn, in heads and types of the shape, whose n_q and n_k do not matter. draw: the seed.
Problem problem_of(const Shape& shape, const Lengths& lengths, int draw = 1, bool wants_lse = false);
/// Of somebody's own sequences.
Problem problem_of(const Shape& shape, const Sequences& sequences, bool wants_lse = false);
/// The packed one: its n_q and n_k are rows of all sequences.
Shape shape_of(const Problem& problem);

/// Attention's fresh inputs of each sequence, packed.
Data make_inputs(const Shape& shape, const Sequences& sequences, attention::Values values, std::uint64_t seed,
                 bool wants_lse = false);
Inputs inputs_of(const Data& data);

/// The rows to compare: attention's of the packed shape, and the first and the last one of each sequence.
std::vector<std::size_t> rows_to_check(const Inputs& inputs, std::uint64_t seed);
/// O is (total_q, heads, head_dim), as a stage leaves it.
attention::Comparison compare(attention::Outputs outputs, const Inputs& inputs,
                              const attention::AttentionRows& reference, const attention::AttentionRows& yardstick,
                              attention::Judge judge = attention::Judge::both_rules);

}  // namespace flashladder::varlen_attention
