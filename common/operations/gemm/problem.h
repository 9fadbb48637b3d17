// C = A B, of bf16 matrices that lie row after row.
#pragma once

#include <cuda_runtime.h>

#include <string>

namespace flashladder::gemm {

/// Sizes are multiples of 8.
struct Shape {
    int M = 8, N = 8, K = 8;

    double flops() const { return 2.0 * M * N * K; }
    bool operator==(const Shape&) const = default;
};
/// "8192 x 8192 x 8192": M, N, K
std::string to_string(const Shape& shape);

/// Device memory, at addresses that are multiples of 16 bytes.
struct Args {
    Shape shape;
    const void* A = nullptr;      // (M, K)
    const void* B = nullptr;      // (K, N)
    void* C = nullptr;            // (M, N)
    void* scratch = nullptr;      // Stage::scratch_bytes() bytes; contents undefined
    cudaStream_t stream = nullptr;
};

}  // namespace flashladder::gemm
