#include "lcsf/ring.h"
#include "operations/attention/launch_forward.h"
#include "operations/attention_backward/stage.h"
#include "ptx/elect.h"
#include "ptx/ex2.h"
#include "ptx/fence.h"
#include "ptx/memory_order.h"
#include "ptx/named_barrier.h"
#include "ptx/setmaxnreg.h"
#include "tile/copy.h"
#include "tile/global_tile.h"
#include "tile/multiply.h"
#include "tile/transposed_scores.h"
#include "tile/warpgroup.h"

#ifndef OVER
#define OVER 1
#endif
#ifndef PR
#define PR 24
#define CR 240
#endif
#ifndef PR3
#define PR3 32
#define CR3 160
#endif
#ifndef LATE
#define LATE 1
#endif
#ifndef PREFETCH
#define PREFETCH 1
#endif
#ifndef ROTATE
#define ROTATE 1
#endif
#ifndef DIRECT
#define DIRECT 0
#endif
#ifndef C64
#define C64 3
#endif
#ifndef W128
#define W128 64
#endif
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef DQFIRST
#define DQFIRST 1
#endif

namespace flashladder::attention_backward {
namespace {

constexpr int warpgroup = 128, unit = 64, B_r = 64;  // threads; keys of a consumer; queries of a step
using tile::chunk;

/// Consumers of a block; slots for what a step brings in, for dS; columns of dQ that a consumer multiplies.
template <int consumers_, int slots_, int dS_slots_, int width_>
struct Config {
    static constexpr int consumers = consumers_, slots = slots_, dS_slots = dS_slots_, width = width_;
    static constexpr int B_c = consumers * unit, threads = warpgroup * (1 + consumers);
    static constexpr int producer_registers = consumers == 3 ? PR3 : PR, consumer_registers = consumers == 3 ? CR3 : CR;
};
template <int d>
using ConfigOf = std::conditional_t<d == 64, Config<C64, 3, 2, 64>, Config<2, SLOTS, 2, W128>>;

template <class Element, int rows, int columns>
using Tile = tile::SharedTile<Element, rows, columns, tile::Swizzled<128>>;

struct Statistics {
    float lse[B_r];  // in base 2
    float D[B_r];    // rowsum(dO O)
};

template <class Element_, int d>
struct Memory {
    using Element = Element_;
    using C = ConfigOf<d>;
    using KeyTile = Tile<Element, unit, d>;
    using QueryTile = Tile<Element, B_r, d>;
    using ScoreTile = Tile<Element, unit, B_r>;
    using PartTile = Tile<Element, B_r, unit>;
    alignas(1024) Element K[C::consumers][KeyTile::elements], V[C::consumers][KeyTile::elements];
    Element Q[C::slots][QueryTile::elements], dO[C::slots][QueryTile::elements];
    Element dS[C::dS_slots][C::consumers][ScoreTile::elements];  // of dS^T
#if !DIRECT
    float dQ[C::consumers][B_r * C::width];
#endif
    alignas(16) Statistics statistics[C::slots];
    ptx::Barrier keys_full;
    lcsf::Ring<C::slots> queries;
    lcsf::Ring<C::dS_slots> dS_ring;
    ptx::Barrier dQ_full[C::consumers], dQ_empty[C::consumers];
    ptx::Barrier sums_there;
    int last;
};

template <class Element, int d>
struct Maps {
    tile::TensorMap<typename Memory<Element, d>::KeyTile> K, V, dK, dV;
    tile::TensorMap<typename Memory<Element, d>::QueryTile> Q, dO;
    tile::TensorMap<typename Memory<Element, d>::PartTile> dQ;
};

/// Of each query block of a head: who comes first writes its sums, all others add.
enum : std::uint32_t { untouched, taken, there };

template <class Element, int d>
__global__ void __launch_bounds__(256)
find_statistics(const Element* O, const Element* dO, const float* lse, Statistics* statistics, std::uint32_t* states,
                std::uint32_t* done, int N_q, int padded) {
    constexpr int lanes = d / chunk, threads = 256;
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
    if (i < padded && threadIdx.x % lanes == 0) {
        Statistics& of_step = statistics[(std::size_t(head) * padded + i) / B_r];
        of_step.lse[i % B_r] = i < N_q ? lse[std::size_t(head) * N_q + i] * attention::log2_e : 0;
        of_step.D[i % B_r] = D;
        if (i % B_r < 2) states[(std::size_t(head) * padded + i) / B_r * 2 + i % B_r] = untouched;
        if (i == 0) done[head] = 0;
    }
}

template <class Element, int columns>
__device__ Tile<Element, unit, unit> panel_of(const Tile<Element, unit, columns>& tile, int panel) {
    return {tile.data + panel * unit * unit};
}

template <int columns, class TileA, class TileB>
__device__ __forceinline__ void begin_transposed_multiply(tile::Accumulator<16, columns>& C, const TileA& A, const TileB& B, bool first) {
    ptx::wgmma_fence(tile::registers(C));
#pragma unroll
    for (int k = 0; k < unit; k += 16)
        ptx::wgmma<typename TileA::Element, ptx::Major::mn, ptx::Major::mn>(tile::registers(C), tile::rows_of(A, k),
                                                                            tile::rows_of(B, k), !first || k > 0);
    ptx::wgmma_commit();
}

template <class Element, int columns, int depth, class Tile>
__device__ __forceinline__ void begin_sum(tile::Accumulator<16, columns>& C, tile::Operand<Element, 16, depth>& A,
                                               const Tile& B, bool add) {
    ptx::pin(A.fragment);
    ptx::wgmma_fence(tile::registers(C));
#pragma unroll
    for (int k = 0; k < depth; k += 16)
        ptx::wgmma<Element, ptx::Major::mn>(tile::registers(C), A.fragment[0][k / 16], tile::rows_of(B, k), !OVER || add || k > 0);
    ptx::wgmma_commit();
}

struct Problem {
    int N_q, N_k, group;
    float scale;
    const Statistics* statistics;
    float* dQ_sums;
    std::uint32_t *states, *done;
};

template <class Element, int d, bool causal>
__global__ void __launch_bounds__(ConfigOf<d>::threads, 1)
dq_writer(const __grid_constant__ Maps<Element, d> maps, const __grid_constant__ Problem p) {
    using Smem = Memory<Element, d>;
    using C = ConfigOf<d>;
    constexpr int parts = d / C::width, part_floats = B_r * C::width;
    Smem& smem = *dynamic_shared<Smem>();
    const int role = __shfl_sync(0xFFFFFFFFu, threadIdx.x / warpgroup, 0);
    const int warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x % warpgroup / 32, 0), lane = threadIdx.x % 32;
    const int kv_head = blockIdx.y, batch = blockIdx.z, j = blockIdx.x * C::B_c;
    const int blocks = (p.N_q + B_r - 1) / B_r;
    const int diagonal = p.N_k - p.N_q;
    const int first_block = causal ? max(0, j - diagonal) / B_r : 0;
    const int T_r = p.group * (blocks - first_block);

