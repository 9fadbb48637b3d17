// How far the gradients that a stage has computed may be from the reference.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "operations/attention/comparison.h"
#include "operations/attention_backward/reference.h"

namespace flashladder::attention_backward {

struct Outputs {
    std::vector<float> dQ;  // (batch, heads, n_q, head_dim)
    std::vector<float> dK;  // (batch, kv_heads, n_k, head_dim)
    std::vector<float> dV;  // (batch, kv_heads, n_k, head_dim)
    std::size_t written_gap_bytes = 0;  // of all three
};

/// How far one gradient is from the reference, against how far it may be.
struct GradientComparison {
    double error = 0;              // relative Frobenius error over all compared rows
    double allowed_error = 0;      // by dtype; a tenth more than that of the standard way in it, where that is larger
    double worst_row = 0;          // largest error of a row, of its norm, beyond what its summands' rounding explains
    double allowed_worst_row = 0;  // twice that of the standard way in the same dtype
    std::size_t worst_row_index = 0;
    attention::Wrong furthest;  // the element of that row that is furthest off
    double factor = 1;          // of the whole gradient, where it is wrong by nothing else
    std::string mistake;        // name_usual_mistakes(); "" if it was not asked for
    bool passed = false;
};

struct Comparison {
    GradientComparison dQ, dK, dV;
    std::size_t written_gap_bytes = 0;  // none is allowed
    bool passed = false;
    /// What is wrong and where, with found and expected numbers: a gradient a line.
    std::string describe(const AttentionShape& shape) const;
    /// The same of a problem that has a title of its own.
    std::string describe(const AttentionShape& shape, const std::string& title) const;
};

/// The relative error, in the Frobenius norm, that a gradient may have.
double allowed_gradient_error(DType dtype);

/// Compares all of the reference's rows. NaN fails. `yardstick` is standard_gradients for the same rows.
Comparison compare(const Outputs& outputs, const AttentionShape& shape, const Gradients& reference, const Gradients& yardstick,
                   attention::Judge judge = attention::Judge::both_rules);

}  // namespace flashladder::attention_backward
