// The specification: paged attention as problem.h defines it, sequence by sequence, in double.
#pragma once

#include <cstddef>
#include <vector>

#include "operations/attention/reference.h"
#include "operations/paged_attention/problem.h"

namespace flashladder::paged_attention {

/// K and V are the pools.
struct Inputs : attention::Inputs {
    Pool pool;
    Sequences sequences;
};

/// Sequence b alone, its keys and values side by side, as attention has them. Its length must not be 0.
attention::Inputs sequence_of(const Inputs& inputs, int b);

/// O and LSE of these rows, in double.
attention::AttentionRows reference_attention(const Inputs& inputs, const std::vector<std::size_t>& rows);

/// The same in the arithmetic of standard attention. How far this is from the reference says how much error is nobody's
/// fault.
attention::AttentionRows standard_attention(const Inputs& inputs, const std::vector<std::size_t>& rows);

}  // namespace flashladder::paged_attention
