// Rung 22: out of step. Rung 21, but nobody waits for what the other consumer does in the same step.
//
// Idea      in its turn a consumer multiplies dQ of the step before: dS^T of the other has long been there for it. What
//           statistics have to say is in registers before products begin: dP^T's accumulators begin with -D, and at
//           d = 64 log-sum-exps come a step ahead
// Saves     waiting for the other consumer; an addition for each score; loads beside products
// Costs     a last dQ behind the loop; a slot of dS^T is free half a step later
// Source    dQ a step late: FlashAttention-4 (2026), on Blackwell; accumulators that begin with a row's number:
//           ThunderKittens (Spector et al., 2024)
// Supports  bf16, f16; d 64, 128; causal; grouped queries; any N_q and N_k; any strides; sm_90a
#include "lcsf/ring.h"
#include "operations/attention/launch_forward.h"
#include "operations/attention_backward/backward_maps.h"
#include "operations/attention_backward/key_block_task.h"
#include "operations/attention_backward/query_sums.h"
#include "operations/attention_backward/row_dot.h"
#include "operations/attention_backward/stage.h"
#include "ptx/elect.h"
#include "ptx/ex2.h"
#include "ptx/ldmatrix.h"
#include "ptx/named_barrier.h"
#include "ptx/setmaxnreg.h"
#include "tile/multiply.h"
#include "tile/warpgroup.h"

