// Attention's forward pass as harness and tools see it.
#pragma once

#include "harness/operation.h"
#include "operations/attention/inputs.h"

namespace flashladder::attention {

const Operation& operation();

/// The same problem, in both types.
Problem problem_of(const AttentionShape& shape, bool wants_lse = false);
AttentionShape shape_of(const Problem& problem);

Data data_of(Inputs inputs, bool wants_lse = false);
Inputs inputs_of(Data data);

}  // namespace flashladder::attention
