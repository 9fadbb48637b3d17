// Rung 20: warpgroup backward. The five products of rung 19 by wgmma, on tiles that TMA brings.
//
// Idea      a tile in shared memory is an operand in two ways, as it lies: Q and dO along their rows for the scores, from row
//           to row for dK and dV; K too, for the scores and for dQ. dS^T, which each warpgroup stores for both, is read from
//           row to row: nothing is transposed
// Saves     ldmatrix, its registers and issue slots; mma.sync reaches two thirds of what wgmma does. The threads, while the tensor
//           cores are at work, find exponentials, and add up dQ, four floats at once
// Costs     162 KB of shared memory and 250 registers: one block a multiprocessor, whose warpgroups meet once a step
// Source    FlashAttention-3 (Shah et al., 2024), backward pass, without its roles
// Supports  bf16, f16; d 64, 128; causal; grouped queries; any N_q and N_k; sm_90a
#include "operations/attention/launch_forward.h"
#include "operations/attention_backward/backward_maps.h"
#include "operations/attention_backward/stage.h"
#include "ptx/ex2.h"
#include "ptx/fence.h"
#include "ptx/named_barrier.h"
#include "tile/copy.h"
#include "tile/multiply.h"
#include "tile/transposed_scores.h"
#include "tile/warpgroup.h"

