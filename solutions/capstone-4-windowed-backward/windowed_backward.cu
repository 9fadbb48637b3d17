// Capstone 4: the gradients of sliding-window attention. What is asked for: chapters/capstone-4-windowed-backward/README.md.
//
// Supports  float; d 64, 128; any N_q and N_k; any window; grouped-query heads
#include "launch.h"
#include "operations/windowed_backward/stage.h"

namespace flashladder::windowed_backward {
namespace {

// EXERCISE capstone-4.1 Build: all kernels, and launch(), which starts them. The contract is the README beside this file.
// STARTER void launch([[maybe_unused]] const Args& args) {}
// Two kernels, for nobody may add to what is another block's. A block of the first owns 64 queries, and the keys that they
// see pass by: dQ, and D = rowsum(dO O), which it leaves for the second. There a block owns 64 keys, and the queries that
// see them pass by: dK and dV. Each pair that is seen is looked at twice, so these are seven products instead of five; each
// sum has one order. Tiles begin where the window does, and rows that no one sees are not loaded.
constexpr int tile = 64;                       // queries, or keys, of a tile
constexpr int threads_x = 16, threads_y = 16;  // of a block: 16 neighbours share 4 rows
constexpr int threads = threads_x * threads_y;
constexpr int own = tile / threads_y;          // rows and columns of a 64 x 64 tile that a thread owns
constexpr int pad = 4;                         // floats behind each row, so that rows start in different banks

template <int d>
using Rows = float[tile][d + pad];
using Scores = float[tile][tile + pad];

/// What a block has in shared memory.
template <int d>
struct Tiles {
    Rows<d> Q, dO;  // of 64 queries
    Rows<d> K, V;   // of 64 keys
    Scores scores;  // P or dS, of their pairs
};

/// Query i stands at key i + diagonal, and sees the `width` keys that end there.
struct Window {
    int diagonal, width;

