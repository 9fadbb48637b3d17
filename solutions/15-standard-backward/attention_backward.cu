// Rung 15: attention's gradients by the chain rule, one step after the other back from dO.
//
// Idea      five kernels: P again, dV, dS in the place of P, dQ, dK. The softmax's Jacobian, N_k x N_k for each query, need
//           never be: all that it asks of a row is one number, D
// Cost      P, and then dS, N_q x N_k for every head, pass device memory six times: Theta(N d + N^2) words, as in rung 00
// Source    FlashAttention (Dao et al., 2022), Algorithm 3, the "standard attention backward pass"; Theorem 5, first half
// Supports  float; d 64, 128; grouped queries; any N_q; N_k up to 2^22 - 64; up to 65535 heads over all batches
#include "launch.h"
#include "operations/attention_backward/stage.h"

namespace flashladder::attention_backward {
namespace {

constexpr int tile = 64;           // rows and columns of a product that a block owns
constexpr int step = 16;           // of the index that is summed over
constexpr int threads_x = 16, threads_y = 16, threads = threads_x * threads_y;
constexpr int own = tile / threads_x;  // rows and columns that a thread owns: 4 x 4
constexpr int warp = 32;
constexpr int pad = 4;  // floats behind each row of a tile, so that what is stored down a column meets in no bank

/// (step, tile) of a matrix into shared memory, the index of the sum in front: from column k0 of (rows, K), or, if
/// `k_is_row`, from row k0 of (K, rows). Outside of it a tile is 0, which adds nothing.
template <bool k_is_row>
__device__ void load_tile(float (&to)[step][tile + pad], const float* from, int first_row, int k0, int rows, int K) {
    constexpr int sector = 8;  // floats: if k is a column, a warp reads a sector of each of 4 rows
    for (int e = threadIdx.x; e < step * tile; e += threads) {
        const int k = k_is_row ? e / tile : e % sector + e / (sector * tile) * sector;
        const int r = k_is_row ? e % tile : e / sector % tile;
        const bool inside = k0 + k < K && first_row + r < rows;
        const std::size_t place = k_is_row ? std::size_t(k0 + k) * rows + first_row + r : std::size_t(first_row + r) * K + k0 + k;
        to[k][r] = inside ? from[place] : 0;
    }
}

/// sum += this thread's part of A B, of which the block owns a tile: A is (M, K), or (K, M) if A_is_transposed; B is (K, N),
/// or (N, K).
template <bool A_is_transposed, bool B_is_transposed>
__device__ void multiply_add(float (&sum)[own][own], const float* A, const float* B, int M, int N, int K) {
    __shared__ __align__(16) float A_smem[step][tile + pad];  // (k, row of the product)
    __shared__ __align__(16) float B_smem[step][tile + pad];  // (k, column)
    const int tx = threadIdx.x % threads_x, ty = threadIdx.x / threads_x;
    for (int k0 = 0; k0 < K; k0 += step) {
        load_tile<A_is_transposed>(A_smem, A, blockIdx.x * tile, k0, M, K);
        load_tile<!B_is_transposed>(B_smem, B, blockIdx.y * tile, k0, N, K);
        __syncthreads();  // every thread reads what all have loaded
#pragma unroll
        for (int k = 0; k < step; ++k) {
            const float4 a4 = reinterpret_cast<const float4&>(A_smem[k][own * ty]);
            const float a[own] = {a4.x, a4.y, a4.z, a4.w};
            for (int c = 0; c < own; ++c) {
                const float b = B_smem[k][tx + c * threads_x];
                for (int r = 0; r < own; ++r) sum[r][c] += a[r] * b;
            }
        }
        __syncthreads();  // the tiles are about to be overwritten
    }
}

/// Row and column of the product whose sum a thread has in sum[r][c]: neighbouring threads own neighbouring columns.
__device__ int row_of(int r) { return blockIdx.x * tile + threadIdx.x / threads_x * own + r; }
__device__ int column_of(int c) { return blockIdx.y * tile + threadIdx.x % threads_x + c * threads_x; }

/// P = softmax(scale Q K^T), for every head: LSE is what the forward pass has left of its maximum and its sum.
__global__ void probabilities(const float* Q, const float* K, const float* lse, float* P, int N_q, int N_k, int d, float scale) {
    const std::size_t head = blockIdx.z;
    Q += head * N_q * d, K += head * N_k * d, lse += head * N_q, P += head * N_q * N_k;
    float S[own][own] = {};  // without scale
    multiply_add<false, true>(S, Q, K, N_q, N_k, d);
    for (int r = 0; r < own; ++r) {
        const int i = row_of(r);
        if (i >= N_q) break;
        const float lse_i = lse[i];
        for (int c = 0; c < own; ++c) {
            const int j = column_of(c);
            if (j >= N_k) break;
            // EXERCISE 15.2 The weight of key j for query i, of its score and of what the forward pass has left. The starter
            // finds all keys equally good.
            // STARTER const float weight = 1.0f / N_k;
            const float weight = expf(scale * S[r][c] - lse_i);  // at most 1: LSE is at least the largest score
            // END 15.2
            P[std::size_t(i) * N_k + j] = weight;
        }
    }
}

/// Sum of one value of each lane; every lane gets it.
__device__ float warp_sum(float x) {
    for (int lanes = warp / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, lanes);
    return x;
}

/// dS in the place of P, for every head. As O = P V, what dO says of P is dP = dO V^T.
__global__ void score_gradients(const float* dO, const float* V, const float* O, float* P, int N_q, int N_k, int d) {
    const std::size_t head = blockIdx.z;
    dO += head * N_q * d, V += head * N_k * d, O += head * N_q * d, P += head * N_q * N_k;
    float dP[own][own] = {};
    multiply_add<false, true>(dP, dO, V, N_q, N_k, d);
    // EXERCISE 15.3 Build: dS in the place of P, in this block's tile. Every score of a row moves every weight of the row, and
    // what that comes to is one number for the row, of which a block need not see all keys: it is found once a block and row,
    // from dO and O. Each element of P is read once and written once. The starter lets a score move the weight of its own
    // key alone.
    // STARTER for (int r = 0; r < own; ++r)
    // STARTER     for (int c = 0; c < own; ++c) {
    // STARTER         const int i = row_of(r), j = column_of(c);
    // STARTER         if (i < N_q && j < N_k) P[std::size_t(i) * N_k + j] *= dP[r][c];
    // STARTER     }
    __shared__ float D[tile];  // of each row, sum over x of dO O: that is sum over all keys of P dP
    const int lane = threadIdx.x % warp, first = blockIdx.x * tile;
    for (int r = threadIdx.x / warp; r < tile; r += threads / warp) {  // a warp a row
        float sum = 0;
        if (first + r < N_q)
            for (int x = lane; x < d; x += warp)
                sum += dO[std::size_t(first + r) * d + x] * O[std::size_t(first + r) * d + x];
        sum = warp_sum(sum);
        if (lane == 0) D[r] = sum;
    }
    __syncthreads();  // every thread reads what other warps have found
    for (int r = 0; r < own; ++r)
        for (int c = 0; c < own; ++c) {
            const int i = row_of(r), j = column_of(c);
            if (i < N_q && j < N_k) P[std::size_t(i) * N_k + j] *= dP[r][c] - D[i - first];
        }
    // END 15.3
}

/// C = alpha A B for every head: A is (M, K), or (K, M) if A_is_transposed; B is (K, N), C (M, N).
template <bool A_is_transposed>
__global__ void multiply(const float* A, const float* B, float* C, int M, int N, int K, float alpha) {
    const std::size_t head = blockIdx.z;
    A += head * M * K, B += head * K * N, C += head * M * N;
    float sum[own][own] = {};
    multiply_add<A_is_transposed, false>(sum, A, B, M, N, K);
    for (int r = 0; r < own; ++r)
        for (int c = 0; c < own; ++c)
            if (row_of(r) < M && column_of(c) < N) C[std::size_t(row_of(r)) * N + column_of(c)] = alpha * sum[r][c];
}

constexpr int max_grid_yz = 65535;
const Support supports{.stage = "15-standard-backward",
                       .head_dims = {64, 128},
                       .grouped_query = true,
                       .deterministic = true,
                       .max_batch_heads = max_grid_yz,
                       .max_n_k = max_grid_yz * tile};

/// P for all heads at once, and in its place dS.
std::size_t scratch_bytes(const AttentionShape& s) {
    return sizeof(float) * s.batch * s.heads * std::size_t(s.n_q) * s.n_k;
}

unsigned tiles(int n) { return (n + tile - 1) / tile; }

void launch(const BackwardArgs& args) {
    const auto& [batch, heads, kv_heads, n_q, N_k, d, causal, dtype] = args.shape;
    // Heads that share K and V lie behind each other, and no query cares for its neighbours: they are one head with more
    // queries, and its dK and dV sum over all of them.
    const int N_q = heads / kv_heads * n_q;
    const unsigned all_heads = batch * kv_heads;
    const auto *Q = static_cast<const float*>(args.Q), *K = static_cast<const float*>(args.K),
               *V = static_cast<const float*>(args.V), *O = static_cast<const float*>(args.O),
               *dO = static_cast<const float*>(args.dO);
    auto *dQ = static_cast<float*>(args.dQ), *dK = static_cast<float*>(args.dK), *dV = static_cast<float*>(args.dV);
    auto* P = static_cast<float*>(args.scratch);
    const auto grid = [=](int M, int N) { return dim3(tiles(M), tiles(N), all_heads); };
    const float scale = args.scale;

    launch_kernel(probabilities, {grid(N_q, N_k), threads, 0, args.stream}, Q, K, args.lse, P, N_q, N_k, d, scale);
    const auto dS_in_the_place_of_P = [&] {
        launch_kernel(score_gradients, {grid(N_q, N_k), threads, 0, args.stream}, dO, V, O, P, N_q, N_k, d);
    };
    // EXERCISE 15.1 What follows, by `multiply` and dS_in_the_place_of_P(): dV from P and dO, dQ from dS and K, dK from dS and Q.
    // Which factor is transposed, where does scale belong, and when is P no more? The starter finds zeros.
    // STARTER check_cuda(cudaMemsetAsync(dQ, 0, sizeof(float) * args.shape.q_elements(), args.stream), "dQ");
    // STARTER check_cuda(cudaMemsetAsync(dK, 0, sizeof(float) * args.shape.kv_elements(), args.stream), "dK");
    // STARTER check_cuda(cudaMemsetAsync(dV, 0, sizeof(float) * args.shape.kv_elements(), args.stream), "dV");
    launch_kernel(multiply<true>, {grid(N_k, d), threads, 0, args.stream}, P, dO, dV, N_k, d, N_q, 1.0f);
    dS_in_the_place_of_P();
    const float* dS = P;
    launch_kernel(multiply<false>, {grid(N_q, d), threads, 0, args.stream}, dS, K, dQ, N_q, d, N_k, scale);
    launch_kernel(multiply<true>, {grid(N_k, d), threads, 0, args.stream}, dS, Q, dK, N_k, d, N_q, scale);
    // END 15.1
}

const Registration registration({supports, launch, scratch_bytes});

}  // namespace
}  // namespace flashladder::attention_backward
