// How far what a stage has computed may be from the reference.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "harness/dtype.h"
#include "operations/attention/reference.h"

namespace flashladder::attention {

struct Outputs {
    std::vector<float> O;               // (batch, heads, n_q, head_dim)
    std::vector<float> lse;             // (batch, heads, n_q), empty where it was not asked for
    std::size_t written_gap_bytes = 0;  // of O's memory, not part of any row
};

/// A number that is not what it should be: which of its row or tensor.
struct Wrong {
    std::size_t index = 0;
    double found = 0, expected = 0;
};

/// How far an output is from the reference, against how far it may be.
struct Comparison {
    double error = 0;              // relative Frobenius error over all compared rows
    double allowed_error = 0;      // by dtype
    double worst_row = 0;          // largest relative error of a row
    double allowed_worst_row = 0;  // twice that of standard attention in the same dtype
    std::size_t worst_row_index = 0;
    Wrong furthest;        // the element of that row that is furthest off
    bool with_lse = false;  // it was asked for
    double lse_error = 0;  // largest absolute error over max(1, |LSE|)
    double allowed_lse_error = 0;
    Wrong furthest_lse;
    std::size_t written_gap_bytes = 0;  // none is allowed
    bool passed = false;
    std::string mistake;  // usual_mistake(); "" if it was not asked for
    /// What is wrong and where, with found and expected numbers, in one line.
    std::string describe(const AttentionShape& shape) const;
    /// The same of a problem that somebody else calls `title`.
    std::string describe(const AttentionShape& shape, const std::string& title) const;
    /// And its rows by `place`: "batch 0 head 1 query 5".
    std::string describe(const std::string& title, const std::function<std::string(std::size_t row)>& place) const;
};

enum class Judge {
    both_rules,
    worst_row_only,  // for scores with a large common offset, which cost every method accuracy
};

/// Compares all of `rows`. NaN fails. `yardstick` is standard_attention for the same rows.
Comparison compare(const Outputs& outputs, const AttentionShape& shape, const AttentionRows& reference,
                   const AttentionRows& yardstick, Judge judge = Judge::both_rules);

}  // namespace flashladder::attention
