// Rung 19: staged queries. Q_i, dO_i and their statistics come by cp.async, while the steps before them are computed.
//
// Idea      two slots for what a step brings in, and two for dS. Then one barrier a step says it all: dS of this step is
//           there, the next step's tiles are there, and this step's may be overwritten
// Saves     rung 18's wait for each step's tiles, and one of its two barriers. With as many registers as a thread may
//           have, a warp owns twice the keys (d = 64), or has twice the queries a step (d = 128): each tile is read less often
// Costs     shared memory: 97 KB, and 113 KB for d = 128, as much as two blocks of an H100 find
// Source    FlashAttention-2's backward pass in Dao-AILab/flash-attention, for sm_80: double buffers of Q and dO, LSE and D
// Supports  bf16, f16; d 64, 128; causal; grouped queries; any N_q and N_k; sm_90a, for what it takes of shared memory, and
//           since for sm_80 the compiler moves a register or two of 255 to memory
#include "operations/attention/launch_forward.h"
#include "operations/attention_backward/stage.h"
#include "ptx/ex2.h"
#include "tile/copy.h"
#include "tile/copy_async.h"
#include "tile/multiply.h"
#include "tile/swizzled.h"
#include "tile/transposed_scores.h"

namespace flashladder::attention_backward {
namespace {

constexpr int warps = 4, threads = 32 * warps;
constexpr int B_r = 64;    // queries of a step
constexpr int slots = 2;   // for what a step brings in, and for dS
using tile::chunk;         // 8 elements, 16 bytes
using tile::copy_in_async;
// Of 255 registers dK and dV take 64 each, P^T and dS^T 32 each.
template <int d>
constexpr int rows = 2048 / d;  // keys of a warp
template <int d>
constexpr int part = d / 2;  // queries whose scores a warp has at once
template <int d>
constexpr int B_c = warps * rows<d>;  // keys of a block
constexpr int rows_of_dQ = B_r / warps;  // queries whose dQ a warp finds

template <class Element, int rows, int d>
using Tile = tile::SharedTile<Element, rows, d, tile::SwizzledFor<d>>;

/// What is known of a query before: with these two its probabilities and their gradients need no other key.
struct __align__(8) Statistics {
    float lse;  // in base 2
    float D;    // rowsum(dO O)
};

/// The slots that something passes through, of step t and of all that come one after the other.
template <class Tile>
struct Ring {
    static constexpr int elements = slots * Tile::elements;
    typename Tile::Element* data;

