// The gradients of sliding-window attention: the way back of what capstone 1 computes.
//
//   dQ, dK, dV = the gradients of sum(O dO), for a given dO, of      O = softmax(scale * Q K^T) V
//
// where query i stands at key p = i + N_k - N_q and sees the keys j with p - w < j <= p, as in
// operations/modified_attention/problem.h. A query that sees no key has dQ = 0; a key that no query sees has dK = dV = 0.
#pragma once

#include "operations/attention_backward/problem.h"
#include "operations/modified_attention/problem.h"

namespace flashladder::windowed_backward {

/// A window is all that is done to its scores: there is neither ALiBi nor a soft cap.
using modified_attention::Shape;
/// Of the sizes of attention.
inline Shape windowed(const attention::AttentionShape& shape, int window) {
    return modified_attention::modified(shape, window);
}

/// Floating-point operations, as papers count them: five products of each score, where the forward pass has two.
inline double flops(const Shape& shape) { return 2.5 * shape.flops(); }

/// What a stage gets. Tensors and scale are attention_backward's; they are contiguous, at addresses that are multiples
/// of 16 bytes. O and LSE are what the forward pass with the same window has left. Scratch has a float for each query.
struct Args : attention_backward::BackwardArgs {
    int window = 1;  // 1 to n_k: Stage::launch makes n_k of what is more
};

}  // namespace flashladder::windowed_backward
