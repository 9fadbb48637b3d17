// Rung 17: a block of threads for each block of keys, as FlashAttention-2 does it.
//
// Idea      dK and dV of some keys need all queries, but no other keys: a block of threads takes 64 keys, and all queries pass
//           by. Only dQ is everybody's: each block adds its part, atomically. D is found once, before
// Saves     rung 16's idle multiprocessors: T_c times as many blocks; O, and dQ's way back on chip, for each block of keys.
//           Costs: an atomic addition for each element of dQ and block of keys, and the order of a sum, which is nobody's now
// Source    FlashAttention-2 (Dao, 2023), Algorithm 2, sections 3.1.2 and 3.2
// Supports  float; d 64, 128; causal; grouped queries; any N_q and N_k
#include <algorithm>

#include "launch.h"
#include "operations/attention_backward/stage.h"

namespace flashladder::attention_backward {
namespace {

constexpr int B_r = 64, B_c = 64;      // queries of a step, keys of a block
constexpr int threads_x = 16, threads_y = 16, threads = threads_x * threads_y;
constexpr int own = B_r / threads_y;   // rows and columns of a tile of scores that a thread owns
constexpr int pad = 4;                 // floats behind each row of a tile, so that neighbouring rows start in different banks
constexpr int warp = 32;
constexpr int wide = B_c + pad;        // floats from row to row of P and dS

constexpr int shared_bytes(int d) { return 4 * (4 * B_r * (d + pad) + 2 * B_r * wide + 2 * B_r); }

// ---- before: D = rowsum(dO O)

/// Sum of one value of each lane; every lane gets it.
__device__ float warp_sum(float x) {
    for (int lanes = warp / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, lanes);
    return x;
}

/// One number for each query of all heads, a warp a query.
__global__ void row_sums(const float* O, const float* dO, float* D, std::size_t queries, int d) {
    const std::size_t i = blockIdx.x * std::size_t(threads / warp) + threadIdx.x / warp;
    if (i >= queries) return;
    // EXERCISE 17.1 D of query i, a row of d floats in O and in dO, by the warp that has it. Neighbouring lanes read
    // neighbours, every float is read once, and one lane writes. The starter finds 0.
    // TODO: your code, instead of this.
    if (threadIdx.x % warp == 0) D[i] = 0;
    // END 17.1
}

// ---- tiles

/// Rows `first` to `end` of d floats into a tile of 64 rows, the rest of which becomes 0.
template <int d>
__device__ void load(float* tile, const float* tensor, int first, int end) {
    constexpr int chunks = d / 4;  // of 16 bytes
#pragma unroll 4
    for (int e = threadIdx.x; e < B_r * chunks; e += threads) {
        const int r = e / chunks, x = e % chunks * 4;
        float4 values{0, 0, 0, 0};
        if (first + r < end) values = reinterpret_cast<const float4&>(tensor[std::size_t(first + r) * d + x]);
        reinterpret_cast<float4&>(tile[r * (d + pad) + x]) = values;
    }
}

__device__ const float4& vector_at(const float* p) { return *reinterpret_cast<const float4*>(p); }
__device__ float dot(float4 a, float4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
__device__ void multiply_add(float4& sum, float a, float4 b) {
    sum.x += a * b.x, sum.y += a * b.y, sum.z += a * b.z, sum.w += a * b.w;
}

/// A B^T, of rows 4 ty to 4 ty + 3 of A and rows tx, tx + 16, ... of B.
template <int d>
__device__ void multiply_transposed(float (&C)[own][own], const float* A, const float* B) {
    const int tx = threadIdx.x % threads_x, ty = threadIdx.x / threads_x;
    for (int r = 0; r < own; ++r)
        for (int c = 0; c < own; ++c) C[r][c] = 0;
#pragma unroll 4
    for (int x = 0; x < d; x += 4) {
        float4 a[own];
        for (int r = 0; r < own; ++r) a[r] = vector_at(&A[(own * ty + r) * (d + pad) + x]);
        for (int c = 0; c < own; ++c) {
            const float4 b = vector_at(&B[(tx + c * threads_x) * (d + pad) + x]);
            for (int r = 0; r < own; ++r) C[r][c] += dot(a[r], b);
        }
    }
}

/// C += A^T B, of columns 4 ty to 4 ty + 3 of A, (64, 64), and columns 4 tx to 4 tx + 3, and every 64th further, of B.
template <int d>
__device__ void multiply_add_transposed(float4 (&C)[own][d / 64], const float* A, const float* B) {
    const int tx = threadIdx.x % threads_x, ty = threadIdx.x / threads_x;
#pragma unroll 4
    for (int i = 0; i < B_r; ++i) {
        const float4 a = vector_at(&A[i * wide + own * ty]);
        for (int x = 0; x < d / 64; ++x) {
            const float4 b = vector_at(&B[i * (d + pad) + 64 * x + 4 * tx]);
            multiply_add(C[0][x], a.x, b);
            multiply_add(C[1][x], a.y, b);
            multiply_add(C[2][x], a.z, b);
            multiply_add(C[3][x], a.w, b);
        }
    }
}

/// A B, of rows 4 ty to 4 ty + 3 of A, (64, 64), and columns of B as above.
template <int d>
__device__ void multiply(float4 (&C)[own][d / 64], const float* A, const float* B) {
    const int tx = threadIdx.x % threads_x, ty = threadIdx.x / threads_x;
    for (int r = 0; r < own; ++r)
        for (int x = 0; x < d / 64; ++x) C[r][x] = {0, 0, 0, 0};
#pragma unroll 2
    for (int k = 0; k < B_c; k += 4) {
        float4 a[own];
        for (int r = 0; r < own; ++r) a[r] = vector_at(&A[(own * ty + r) * wide + k]);
        for (int x = 0; x < d / 64; ++x) {
            float4 b[4];
            for (int l = 0; l < 4; ++l) b[l] = vector_at(&B[(k + l) * (d + pad) + 64 * x + 4 * tx]);
            for (int r = 0; r < own; ++r) {
                multiply_add(C[r][x], a[r].x, b[0]);
                multiply_add(C[r][x], a[r].y, b[1]);
                multiply_add(C[r][x], a[r].z, b[2]);
                multiply_add(C[r][x], a[r].w, b[3]);
            }
        }
    }
}

// ---- the gradients

/// Block (j, kv head, batch) owns 64 keys. Thread (tx, ty) owns rows 4 ty to 4 ty + 3 of every tile; of scores the columns tx,
/// tx + 16, ..., of what has d columns 4 tx to 4 tx + 3 and every 64th further.
template <int d>
__global__ void __launch_bounds__(threads) key_blocks(const float* Q, const float* K, const float* V, const float* dO,
                                                      const float* lse, const float* D, float* dQ, float* dK, float* dV,
                                                      int N_q, int N_k, int group, bool causal, float scale) {
    constexpr int size = B_r * (d + pad), vectors = d / 64;
    float* K_j = dynamic_shared<float>();  // (B_c, d + pad)
    float* V_j = K_j + size;               // (B_c, d + pad)
    float* Q_i = V_j + size;               // (B_r, d + pad)
    float* dO_i = Q_i + size;              // (B_r, d + pad)
    float* P = dO_i + size;                // (B_r, B_c + pad)
    float* dS = P + B_r * wide;            // (B_r, B_c + pad)
    float* lse_i = dS + B_r * wide;        // (B_r)
    float* D_i = lse_i + B_r;              // (B_r)
    const int tx = threadIdx.x % threads_x, ty = threadIdx.x / threads_x;
    const int j = blockIdx.x * B_c;  // its first key
    const std::size_t kv_head = blockIdx.z * gridDim.y + blockIdx.y;
    K += kv_head * N_k * d, V += kv_head * N_k * d, dK += kv_head * N_k * d, dV += kv_head * N_k * d;

    load<d>(K_j, K, j, N_k);
    load<d>(V_j, V, j, N_k);
    float4 dK_reg[own][vectors] = {}, dV_reg[own][vectors] = {};
    const int diagonal = N_k - N_q;  // with a causal mask query i sees the keys up to i + diagonal

    // EXERCISE 17.3 Build: the block's loop, up to where dQ grows. All heads of the group, and in each all blocks of B_r
    // queries from row i on, but those that see none of these keys: Q_i and dO_i, by `load`, lse_i, D_i; P and dS, which are
    // 0 where no query sees a key; dV_reg and dK_reg (without scale) grow; dQ_reg. All products by the functions above. What
    // stands behind it adds rows i to i + B_r - 1 of dQ_reg to dQ of `head`. The starter is right, and takes one query at a
    // time.
    // TODO: your code, instead of this.
    __syncthreads();  // K_j and V_j are there
    for (std::size_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
        for (int i = 0; i < N_q; ++i) {
            const float *q = Q + (head * N_q + i) * d, *g = dO + (head * N_q + i) * d;
            const int c = threadIdx.x;
            if (c < B_c) {  // a thread a key
                float s = 0, dp = 0;
                for (int x = 0; x < d; ++x) s += q[x] * K_j[c * (d + pad) + x];
                for (int x = 0; x < d; ++x) dp += g[x] * V_j[c * (d + pad) + x];
                const bool hidden = j + c >= N_k || (causal && j + c > i + diagonal);
                P[c] = hidden ? 0 : expf(scale * s - lse[head * N_q + i]);
                dS[c] = hidden ? 0 : P[c] * (dp - D[head * N_q + i]);
            }
            __syncthreads();  // P and dS of this query are there
            float4 dQ_reg[own][vectors] = {};  // row i; behind it zeros
            for (int x = 0; x < vectors; ++x) {
                const int column = 64 * x + 4 * tx;
                for (int r = 0; r < own; ++r) {
                    multiply_add(dV_reg[r][x], P[own * ty + r], vector_at(&g[column]));
                    multiply_add(dK_reg[r][x], dS[own * ty + r], vector_at(&q[column]));
                }
                for (int k = 0; k < B_c && ty == 0; ++k)
                    multiply_add(dQ_reg[0][x], dS[k], vector_at(&K_j[k * (d + pad) + column]));
            }
    // END 17.3
            float* dQ_head = dQ + head * N_q * d;
            for (int r = 0; r < own; ++r) {
                if (i + own * ty + r >= N_q) break;
                for (int x = 0; x < vectors; ++x) {
                    float* to = &dQ_head[std::size_t(i + own * ty + r) * d + 64 * x + 4 * tx];
                    // EXERCISE 17.2 These four floats of dQ grow by scale times what these keys have found. The starter
                    // forgets who else is adding to them.
                    // TODO: your code, instead of this.
                    to[0] += scale * dQ_reg[r][x].x;
                    to[1] += scale * dQ_reg[r][x].y;
                    to[2] += scale * dQ_reg[r][x].z;
                    to[3] += scale * dQ_reg[r][x].w;
                    // END 17.2
                }
            }
            __syncthreads();  // the tiles of queries are about to be overwritten
        }

    for (int r = 0; r < own; ++r) {
        if (j + own * ty + r >= N_k) break;
        // As in rung 03 by pointers: through a reference nvcc makes four stores of one.
        const std::size_t row = std::size_t(j + own * ty + r) * d;
        float4 *dK_row = reinterpret_cast<float4*>(dK + row), *dV_row = reinterpret_cast<float4*>(dV + row);
        for (int x = 0; x < vectors; ++x) {
            const float4 k = dK_reg[r][x];
            dK_row[tx + threads_x * x] = make_float4(scale * k.x, scale * k.y, scale * k.z, scale * k.w);
            dV_row[tx + threads_x * x] = dV_reg[r][x];
        }
    }
}

const Support supports{.stage = "17-key-blocks", .head_dims = {64, 128}, .causal = true, .grouped_query = true};

/// D.
std::size_t scratch_bytes(const AttentionShape& s) { return sizeof(float) * s.lse_elements(); }

void launch(const BackwardArgs& args) {
    const AttentionShape& s = args.shape;
    const auto in = [](const void* tensor) { return static_cast<const float*>(tensor); };
    const auto out = [](void* tensor) { return static_cast<float*>(tensor); };
    float* D = static_cast<float*>(args.scratch);
    const std::size_t queries = s.lse_elements(), a_block = threads / warp;
    launch_kernel(row_sums, {unsigned((queries + a_block - 1) / a_block), threads, 0, args.stream}, in(args.O), in(args.dO), D, queries,
                  s.head_dim);
    check_cuda(cudaMemsetAsync(args.dQ, 0, sizeof(float) * s.q_elements(), args.stream), "dQ");
    const dim3 grid((s.n_k + B_c - 1) / B_c, s.kv_heads, s.batch);
    const auto kernel = s.head_dim == 64 ? key_blocks<64> : key_blocks<128>;
    launch_kernel(kernel, {grid, threads, std::size_t(shared_bytes(s.head_dim)), args.stream}, in(args.Q), in(args.K), in(args.V),
                  in(args.dO), args.lse, static_cast<const float*>(D), out(args.dQ), out(args.dK), out(args.dV), s.n_q, s.n_k,
                  s.heads / s.kv_heads, s.causal, args.scale);
}

const Registration registration({supports, launch, scratch_bytes});

}  // namespace
}  // namespace flashladder::attention_backward
