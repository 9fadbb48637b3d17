// C = A B, the other kernel of rung 14's template: solutions/14-lcsf/gemm.cu.
#pragma once

#include <cuda_runtime.h>

#include <string>
#include <vector>

namespace flashladder {

/// Matrices of bf16 in device memory, row after row. All sizes are multiples of 8, all addresses of 16 bytes.
struct GemmArgs {
    int M, N, K;
    const void* A;  // (M, K)
    const void* B;  // (K, N)
    void* C;        // (M, N)
    unsigned* scratch = nullptr;  // a word of device memory; only the variant "dynamic" needs it
    cudaStream_t stream = nullptr;
    std::string variant = "";  // one of gemm_variants()
};

/// Launches it on the stream; sums in f32, allocates nothing, may be captured into a graph. Throws std::invalid_argument
/// with one line that names what is wrong: a size, an unknown variant, "dynamic" without scratch; and CudaError.
void gemm(const GemmArgs& args);

/// "" and other forms of it, kept to compare.
std::vector<std::string> gemm_variants();

}  // namespace flashladder