    __device__ Tile operator[](int t) const { return {data + t % slots * Tile::elements}; }
};

template <class Element, int d>
constexpr std::size_t shared_bytes =
    sizeof(Element) * (2 * Tile<Element, B_c<d>, d>::elements + 2 * Ring<Tile<Element, B_r, d>>::elements +
                       Ring<Tile<Element, B_c<d>, B_r>>::elements) +
    sizeof(Statistics) * slots * B_r;

// ---- before: the statistics of each query

/// Of all heads' queries one after the other, each by d / 8 lanes, 16 bytes each.
template <class Element, int d>
__global__ void __launch_bounds__(threads)
find_statistics(const Element* O, const Element* dO, const float* lse, Statistics* statistics, std::size_t queries) {
    constexpr int lanes = d / chunk;
    const std::size_t i = blockIdx.x * std::size_t(threads / lanes) + threadIdx.x / lanes;
    float D = 0;
    if (i < queries) {
        const std::size_t at = i * d + threadIdx.x % lanes * chunk;
        const uint4 O_chunk = *reinterpret_cast<const uint4*>(O + at);
        const uint4 dO_chunk = *reinterpret_cast<const uint4*>(dO + at);
        const auto *o = reinterpret_cast<const Element*>(&O_chunk), *g = reinterpret_cast<const Element*>(&dO_chunk);
#pragma unroll
        for (int e = 0; e < chunk; ++e) D += float(o[e]) * float(g[e]);
    }
    for (int n = lanes / 2; n > 0; n /= 2) D += __shfl_xor_sync(0xFFFFFFFFu, D, n);
    if (i < queries && threadIdx.x % lanes == 0) statistics[i] = {lse[i] * attention::log2_e, D};
}

// ---- the gradients

/// Queries `first` to first + part - 1 of a step. They lie together: with d = 64 a row is one panel wide, and with
/// d = 128 the part is the whole.
template <class Element, int d>
__device__ Tile<Element, part<d>, d> part_of(const Tile<Element, B_r, d>& queries, int first) {
    static_assert(d == 64 || part<d> == B_r, "part_of: the part must lie together");
    return {queries.data + first * queries.stride};
}

/// The sums of dQ lie as registers do: of the queries of a step first the first element of each thread, then the next.
__device__ __forceinline__ float& sum_of(float* dQ_sums, int c, int e) {
    return dQ_sums[(4 * c + e) * threads + threadIdx.x];
}

/// Block (j, kv head, batch) owns B_c keys, each of its warps some rows of them; all queries pass by, 64 at a time.
template <class Element, int d, bool causal>
__global__ void __launch_bounds__(threads, 2)
staged_queries(const Element* Q, const Element* K, const Element* V, const Element* dO, const Statistics* statistics,
               float* dQ_sums, Element* dK, Element* dV, int N_q, int N_k, int group, float scale) {
    constexpr int B_c = attention_backward::B_c<d>, rows = attention_backward::rows<d>, part = attention_backward::part<d>;
    const Tile<Element, B_c, d> K_smem{dynamic_shared<Element>()}, V_smem{K_smem.data + K_smem.elements};
    const Ring<Tile<Element, B_r, d>> Q_smem{V_smem.data + V_smem.elements}, dO_smem{Q_smem.data + Q_smem.elements};
    const Ring<Tile<Element, B_c, B_r>> dS_smem{dO_smem.data + dO_smem.elements};  // of dS^T
    Statistics* statistics_smem = reinterpret_cast<Statistics*>(dS_smem.data + dS_smem.elements);
    const unsigned kv_head = blockIdx.z * gridDim.y + blockIdx.y, kv_rows = kv_head * N_k;
    const int j = blockIdx.x * B_c, first_row = threadIdx.x / 32 * rows, blocks = (N_q + B_r - 1) / B_r;
    const int diagonal = N_k - N_q;  // with a causal mask query i sees the keys up to i + diagonal
    const int first_block = causal ? max(0, j - diagonal) / B_r : 0;  // of queries, in which one sees these keys
    const int steps = blocks - first_block, T_r = group * steps;  // of a head, at least 1; of all that share these keys
    const int last_row = (causal ? diagonal : N_k - 1) - j - first_row;  // of the warp's: that query 0 sees; that is a key
    const float scale_log2 = scale * attention::log2_e;

    const auto head_of = [&](int t) { return kv_head * group + t / steps; };
    const auto block_of = [&](int t) { return first_block + t % steps; };
    tile::Accumulator<rows, d> dK_reg, dV_reg;
    tile::fill(dK_reg, 0);
    tile::fill(dV_reg, 0);

    const auto ask_for_step = [&](int t) {
        const unsigned q_rows = head_of(t) * N_q, first = q_rows + block_of(t) * B_r, end = q_rows + N_q;
        // EXERCISE 19.1 What step t brings in, by cp.async: rows `first` on of Q and dO, to their slots, and 8 bytes of
        // statistics for each query, to theirs. From `end` on all is 0. Waits for nothing and commits nothing. The starter
        // is right, and slow: the bytes pass through registers.
        // STARTER tile::copy_in<threads>(Q_smem[t], Q, first, end);
        // STARTER tile::copy_in<threads>(dO_smem[t], dO, first, end);
        // STARTER Statistics* slot = statistics_smem + t % slots * B_r;
        // STARTER for (unsigned r = threadIdx.x; r < B_r; r += threads)
        // STARTER     slot[r] = first + r < end ? statistics[first + r] : Statistics{0, 0};
        copy_in_async<threads>(Q_smem[t], Q, first, end);
        copy_in_async<threads>(dO_smem[t], dO, first, end);
        const unsigned query = first + threadIdx.x;  // past the end all is 0: a weight of 1, but dO and D are 0
        if (threadIdx.x < B_r)
            ptx::cp_async<8>(statistics_smem + t % slots * B_r + threadIdx.x, statistics + query, query < end ? 8 : 0);
        // END 19.1
    };
    /// Of step t, as in rung 18: dK and dV of this warp's keys grow, and dS^T of them comes into its slot.
    const auto add_to_keys = [&](int t) {
        const int i = block_of(t) * B_r;
#pragma unroll
        for (int first = 0; first < B_r; first += part) {
            const auto Q_part = part_of<Element, d>(Q_smem[t], first), dO_part = part_of<Element, d>(dO_smem[t], first);
            const Statistics* of_part = statistics_smem + t % slots * B_r + first;
            tile::Accumulator<rows, part> P_t, dS_t;
            tile::fill(P_t, 0);
            tile::multiply_transposed(P_t, K_smem, first_row, Q_part);
            tile::fill(dS_t, 0);
            tile::multiply_transposed(dS_t, V_smem, first_row, dO_part);
#pragma unroll
            for (int c = 0; c < part / 8; ++c)
#pragma unroll
                for (int r = 0; r < rows / 16; ++r)
#pragma unroll
                    for (int e = 0; e < 4; ++e)
                        P_t.fragment[r][c][e] =
                            fmaf(scale_log2, P_t.fragment[r][c][e], -of_part[tile::column_of(c, e)].lse);
            if (causal && rows - 1 > i + first + last_row) tile::hide_below(P_t, i + first + last_row);
            if (!causal && rows - 1 > last_row) tile::hide_rows(P_t, last_row + 1);
#pragma unroll
            for (int c = 0; c < part / 8; ++c)
#pragma unroll
                for (int r = 0; r < rows / 16; ++r)
#pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        P_t.fragment[r][c][e] = ptx::ex2_approx(P_t.fragment[r][c][e]);
                        dS_t.fragment[r][c][e] =
                            P_t.fragment[r][c][e] * (dS_t.fragment[r][c][e] - of_part[tile::column_of(c, e)].D);
                    }
            tile::store(dS_smem[t], dS_t, first_row, first);
            tile::multiply(dV_reg, tile::to_operand<Element>(P_t), dO_part);
            tile::multiply(dK_reg, tile::to_operand<Element>(dS_t), Q_part);
        }
    };
    /// Of step t, from dS of all warps: to the sums of dQ of a quarter of its queries.
    const auto add_to_queries = [&](int t) {
        tile::Operand<Element, rows_of_dQ, B_c> dS_reg;
        tile::load_transposed(dS_reg, dS_smem[t], threadIdx.x / 32 * rows_of_dQ);
        tile::Accumulator<rows_of_dQ, d> dQ_reg;
        tile::fill(dQ_reg, 0);
        tile::multiply(dQ_reg, dS_reg, K_smem);
        float* sums = dQ_sums + std::size_t(head_of(t) * blocks + block_of(t)) * B_r * d;
#pragma unroll
        for (int c = 0; c < d / 8; ++c)
#pragma unroll
            for (int e = 0; e < 4; ++e) atomicAdd(&sum_of(sums, c, e), dQ_reg.fragment[0][c][e]);
    };

