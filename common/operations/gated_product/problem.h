// A gated product, as the feed-forward layers of Llama begin (SwiGLU: Shazeer, "GLU Variants Improve Transformer", 2020):
//   C = (A B) * silu(A G),   element by element,   silu(x) = x / (1 + exp(-x))
// of bf16 matrices that lie row after row. Sums and the gate are in float, and C is rounded once.
#pragma once

#include <cuda_runtime.h>

#include <string>

namespace flashladder::gated_product {

/// Sizes are multiples of 8.
struct Shape {
    int M = 8, N = 8, K = 8;

    double flops() const { return 4.0 * M * N * K; }  // of the two products
    bool operator==(const Shape&) const = default;
};
/// "8192 x 8192 x 8192": M, N, K
std::string to_string(const Shape& shape);

/// Device memory, at addresses that are multiples of 16 bytes. There is no scratch.
struct Args {
    Shape shape;
    const void* A = nullptr;  // (M, K)
    const void* B = nullptr;  // (K, N)
    const void* G = nullptr;  // (K, N)
    void* C = nullptr;        // (M, N)
    cudaStream_t stream = nullptr;
};

}  // namespace flashladder::gated_product
