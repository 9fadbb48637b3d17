// The specification: block-sparse attention as problem.h defines it, row by row, in double.
#pragma once

#include <cstddef>
#include <vector>

#include "operations/attention/reference.h"
#include "operations/block_sparse_attention/problem.h"

namespace flashladder::block_sparse_attention {

struct Inputs : attention::Inputs {
    Lists lists;
};

/// The keys that query i of a head sees, ascending.
std::vector<int> seen_by(const AttentionShape& shape, const Lists& lists, int head, int i);

/// O and LSE of these rows, in double.
attention::AttentionRows reference_attention(const Inputs& inputs, std::vector<std::size_t> rows);

/// The same in the arithmetic of standard attention: float sums; scores, P and O rounded to the dtype. How far this is
/// from the reference says how much error is nobody's fault.
attention::AttentionRows standard_attention(const Inputs& inputs, std::vector<std::size_t> rows);

}  // namespace flashladder::block_sparse_attention
