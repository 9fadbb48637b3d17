// Rung 00: standard attention, as its definition reads: S = scale Q K^T, P = softmax(S), O = P V.
//
// Idea      three kernels, one a step; the two matrix products with 16 x 16 tiles in shared memory
// Cost      S and P, N_q x N_k for every head, are written to device memory and read back: Theta(N d + N^2) bytes
// Source    "standard attention" in FlashAttention (Dao et al., 2022), its Algorithm 0
// Supports  float; d 32, 64, 96, 128; any N_q; N_k up to 2^20 - 16; up to 65535 heads over all batches
#include "launch.h"
#include "operations/attention/stage.h"

namespace flashladder::attention {
namespace {

constexpr int tile = 16;       // threads and elements a side of every tile
constexpr int warp = 32;
constexpr int rows_a_block = 4;  // of the softmax: one warp a row

/// Sum of one value of each lane, or their maximum; every lane gets it.
// EXERCISE 0.1 Add up x over the 32 lanes of the warp with __shfl_xor_sync, and find the largest: every lane returns it.
// TODO: your code, instead of this.
__device__ float warp_sum(float x) { return x; }
__device__ float warp_max(float x) { return x; }
// END 0.1

/// Each row of S becomes its softmax, in place. One warp a row.
__global__ void softmax(float* S, std::size_t rows, int N_k) {
    const std::size_t row = std::size_t(blockIdx.x) * rows_a_block + threadIdx.y;
    if (row >= rows) return;  // the whole warp; there is no barrier below
    S += row * N_k;
    const int lane = threadIdx.x;

    // EXERCISE 0.2 Find the largest score m of the row: exp(S - m) cannot overflow, exp(S) can.
    // TODO: your code, instead of this.
    const float m = 0;
    // END 0.2
    float l = 0;
    for (int j = lane; j < N_k; j += warp) l += S[j] = expf(S[j] - m);
    l = warp_sum(l);
    for (int j = lane; j < N_k; j += warp) S[j] /= l;
}

/// C = alpha A B^T (B_is_transposed) or alpha A B, for every head: A is (M, K), B is (N, K) or (K, N), C is (M, N).
/// A thread owns one element of C, a block a tile of it.
template <bool B_is_transposed>
__global__ void multiply(const float* A, const float* B, float* C, int M, int N, int K, float alpha) {
    const std::size_t head = blockIdx.z;
    A += head * M * K;
    B += head * N * K;
    C += head * M * N;
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int row = blockIdx.x * tile + ty, column = blockIdx.y * tile + tx;

    float sum = 0;
    // EXERCISE 0.3 Build: this thread's element of the product, by way of shared memory. In steps of `tile` along K, the block
    // copies a tile of A and one of B there, each thread one element of both, and each thread adds to its sum from there.
    // Any M, N, K; no races; neighbouring threads load neighbouring addresses; few bank conflicts. The starter is right,
    // but asks device memory for everything that it multiplies.
    // TODO: your code, instead of this.
    if (row < M && column < N)
        for (int k = 0; k < K; ++k) {
            const std::size_t b = B_is_transposed ? std::size_t(column) * K + k : std::size_t(k) * N + column;
            sum += A[std::size_t(row) * K + k] * B[b];
        }
    // END 0.3
    if (row < M && column < N) C[std::size_t(row) * N + column] = alpha * sum;
}

constexpr int max_grid_yz = 65535;
const Support supports{.stage = "00-standard-attention",
                       .head_dims = {32, 64, 96, 128},
                       .max_batch_heads = max_grid_yz,
                       .max_n_k = max_grid_yz * tile};

/// S for all heads at once: this is the memory that FlashAttention does without.
std::size_t scratch_bytes(const AttentionShape& s) {
    return sizeof(float) * s.batch * s.heads * std::size_t(s.n_q) * s.n_k;
}

unsigned tiles(int n) { return (n + tile - 1) / tile; }

void launch(const ForwardArgs& args) {
    const auto& [batch, heads, kv_heads, N_q, N_k, d, causal, dtype] = args.shape;
    const unsigned batch_heads = batch * heads;
    const auto* Q = static_cast<const float*>(args.Q);
    const auto* K = static_cast<const float*>(args.K);
    const auto* V = static_cast<const float*>(args.V);
    auto* S = static_cast<float*>(args.scratch);
    auto* O = static_cast<float*>(args.O);
    const std::size_t rows = std::size_t(batch_heads) * N_q;

    const dim3 threads(tile, tile);
    launch_kernel(multiply<true>, {{tiles(N_q), tiles(N_k), batch_heads}, threads, 0, args.stream}, Q, K, S, N_q, N_k, d,
                  args.scale);
    launch_kernel(softmax, {unsigned((rows + rows_a_block - 1) / rows_a_block), dim3(warp, rows_a_block), 0, args.stream}, S,
                  rows, N_k);
    launch_kernel(multiply<false>, {{tiles(N_q), tiles(d), batch_heads}, threads, 0, args.stream}, S, V, O, N_q, d, N_k, 1.0f);
}

const Registration registration({supports, launch, scratch_bytes});

}  // namespace
}  // namespace flashladder::attention