namespace flashladder::attention_backward {
namespace {

constexpr int warpgroup = 128, consumers = 2, threads = warpgroup * (1 + consumers);
constexpr int unit = 64, B_r = 64;  // keys that a consumer multiplies at a time; queries of a step
template <int d>
constexpr int units = 128 / d;  // of a consumer
template <int d>
constexpr int B_c = consumers * units<d> * unit;
template <int d>
constexpr int slots = d == 64 ? 3 : 2;  // for what a step brings in
constexpr int dS_slots = 2;
template <int d>
constexpr bool ahead = d == 64;  // log-sum-exps of a step are loaded in the step before: registers are left for that
using tile::chunk;

template <class Element, int rows, int columns>
using Tile = tile::SharedTile<Element, rows, columns, tile::Swizzled<128>>;

/// What is known of a step's queries before: with these two, probabilities and their gradients need no other key.
struct Statistics {
    float lse[B_r];      // in base 2
    float minus_D[B_r];  // -rowsum(dO O)
};

template <class Element_, int d>
struct Memory {
    using Element = Element_;
    using KeyTile = Tile<Element, unit, d>;
    using QueryTile = Tile<Element, B_r, d>;
    using ScoreTile = Tile<Element, unit, B_r>;
    static constexpr int units_of_block = consumers * units<d>;
    alignas(1024) Element K[units_of_block][KeyTile::elements], V[units_of_block][KeyTile::elements];
    Element Q[slots<d>][QueryTile::elements], dO[slots<d>][QueryTile::elements];
    Element dS[dS_slots][units_of_block][ScoreTile::elements];  // of dS^T
    float dQ[consumers][B_r * d];                               // in the order of the accumulator's registers
    alignas(16) Statistics statistics[slots<d>];
    ptx::Barrier keys_full, sums_complete;
    lcsf::Ring<slots<d>> queries;
    lcsf::Ring<dS_slots> scores;  // dS
    lcsf::Ring<1> dQ_ring[consumers];
    bool last;  // of the head's blocks
    std::uint32_t begun;  // so many blocks before this one
};
template <class Element, int d>
struct Maps : BackwardMaps<typename Memory<Element, d>::KeyTile, typename Memory<Element, d>::QueryTile> {
    tile::TensorMap<typename Memory<Element, d>::QueryTile> dQ;
};

struct Problem {
    int N_q, N_k, group;    // queries, keys; heads that share a K and V
    lcsf::TaskOrder order;  // of blocks of keys
    float scale;
    const Statistics* statistics;
    QuerySums dQ;
};

// ---- before: the statistics of each query

/// Of a head's queries, and of as many behind them as make whole steps: those are 0. Each by d / 8 lanes.
template <class Element, int d>
__global__ void __launch_bounds__(threads)
find_statistics(Rows<Element> O, Rows<Element> dO, const float* lse, Statistics* statistics, std::uint32_t* states,
                std::uint32_t* blocks_done, std::uint32_t* begun, int N_q, int padded) {
    constexpr int lanes = d / chunk;
    const int i = blockIdx.x * (threads / lanes) + threadIdx.x / lanes;
    const unsigned head = blockIdx.z * gridDim.y + blockIdx.y;
    const float D = row_dot<d>(O.row(blockIdx.z, blockIdx.y, i), dO.row(blockIdx.z, blockIdx.y, i), i < N_q);
    if (i >= padded || threadIdx.x % lanes != 0) return;
    const std::size_t step = (std::size_t(head) * padded + i) / B_r;
    statistics[step].lse[i % B_r] = i < N_q ? lse[std::size_t(head) * N_q + i] * attention::log2_e : 0;
    statistics[step].minus_D[i % B_r] = -D;
    if (i % B_r == 0) states[step] = untouched;
    if (i == 0) blocks_done[head] = 0;  // as many as heads: no fewer than kv heads
    if (begun && i == 0 && head == 0) *begun = 0;
}

// ---- the gradients

template <int d, bool causal>
using Task = KeyBlockTask<Problem, B_r, B_c<d>, causal>;

/// The loads, by one thread.
template <class Element, int d, bool causal>
__device__ void produce(Memory<Element, d>& smem, const Maps<Element, d>& maps, const Task<d, causal>& task) {
    using Smem = Memory<Element, d>;
    for (int u = 0; u < Smem::units_of_block; ++u) {
        const int row = task.j + u * unit;
        tile::load(typename Smem::KeyTile{smem.K[u]}, maps.K, smem.keys_full, row, task.kv_head, task.batch);
        tile::load(typename Smem::KeyTile{smem.V[u]}, maps.V, smem.keys_full, row, task.kv_head, task.batch);
    }
    lcsf::RingPosition<slots<d>> at;
    for (Step step = task.first(); step.t < task.T_r; task.advance(step), at.advance()) {
        smem.queries.wait_empty(at);
        ptx::Barrier& full = smem.queries.full[at.slot];
        const int i = step.block * B_r;
        tile::load(typename Smem::QueryTile{smem.Q[at.slot]}, maps.Q, full, i, step.head, task.batch);
        tile::load(typename Smem::QueryTile{smem.dO[at.slot]}, maps.dO, full, i, step.head, task.batch);
        constexpr unsigned bytes = sizeof(Statistics);
        ptx::barrier_arrive_expect_tx(full, bytes);
        ptx::bulk_load(&smem.statistics[at.slot], task.p.statistics + task.place_of(step), bytes, full);
    }
}

/// What consumer w leaves of dQ goes to the sums; by one thread, which nobody but the buffer waits for.
template <bool in_order, class Element, int d, bool causal>
__device__ void write_queries(Memory<Element, d>& smem, const Task<d, causal>& task, int w) {
    lcsf::RingPosition<1> at;
    for (Step step = task.first(); step.t < task.T_r; task.advance(step)) {
        if (step.t % consumers != w) continue;
        const std::uint32_t rank = in_order ? task.rank(step) : 0;
        const bool first = task.p.dQ.template claim<in_order>(task.place_of(step), rank);
        smem.dQ_ring[w].wait_full(at);
        task.p.dQ.template put<in_order>(task.place_of(step), smem.dQ[w], first, rank);
        smem.dQ_ring[w].release(at);
        at.advance();
    }
    task.p.dQ.complete();
    ptx::barrier_arrive(smem.sums_complete);
}

/// A consumer, 128 threads: dK and dV of its keys, and dQ of each other step from all keys of the block.
template <class Element, int d, bool causal>
struct Consumer {
    using Smem = Memory<Element, d>;
    using KeyTile = typename Smem::KeyTile;
    using QueryTile = typename Smem::QueryTile;
    using ScoreTile = typename Smem::ScoreTile;
    using Scores = tile::Accumulator<16, B_r>;  // of a warp's 16 keys
    using Sums = tile::Accumulator<16, d>;
    using ColumnValues = float2[B_r / 8];
    Smem& smem;
    const Maps<Element, d>& maps;
    const Task<d, causal>& task;
    const int w, first_unit = w * units<d>, first_row;
    // Of this lane's first row: the last that the first column of block 0 sees; or that is a key.
    const int last_row = (causal ? task.diagonal + tile::column_of(0, 0) : task.p.N_k - 1) - task.j -
                         first_unit * unit - int(threadIdx.x % warpgroup / 32 * 16) - tile::row_of(0, 0);
    Sums dK_reg[units<d>], dV_reg[units<d>];
#ifndef KC
#define KC 16
#define VC 0
#endif
    static constexpr int K_columns = KC, V_columns = VC;  // in registers
    tile::Operand<Element, 16, K_columns ? K_columns : 16> K_reg[units<d>];
    tile::Operand<Element, 16, V_columns ? V_columns : 16> V_reg[units<d>];
    tile::Operand<Element, 16, B_r> P_operand;  // of dV, which may be under way until the next step waits for it
    lcsf::RingPosition<slots<d>> at = {};  // where this step's queries are
    ColumnValues lse;                      // of this step; behind load_ahead() of the next one

