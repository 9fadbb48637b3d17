// Attention's backward pass as harness and tools see it.
#pragma once

#include "harness/operation.h"
#include "operations/attention_backward/reference.h"

namespace flashladder::attention_backward {

const Operation& operation();

/// The same problem, in both types.
Problem problem_of(const AttentionShape& shape);
AttentionShape shape_of(const Problem& problem);

/// The right gradients of these inputs, `most` rows of each or all; a judgement calls the problem by this title.
Reference reference_of(const Inputs& inputs, const std::string& title, std::uint64_t seed, std::size_t most);

Data data_of(const Inputs& inputs);
Inputs inputs_of(const Data& data);

}  // namespace flashladder::attention_backward