namespace flashladder::attention_backward {
namespace {

constexpr int warpgroups = 2, warpgroup = 128, threads = warpgroups * warpgroup;
constexpr int unit = 64, B_c = warpgroups * unit;  // keys of a warpgroup, and rows or columns of its part of dQ; of a block
constexpr int slots = 2;                           // for what a step brings in, and for dS
template <int d>
constexpr int B_r = 64 * 128 / d;  // queries of a step: dQ of a step is a unit high and wide for each warpgroup
using tile::chunk;

template <class Element, int rows, int columns>
using Tile = tile::SharedTile<Element, rows, columns, tile::Swizzled<128>>;

/// What is known of a query before: with these two its probabilities and their gradients need no other key.
struct __align__(8) Statistics {
    float lse;  // in base 2
    float D;    // rowsum(dO O)
};

template <class Element_, int d>
struct Memory {
    using Element = Element_;
    using KeyTile = Tile<Element, unit, d>;
    using QueryTile = Tile<Element, B_r<d>, d>;
    using ScoreTile = Tile<Element, unit, B_r<d>>;
    alignas(1024) Element K[warpgroups][KeyTile::elements], V[warpgroups][KeyTile::elements];
    Element Q[slots][QueryTile::elements], dO[slots][QueryTile::elements];
    Element dS[slots][warpgroups][ScoreTile::elements];  // of dS^T
    Statistics statistics[slots][B_r<d>];
    ptx::Barrier keys_full, full[slots];
};

template <class Element, int d>
using Maps = BackwardMaps<typename Memory<Element, d>::KeyTile, typename Memory<Element, d>::QueryTile>;

// ---- before: the statistics of each query

/// Of a head's queries, and of as many behind them as make whole steps: those are 0. Each by d / 8 lanes, 16 bytes each.
template <class Element, int d>
__global__ void __launch_bounds__(threads)
find_statistics(const Element* O, const Element* dO, const float* lse, Statistics* statistics, int N_q, int padded) {
    constexpr int lanes = d / chunk;
    const int i = blockIdx.x * (threads / lanes) + threadIdx.x / lanes;
    const unsigned head = blockIdx.z * gridDim.y + blockIdx.y;
    float D = 0;
    if (i < N_q) {
        const std::size_t at = (std::size_t(head) * N_q + i) * d + threadIdx.x % lanes * chunk;
        const uint4 O_chunk = *reinterpret_cast<const uint4*>(O + at);
        const uint4 dO_chunk = *reinterpret_cast<const uint4*>(dO + at);
        const auto *o = reinterpret_cast<const Element*>(&O_chunk), *g = reinterpret_cast<const Element*>(&dO_chunk);
#pragma unroll
        for (int e = 0; e < chunk; ++e) D += float(o[e]) * float(g[e]);
    }
    for (int n = lanes / 2; n > 0; n /= 2) D += __shfl_xor_sync(0xFFFFFFFFu, D, n);
    if (i < padded && threadIdx.x % lanes == 0)
        statistics[std::size_t(head) * padded + i] =
            i < N_q ? Statistics{lse[std::size_t(head) * N_q + i] * attention::log2_e, D} : Statistics{0, 0};
}

// ---- the gradients

/// 64 columns of a tile of 64 rows.
template <class Element, int columns>
__device__ Tile<Element, unit, unit> panel_of(const Tile<Element, unit, columns>& tile, int panel) {
    return {tile.data + panel * unit * unit};
}

// EXERCISE 20.1 Begins C += A^T B by wgmma, or C = A^T B if `first`: A and B have 64 rows and 64 columns and lie in shared
// memory as they are. In a group of its own; waits for nothing. The starter is right, and slow: mma.sync.
// TODO: your code, instead of this.
template <class TileA, class TileB>
__device__ void begin_transposed_multiply(tile::Accumulator<16, unit>& C, const TileA& A, const TileB& B,
                                          bool first) {
    tile::Operand<typename TileA::Element, 16, unit> A_reg;
    tile::load_transposed(A_reg, A, threadIdx.x % warpgroup / 32 * 16);
    if (first) tile::fill(C, 0);
    tile::multiply(C, A_reg, B);
}
// END 20.1

/// Block (j, kv head, batch) owns 128 keys, each warpgroup 64 of them; all queries pass by.
template <class Element, int d, bool causal>
__global__ void __launch_bounds__(threads, 1)
warpgroup_backward(const __grid_constant__ Maps<Element, d> maps, const Statistics* statistics, float* dQ_sums, int N_q,
                   int N_k, int group, float scale) {
    using Smem = Memory<Element, d>;
    constexpr int B_r = attention_backward::B_r<d>;
    Smem& smem = *dynamic_shared<Smem>();
    const int w = __shfl_sync(0xFFFFFFFFu, threadIdx.x / warpgroup, 0);  // the same in all lanes: nvcc now knows
    const int kv_head = blockIdx.y, batch = blockIdx.z, j = blockIdx.x * B_c, first_row = threadIdx.x % warpgroup / 32 * 16;
    const int blocks = (N_q + B_r - 1) / B_r;
    const int diagonal = N_k - N_q;  // with a causal mask query i sees the keys up to i + diagonal
    const int first_block = causal ? max(0, j - diagonal) / B_r : 0;
    const int T_r = group * (blocks - first_block);
    // Of the warp's rows, the last that query 0 sees; or that is a key.
    const int last_row = (causal ? diagonal : N_k - 1) - j - w * unit - first_row;
    const float scale_log2 = scale * attention::log2_e;
    const typename Smem::KeyTile K_smem{smem.K[w]}, V_smem{smem.V[w]};

    struct Step {
        int t, head, block;  // the t-th of all: a block of queries of a head
    };
    const Step first{0, kv_head * group, first_block};
    const auto after = [&](Step step) {
        return step.block + 1 < blocks ? Step{step.t + 1, step.head, step.block + 1}
                                       : Step{step.t + 1, step.head + 1, first_block};
    };
    /// Where something of a step lies for all heads one after the other, in blocks of queries.
    const auto place_of = [&](Step step) {
        return std::size_t(batch * gridDim.y * group + step.head) * blocks + step.block;
    };
    const auto ask_for_step = [&](Step step) {
        const int slot = step.t % slots, i = step.block * B_r;
        ptx::Barrier& full = smem.full[slot];
        tile::load(typename Smem::QueryTile{smem.Q[slot]}, maps.Q, full, i, step.head, batch);
        tile::load(typename Smem::QueryTile{smem.dO[slot]}, maps.dO, full, i, step.head, batch);
        constexpr unsigned bytes = sizeof(smem.statistics[0]);
        ptx::barrier_arrive_expect_tx(full, bytes);
        ptx::bulk_load(smem.statistics[slot], statistics + place_of(step) * B_r, bytes, full);
    };

    if (threadIdx.x == 0) {
        ptx::barrier_init(smem.keys_full, 2 * warpgroups);
        for (int slot = 0; slot < slots; ++slot) ptx::barrier_init(smem.full[slot], 3);
        ptx::fence_barrier_init();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int u = 0; u < warpgroups; ++u) {
            tile::load(typename Smem::KeyTile{smem.K[u]}, maps.K, smem.keys_full, j + u * unit, kv_head, batch);
            tile::load(typename Smem::KeyTile{smem.V[u]}, maps.V, smem.keys_full, j + u * unit, kv_head, batch);
        }
    }
    using Sums = tile::Accumulator<16, d>;  // of a warp's 16 keys
    Sums dK_reg, dV_reg;
    tile::fill(dK_reg, 0);
    tile::fill(dV_reg, 0);
    const auto queries_of = [&](Step step) { return typename Smem::QueryTile{smem.Q[step.t % slots]}; };
    const auto dO_of = [&](Step step) { return typename Smem::QueryTile{smem.dO[step.t % slots]}; };
    const auto dS_of = [&](Step step, int u) {  // of warpgroup u
        return typename Smem::ScoreTile{smem.dS[step.t % slots][u]};
    };
    /// Scores become weights: P^T of a step, for this warp's 16 keys.
    const auto weigh = [&](tile::Accumulator<16, B_r>& P_t, Step step) {
        const int i = step.block * B_r;
        const Statistics* of_step = smem.statistics[step.t % slots];
#pragma unroll
        for (int c = 0; c < B_r / 8; ++c)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                P_t.fragment[0][c][e] = fmaf(scale_log2, P_t.fragment[0][c][e], -of_step[tile::column_of(c, e)].lse);
        if (causal && 15 > i + last_row) tile::hide_below(P_t, i + last_row);
        if (!causal && 15 > last_row) tile::hide_rows(P_t, last_row + 1);
#pragma unroll
        for (int c = 0; c < B_r / 8; ++c)
#pragma unroll
            for (int e = 0; e < 4; ++e) P_t.fragment[0][c][e] = ptx::ex2_approx(P_t.fragment[0][c][e]);
    };
    /// dP^T becomes dS^T.
    const auto differentiate = [&](tile::Accumulator<16, B_r>& dP_t, const tile::Accumulator<16, B_r>& P_t, Step step) {
        const Statistics* of_step = smem.statistics[step.t % slots];
#pragma unroll
        for (int c = 0; c < B_r / 8; ++c)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                dP_t.fragment[0][c][e] =
                    P_t.fragment[0][c][e] * (dP_t.fragment[0][c][e] - of_step[tile::column_of(c, e)].D);
    };
    /// Begins this warpgroup's part of dQ: of 64 queries if d is 64, of 64 columns if it is 128; from dS of all.
    const auto begin_queries = [&](tile::Accumulator<16, unit>& dQ_reg, Step step) {
#pragma unroll
        for (int u = 0; u < warpgroups; ++u)
            begin_transposed_multiply(dQ_reg, panel_of(dS_of(step, u), d == 64 ? w : 0),
                                      panel_of(typename Smem::KeyTile{smem.K[u]}, d == 64 ? 0 : w), u == 0);
    };
    const auto add_to_queries = [&](const tile::Accumulator<16, unit>& dQ_reg, Step step) {
        float4* sums = reinterpret_cast<float4*>(dQ_sums + (place_of(step) * warpgroups + w) * unit * unit);
#pragma unroll
        for (int c = 0; c < unit / 8; ++c) {
            const float(&sum)[4] = dQ_reg.fragment[0][c];
            atomicAdd(&sums[c * warpgroup + threadIdx.x % warpgroup], make_float4(sum[0], sum[1], sum[2], sum[3]));
        }
    };