    __device__ __forceinline__ Consumer(Smem& smem, const Maps<Element, d>& maps, const Task<d, causal>& task, int w,
                                        int warp)
        : smem(smem), maps(maps), task(task), w(w), first_row(16 * warp) {}
    __device__ __forceinline__ KeyTile K(int u) const { return {smem.K[first_unit + u]}; }
    __device__ __forceinline__ KeyTile V(int u) const { return {smem.V[first_unit + u]}; }

    __device__ __forceinline__ void load_lse(int slot) {
#pragma unroll
        for (int c = 0; c < B_r / 8; ++c)
            lse[c] = *reinterpret_cast<const float2*>(&smem.statistics[slot].lse[tile::column_of(c, 0)]);
    }
    /// dP^T begins with -D: when the product is done, it is dP^T - D.
    __device__ __forceinline__ void fill_with_minus_D(Scores& dP_t) const {
        const float* minus_D = smem.statistics[at.slot].minus_D;
        // EXERCISE 22.1 Each element of dP_t, (16 keys, B_r queries), becomes minus_D of its column's query: what is in
        // two neighbouring columns comes in one load.
        // STARTER tile::fill(dP_t, minus_D[0]);
#pragma unroll
        for (int c = 0; c < B_r / 8; ++c) {
            const float2 of_columns = *reinterpret_cast<const float2*>(&minus_D[tile::column_of(c, 0)]);
#pragma unroll
            for (int e = 0; e < 4; ++e) dP_t.fragment[0][c][e] = e % 2 ? of_columns.y : of_columns.x;
        }
        // END 22.1
    }
    /// Scores become weights: P^T of a step, for 16 keys of unit u.
    __device__ __forceinline__ void weigh(Scores& P_t, const Step& step, int u) const {
        const float scale_log2 = task.p.scale * attention::log2_e;
        const int last = last_row + (causal ? step.block * B_r : 0) - u * unit;
#pragma unroll
        for (int c = 0; c < B_r / 8; ++c)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                P_t.fragment[0][c][e] = fmaf(scale_log2, P_t.fragment[0][c][e], -(e % 2 ? lse[c].y : lse[c].x));
        if (8 > last)
#pragma unroll
            for (int c = 0; c < B_r / 8; ++c)
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    if (e / 2 * 8 > last + (causal ? 8 * c + e % 2 : 0)) P_t.fragment[0][c][e] = -INFINITY;
#pragma unroll
        for (int c = 0; c < B_r / 8; ++c)
#pragma unroll
            for (int e = 0; e < 4; ++e) P_t.fragment[0][c][e] = ptx::ex2_approx(P_t.fragment[0][c][e]);
    }
    /// dS^T of a step, 16 rows of unit u, goes to shared memory.
    __device__ __forceinline__ void store_scores(const Scores& dS_t, int slot, int u) const {
        const int lane = threadIdx.x % 32;
        Element* to = smem.dS[slot][first_unit + u];
        const int first = ScoreTile::Layout::template offset<unit, B_r>(first_row + lane % 16, lane / 16 * chunk);
#pragma unroll
        for (int c = 0; c < B_r / 8; c += 2) {
            std::uint32_t matrices[4];
#pragma unroll
            for (int m = 0; m < 4; ++m) {
                const float(&of)[4] = dS_t.fragment[0][c + m / 2];
                matrices[m] = ptx::pack<Element>(of[m % 2 * 2], of[m % 2 * 2 + 1]);
            }
            ptx::stmatrix(to + (first ^ chunk * c), matrices);
        }
    }
    __device__ __forceinline__ static lcsf::RingPosition<dS_slots> place_of_scores(int t) {
        return {t % dS_slots, unsigned(t / dS_slots % 2)};
    }