    // EXERCISE 19.2 Build: the ring. K_j and V_j come once; all T_r steps pass through the slots. A slot is asked for its next
    // step as soon as its last one has been read, and what does not exist is not asked for. One barrier a step: behind
    // it, dQ of this step is found while the next steps' tiles are on their way. The starter is right, and slow: it asks for a
    // step when it needs it, and has rung 18's two barriers.
    // STARTER copy_in_async<threads>(K_smem, K, kv_rows + j, kv_rows + N_k);
    // STARTER copy_in_async<threads>(V_smem, V, kv_rows + j, kv_rows + N_k);
    // STARTER ptx::cp_async_commit();
    // STARTER for (int t = 0; t < T_r; ++t) {
    // STARTER     ask_for_step(t);
    // STARTER     ptx::cp_async_commit();
    // STARTER     ptx::cp_async_wait<0>();
    // STARTER     __syncthreads();  // the tiles are there
    // STARTER     add_to_keys(t);
    // STARTER     __syncthreads();  // dS is there
    // STARTER     add_to_queries(t);
    // STARTER }
    copy_in_async<threads>(K_smem, K, kv_rows + j, kv_rows + N_k);
    copy_in_async<threads>(V_smem, V, kv_rows + j, kv_rows + N_k);
    for (int t = 0; t < slots; ++t) {
        if (t < T_r) ask_for_step(t);
        ptx::cp_async_commit();  // of nothing too: the waits count groups
    }
    ptx::cp_async_wait<slots - 1>();
    __syncthreads();  // K_j, V_j and the first step's tiles are there
    for (int t = 0; t < T_r; ++t) {
        add_to_keys(t);
        ptx::cp_async_wait<slots - 2>();
        __syncthreads();  // dS is there, and the next step's tiles; and nobody reads this step's any more
        if (t + slots < T_r) ask_for_step(t + slots);
        ptx::cp_async_commit();
        add_to_queries(t);
    }
    // END 19.2

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

/// Block (i, head, batch) scales and rounds dQ of 64 queries.
template <class Element, int d>
__global__ void __launch_bounds__(threads) finish_queries(float* dQ_sums, Element* dQ, int N_q, float scale) {
    const Tile<Element, B_r, d> dQ_smem{dynamic_shared<Element>()};
    const unsigned head = blockIdx.z * gridDim.y + blockIdx.y, q_rows = head * N_q;
    float* sums = dQ_sums + std::size_t(head * gridDim.x + blockIdx.x) * B_r * d;
    tile::Accumulator<rows_of_dQ, d> dQ_reg;
#pragma unroll
    for (int c = 0; c < d / 8; ++c)
#pragma unroll
        for (int e = 0; e < 4; ++e) dQ_reg.fragment[0][c][e] = scale * sum_of(sums, c, e);
    tile::store(dQ_smem, dQ_reg, threadIdx.x / 32 * rows_of_dQ);
    __syncthreads();
    tile::copy_out<threads>(dQ, dQ_smem, q_rows + blockIdx.x * B_r, q_rows + N_q);
}

const Support supports{.stage = "19-staged-queries", .head_dims = {64, 128}, .dtypes = {DType::bf16, DType::f16},
                       .causal = true, .grouped_query = true, .compute_capability = 90};

int blocks_of(int n, int size) { return (n + size - 1) / size; }

/// The sums of dQ, of whole steps, then the statistics.
std::size_t sums(const AttentionShape& s) {
    return std::size_t(s.batch) * s.heads * blocks_of(s.n_q, B_r) * B_r * s.head_dim;
}
std::size_t scratch_bytes(const AttentionShape& s) {
    return sizeof(float) * sums(s) + sizeof(Statistics) * s.lse_elements();
}

void launch(const BackwardArgs& args) {
    const AttentionShape& s = args.shape;
    float* dQ_sums = static_cast<float*>(args.scratch);
    Statistics* statistics = reinterpret_cast<Statistics*>(dQ_sums + sums(s));
    attention::with_types_of(s, [&]<class Element, int d, bool causal>() {
        const auto in = [](const void* tensor) { return static_cast<const Element*>(tensor); };
        const auto out = [](void* tensor) { return static_cast<Element*>(tensor); };
        constexpr std::size_t queries_of_a_block = threads / (d / chunk);
        const std::size_t queries = s.lse_elements();
        const unsigned blocks = (queries + queries_of_a_block - 1) / queries_of_a_block;
        launch_kernel(find_statistics<Element, d>, {blocks, threads, 0, args.stream}, in(args.O), in(args.dO), args.lse,
                      statistics, queries);
        check_cuda(cudaMemsetAsync(dQ_sums, 0, sizeof(float) * sums(s), args.stream), "sums of dQ");
        const dim3 of_keys(blocks_of(s.n_k, B_c<d>), s.kv_heads, s.batch), of_queries(blocks_of(s.n_q, B_r), s.heads, s.batch);
        launch_kernel(staged_queries<Element, d, causal>, {of_keys, threads, shared_bytes<Element, d>, args.stream},
                      in(args.Q), in(args.K), in(args.V), in(args.dO), static_cast<const Statistics*>(statistics), dQ_sums,
                      out(args.dK), out(args.dV), s.n_q, s.n_k, s.heads / s.kv_heads, args.scale);
        constexpr std::size_t tile_bytes = sizeof(Element) * Tile<Element, B_r, d>::elements;
        launch_kernel(finish_queries<Element, d>, {of_queries, threads, tile_bytes, args.stream}, dQ_sums, out(args.dQ),
                      s.n_q, args.scale);
    });
}

const Registration registration({supports, launch, scratch_bytes});

}  // namespace
}  // namespace flashladder::attention_backward
