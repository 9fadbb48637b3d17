// Paged attention as harness and tools see it.
#pragma once

#include <cstdint>

#include "harness/operation.h"
#include "operations/attention/inputs.h"
#include "operations/paged_attention/reference.h"

namespace flashladder::paged_attention {

const Operation& operation();

/// The same problem, in both types. draw: the seed of the sequences; 0: they are somebody's own.
Problem problem_of(const AttentionShape& shape, const Pool& pool, bool ragged, int draw = 1, bool wants_lse = false);
AttentionShape shape_of(const Problem& problem);
/// Its table is just as wide as n_k keys need.
Pool pool_of(const Problem& problem);

/// Attention's fresh inputs in the pages of these sequences; all else in the pools is NaN. Where sequences share a
/// page, the last one has filled it.
Data make_inputs(const AttentionShape& shape, const Pool& pool, const Sequences& sequences, attention::Values values,
                 std::uint64_t seed, bool wants_lse = false);
Inputs inputs_of(Data data);

}  // namespace flashladder::paged_attention
