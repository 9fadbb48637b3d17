// Rung 18: transposed scores. S^T = K Q^T and dP^T = V dO^T, by tensor cores: keys are rows.
//
// Idea      the accumulators of P^T and dS^T, rounded, are as they lie the operands A of dV += P^T dO and dK += dS^T Q.
//           P never leaves its registers; dS meets shared memory once, for dQ alone, which reads it as its transpose
// Saves     rung 17's way of P and dS through shared memory, and its float products: tensor cores multiply 16 bits.
//           Costs: P and dS are rounded; LSE and D change along a row; sums of dQ in float, and a kernel more behind
// Source    FlashAttention-3's backward pass, in Dao-AILab/flash-attention: SdP_swapAB; sums in the order of registers
// Supports  bf16, f16; d 64, 128; causal; grouped queries; any N_q and N_k; sm_80 and newer
#include "operations/attention/launch_forward.h"
#include "operations/attention_backward/stage.h"
#include "ptx/ex2.h"
#include "tile/copy.h"
#include "tile/multiply.h"
#include "tile/swizzled.h"

namespace flashladder::attention_backward {
namespace {

constexpr int warps = 4, threads = 32 * warps;
constexpr int rows = 16;           // of a product's result that a warp owns: of keys, and for dQ of queries
constexpr int B_c = warps * rows;  // keys of a block
template <int d>
constexpr int B_r = d == 64 ? 64 : 32;  // queries of a step: as many as registers have room for P^T and dS^T
constexpr int panel = 64;               // columns of dQ that a warp owns
using tile::chunk;                      // 8 elements, 16 bytes

template <class Element, int rows, int d>
using Tile = tile::SharedTile<Element, rows, d, tile::SwizzledFor<d>>;
template <class Element, int d>
using ScoreTile = Tile<Element, B_c, B_r<d>>;  // of dS^T: its rows are keys, its columns queries
template <int d>
using Scores = tile::Accumulator<rows, B_r<d>>;  // the same of a warp

template <class Element, int d>
constexpr std::size_t shared_bytes =
    sizeof(Element) * (2 * Tile<Element, B_c, d>::elements + 2 * Tile<Element, B_r<d>, d>::elements +
                       ScoreTile<Element, d>::elements) +
    sizeof(float) * 2 * B_r<d>;

// ---- before: D = rowsum(dO O)

/// A number for each query of all heads, by d / 8 lanes, 16 bytes each.
template <class Element, int d>
__global__ void __launch_bounds__(threads)
row_sums(const Element* O, const Element* dO, float* D, std::size_t queries) {
    constexpr int lanes = d / chunk;
    const std::size_t i = blockIdx.x * std::size_t(threads / lanes) + threadIdx.x / lanes;
    float sum = 0;
    if (i < queries) {
        const std::size_t at = i * d + threadIdx.x % lanes * chunk;
        const uint4 O_chunk = *reinterpret_cast<const uint4*>(O + at);
        const uint4 dO_chunk = *reinterpret_cast<const uint4*>(dO + at);
        const auto *o = reinterpret_cast<const Element*>(&O_chunk), *g = reinterpret_cast<const Element*>(&dO_chunk);
#pragma unroll
        for (int e = 0; e < chunk; ++e) sum += float(o[e]) * float(g[e]);
    }
    for (int n = lanes / 2; n > 0; n /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, n);
    if (i < queries && threadIdx.x % lanes == 0) D[i] = sum;
}

// ---- transposed scores

/// Sets to -infinity the rows from `first` on: keys past the end.
template <int queries>
__device__ __forceinline__ void hide_rows(tile::Accumulator<rows, queries>& S_t, int first) {
#pragma unroll
    for (int c = 0; c < queries / 8; ++c)
#pragma unroll
        for (int e = 0; e < 4; ++e)
            if (tile::row_of(0, e / 2) >= first) S_t.fragment[0][c][e] = -INFINITY;
}

/// Sets to -infinity what a causal mask hides: query `column` sees the rows up to column + `diagonal`.
template <int queries>
__device__ __forceinline__ void hide_later_keys(tile::Accumulator<rows, queries>& S_t, int diagonal) {
    // EXERCISE 18.1 Set to -infinity what a causal mask hides in S^T. Its rows are keys, its columns queries: query
    // `column` sees the rows up to column + `diagonal`. The starter hides as in S.
    // TODO: your code, instead of this.
    for (int c = 0; c < queries / 8; ++c)
        for (int e = 0; e < 4; ++e)
            if (tile::column_of(c, e) > tile::row_of(0, e / 2) + diagonal) S_t.fragment[0][c][e] = -INFINITY;
    // END 18.1
}

/// A = the columns of `tile` from `first_column` on, as rows: its transpose.
template <class Element, class Tile>
__device__ __forceinline__ void load_transposed(tile::Operand<Element, rows, B_c>& A, const Tile& tile,
                                                int first_column) {
    // EXERCISE 18.2 Operand A of dQ = dS K, of the 16 queries from `first_column` on, by ldmatrix: a row of A is a
    // column of the tile. The starter takes rows of the tile for rows of A.
    // TODO: your code, instead of this.
    const int lane = threadIdx.x % 32;  // matrices 0, 1: rows 0 to 7, 8 to 15; 2, 3: 8 columns further
    for (int k = 0; k < B_c / 16; ++k)
        ptx::ldmatrix(A.fragment[0][k], tile.at(16 * k + lane % 16, first_column + lane / 16 * 8));
    // END 18.2
}

// ---- the gradients

/// The part of dQ that a warp owns, 16 queries of a step and 64 columns: its first query, and its first column.
template <int d>
__device__ int first_query_of_warp() {
    return threadIdx.x / 32 * rows % B_r<d>;
}
template <int d>
__device__ int first_column_of_warp() {
    return threadIdx.x / 32 * rows / B_r<d> * panel;
}

/// The sums of dQ lie as registers do: of the queries of a step first the first element of each thread, then the next.
__device__ __forceinline__ float& sum_of(float* dQ_sums, int c, int e) {
    return dQ_sums[(4 * c + e) * threads + threadIdx.x];
}

/// Block (j, kv head, batch) owns 64 keys, each of its warps 16 of them; all queries pass by, B_r at a time.
template <class Element, int d, bool causal>
__global__ void __launch_bounds__(threads, d == 64 ? 3 : 2)
transposed_scores(const Element* Q, const Element* K, const Element* V, const Element* dO, const float* lse,
                  const float* D, float* dQ_sums, Element* dK, Element* dV, int N_q, int N_k, int group, float scale) {
    constexpr int B_r = attention_backward::B_r<d>;
    const Tile<Element, B_c, d> K_smem{dynamic_shared<Element>()}, V_smem{K_smem.data + K_smem.elements};
    const Tile<Element, B_r, d> Q_smem{V_smem.data + V_smem.elements}, dO_smem{Q_smem.data + Q_smem.elements};
    const ScoreTile<Element, d> dS_smem{dO_smem.data + dO_smem.elements};         // (B_c, B_r)
    float* lse_smem = reinterpret_cast<float*>(dS_smem.data + dS_smem.elements);  // (B_r), in base 2
    float* D_smem = lse_smem + B_r;                                               // (B_r)
    const unsigned kv_head = blockIdx.z * gridDim.y + blockIdx.y, kv_rows = kv_head * N_k;
    const int j = blockIdx.x * B_c, first_row = threadIdx.x / 32 * rows, blocks = (N_q + B_r - 1) / B_r;
    const float scale_log2 = scale * attention::log2_e;

    tile::copy_in<threads>(K_smem, K, kv_rows + j, kv_rows + N_k);
    tile::copy_in<threads>(V_smem, V, kv_rows + j, kv_rows + N_k);
    tile::Accumulator<rows, d> dK_reg, dV_reg;
    tile::fill(dK_reg, 0);
    tile::fill(dV_reg, 0);
    const int diagonal = N_k - N_q;  // with a causal mask query i sees the keys up to i + diagonal
    const int first_query = causal ? max(0, j - diagonal) : 0;  // that sees one of these
    for (unsigned head = kv_head * group; head < (kv_head + 1) * group; ++head)
        for (int i = first_query / B_r * B_r; i < N_q; i += B_r) {
            const unsigned q_rows = head * N_q, end = q_rows + N_q;
            tile::copy_in<threads>(Q_smem, Q, q_rows + i, end);
            tile::copy_in<threads>(dO_smem, dO, q_rows + i, end);
            if (threadIdx.x < B_r) {
                const unsigned query = q_rows + i + threadIdx.x;
                const float l = query < end ? lse[query] : -INFINITY;
                lse_smem[threadIdx.x] = l == -INFINITY ? INFINITY : l * attention::log2_e;  // no keys, no query: P = 0
                D_smem[threadIdx.x] = query < end ? D[query] : 0;
            }
            __syncthreads();  // the tiles are there, and dS of the step before has been read

            // EXERCISE 18.3 Build: a step, from where its tiles are there to where dQ is multiplied. P^T and dS^T of this
            // warp's 16 keys, from `first_row` on, in registers; dV_reg and dK_reg (without scale) grow; at the end dS^T of
            // all warps, rounded, may be read in dS_smem, and the tiles of queries may be overwritten. P goes nowhere else.
            // The starter is right, and sends P and dS through shared memory, as rung 17 does.
            // TODO: your code, instead of this.
            Scores<d> S_t, dP_t;
            for (int c = 0; c < B_r / 8; ++c)
                for (int e = 0; e < 4; ++e) {
                    const int key = first_row + tile::row_of(0, e / 2), query = tile::column_of(c, e);
                    float s = 0, dp = 0;
                    for (int x = 0; x < d; ++x) {
                        s += float(*K_smem.at(key, x)) * float(*Q_smem.at(query, x));
                        dp += float(*V_smem.at(key, x)) * float(*dO_smem.at(query, x));
                    }
                    S_t.fragment[0][c][e] = scale_log2 * s - lse_smem[query];
                    dP_t.fragment[0][c][e] = dp - D_smem[query];
                }
            if (causal) hide_later_keys(S_t, i + diagonal - j - first_row);
            else hide_rows(S_t, N_k - j - first_row);
            for (int c = 0; c < B_r / 8; ++c)
                for (int e = 0; e < 4; ++e) {
                    S_t.fragment[0][c][e] = exp2f(S_t.fragment[0][c][e]);
                    dP_t.fragment[0][c][e] *= S_t.fragment[0][c][e];
                }
            for (const bool is_P : {true, false}) {
                tile::store(dS_smem, is_P ? S_t : dP_t, first_row);
                __syncwarp();  // these rows are there, which no other warp reads before the barrier
                for (int c = 0; c < d / 8; ++c)
                    for (int e = 0; e < 4; ++e)
                        for (int query = 0; query < B_r; ++query)
                            (is_P ? dV_reg : dK_reg).fragment[0][c][e] +=
                                float(*dS_smem.at(first_row + tile::row_of(0, e / 2), query)) *
                                float(*(is_P ? dO_smem : Q_smem).at(query, tile::column_of(c, e)));
                __syncwarp();
            }
            __syncthreads();  // dS is there
            // END 18.3
            tile::Operand<Element, rows, B_c> dS_reg;
            load_transposed(dS_reg, dS_smem, first_query_of_warp<d>());
            const Tile<Element, B_c, panel> K_panel{K_smem.data + first_column_of_warp<d>() * B_c};  // of K_j's columns
            tile::Accumulator<rows, panel> dQ_reg;
            tile::fill(dQ_reg, 0);
            tile::multiply(dQ_reg, dS_reg, K_panel);
            float* sums = dQ_sums + std::size_t(head * blocks + i / B_r) * B_r * d;
#pragma unroll
            for (int c = 0; c < panel / 8; ++c)
#pragma unroll
                for (int e = 0; e < 4; ++e) atomicAdd(&sum_of(sums, c, e), dQ_reg.fragment[0][c][e]);
        }

    __syncthreads();  // all have read K_j, and these come into their place
    tile::multiply_all(dK_reg, scale);
    tile::store(K_smem, dK_reg, first_row);
    tile::store(V_smem, dV_reg, first_row);
    __syncthreads();
    // By rows of the head: as K_j's way in has it, the compiler would keep these numbers in registers all the while.
    tile::copy_out<threads>(dK + std::size_t(kv_rows) * d, K_smem, j, N_k);
    tile::copy_out<threads>(dV + std::size_t(kv_rows) * d, V_smem, j, N_k);
}

// ---- behind: dQ from its sums

/// Block (i, head, batch) scales and rounds dQ of B_r queries.
template <class Element, int d>
__global__ void __launch_bounds__(threads) finish_queries(float* dQ_sums, Element* dQ, int N_q, float scale) {
    const Tile<Element, B_r<d>, d> dQ_smem{dynamic_shared<Element>()};
    const unsigned head = blockIdx.z * gridDim.y + blockIdx.y, q_rows = head * N_q;
    float* sums = dQ_sums + std::size_t(head * gridDim.x + blockIdx.x) * B_r<d> * d;
    tile::Accumulator<rows, panel> dQ_reg;
#pragma unroll
    for (int c = 0; c < panel / 8; ++c)
#pragma unroll
        for (int e = 0; e < 4; ++e) dQ_reg.fragment[0][c][e] = scale * sum_of(sums, c, e);
    tile::store(dQ_smem, dQ_reg, first_query_of_warp<d>(), first_column_of_warp<d>());
    __syncthreads();
    tile::copy_out<threads>(dQ, dQ_smem, q_rows + blockIdx.x * B_r<d>, q_rows + N_q);
}

const Support supports{.stage = "18-transposed-scores", .head_dims = {64, 128}, .dtypes = {DType::bf16, DType::f16},
                       .causal = true, .grouped_query = true};

int blocks_of(int n, int size) { return (n + size - 1) / size; }

/// The sums of dQ, of whole steps, then D.
std::size_t sums(const AttentionShape& s) {
    const int step = s.head_dim == 64 ? B_r<64> : B_r<128>;
    return std::size_t(s.batch) * s.heads * blocks_of(s.n_q, step) * step * s.head_dim;
}
std::size_t scratch_bytes(const AttentionShape& s) { return sizeof(float) * (sums(s) + s.lse_elements()); }

void launch(const BackwardArgs& args) {
    const AttentionShape& s = args.shape;
    float *dQ_sums = static_cast<float*>(args.scratch), *D = dQ_sums + sums(s);
    attention::with_types_of(s, [&]<class Element, int d, bool causal>() {
        const auto in = [](const void* tensor) { return static_cast<const Element*>(tensor); };
        const auto out = [](void* tensor) { return static_cast<Element*>(tensor); };
        constexpr std::size_t queries_of_a_block = threads / (d / chunk);
        const std::size_t queries = s.lse_elements();
        const unsigned blocks = (queries + queries_of_a_block - 1) / queries_of_a_block;
        launch_kernel(row_sums<Element, d>, {blocks, threads, 0, args.stream}, in(args.O), in(args.dO), D, queries);
        check_cuda(cudaMemsetAsync(dQ_sums, 0, sizeof(float) * sums(s), args.stream), "sums of dQ");
        const dim3 of_keys(blocks_of(s.n_k, B_c), s.kv_heads, s.batch);
        const dim3 of_queries(blocks_of(s.n_q, B_r<d>), s.heads, s.batch);
        launch_kernel(transposed_scores<Element, d, causal>, {of_keys, threads, shared_bytes<Element, d>, args.stream},
                      in(args.Q), in(args.K), in(args.V), in(args.dO), args.lse, static_cast<const float*>(D), dQ_sums,
                      out(args.dK), out(args.dV), s.n_q, s.n_k, s.heads / s.kv_heads, args.scale);
        constexpr std::size_t tile_bytes = sizeof(Element) * Tile<Element, B_r<d>, d>::elements;
        launch_kernel(finish_queries<Element, d>, {of_queries, threads, tile_bytes, args.stream}, dQ_sums, out(args.dQ),
                      s.n_q, args.scale);
    });
}

const Registration registration({supports, launch, scratch_bytes});

}  // namespace
}  // namespace flashladder::attention_backward