    __device__ __forceinline__ void step_of(const Step& step) {
        const lcsf::RingPosition<dS_slots> dS_at = place_of_scores(step.t);
        const QueryTile Q_smem{smem.Q[at.slot]}, dO_smem{smem.dO[at.slot]};
        if (!ahead<d> || step.t == 0) {
            smem.queries.wait_full(at);
            load_lse(at.slot);
        }
#pragma unroll
        for (int u = 0; u < units<d>; ++u) {
            Scores P_t, dS_t;
            fill_with_minus_D(dS_t);  // before products begin, beside which shared memory is slow
            if constexpr (K_columns > 0)
                tile::begin_multiply_transposed(P_t, K_reg[u], K(u), Q_smem);
            else
                tile::begin_multiply_transposed(P_t, K(u), Q_smem);
            ptx::wgmma_wait<1>();  // dK of the step before, or dV of the unit before
            ptx::pin(P_operand.fragment);
            if (u == 0 && step.t > 0 && ptx::elect_one())
                smem.queries.release({at.slot == 0 ? slots<d> - 1 : at.slot - 1});
            if constexpr (V_columns > 0)
                tile::begin_multiply_transposed(dS_t, V_reg[u], V(u), dO_smem, true);
            else
                tile::begin_multiply_transposed(dS_t, V(u), dO_smem, true);
            tile::wait<1>(P_t);
            weigh(P_t, step, u);
            P_operand = tile::to_operand<Element>(P_t);
            tile::wait<0>(dS_t);
            tile::multiply_elements(dS_t, P_t);
            if (u == 0) smem.scores.wait_empty(dS_at);
            store_scores(dS_t, dS_at.slot, u);
            ptx::fence_proxy_async();  // waits for these stores, and dQ's: before a product begins that slows them
            tile::begin_multiply(dV_reg[u], P_operand, dO_smem, step.t > 0);
        }
        end_step(step);
        at.advance();
    }
    /// The next step's log-sum-exps, while dK is multiplied.
    __device__ __forceinline__ void load_ahead(const Step& step) {
        if (!ahead<d> || step.t + 1 == task.T_r) return;
        auto next = at;
        next.advance();
        smem.queries.wait_full(next);
        load_lse(next.slot);
    }
    /// Begins dQ of step t, from dS^T of all; a group for each unit of the block.
    __device__ __forceinline__ void begin_queries(Sums& dQ_reg, int t) {
#pragma unroll
        for (int u = 0; u < Smem::units_of_block; ++u)
            tile::begin_multiply_of_transposed(dQ_reg, ScoreTile{smem.dS[t % dS_slots][u]}, KeyTile{smem.K[u]}, u > 0);
    }
    /// dQ of step t, done: its slot of dS^T is given back, and dQ goes to this consumer's buffer once that is empty.
    __device__ __forceinline__ void end_queries(const Sums& dQ_reg, int t) {
        if (ptx::elect_one()) smem.scores.release(place_of_scores(t));
        smem.dQ_ring[w].wait_empty({0, unsigned(t / consumers % 2)});
        store_queries(dQ_reg);
    }
    /// Begins dK of a step, from this consumer's dS^T; a group for each of its units.
    __device__ __forceinline__ void begin_keys(const Step& step) {
        const int dS_slot = place_of_scores(step.t).slot;
#pragma unroll
        for (int u = 0; u < units<d>; ++u)
            tile::begin_multiply(dK_reg[u], ScoreTile{smem.dS[dS_slot][first_unit + u]}, QueryTile{smem.Q[at.slot]},
                                 step.t > 0);
    }
    /// dQ of a step goes to this consumer's buffer, in the order of the registers.
    __device__ __forceinline__ void store_queries(const Sums& dQ_reg) {
        float4* to = reinterpret_cast<float4*>(smem.dQ[w]) + threadIdx.x % warpgroup;
#pragma unroll
        for (int c = 0; c < d / 8; ++c) {
            const float(&dQ)[4] = dQ_reg.fragment[0][c];
            to[c * warpgroup] = make_float4(dQ[0], dQ[1], dQ[2], dQ[3]);
        }
    }
    /// What this warp has stored, all lanes behind a fence, is announced: dS^T, unless null, and dQ.
    __device__ __forceinline__ void announce(ptx::Barrier* scores_full, bool queries) {
        __syncwarp();
        const bool elected = ptx::elect_one();
        if (elected && scores_full) ptx::barrier_arrive(*scores_full);
        if (elected && queries) ptx::barrier_arrive(smem.dQ_ring[w].full[0]);
    }

