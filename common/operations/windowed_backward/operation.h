// The gradients of sliding-window attention as harness and tools see them.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/operation.h"
#include "operations/attention_backward/reference.h"
#include "operations/windowed_backward/problem.h"

namespace flashladder::windowed_backward {

const Operation& operation();

/// The same problem, in both types.
Problem problem_of(const Shape& shape);
Shape shape_of(const Problem& problem);

/// attention_backward's, with a window. Of these its reference, yardstick and comparison are those of this operation.
using attention_backward::Inputs;

/// Fresh Q, K, V of this temperament and a fresh dO. The same seed gives the same numbers on every machine.
Inputs windowed_inputs(const Shape& shape, attention::Values values, std::uint64_t seed);
/// With this dO, and the O and LSE that belong to Q, K, V and the window.
Inputs with_forward_pass(attention::Inputs forward, std::vector<float> dO, int window);

Data data_of(const Inputs& inputs);
Inputs inputs_of(const Data& data);

}  // namespace flashladder::windowed_backward
