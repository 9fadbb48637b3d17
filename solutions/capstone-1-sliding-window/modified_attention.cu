// Capstone 1: sliding-window attention. What is asked for: chapters/capstone-1-sliding-window/README.md.
//
// Supports  float; d 64, 128; any N_q and N_k; any window; grouped-query heads; LSE
#include "launch.h"
#include "operations/modified_attention/stage.h"

namespace flashladder::modified_attention {
namespace {

// EXERCISE capstone-1.1 Build: the whole kernel, and launch(), which starts it. The contract is the README beside this
// file.
// STARTER void launch([[maybe_unused]] const Args& args) {}
// Rung 03 between two bounds. A block owns 64 queries, which together see the keys from the first one that its first query
// sees to the last one that its last query sees: window + 63 at most. These are cut into tiles from the first one on, so
// that no key outside is asked for, and only the tiles at the two edges hide something.
constexpr int threads_x = 16, threads_y = 16;  // of a block: 16 neighbours share 4 rows
constexpr int threads = threads_x * threads_y;
constexpr int rows = 4;                // of S and O that a thread owns
constexpr int B_r = threads_y * rows;  // 64 queries
constexpr int pad = 4;                 // floats after each row of K_j, so that rows start in different banks

__host__ __device__ constexpr int keys_a_tile(int d) { return d == 64 ? 64 : 32; }
constexpr int shared_bytes(int B_c, int d) { return 4 * (B_r * d + B_c * (d + pad) + B_c * d + B_r * B_c); }

/// Rows `first` to `end` of d floats into a tile of so many rows, the rest of which becomes 0.
template <int d, int stride>
__device__ void load_tile(float* tile, const float* tensor, int first, int end, int tile_rows) {
    constexpr int chunks = d / 4;  // of 16 bytes
    for (int e = threadIdx.x; e < tile_rows * chunks; e += threads) {
        const int r = e / chunks, x = e % chunks * 4;
        float4 values{0, 0, 0, 0};
        if (first + r < end) values = reinterpret_cast<const float4&>(tensor[std::size_t(first + r) * d + x]);
        reinterpret_cast<float4&>(tile[r * stride + x]) = values;
    }
}

__device__ float dot(float4 a, float4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
__device__ void multiply_add(float4& sum, float a, float4 b) {
    sum.x += a * b.x, sum.y += a * b.y, sum.z += a * b.z, sum.w += a * b.w;
}
__device__ void scale_by(float4& v, float a) { v.x *= a, v.y *= a, v.z *= a, v.w *= a; }

/// Sum and maximum over the 16 threads that share a row.
__device__ float row_sum(float x) {
    for (int lanes = threads_x / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, lanes);
    return x;
}
__device__ float row_max(float x) {
    for (int lanes = threads_x / 2; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, lanes));
    return x;
}

/// Block (i, h, b) owns 64 queries of one head. Thread (tx, ty) owns rows 4 ty to 4 ty + 3 of every tile; of S the columns tx,
/// tx + 16, ..., of O the columns 4 tx to 4 tx + 3 and every 64th further.
template <int d>
__global__ void __launch_bounds__(threads) sliding_window(const float* Q, const float* K, const float* V, float* O, float* lse,
                                                          int N_q, int N_k, int window, int group, float scale) {
    constexpr int B_c = keys_a_tile(d);
    constexpr int columns = B_c / threads_x, chunks = d / (4 * threads_x);  // of S and O that a thread owns
    float* Q_i = dynamic_shared<float>();  // (B_r, d)
    float* K_j = Q_i + B_r * d;            // (B_c, d + pad)
    float* V_j = K_j + B_c * (d + pad);    // (B_c, d)
    float* P = V_j + B_c * d;              // (B_r, B_c)
    const std::size_t head = blockIdx.z * gridDim.y + blockIdx.y, kv_head = head / group;
    Q += head * N_q * d, O += head * N_q * d;
    K += kv_head * N_k * d, V += kv_head * N_k * d;
    const int tx = threadIdx.x % threads_x, row = threadIdx.x / threads_x * rows;
    const int i = blockIdx.x * B_r;  // its first query

    // Query i stands at key i + diagonal, and sees the `window` keys that end there.
    const int diagonal = N_k - N_q;
    const int begin = max(0, i + diagonal - window + 1), end = min(N_k, i + B_r + diagonal);

    load_tile<d, d>(Q_i, Q, i, N_q, B_r);
    float4 O_reg[rows][chunks] = {};
    float m[rows], l[rows] = {};
    for (int r = 0; r < rows; ++r) m[r] = -INFINITY;

    for (int j = begin; j < end; j += B_c) {
        load_tile<d, d + pad>(K_j, K, j, end, B_c);
        load_tile<d, d>(V_j, V, j, end, B_c);
        __syncthreads();  // all tiles are there

        float S[rows][columns] = {};  // S = Q_i K_j^T
        for (int x = 0; x < d; x += 4) {
            float4 q[rows];
            for (int r = 0; r < rows; ++r) q[r] = reinterpret_cast<const float4&>(Q_i[(row + r) * d + x]);
#pragma unroll
            for (int c = 0; c < columns; ++c) {
                const float4 k = reinterpret_cast<const float4&>(K_j[(tx + c * threads_x) * (d + pad) + x]);
                for (int r = 0; r < rows; ++r) S[r][c] += dot(q[r], k);
            }
        }

        // The first query sees the tile's last key, and the last query its first one: nothing is hidden.
        const bool hides = j + B_c - 1 > i + diagonal || j <= i + B_r - 1 + diagonal - window;
#pragma unroll
        for (int r = 0; r < rows; ++r) {
            const int own = i + row + r + diagonal;  // the key where this query stands
            float m_new = m[r], l_ij = 0;
#pragma unroll
            for (int c = 0; c < columns; ++c) {
                const int key = j + tx + c * threads_x;
                S[r][c] = hides && (key > own || key <= own - window) ? -INFINITY : scale * S[r][c];
                m_new = fmaxf(m_new, S[r][c]);
            }
            m_new = row_max(m_new);
            const float reference = m_new == -INFINITY ? 0 : m_new;  // a query that has seen no key yet: P = exp(-inf) = 0
#pragma unroll
            for (int c = 0; c < columns; ++c) {
                const float p = expf(S[r][c] - reference);
                P[(row + r) * B_c + tx + c * threads_x] = p;
                l_ij += p;
            }
            const float rescale = expf(m[r] - reference);
            l[r] = rescale * l[r] + l_ij;  // of this thread's columns; the 16 of the row add up at the end
            for (int x = 0; x < chunks; ++x) scale_by(O_reg[r][x], rescale);
            m[r] = m_new;
        }
        __syncwarp();  // the rows of P that a thread reads below were written by its own half warp

        for (int c = 0; c < B_c; c += 4) {  // O += P V_j
            float4 p[rows];
            for (int r = 0; r < rows; ++r) p[r] = reinterpret_cast<const float4&>(P[(row + r) * B_c + c]);
            for (int x = 0; x < chunks; ++x) {
                const float* V_column = V_j + c * d + 4 * (tx + x * threads_x);
                float4 v[4];
                for (int k = 0; k < 4; ++k) v[k] = reinterpret_cast<const float4&>(V_column[k * d]);
#pragma unroll
                for (int r = 0; r < rows; ++r) {
                    multiply_add(O_reg[r][x], p[r].x, v[0]);
                    multiply_add(O_reg[r][x], p[r].y, v[1]);
                    multiply_add(O_reg[r][x], p[r].z, v[2]);
                    multiply_add(O_reg[r][x], p[r].w, v[3]);
                }
            }
        }
        __syncthreads();  // K_j and V_j are about to be overwritten
    }

#pragma unroll
    for (int r = 0; r < rows; ++r) {
        const float l_row = row_sum(l[r]);
        if (i + row + r >= N_q) continue;
        const float inverse = l_row == 0 ? 0 : 1 / l_row;  // NaN stays NaN
        float4* O_row = reinterpret_cast<float4*>(O + std::size_t(i + row + r) * d);
        for (int x = 0; x < chunks; ++x) {
            scale_by(O_reg[r][x], inverse);
            O_row[tx + x * threads_x] = O_reg[r][x];
        }
        if (lse && tx == 0) lse[head * N_q + i + row + r] = l_row == 0 ? -INFINITY : m[r] + logf(l_row);
    }
}

void launch(const Args& args) {
    const attention::AttentionShape& s = args.shape;
    const dim3 grid((s.n_q + B_r - 1) / B_r, s.heads, s.batch);
    const auto kernel = s.head_dim == 64 ? sliding_window<64> : sliding_window<128>;
    const std::size_t bytes = shared_bytes(keys_a_tile(s.head_dim), s.head_dim);
    launch_kernel(kernel, {grid, threads, bytes, args.stream}, static_cast<const float*>(args.Q),
                  static_cast<const float*>(args.K), static_cast<const float*>(args.V), static_cast<float*>(args.O), args.lse,
                  s.n_q, s.n_k, args.window, s.heads / s.kv_heads, args.scale);
}
// END capstone-1.1

const Support supports{
    .attention = {.stage = "capstone-1-sliding-window", .head_dims = {64, 128}, .lse = true, .grouped_query = true},
    .window = true};
const Registration registration({supports, launch});

}  // namespace
}  // namespace flashladder::modified_attention
