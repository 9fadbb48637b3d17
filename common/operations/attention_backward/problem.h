// The gradients of attention: what its backward pass computes, and the one interface through which each rung does it.
//
//   dQ, dK, dV = the gradients of sum(O dO), for a given dO, of      O = softmax(scale * Q K^T) V
//
// Tensors are (batch, heads, sequence, head_dim). O and LSE = log(sum(exp(scale * Q K^T))) are what the forward pass has
// left. Where heads share a head of K and V, its gradient is the sum of theirs.
#pragma once

#include <cuda_runtime.h>

#include "operations/attention/problem.h"

namespace flashladder::attention_backward {

using attention::AttentionShape;

/// Floating-point operations, as every paper counts them: five matrix products, where the forward pass has two.
inline double flops(const AttentionShape& shape) { return 2.5 * shape.flops(); }

/// What a stage gets. All pointers are device memory; the stage neither allocates nor synchronises.
struct BackwardArgs {
    AttentionShape shape;
    const void* Q = nullptr;      // (batch, heads, n_q, head_dim) of shape.dtype
    const void* K = nullptr;      // (batch, kv_heads, n_k, head_dim)
    const void* V = nullptr;      // (batch, kv_heads, n_k, head_dim)
    const void* O = nullptr;      // (batch, heads, n_q, head_dim)
    const void* dO = nullptr;     // (batch, heads, n_q, head_dim)
    const float* lse = nullptr;   // (batch, heads, n_q), natural log; -infinity of a query without keys
    void* dQ = nullptr;           // (batch, heads, n_q, head_dim)
    void* dK = nullptr;           // (batch, kv_heads, n_k, head_dim)
    void* dV = nullptr;           // (batch, kv_heads, n_k, head_dim)
    float scale = 1;              // that of the forward pass
    void* scratch = nullptr;      // Stage::scratch_bytes(shape) bytes, 256-byte aligned; contents undefined
    cudaStream_t stream = nullptr;
    // Of each tensor; all 0 means contiguous. Stage::launch fills them in: a stage sees none that are all 0.
    Strides Q_strides = {}, K_strides = {}, V_strides = {}, O_strides = {}, dO_strides = {};
    Strides dQ_strides = {}, dK_strides = {}, dV_strides = {};
};

}  // namespace flashladder::attention_backward
