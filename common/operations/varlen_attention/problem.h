// Attention of sequences of unlike length, packed: row behind row, without padding.
//
//   O = softmax(scale * Q K^T) V,   LSE as in attention (operations/attention/problem.h), of each sequence by itself
//
// Q is (total_q, heads, head_dim), K (total_k, kv_heads, head_dim), V and O are the same with value_dim columns, LSE is (heads,
// total_q). Two lists of batch + 1 places say which rows are whose: sequence b has the queries from cu_seqlens_q[b] on up to,
// but not with, cu_seqlens_q[b + 1], and its keys likewise. If causal, the last query of a sequence sees its last key, and each one
// before it one key less. A query that sees no key has O = 0 and LSE = -infinity. A sequence may have no queries, or no
// keys.
//
// What is in other sequences reaches nobody, whatever it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "operations/attention/problem.h"

namespace flashladder::varlen_attention {

/// batch: 1. n_q and n_k: rows of all sequences, total_q and total_k, which may be 0.
struct Shape : attention::AttentionShape {
    int value_dim = 0;  // columns of V and O; 0: head_dim

    Shape() = default;
    Shape(const attention::AttentionShape& shape, int value_dim = 0) : AttentionShape(shape), value_dim(value_dim) {}

    int columns_of_V() const { return value_dim > 0 ? value_dim : head_dim; }
    std::size_t o_elements() const { return lse_elements() * std::size_t(columns_of_V()); }
};

/// Whose which rows are: places of their first ones, from 0 on, and behind them the number of all rows.
struct Sequences {
    std::vector<int> cu_seqlens_q, cu_seqlens_k;

    int count() const { return static_cast<int>(cu_seqlens_q.size()) - 1; }
    int first_q(int b) const { return cu_seqlens_q[static_cast<std::size_t>(b)]; }
    int first_k(int b) const { return cu_seqlens_k[static_cast<std::size_t>(b)]; }
    int n_q(int b) const { return first_q(b + 1) - first_q(b); }
    int n_k(int b) const { return first_k(b + 1) - first_k(b); }
    int total_q() const { return cu_seqlens_q.back(); }
    int total_k() const { return cu_seqlens_k.back(); }
    bool operator==(const Sequences&) const = default;
};

/// From their lengths.
Sequences sequences_of(const std::vector<int>& n_q, const std::vector<int>& n_k);

/// Of which lengths are drawn, from 1 on.
struct Lengths {
    int sequences = 1, n_q = 1, n_k = 1;  // the longest that there may be
    int others = 0;  // if not 0: the first one has these lengths, and no other one more than `others` rows
};
/// Queries and keys are as many where n_q and n_k are the same.
Sequences draw_sequences(const Lengths& lengths, std::uint64_t seed);

/// Scores that are to be computed.
double scores(const Shape& shape, const Sequences& sequences);

/// What a stage gets. shape, lse, scale, scratch and stream are attention's, and so are the tensors, of one batch, but
/// that strides which are all 0 mean (rows, heads, columns). The lists are in device memory, where nobody looks
/// whether they are good ones: first 0, never decreasing, the totals of the shape at their ends.
struct Args : attention::ForwardArgs {
    int sequences = 1;
    const int* cu_seqlens_q = nullptr;  // (sequences + 1)
    const int* cu_seqlens_k = nullptr;
    int value_dim = 0;

    Shape whole_shape() const { return {shape, value_dim}; }
};

}  // namespace flashladder::varlen_attention
