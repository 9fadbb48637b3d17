// The specification: the gradients as their definition says, row by row, in double precision on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "operations/attention/inputs.h"
#include "operations/attention_backward/problem.h"

namespace flashladder::attention_backward {

/// What a stage gets, on the host, as float whatever the dtype (the values are representable in it).
struct Inputs {
    attention::Inputs forward;  // the shape; Q, K, V and scale
    std::vector<float> dO;      // (batch, heads, n_q, head_dim)
    // What the forward pass has left: computed in double, then rounded, O to the dtype.
    std::vector<float> O;    // (batch, heads, n_q, head_dim)
    std::vector<float> lse;  // (batch, heads, n_q)
    // Causal, a query sees so many keys at most, its own the last. Rungs are given none that hides a key; capstone 4 is.
    int window = std::numeric_limits<int>::max();

    const AttentionShape& shape() const { return forward.shape; }
};

/// A fresh dO, standard normal: (batch, heads, n_q, head_dim).
std::vector<float> fresh_dO(const AttentionShape& shape, std::uint64_t seed);
/// Fresh Q, K, V of this temperament and a fresh dO. The same seed gives the same numbers on every machine.
Inputs backward_inputs(const AttentionShape& shape, attention::Values values, std::uint64_t seed);
/// With this dO, and the O and LSE that belong to Q, K and V.
Inputs with_forward_pass(attention::Inputs forward, std::vector<float> dO);
/// With this dO, and what a forward pass has left: O and LSE of all queries.
Inputs with_passed(attention::Inputs forward, std::vector<float> dO, const attention::AttentionRows& passed);

/// Rows of a gradient. Row r of dQ is ((b * heads) + h) * n_q + i; of dK and dV ((b * kv_heads) + h) * n_k + j.
struct GradientRows {
    std::vector<std::size_t> rows;
    std::vector<double> values;  // (rows, head_dim)
    /// How large a row's summands are together, as if they were drawn with random signs: rounding is measured by it where
    /// they cancel. A query that sees one key has dQ = 0, exactly, of summands that are not.
    std::vector<double> size;  // (rows)
};
struct Gradients {
    GradientRows dQ, dK, dV;
};

/// The rows to compare: at most about `most` of dQ, and as many of dK and dV; all of them where they are no more. The
/// first and the last of a head are among them.
struct RowsToCheck {
    std::vector<std::size_t> queries, keys;
};
RowsToCheck rows_to_check(const AttentionShape& shape, std::uint64_t seed, std::size_t most);

/// In double, of Q, K, V and dO alone: O and LSE are computed anew.
///   P = exp(scale Q K^T - LSE)     dP = dO V^T     dS = P (dP - D), D_i = sum over x of dO_ix O_ix
///   dQ = scale dS K                dK = scale dS^T Q                dV = P^T dO
Gradients reference_gradients(const Inputs& inputs, const RowsToCheck& rows);

/// The same in the arithmetic of the standard way: of the given O and LSE, sums in float, P, dP, dS and the gradients rounded
/// to the dtype. How far this is from the reference says how much error is nobody's fault.
Gradients standard_gradients(const Inputs& inputs, const RowsToCheck& rows);

}  // namespace flashladder::attention_backward