    __device__ bool shows(int query, int key) const { return key <= query + diagonal && key > query + diagonal - width; }
    // Of the 64 queries from i on, the first key that one of them sees, and the one behind the last; of 64 keys, queries in
    // the same way. There may be none: then the second is not behind the first.
    __device__ int first_key(int i) const { return max(0, i + diagonal - width + 1); }
    __device__ int end_of_keys(int i, int N_k) const { return min(N_k, i + tile + diagonal); }
    __device__ int first_query(int j) const { return max(0, j - diagonal); }
    __device__ int end_of_queries(int j, int N_q) const { return min(N_q, j + tile - 1 - diagonal + width); }
};

/// The arguments of both kernels: tensors of all heads.
struct Problem {
    const float *Q, *K, *V, *O, *dO, *lse;
    float *dQ, *dK, *dV, *D;
    int N_q, N_k, group;
    Window window;
    float scale;
};

/// Rows `first` to `end` of d floats, up to 64, into a tile, the rest of which becomes 0.
template <int d>
__device__ void load(Rows<d>& to, const float* tensor, int first, int end) {
    constexpr int chunks = d / 4;  // of 16 bytes
#pragma unroll 4
    for (int e = threadIdx.x; e < tile * chunks; e += threads) {
        const int r = e / chunks, x = e % chunks * 4;
        float4 values{0, 0, 0, 0};
        if (first + r < end) values = reinterpret_cast<const float4&>(tensor[std::size_t(first + r) * d + x]);
        reinterpret_cast<float4&>(to[r][x]) = values;
    }
}

__device__ const float4& vector_at(const float& x) { return reinterpret_cast<const float4&>(x); }
__device__ float dot(float4 a, float4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
__device__ void multiply_add(float4& sum, float a, float4 b) {
    sum.x += a * b.x, sum.y += a * b.y, sum.z += a * b.z, sum.w += a * b.w;
}

/// Sum over the 16 threads that share a row.
__device__ float row_sum(float x) {
    for (int lanes = threads_x / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, lanes);
    return x;
}

/// C = A B^T, of rows 4 ty to 4 ty + 3 of A and rows tx, tx + 16, ... of B.
template <int d>
__device__ void multiply_transposed(float (&C)[own][own], const Rows<d>& A, const Rows<d>& B) {
    const int tx = threadIdx.x % threads_x, row = threadIdx.x / threads_x * own;
    for (int r = 0; r < own; ++r)
        for (int c = 0; c < own; ++c) C[r][c] = 0;
#pragma unroll 2
    for (int x = 0; x < d; x += 4) {
        float4 a[own];
        for (int r = 0; r < own; ++r) a[r] = vector_at(A[row + r][x]);
        for (int c = 0; c < own; ++c) {
            const float4 b = vector_at(B[tx + c * threads_x][x]);
            for (int r = 0; r < own; ++r) C[r][c] += dot(a[r], b);
        }
    }
}

/// C += A^T B, of columns 4 ty to 4 ty + 3 of A, and columns 4 tx to 4 tx + 3, and every 64th further, of B.
template <int d>
__device__ void multiply_add_transposed(float4 (&C)[own][d / 64], const Scores& A, const Rows<d>& B) {
    const int tx = threadIdx.x % threads_x, row = threadIdx.x / threads_x * own;
#pragma unroll 2
    for (int k = 0; k < tile; ++k) {
        const float4 a = vector_at(A[k][row]);
        for (int x = 0; x < d / 64; ++x) {
            const float4 b = vector_at(B[k][64 * x + 4 * tx]);
            multiply_add(C[0][x], a.x, b);
            multiply_add(C[1][x], a.y, b);
            multiply_add(C[2][x], a.z, b);
            multiply_add(C[3][x], a.w, b);
        }
    }
}

/// P and dS of the 64 queries from i on, whose LSE and D this thread has for its rows, and the 64 keys from j on: both are 0
/// where the window hides the key, whatever stands in the tiles.
template <int d>
__device__ void find_scores(float (&P)[own][own], float (&dS)[own][own], const Tiles<d>& t, int i, int j,
                            const float (&lse)[own], const float (&D)[own], const Problem& p) {
    const int tx = threadIdx.x % threads_x, row = threadIdx.x / threads_x * own;
    float S[own][own], dP[own][own];
    multiply_transposed<d>(S, t.Q, t.K);
    multiply_transposed<d>(dP, t.dO, t.V);
#pragma unroll
    for (int r = 0; r < own; ++r)
#pragma unroll
        for (int c = 0; c < own; ++c) {
            const bool seen = p.window.shows(i + row + r, j + tx + c * threads_x);
            P[r][c] = seen ? expf(p.scale * S[r][c] - lse[r]) : 0;
            dS[r][c] = seen ? P[r][c] * (dP[r][c] - D[r]) : 0;
        }
}

/// This thread's scores, for all to read.
__device__ void share(Scores& all, const float (&scores)[own][own]) {
    const int tx = threadIdx.x % threads_x, row = threadIdx.x / threads_x * own;
    for (int r = 0; r < own; ++r)
        for (int c = 0; c < own; ++c) all[row + r][tx + c * threads_x] = scores[r][c];
}

/// This thread's part of 64 rows from `first` on, times a factor; of those before `end`.
template <int d>
__device__ void store(float* tensor, int first, int end, const float4 (&part)[own][d / 64], float factor) {
    const int tx = threadIdx.x % threads_x, row = threadIdx.x / threads_x * own;
    for (int r = 0; r < own && first + row + r < end; ++r) {
        float4* to = reinterpret_cast<float4*>(tensor + std::size_t(first + row + r) * d);
        for (int x = 0; x < d / 64; ++x) {
            const float4 v = part[r][x];
            to[tx + threads_x * x] = make_float4(factor * v.x, factor * v.y, factor * v.z, factor * v.w);
        }
    }
}

/// Block (i, h, b) owns 64 queries of one head.
template <int d>
__global__ void __launch_bounds__(threads) query_blocks(const Problem p) {
    Tiles<d>& t = *dynamic_shared<Tiles<d>>();
    const int tx = threadIdx.x % threads_x, row = threadIdx.x / threads_x * own;
    const int i = blockIdx.x * tile;  // its first query
    const std::size_t head = blockIdx.z * gridDim.y + blockIdx.y;
    const std::size_t queries = head * p.N_q, keys = head / p.group * p.N_k;  // its head's first rows

    load<d>(t.Q, p.Q + queries * d, i, p.N_q);
    load<d>(t.dO, p.dO + queries * d, i, p.N_q);
    __syncthreads();  // dO is there
    float lse[own], D[own];
    for (int r = 0; r < own; ++r) {
        const bool exists = i + row + r < p.N_q;
        const std::size_t query = queries + i + row + r;
        float sum = 0;
        for (int x = 4 * tx; exists && x < d; x += 4 * threads_x)
            sum += dot(vector_at(t.dO[row + r][x]), vector_at(p.O[query * d + x]));
        D[r] = row_sum(sum);
        lse[r] = exists ? p.lse[query] : 0;
        if (exists && tx == 0) p.D[query] = D[r];
    }

    float4 dQ[own][d / 64] = {};
    const int end = p.window.end_of_keys(i, p.N_k);
    for (int j = p.window.first_key(i); j < end; j += tile) {
        load<d>(t.K, p.K + keys * d, j, end);
        load<d>(t.V, p.V + keys * d, j, end);
        __syncthreads();  // K and V are there
        float P[own][own], dS[own][own];
        find_scores<d>(P, dS, t, i, j, lse, D, p);
        for (int c = 0; c < own; ++c)  // dS^T, so that dQ = dS K is found in the way of dK and dV
            reinterpret_cast<float4&>(t.scores[tx + c * threads_x][row]) =
                make_float4(dS[0][c], dS[1][c], dS[2][c], dS[3][c]);
        __syncthreads();  // dS^T is there
        multiply_add_transposed<d>(dQ, t.scores, t.K);
        __syncthreads();  // K, V and dS^T are about to be overwritten
    }
    store<d>(p.dQ + queries * d, i, p.N_q, dQ, p.scale);
}

/// Block (j, kv head, b) owns 64 keys of one head of K and V, and takes all heads of Q that share it.
template <int d>
__global__ void __launch_bounds__(threads) key_blocks(const Problem p) {
    Tiles<d>& t = *dynamic_shared<Tiles<d>>();
    const int row = threadIdx.x / threads_x * own;
    const int j = blockIdx.x * tile;  // its first key
    const std::size_t kv_head = blockIdx.z * gridDim.y + blockIdx.y, keys = kv_head * p.N_k;

    load<d>(t.K, p.K + keys * d, j, p.N_k);
    load<d>(t.V, p.V + keys * d, j, p.N_k);
    float4 dK[own][d / 64] = {}, dV[own][d / 64] = {};
    const int end = p.window.end_of_queries(j, p.N_q);
    for (std::size_t head = kv_head * p.group; head < (kv_head + 1) * p.group; ++head)
        for (int i = p.window.first_query(j); i < end; i += tile) {
            const std::size_t queries = head * p.N_q;
            load<d>(t.Q, p.Q + queries * d, i, end);
            load<d>(t.dO, p.dO + queries * d, i, end);
            float lse[own], D[own];
            for (int r = 0; r < own; ++r) {
                const bool exists = i + row + r < end;
                lse[r] = exists ? p.lse[queries + i + row + r] : 0;
                D[r] = exists ? p.D[queries + i + row + r] : 0;
            }
            __syncthreads();  // all tiles are there
            float P[own][own], dS[own][own];
            find_scores<d>(P, dS, t, i, j, lse, D, p);
            share(t.scores, P);
            __syncthreads();  // P is there
            multiply_add_transposed<d>(dV, t.scores, t.dO);
            __syncthreads();  // P is about to be overwritten
            share(t.scores, dS);
            __syncthreads();  // dS is there
            multiply_add_transposed<d>(dK, t.scores, t.Q);
            __syncthreads();  // Q, dO and dS are about to be overwritten
        }
    store<d>(p.dK + keys * d, j, p.N_k, dK, p.scale);
    store<d>(p.dV + keys * d, j, p.N_k, dV, 1);
}

template <int d>
void launch_kernels(const Args& args) {
    const attention::AttentionShape& s = args.shape;
    const auto in = [](const void* tensor) { return static_cast<const float*>(tensor); };
    const auto out = [](void* tensor) { return static_cast<float*>(tensor); };
    const Problem p{in(args.Q), in(args.K), in(args.V), in(args.O), in(args.dO), args.lse,
                    out(args.dQ), out(args.dK), out(args.dV), out(args.scratch),
                    s.n_q, s.n_k, s.heads / s.kv_heads, {s.n_k - s.n_q, args.window}, args.scale};
    const auto grid = [&](int rows, int heads) { return dim3((rows + tile - 1) / tile, heads, s.batch); };
    launch_kernel(query_blocks<d>, {grid(s.n_q, s.heads), threads, sizeof(Tiles<d>), args.stream}, p);
    launch_kernel(key_blocks<d>, {grid(s.n_k, s.kv_heads), threads, sizeof(Tiles<d>), args.stream}, p);
}

void launch(const Args& args) { args.shape.head_dim == 64 ? launch_kernels<64>(args) : launch_kernels<128>(args); }
// END capstone-4.1

const Support supports{
    .stage = "capstone-4-windowed-backward", .head_dims = {64, 128}, .grouped_query = true, .deterministic = true};
const Registration registration({supports, launch});

}  // namespace
}  // namespace flashladder::windowed_backward
