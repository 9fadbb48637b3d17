// Attention's forward pass as harness and tools see it.
#pragma once

#include "harness/operation.h"
#include "operations/attention/inputs.h"

namespace flashladder::attention {

const Operation& operation();

/// So many at most are a step of decoding: what rung 27 is for, and nobody else but who it is held against.
inline constexpr int few_queries = 16;

/// The same problem, in both types.
Problem problem_of(const AttentionShape& shape, bool wants_lse = false);
AttentionShape shape_of(const Problem& problem);

Data data_of(Inputs inputs, bool wants_lse = false);
Inputs inputs_of(Data data);

}  // namespace flashladder::attention