    // EXERCISE 22.2 Build: dQ, a step late. Behind dV of a step dS^T is announced, and dK begins. In step t consumer
    // (t - 1) % consumers also finds dQ of step t - 1, and leaves it in its buffer. What remains is done behind the last
    // step.
    // STARTER __device__ __forceinline__ void end_step(const Step& step) {
    // STARTER     const lcsf::RingPosition<dS_slots> dS_at = place_of_scores(step.t);
    // STARTER     announce(&smem.scores.full[dS_at.slot], step.t > 0 && step.t % consumers != w);
    // STARTER     if (step.t % consumers == w) {  // dQ of the same step
    // STARTER         Sums dQ_reg;
    // STARTER         smem.scores.wait_full(dS_at);
    // STARTER         begin_queries(dQ_reg, step.t);
    // STARTER         begin_keys(step);
    // STARTER         load_ahead(step);
    // STARTER         tile::wait<units<d>>(dQ_reg);
    // STARTER         ptx::pin(P_operand.fragment);
    // STARTER         end_queries(dQ_reg, step.t);
    // STARTER     } else {
    // STARTER         ptx::named_barrier_sync(2 + w, warpgroup);
    // STARTER         begin_keys(step);
    // STARTER         load_ahead(step);
    // STARTER     }
    // STARTER }
    // STARTER __device__ __forceinline__ void end_steps() {
    // STARTER     ptx::wgmma_wait<0>();
    // STARTER     ptx::fence_proxy_async();
    // STARTER     announce(nullptr, task.T_r % consumers != w);
    // STARTER }
    __device__ __forceinline__ void end_step(const Step& step) {
        announce(&smem.scores.full[place_of_scores(step.t).slot], step.t >= consumers && step.t % consumers == w);
        const int late = step.t - 1;
        if (late >= 0 && late % consumers == w) {
            constexpr int groups_of_dK = units<d>;
            Sums dQ_reg;
            smem.scores.wait_full(place_of_scores(late));
            begin_queries(dQ_reg, late);
            ptx::named_barrier_sync(2 + w, warpgroup);  // dS^T of all four warps is there
            begin_keys(step);
            load_ahead(step);
            tile::wait<groups_of_dK>(dQ_reg);
            ptx::pin(P_operand.fragment);
            end_queries(dQ_reg, late);
        } else {
            ptx::named_barrier_sync(2 + w, warpgroup);
            begin_keys(step);
            load_ahead(step);
        }
    }
    __device__ __forceinline__ void end_steps() {
        const int last = task.T_r - 1;
        if (last % consumers == w) {
            Sums dQ_reg;
            smem.scores.wait_full(place_of_scores(last));
            begin_queries(dQ_reg, last);
            tile::wait<0>(dQ_reg);
            ptx::pin(P_operand.fragment);
            end_queries(dQ_reg, last);
        }
        ptx::wgmma_wait<0>();
        ptx::fence_proxy_async();
        announce(nullptr, last > 0 || last % consumers == w);
    }
    // END 22.2