    struct Step {
        int t, head, block;
    };
    const int start = causal || !ROTATE ? first_block : int(std::int64_t(blockIdx.x) * blocks / gridDim.x);
    const Step first{0, kv_head * p.group, start};
    const int heads = gridDim.y * p.group, first_head = kv_head * p.group;
    const auto advance = [&](Step& step) {  // a head of the group after the other, its blocks from `start` on and around
        ++step.t;
        if (++step.block == blocks) step.block = first_block;
        if (step.block == start) ++step.head;
    };
    const auto place_of = [&](const Step& step) { return std::size_t(batch * heads + step.head) * blocks + step.block; };

    if (threadIdx.x == 0) {
        ptx::barrier_init(smem.keys_full, 2 * C::consumers);
        smem.queries.init(3, 4 * C::consumers);
        smem.dS_ring.init(4 * C::consumers, 4 * (parts == 1 ? 1 : C::consumers));
        for (int u = 0; u < C::consumers; ++u) {
            ptx::barrier_init(smem.dQ_full[u], 4);
            ptx::barrier_init(smem.dQ_empty[u], 1);
        }
        ptx::barrier_init(smem.sums_there, C::consumers);
        ptx::fence_barrier_init();
    }
    __syncthreads();
    if (role == 0) {
        ptx::registers_decrease<C::producer_registers>();
        if (warp == 0 && ptx::elect_one()) {
            for (int u = 0; u < C::consumers; ++u) {
                tile::load(typename Smem::KeyTile{smem.K[u]}, maps.K, smem.keys_full, j + u * unit, kv_head, batch);
                tile::load(typename Smem::KeyTile{smem.V[u]}, maps.V, smem.keys_full, j + u * unit, kv_head, batch);
            }
            lcsf::RingPosition<C::slots> at;
            for (Step step = first; step.t < T_r; advance(step), at.advance()) {
                smem.queries.wait_empty(at);
                ptx::Barrier& full = smem.queries.full[at.slot];
                tile::load(typename Smem::QueryTile{smem.Q[at.slot]}, maps.Q, full, step.block * B_r, step.head, batch);
                tile::load(typename Smem::QueryTile{smem.dO[at.slot]}, maps.dO, full, step.block * B_r, step.head, batch);
                constexpr unsigned bytes = sizeof(smem.statistics[0]);
                ptx::barrier_arrive_expect_tx(full, bytes);
                ptx::bulk_load(&smem.statistics[at.slot], p.statistics + place_of(step), bytes, full);
            }
        }
#if !DIRECT
        if (warp > 0 && warp <= C::consumers && ptx::elect_one()) {
            const int w = warp - 1;
            unsigned parity = 0;
            int owner = parts == 1 ? 0 : w;  // consumer of the step's part
            for (Step step = first; step.t < T_r; advance(step)) {
                if (parts == 1) {
                    owner = step.t % C::consumers;
                    if (owner != w) continue;
                }
                const int part = parts == 1 ? 0 : w;
                const std::size_t place = place_of(step) * parts + part;
                float* sums = p.dQ_sums + place * part_floats;
                std::uint32_t* state = p.states + place_of(step) * 2 + part;
                const bool is_first = atomicCAS(state, untouched, taken) == untouched;
                if (!is_first)
                    while (ptx::load_acquire(state) != there) {
                    }
                ptx::barrier_wait(smem.dQ_full[w], parity);
                if (is_first)
                    ptx::bulk_store(sums, smem.dQ[w], sizeof(smem.dQ[w]));
                else
                    ptx::bulk_reduce_add(sums, smem.dQ[w], sizeof(smem.dQ[w]));
                ptx::bulk_commit();
                if (is_first) {
                    ptx::bulk_wait<0>();
                    ptx::store_release(state, there);
                } else {
                    ptx::bulk_wait_read<0>();
                }
                ptx::barrier_arrive(smem.dQ_empty[w]);
                parity ^= 1;
            }
            ptx::bulk_wait<0>();
            ptx::barrier_arrive(smem.sums_there);
        }
#endif
    } else {
        ptx::registers_increase<C::consumer_registers>();
        const int w = role - 1, first_row = warp * 16;
        const int last_row = (causal ? diagonal : p.N_k - 1) - j - w * unit - first_row;
        const float scale_log2 = p.scale * attention::log2_e;
        const typename Smem::KeyTile K_smem{smem.K[w]}, V_smem{smem.V[w]};
        using Sums = tile::Accumulator<16, d>;
        Sums dK_reg, dV_reg;
#if !OVER
        tile::fill(dK_reg, 0);
        tile::fill(dV_reg, 0);
#endif
        const auto load_statistics = [&](float2 (&of_columns)[B_r / 8], const float (&of_step)[B_r]) {
#pragma unroll
            for (int c = 0; c < B_r / 8; ++c)
                of_columns[c] = *reinterpret_cast<const float2*>(&of_step[tile::column_of(c, 0)]);
        };
        const auto weigh = [&](tile::Accumulator<16, B_r>& P_t, const float2 (&lse)[B_r / 8], const Step& step) {
            const int i = step.block * B_r;
#pragma unroll
            for (int c = 0; c < B_r / 8; ++c)
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    P_t.fragment[0][c][e] = fmaf(scale_log2, P_t.fragment[0][c][e], -(e % 2 ? lse[c].y : lse[c].x));
            if (causal && 15 > i + last_row) tile::hide_below(P_t, i + last_row);
            if (!causal && 15 > last_row) tile::hide_rows(P_t, last_row + 1);
#pragma unroll
            for (int c = 0; c < B_r / 8; ++c)
#pragma unroll
                for (int e = 0; e < 4; ++e) P_t.fragment[0][c][e] = ptx::ex2_approx(P_t.fragment[0][c][e]);
        };
        const auto differentiate = [&](tile::Accumulator<16, B_r>& dP_t, const tile::Accumulator<16, B_r>& P_t,
                                       const float2 (&D)[B_r / 8]) {
#pragma unroll
            for (int c = 0; c < B_r / 8; ++c)
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    dP_t.fragment[0][c][e] =
                        P_t.fragment[0][c][e] * (dP_t.fragment[0][c][e] - (e % 2 ? D[c].y : D[c].x));
        };
        ptx::barrier_wait(smem.keys_full, 0);
        lcsf::RingPosition<C::slots> query, before;
        lcsf::RingPosition<C::dS_slots> dS_at;
        unsigned dQ_parity = 1;
        int turn = w;
        tile::Operand<Element, 16, B_r> dS_operand;
        for (Step step = first; step.t < T_r; advance(step)) {
            const typename Smem::QueryTile Q_smem{smem.Q[query.slot]}, dO_smem{smem.dO[query.slot]};
            smem.queries.wait_full(query);
            float2 lse[B_r / 8], D[B_r / 8];
            const bool own = parts > 1 || turn == 0;
            tile::Accumulator<16, B_r> P_t, dS_t;
            tile::begin_multiply_transposed(P_t, K_smem, Q_smem);
            tile::begin_multiply_transposed(dS_t, V_smem, dO_smem);
            if (LATE) {
                ptx::wgmma_wait<2>();
                ptx::pin(dS_operand.fragment);
                if (step.t > 0 && lane == 0) smem.queries.release(before);
            }
            if (PREFETCH) load_statistics(lse, smem.statistics[query.slot].lse);
            tile::wait<1>(P_t);
            if (!PREFETCH) load_statistics(lse, smem.statistics[query.slot].lse);
            weigh(P_t, lse, step);
            auto P_operand = tile::to_operand<Element>(P_t);
            begin_sum(dV_reg, P_operand, dO_smem, step.t > 0);
            if (PREFETCH) load_statistics(D, smem.statistics[query.slot].D);
            tile::wait<1>(dS_t);
            if (!PREFETCH) load_statistics(D, smem.statistics[query.slot].D);
            differentiate(dS_t, P_t, D);
            dS_operand = tile::to_operand<Element>(dS_t);
            smem.dS_ring.wait_empty(dS_at);
            tile::store(typename Smem::ScoreTile{smem.dS[dS_at.slot][w]}, dS_t, first_row);
            ptx::fence_proxy_async();
            __syncwarp();
            if (lane == 0) ptx::barrier_arrive(smem.dS_ring.full[dS_at.slot]);
            if (!DQFIRST) begin_sum(dK_reg, dS_operand, Q_smem, step.t > 0);
            if (own) {
                smem.dS_ring.wait_full(dS_at);
                tile::Accumulator<16, C::width> dQ_reg;
#pragma unroll
                for (int u = 0; u < C::consumers; ++u) {
                    const typename Smem::ScoreTile dS_smem{smem.dS[dS_at.slot][u]};
                    if constexpr (C::width == d)
                        begin_transposed_multiply(dQ_reg, dS_smem, typename Smem::KeyTile{smem.K[u]}, u == 0);
                    else
                        begin_transposed_multiply(dQ_reg, dS_smem, panel_of(typename Smem::KeyTile{smem.K[u]}, w), u == 0);
                }
                if (DQFIRST) {
                    begin_sum(dK_reg, dS_operand, Q_smem, step.t > 0);
                    tile::wait<1>(dQ_reg);
                } else {
                    tile::wait<0>(dQ_reg);
                }
                tile::wait<1>(dV_reg, P_operand);
                if (lane == 0) ptx::barrier_arrive(smem.dS_ring.empty[dS_at.slot]);
#if DIRECT
                float4* sums = reinterpret_cast<float4*>(p.dQ_sums + (place_of(step) * parts + (parts == 1 ? 0 : w)) * part_floats);
#pragma unroll
                for (int c = 0; c < C::width / 8; ++c) {
                    const float(&sum)[4] = dQ_reg.fragment[0][c];
                    atomicAdd(&sums[c * warpgroup + threadIdx.x % warpgroup], make_float4(sum[0], sum[1], sum[2], sum[3]));
                }
#else
                ptx::barrier_wait(smem.dQ_empty[w], dQ_parity);
                dQ_parity ^= 1;
                float4* sums = reinterpret_cast<float4*>(smem.dQ[w]);
#pragma unroll
                for (int c = 0; c < C::width / 8; ++c) {
                    const float(&sum)[4] = dQ_reg.fragment[0][c];
                    sums[c * warpgroup + threadIdx.x % warpgroup] = make_float4(sum[0], sum[1], sum[2], sum[3]);
                }
                ptx::fence_proxy_async();
                __syncwarp();
                if (lane == 0) ptx::barrier_arrive(smem.dQ_full[w]);
#endif
            } else {
                if (DQFIRST) begin_sum(dK_reg, dS_operand, Q_smem, step.t > 0);
                tile::wait<1>(dV_reg, P_operand);
            }
            if (!LATE) {
                tile::wait<0>(dK_reg, dS_operand);
                if (lane == 0) smem.queries.release(query);
            }
            before = query;
            query.advance();
            dS_at.advance();
            turn = turn == 0 ? C::consumers - 1 : turn - 1;
        }
        tile::wait<0>(dK_reg, dS_operand);
        ptx::named_barrier_sync(1, C::consumers * warpgroup);  // all have read K_j, and these come into its place
        tile::multiply_all(dK_reg, p.scale);
        tile::store(K_smem, dK_reg, first_row);
        tile::store(V_smem, dV_reg, first_row);
        ptx::fence_proxy_async();
        ptx::named_barrier_sync(2 + w, warpgroup);
        if (threadIdx.x % warpgroup == 0) {
            tile::store(maps.dK, K_smem, j + w * unit, kv_head, batch);
            tile::store(maps.dV, V_smem, j + w * unit, kv_head, batch);
            ptx::bulk_wait<0>();
        }
#if !DIRECT
        // ---- the last block of a head finishes dQ
        if (threadIdx.x == warpgroup) {
            ptx::barrier_wait(smem.sums_there, 0);
            smem.last = ptx::fetch_add_acquire_release(p.done + batch * gridDim.y + kv_head, 1) == gridDim.x - 1;
        }
        ptx::named_barrier_sync(1, C::consumers * warpgroup);
        if (!smem.last) return;
        constexpr int panels = C::width / unit;
        int n = 0;
        for (int k = w; k < p.group * blocks * parts; k += C::consumers, ++n) {
            const std::size_t place = (std::size_t(batch * heads + first_head) * blocks * parts) + k;
            const bool seen = p.states[place / parts * 2 + place % parts] != untouched;
            const float4* sums = reinterpret_cast<const float4*>(p.dQ_sums + place * part_floats);
            const int head = first_head + k / parts / blocks, i = k / parts % blocks * B_r;
            float4 sum[C::width / 8];
#pragma unroll
            for (int c = 0; c < C::width / 8; ++c)
                sum[c] = seen ? __ldcg(&sums[c * warpgroup + threadIdx.x % warpgroup]) : make_float4(0, 0, 0, 0);
#pragma unroll
            for (int panel = 0; panel < panels; ++panel) {
                tile::Accumulator<16, unit> dQ_reg;
#pragma unroll
                for (int c = 0; c < unit / 8; ++c) {
                    const float4 s = sum[panel * 8 + c];
                    dQ_reg.fragment[0][c][0] = p.scale * s.x, dQ_reg.fragment[0][c][1] = p.scale * s.y;
                    dQ_reg.fragment[0][c][2] = p.scale * s.z, dQ_reg.fragment[0][c][3] = p.scale * s.w;
                }
                const typename Smem::PartTile dQ_smem{smem.dS[(n * panels + panel) % 2][w]};
                if (threadIdx.x % warpgroup == 0) ptx::bulk_wait_read<1>();
                ptx::named_barrier_sync(2 + w, warpgroup);
                tile::store(dQ_smem, dQ_reg, first_row);
                ptx::fence_proxy_async();
                ptx::named_barrier_sync(2 + w, warpgroup);
                if (threadIdx.x % warpgroup == 0)
                    tile::store(maps.dQ, dQ_smem, i, head, batch, (parts > 1 ? k % parts : panel) * unit);
            }
        }
        if (threadIdx.x % warpgroup == 0) ptx::bulk_wait<0>();
#endif
    }
}

template <class Element, int d>
__global__ void __launch_bounds__(256) finish_queries(const float* dQ_sums, Element* dQ, int N_q, float scale) {
    constexpr int width = ConfigOf<d>::width, parts = d / width;
    using QueryTile = typename Memory<Element, d>::QueryTile;
    const QueryTile dQ_smem{dynamic_shared<Element>()};
    const unsigned head = blockIdx.z * gridDim.y + blockIdx.y, q_rows = head * N_q;
    const int first_row = threadIdx.x % warpgroup / 32 * 16, w = threadIdx.x / warpgroup;
    if (w < parts) {
        const std::size_t place = std::size_t(head * gridDim.x + blockIdx.x) * parts + w;
        const float4* sums = reinterpret_cast<const float4*>(dQ_sums + place * B_r * width);
        auto dQ_reg = tile::Accumulator<16, width>{};
#pragma unroll
        for (int c = 0; c < width / 8; ++c) {
            const float4 sum = sums[c * warpgroup + threadIdx.x % warpgroup];
            dQ_reg.fragment[0][c][0] = scale * sum.x, dQ_reg.fragment[0][c][1] = scale * sum.y;
            dQ_reg.fragment[0][c][2] = scale * sum.z, dQ_reg.fragment[0][c][3] = scale * sum.w;
        }
        tile::store(dQ_smem, dQ_reg, first_row, w * width);
    }
    __syncthreads();
    tile::copy_out<256>(dQ, dQ_smem, q_rows + blockIdx.x * B_r, q_rows + N_q);
}

const Support supports{.stage = "21-dq-writer", .head_dims = {64, 128}, .dtypes = {DType::bf16, DType::f16},
                       .causal = true, .grouped_query = true, .compute_capability = 90};

int blocks_of(int n, int size) { return (n + size - 1) / size; }
std::size_t padded_queries(const AttentionShape& s) {
    return std::size_t(s.batch) * s.heads * blocks_of(s.n_q, B_r) * B_r;
}
std::size_t scratch_bytes(const AttentionShape& s) {
    return padded_queries(s) * (sizeof(float) * s.head_dim + 2 * sizeof(float)) +
           (padded_queries(s) / B_r * 2 + s.batch * s.heads) * sizeof(std::uint32_t);
}

void launch(const BackwardArgs& args) {
    const AttentionShape& s = args.shape;
    float* dQ_sums = static_cast<float*>(args.scratch);
    Statistics* statistics = reinterpret_cast<Statistics*>(dQ_sums + padded_queries(s) * s.head_dim);
    std::uint32_t* states = reinterpret_cast<std::uint32_t*>(statistics + padded_queries(s) / B_r);
    std::uint32_t* done = states + padded_queries(s) / B_r * 2;
    attention::with_types_of(s, [&]<class Element, int d, bool causal>() {
        using Smem = Memory<Element, d>;
        using C = ConfigOf<d>;
        using KeyTile = typename Smem::KeyTile;
        using QueryTile = typename Smem::QueryTile;
        using PartTile = typename Smem::PartTile;
        const auto in = [](const void* tensor) { return static_cast<const Element*>(tensor); };
        const int blocks = blocks_of(s.n_q, B_r), padded = blocks * B_r;
        const dim3 of_statistics(blocks_of(padded, 256 / (d / chunk)), s.heads, s.batch);
        launch_kernel(find_statistics<Element, d>, {of_statistics, 256, 0, args.stream}, in(args.O), in(args.dO), args.lse,
                      statistics, states, done, s.n_q, padded);
        const Maps<Element, d> maps{tile::make_tensor_map<KeyTile>(args.K, args.K_strides, s.batch, s.kv_heads, s.n_k),
                                    tile::make_tensor_map<KeyTile>(args.V, args.V_strides, s.batch, s.kv_heads, s.n_k),
                                    tile::make_tensor_map<KeyTile>(args.dK, args.dK_strides, s.batch, s.kv_heads, s.n_k),
                                    tile::make_tensor_map<KeyTile>(args.dV, args.dV_strides, s.batch, s.kv_heads, s.n_k),
                                    tile::make_tensor_map<QueryTile>(args.Q, args.Q_strides, s.batch, s.heads, s.n_q),
                                    tile::make_tensor_map<QueryTile>(args.dO, args.dO_strides, s.batch, s.heads, s.n_q),
                                    tile::make_tensor_map<PartTile>(args.dQ, args.dQ_strides, s.batch, s.heads, s.n_q, d)};
#if DIRECT
        check_cuda(cudaMemsetAsync(dQ_sums, 0, sizeof(float) * padded_queries(s) * d, args.stream), "sums of dQ");
#endif
        const dim3 of_keys(blocks_of(s.n_k, C::B_c), s.kv_heads, s.batch);
        launch_kernel(dq_writer<Element, d, causal>, {of_keys, C::threads, sizeof(Smem), args.stream}, maps,
                      Problem{s.n_q, s.n_k, s.heads / s.kv_heads, args.scale, statistics, dQ_sums, states, done});
#if DIRECT
        launch_kernel(finish_queries<Element, d>, {dim3(blocks, s.heads, s.batch), 256, sizeof(Element) * QueryTile::elements, args.stream},
                      static_cast<const float*>(dQ_sums), static_cast<Element*>(args.dQ), s.n_q, args.scale);
#endif
    });
}

const Registration registration({supports, launch, scratch_bytes});

}  // namespace
}  // namespace flashladder::attention_backward
