// The specification: attention as its definition says, row by row, in double precision on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "operations/attention/problem.h"

namespace flashladder::attention {

/// Q, K, V on the host, as float whatever the dtype (their values are representable in it).
struct Inputs {
    AttentionShape shape;
    std::vector<float> Q, K, V;
    float scale = 1;
    int value_dim = 0;  // columns of V and O; 0: head_dim, as everywhere but in packed sequences

    int columns_of_V() const { return value_dim > 0 ? value_dim : shape.head_dim; }
};

/// Some rows of the result. Row r of all is ((b * heads) + h) * n_q + i.
struct AttentionRows {
    int head_dim = 0;  // columns of O
    std::vector<std::size_t> rows;
    std::vector<double> O;    // (rows, head_dim)
    std::vector<double> lse;  // (rows)
};

/// The rows to compare: all of them up to n_q = 2048, above that a random sample and every block's first and last row
/// (blocks of 32, which every tile is made of).
std::vector<std::size_t> rows_to_check(const AttentionShape& shape, std::uint64_t seed);

/// How many keys query i sees, from the first on; below 0 is 0, and above n_k is n_k.
using VisibleKeys = std::function<long long(long long i)>;
VisibleKeys visible_keys(const AttentionShape& shape);

/// O = softmax(scale * Q K^T) V and LSE = log(sum(exp(scale * Q K^T))) for these rows, in double. A row with nothing to
/// attend to (causal, n_q > n_k) gives 0 and -infinity.
AttentionRows reference_attention(const Inputs& inputs, std::vector<std::size_t> rows);
/// The same where queries see other keys than the shape says.
AttentionRows reference_attention(const Inputs& inputs, std::vector<std::size_t> rows, const VisibleKeys& visible);

/// The same in the arithmetic of standard attention: float sums, S, P and O rounded to the dtype. How far this is from
/// the reference says how much error is nobody's fault.
AttentionRows standard_attention(const Inputs& inputs, std::vector<std::size_t> rows);

}  // namespace flashladder::attention
