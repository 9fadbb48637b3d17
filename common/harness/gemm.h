// C = A B, the other kernel of rung 14's template: solutions/14-lcsf/gemm.cu.
#pragma once

#include <cuda_runtime.h>

namespace flashladder {

/// Matrices of bf16 in device memory, row after row. All sizes and strides are multiples of 8 elements, all addresses of
/// 16 bytes.
struct GemmArgs {
    int M, N, K;
    const void* A;  // (M, K)
    const void* B;  // (K, N)
    void* C;        // (M, N)
    unsigned* taken;  // a word of scratch
    cudaStream_t stream = nullptr;
};

/// Launches it on the stream: sums in f32, allocates nothing, may be captured into a graph. Throws std::invalid_argument
/// for sizes that are not multiples of 8 or less than 8, and CudaError.
void gemm(const GemmArgs& args);

}  // namespace flashladder
