// Attention's forward pass, and the one interface through which each rung computes it.
//
//   O = softmax(scale * Q K^T) V      for each batch and head,      LSE = log(sum(exp(scale * Q K^T)))
//
// Tensors are (batch, heads, sequence, head_dim). Rows of head_dim elements are contiguous; from rung 08 on the distances
// between rows, heads and batches may be any, so that (batch, sequence, heads, head_dim) needs no copy.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "tensor.h"

namespace flashladder::attention {

/// The sizes of one attention problem. Counts are of elements, not bytes.
struct AttentionShape {
    int batch = 1;
    int heads = 1;
    int kv_heads = 1;   // fewer than heads: grouped-query attention, heads / kv_heads queries share one K and V
    int n_q = 1;        // N_q, rows of Q and O
    int n_k = 1;        // N_k, rows of K and V
    int head_dim = 64;  // d
    bool causal = false;  // bottom-right aligned: query i sees keys j <= i + n_k - n_q
    DType dtype = DType::f32;

    std::size_t q_elements() const { return std::size_t(batch) * heads * n_q * head_dim; }     // also of O
    std::size_t kv_elements() const { return std::size_t(batch) * kv_heads * n_k * head_dim; }  // of K, and of V
    std::size_t lse_elements() const { return std::size_t(batch) * heads * n_q; }
    /// Floating-point operations of the forward pass, as every paper counts them: two matrix products, halved if
    /// causal.
    double flops() const { return 4.0 * batch * heads * double(n_q) * n_k * head_dim / (causal ? 2 : 1); }

    bool operator==(const AttentionShape&) const = default;
};

/// "B 4 H 16 N 4096 d 64 causal f32"
std::string to_string(const AttentionShape& shape);

/// What a stage gets. All pointers are device memory; the stage neither allocates nor synchronises.
struct ForwardArgs {
    AttentionShape shape;
    const void* Q = nullptr;  // (batch, heads, n_q, head_dim) of shape.dtype
    const void* K = nullptr;  // (batch, kv_heads, n_k, head_dim)
    const void* V = nullptr;  // (batch, kv_heads, n_k, head_dim)
    void* O = nullptr;        // (batch, heads, n_q, head_dim)
    float* lse = nullptr;     // (batch, heads, n_q), natural log; null where it is not wanted
    float scale = 1;          // 1 / sqrt(head_dim), unless the caller knows better
    void* scratch = nullptr;  // Stage::scratch_bytes(shape) bytes, 256-byte aligned; contents undefined
    cudaStream_t stream = nullptr;
    // Of each tensor; all 0 means contiguous. Stage::launch fills them in: a stage sees none that are all 0.
    Strides Q_strides = {}, K_strides = {}, V_strides = {}, O_strides = {};
};

}  // namespace flashladder::attention
