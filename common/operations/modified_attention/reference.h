// The specification: attention with modified scores as problem.h defines it, row by row, in double.
#pragma once

#include <cstddef>
#include <vector>

#include "operations/attention/reference.h"
#include "operations/modified_attention/problem.h"

namespace flashladder::modified_attention {

/// Q, K, V and scale of attention (whose shape they have), and what becomes of the scores.
struct Inputs : attention::Inputs {
    int window = 1;
    std::vector<float> slopes;  // (heads); none: no ALiBi
    double soft_cap = 0;        // 0: none
};

/// O and LSE of these rows, in double. A row that sees no key (n_q > n_k) gives 0 and -infinity.
attention::AttentionRows reference_attention(const Inputs& inputs, std::vector<std::size_t> rows);

/// The same in the arithmetic of standard attention: float sums; scores, once they are modified, P and O rounded to the
/// dtype. How far this is from the reference says how much error is nobody's fault.
attention::AttentionRows standard_attention(const Inputs& inputs, std::vector<std::size_t> rows);

}  // namespace flashladder::modified_attention
