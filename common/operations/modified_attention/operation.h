// Attention with modified scores as harness and tools see it.
#pragma once

#include <cstdint>

#include "harness/operation.h"
#include "operations/attention/inputs.h"
#include "operations/modified_attention/reference.h"

namespace flashladder::modified_attention {

const Operation& operation();

/// The same problem, in both types.
Problem problem_of(const Shape& shape, bool wants_lse = false);
Shape shape_of(const Problem& problem);

/// Fresh inputs: attention's, and slopes as ALiBi's authors have them, 2^(-8 h / heads) for h = 1, 2, ...
Data make_inputs(const Shape& shape, attention::Values values, std::uint64_t seed, bool wants_lse = false);
Inputs inputs_of(Data data);

}  // namespace flashladder::modified_attention
