// Attention whose scores are modified: a window, a soft cap, ALiBi.
//
// Query i stands at key p = i + N_k - N_q, so that the last query stands at the last key. It sees the keys j with
//   p - w < j <= p                                   w of them with its own, fewer where the keys begin
// and a key that it sees has the score
//   s = scale * q . k,    then c tanh(s / c),    then minus slope * (p - j),    the slope being that of the query's head
// of which each part may be left out. O and LSE are made of scores as in attention (operations/attention/problem.h).
#pragma once

#include <string>

#include "operations/attention/problem.h"

namespace flashladder::modified_attention {

/// The sizes of attention, and what becomes of its scores. `causal` is true: no query sees a key behind it.
struct Shape : attention::AttentionShape {
    int window = 1;      // w; n_k and more hide nothing
    bool alibi = false;  // there are slopes
    int soft_cap = 0;    // c; 0: there is none

    /// Pairs of a query and a key that it sees, of all batches and heads.
    double scores() const;
    /// Two products for each of them.
    double flops() const { return 4.0 * scores() * head_dim; }
    bool operator==(const Shape&) const = default;
};
/// Of the sizes of attention.
Shape modified(attention::AttentionShape shape, int window, bool alibi = false, int soft_cap = 0);
/// "B 4 H 16 N 4096 d 64 window 512 ALiBi cap 50 f32"; no window where it hides nothing.
std::string to_string(const Shape& shape);

/// What a stage gets. shape, Q, K, V, O, lse, scale and stream are attention's; tensors are contiguous, at addresses that
/// are multiples of 16 bytes. There is no scratch.
struct Args : attention::ForwardArgs {
    int window = 1;                 // 1 to n_k: Stage::launch makes n_k of what is more
    const float* slopes = nullptr;  // (heads) in device memory; null: no ALiBi
    float soft_cap = 0;             // c; 0: none
};

}  // namespace flashladder::modified_attention