    // EXERCISE 20.2 Build: the steps. Thread 0 asks for them, each as soon as nobody reads its slot any more; K_j and V_j have
    // been asked for, and complete phase 0 of `keys_full`.
    // A step: S^T = K Q^T and dP^T = V dO^T; `weigh`; dV += P^T dO; `differentiate`; dS^T to this warpgroup's tile of the
    // step's slot, as well as dK += dS^T Q; dQ by `begin_queries` and `add_to_queries`. One barrier of the block a step. What
    // is needed is waited for, and no more: while threads find weights, differentiate and add, a product is under way. The
    // starter finds dQ alone, and waits for each product as soon as it has begun it.
    // TODO: your code, instead of this.
    ptx::barrier_wait(smem.keys_full, 0);
    for (Step step = first; step.t < T_r; step = after(step)) {
        if (threadIdx.x == 0) ask_for_step(step);
        ptx::barrier_wait(smem.full[step.t % slots], step.t / slots % 2);
        tile::Accumulator<16, B_r> P_t, dS_t;
        tile::begin_multiply_transposed(P_t, K_smem, queries_of(step));
        tile::wait<0>(P_t);
        weigh(P_t, step);
        tile::begin_multiply_transposed(dS_t, V_smem, dO_of(step));
        tile::wait<0>(dS_t);
        differentiate(dS_t, P_t, step);
        tile::store(dS_of(step, w), dS_t, first_row);
        ptx::fence_proxy_async();
        __syncthreads();  // dS is there
        tile::Accumulator<16, unit> dQ_reg;
        begin_queries(dQ_reg, step);
        tile::wait<0>(dQ_reg);
        add_to_queries(dQ_reg, step);
        __syncthreads();  // nobody reads the step any more
    }
    // END 20.2
    __syncthreads();  // all have read K_j, and these come into its place
    tile::multiply_all(dK_reg, scale);
    tile::store(K_smem, dK_reg, first_row);
    tile::store(V_smem, dV_reg, first_row);
    ptx::fence_proxy_async();
    ptx::named_barrier_sync(1 + w, warpgroup);
    if (threadIdx.x % warpgroup == 0) {
        tile::store(maps.dK, K_smem, j + w * unit, kv_head, batch);
        tile::store(maps.dV, V_smem, j + w * unit, kv_head, batch);
        ptx::bulk_wait<0>();
    }
}

// ---- behind: dQ from its sums

/// Block (i, head, batch) scales and rounds dQ of a step's queries.
template <class Element, int d>
__global__ void __launch_bounds__(threads) finish_queries(const float* dQ_sums, Element* dQ, int N_q, float scale) {
    using QueryTile = typename Memory<Element, d>::QueryTile;
    constexpr int B_r = attention_backward::B_r<d>;
    const QueryTile dQ_smem{dynamic_shared<Element>()};
    const unsigned head = blockIdx.z * gridDim.y + blockIdx.y, q_rows = head * N_q;
    const int w = threadIdx.x / warpgroup;
    const std::size_t place = std::size_t(head * gridDim.x + blockIdx.x) * warpgroups + w;
    const float4* sums = reinterpret_cast<const float4*>(dQ_sums + place * unit * unit);
    auto dQ_reg = tile::Accumulator<16, unit>{};
#pragma unroll
    for (int c = 0; c < unit / 8; ++c) {
        const float4 sum = sums[c * warpgroup + threadIdx.x % warpgroup];
        dQ_reg.fragment[0][c][0] = scale * sum.x, dQ_reg.fragment[0][c][1] = scale * sum.y;
        dQ_reg.fragment[0][c][2] = scale * sum.z, dQ_reg.fragment[0][c][3] = scale * sum.w;
    }
    const int first_row = threadIdx.x % warpgroup / 32 * 16;
    tile::store(dQ_smem, dQ_reg, (d == 64 ? w * unit : 0) + first_row, d == 64 ? 0 : w * unit);
    __syncthreads();
    tile::copy_out<threads>(dQ, dQ_smem, q_rows + blockIdx.x * B_r, q_rows + N_q);
}

const Support supports{.stage = "20-warpgroup-backward", .head_dims = {64, 128}, .dtypes = {DType::bf16, DType::f16},
                       .causal = true, .grouped_query = true, .compute_capability = 90};

int blocks_of(int n, int size) { return (n + size - 1) / size; }
int rows_of_step(const AttentionShape& s) { return s.head_dim == 64 ? B_r<64> : B_r<128>; }
std::size_t padded_queries(const AttentionShape& s) {
    return std::size_t(s.batch) * s.heads * blocks_of(s.n_q, rows_of_step(s)) * rows_of_step(s);
}
std::size_t scratch_bytes(const AttentionShape& s) {
    return padded_queries(s) * (sizeof(float) * s.head_dim + sizeof(Statistics));
}

void launch(const BackwardArgs& args) {
    const AttentionShape& s = args.shape;
    float* dQ_sums = static_cast<float*>(args.scratch);
    Statistics* statistics = reinterpret_cast<Statistics*>(dQ_sums + padded_queries(s) * s.head_dim);
    attention::with_types_of(s, [&]<class Element, int d, bool causal>() {
        using Smem = Memory<Element, d>;
        using QueryTile = typename Smem::QueryTile;
        const auto in = [](const void* tensor) { return static_cast<const Element*>(tensor); };
        const int blocks = blocks_of(s.n_q, B_r<d>), padded = blocks * B_r<d>;
        const dim3 of_statistics(blocks_of(padded, threads / (d / chunk)), s.heads, s.batch);
        launch_kernel(find_statistics<Element, d>, {of_statistics, threads, 0, args.stream}, in(args.O), in(args.dO), args.lse,
                      statistics, s.n_q, padded);
        check_cuda(cudaMemsetAsync(dQ_sums, 0, sizeof(float) * padded_queries(s) * d, args.stream), "sums of dQ");
        const dim3 of_keys(blocks_of(s.n_k, B_c), s.kv_heads, s.batch), of_queries(blocks, s.heads, s.batch);
        launch_kernel(warpgroup_backward<Element, d, causal>, {of_keys, threads, sizeof(Smem), args.stream},
                      backward_maps<typename Smem::KeyTile, QueryTile>(args), static_cast<const Statistics*>(statistics),
                      dQ_sums, s.n_q, s.n_k, s.heads / s.kv_heads, args.scale);
        launch_kernel(finish_queries<Element, d>, {of_queries, threads, sizeof(Element) * QueryTile::elements, args.stream},
                      static_cast<const float*>(dQ_sums), static_cast<Element*>(args.dQ), s.n_q, args.scale);
    });
}

const Registration registration({supports, launch, scratch_bytes});

}  // namespace
}  // namespace flashladder::attention_backward