    __device__ __forceinline__ void consume() {
        ptx::barrier_wait(smem.keys_full, 0);
#pragma unroll
        for (int u = 0; u < units<d>; ++u) {
            if (K_columns > 0) tile::load(K_reg[u], K(u), first_row);
            if (V_columns > 0) tile::load(V_reg[u], V(u), first_row);
        }
        for (Step step = task.first(); step.t < task.T_r; task.advance(step)) step_of(step);
        end_steps();
    }
    /// dK and dV leave by way of K and V.
    __device__ __forceinline__ void store_keys() {
        ptx::named_barrier_sync(1, consumers * warpgroup);  // all have read K_j
#pragma unroll
        for (int u = 0; u < units<d>; ++u) {
            ptx::pin(tile::registers(dK_reg[u]));
            ptx::pin(tile::registers(dV_reg[u]));
            tile::multiply_all(dK_reg[u], task.p.scale);
            tile::store(K(u), dK_reg[u], first_row);
            tile::store(V(u), dV_reg[u], first_row);
        }
        ptx::fence_proxy_async();
        ptx::named_barrier_sync(2 + w, warpgroup);
        if (threadIdx.x % warpgroup != 0) return;
#pragma unroll
        for (int u = 0; u < units<d>; ++u) {
            const int row = task.j + (first_unit + u) * unit;
            tile::store(maps.dK, K(u), row, task.kv_head, task.batch);
            tile::store(maps.dV, V(u), row, task.kv_head, task.batch);
        }
    }
    /// Whether this block finishes dQ of its head: then all sums of it are complete, and all threads see them.
    __device__ __forceinline__ bool is_last() {
        if (threadIdx.x == warpgroup) {
            ptx::barrier_wait(smem.sums_complete, 0);
            smem.last = task.p.dQ.is_last(task.batch * task.p.order.heads + task.kv_head, task.p.order.T_r);
        }
        ptx::named_barrier_sync(1, consumers * warpgroup);
        return smem.last;
    }
    /// The sums of dQ at a place, this thread's; 0 if nobody has seen its queries.
    __device__ __forceinline__ void load_sums(Sums& dQ_reg, std::size_t place) const {
        const float4* sums = reinterpret_cast<const float4*>(task.p.dQ.sums + place * B_r * d) + threadIdx.x % warpgroup;
        const bool seen = task.p.dQ.states[place] != untouched;
#pragma unroll
        for (int c = 0; c < d / 8; ++c)
            reinterpret_cast<float4&>(dQ_reg.fragment[0][c]) = seen ? __ldcg(sums + c * warpgroup) : float4{};
    }
    /// dQ of the group's heads from its sums, by way of Q's slots: each consumer every other step's queries. The next
    /// ones are loaded while these are stored.
    __device__ __forceinline__ void finish_queries() {
        const std::size_t first_place = task.place_of({0, task.kv_head * task.p.group, 0});
        const int places = task.p.group * task.blocks;
        const QueryTile dQ_smem{smem.Q[w]};
        Sums now;
        if (w < places) load_sums(now, first_place + w);
        for (int n = w; n < places; n += consumers) {
            Sums next;
            if (n + consumers < places) load_sums(next, first_place + n + consumers);
            tile::multiply_all(now, task.p.scale);
            if (threadIdx.x % warpgroup == 0) ptx::bulk_wait_read<0>();
            ptx::named_barrier_sync(2 + w, warpgroup);
            tile::store(dQ_smem, now, first_row);
            ptx::fence_proxy_async();
            ptx::named_barrier_sync(2 + w, warpgroup);
            if (threadIdx.x % warpgroup == 0)
                tile::store(maps.dQ, dQ_smem, n % task.blocks * B_r, task.kv_head * task.p.group + n / task.blocks,
                            task.batch);
            now = next;
        }
    }
};

/// Which block of keys a block of threads has. In order these are given out as blocks begin, so that a block waits for
/// none that has not begun; and if causal, the last ones first, whose queries come to the others later.
template <bool in_order, class Element, int d, bool causal>
__device__ __forceinline__ Task<d, causal> task_of(const Memory<Element, d>& smem, const Problem& p) {
    if constexpr (in_order)
        return {p, p.order.template place<causal>(__shfl_sync(0xFFFFFFFFu, smem.begun, 0))};
    else
        return Task<d, causal>(p);
}

template <class Element, int d, bool causal, bool in_order>
__global__ void __launch_bounds__(threads, 1)
out_of_step(const __grid_constant__ Maps<Element, d> maps, const __grid_constant__ Problem p) {
    auto& smem = *dynamic_shared<Memory<Element, d>>();
    const int warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x % warpgroup / 32, 0);
    const int role = __shfl_sync(0xFFFFFFFFu, threadIdx.x / warpgroup, 0);  // the same in all lanes: nvcc now knows
    if (threadIdx.x == 0) {
        ptx::barrier_init(smem.keys_full, 2 * smem.units_of_block);
        ptx::barrier_init(smem.sums_complete, consumers);
        smem.queries.init(3, 4 * consumers);
        smem.scores.init(4 * consumers, 4);
        for (int w = 0; w < consumers; ++w) smem.dQ_ring[w].init(4, 1);
        ptx::fence_barrier_init();
        if (in_order) smem.begun = atomicAdd(p.dQ.begun, 1);
    }
    __syncthreads();
    if (role == 0) {
        ptx::registers_decrease<24>();
        const auto task = task_of<in_order, Element, d, causal>(smem, p);
        if (warp == 0 && ptx::elect_one()) produce(smem, maps, task);
        if (warp > 0 && warp <= consumers && ptx::elect_one()) write_queries<in_order>(smem, task, warp - 1);
    } else {
        ptx::registers_increase<240>();
        const auto task = task_of<in_order, Element, d, causal>(smem, p);
        Consumer<Element, d, causal> consumer(smem, maps, task, role - 1, warp);
        consumer.consume();
        consumer.store_keys();
        if (consumer.is_last()) consumer.finish_queries();
        if (threadIdx.x % warpgroup == 0) ptx::bulk_wait_read<0>();
    }
}

const Support supports{.stage = "22-out-of-step", .head_dims = {64, 128}, .dtypes = {DType::bf16, DType::f16},
                       .causal = true, .grouped_query = true, .strides = true, .compute_capability = 90};

int blocks_of(int n, int size) { return (n + size - 1) / size; }
std::size_t steps(const AttentionShape& s) { return std::size_t(s.batch) * s.heads * blocks_of(s.n_q, B_r); }
template <bool in_order>
std::size_t scratch_bytes(const AttentionShape& s) {
    const std::size_t step = sizeof(float) * B_r * s.head_dim + sizeof(Statistics) + sizeof(std::uint32_t);
    return steps(s) * step + (std::size_t(s.batch) * s.heads + in_order) * sizeof(std::uint32_t);
}

template <bool in_order>
void launch(const BackwardArgs& args) {
    const AttentionShape& s = args.shape;
    float* sums = static_cast<float*>(args.scratch);
    Statistics* statistics = reinterpret_cast<Statistics*>(sums + steps(s) * B_r * s.head_dim);
    std::uint32_t* states = reinterpret_cast<std::uint32_t*>(statistics + steps(s));
    std::uint32_t* blocks_done = states + steps(s);
    const QuerySums dQ{sums, states, blocks_done, in_order ? blocks_done + std::size_t(s.batch) * s.heads : nullptr};
    attention::with_types_of(s, [&]<class Element, int d, bool causal>() {
        using QueryTile = typename Memory<Element, d>::QueryTile;
        using KeyTile = typename Memory<Element, d>::KeyTile;
        const int padded = blocks_of(s.n_q, B_r) * B_r;
        const dim3 of_statistics(blocks_of(padded, threads / (d / chunk)), s.heads, s.batch);
        launch_kernel(find_statistics<Element, d>, {of_statistics, threads, 0, args.stream},
                      Rows<Element>{args.O, args.O_strides}, Rows<Element>{args.dO, args.dO_strides}, args.lse,
                      statistics, dQ.states, dQ.blocks_done, dQ.begun, s.n_q, padded);
        const auto order = key_block_order(s, B_c<d>, (d == 64 ? 32 : 16) << 20);  // a section's bytes stay in L2
        const Problem p{s.n_q, s.n_k, s.heads / s.kv_heads, order, args.scale, statistics, dQ};
        const Maps<Element, d> maps{
            backward_maps<KeyTile, QueryTile>(args),
            tile::make_tensor_map<QueryTile>(args.dQ, args.dQ_strides, s.batch, s.heads, s.n_q)};
        launch_kernel(out_of_step<Element, d, causal, in_order>,
                      {dim3(p.order.tasks()), threads, sizeof(Memory<Element, d>), args.stream}, maps, p);
    });
}

const Registration registration({supports, launch<false>, scratch_bytes<false>});

}  // namespace
}  // namespace flashladder::attention_backward
