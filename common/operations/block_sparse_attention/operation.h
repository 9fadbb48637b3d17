// Block-sparse attention as harness and tools see it.
#pragma once

#include <cstdint>
#include <utility>

#include "harness/operation.h"
#include "operations/attention/inputs.h"
#include "operations/block_sparse_attention/reference.h"

namespace flashladder::block_sparse_attention {

const Operation& operation();

/// The same problem, in both types.
Problem problem_of(const AttentionShape& shape, const Pattern& pattern, bool wants_lse = false);
std::pair<AttentionShape, Pattern> shape_of(const Problem& problem);

/// Attention's fresh inputs, and any lists, whatever pattern the problem names. Throws std::invalid_argument, saying
/// why, if the lists are bad.
Data make_inputs(const AttentionShape& shape, const Lists& lists, attention::Values values, std::uint64_t seed,
                 bool wants_lse = false);
Inputs inputs_of(Data data);

}  // namespace flashladder::block_sparse_attention
