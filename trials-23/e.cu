// Rung 23: one launch. Rung 21, but nobody waits for what the other consumer does in the same step.
//
// Idea      in its turn a consumer multiplies dQ of the step before: dS^T of the other has long been there for it. What
//           statistics have to say is in registers before products begin: dP^T's accumulators begin with -D, and at
//           d = 64 log-sum-exps come a step ahead
// Saves     waiting for the other consumer; an addition for each score; loads beside products
// Costs     a last dQ behind the loop; a slot of dS^T is free half a step later
// Source    dQ a step late: FlashAttention-4 (2026), on Blackwell; accumulators that begin with a row's number:
//           ThunderKittens (Spector et al., 2024)
// Supports  bf16, f16; d 64, 128; causal; grouped queries; any N_q and N_k; sm_90a
#include "lcsf/tasks.h"
#include "operations/attention/launch_forward.h"
#include "operations/attention_backward/backward_maps.h"
#include "operations/attention_backward/key_block_task.h"
#include "operations/attention_backward/row_dot.h"
#include "operations/attention_backward/stage.h"
#include "ptx/elect.h"
#include "ptx/ex2.h"
#include "ptx/ldmatrix.h"
#include "ptx/memory_order.h"
#include "ptx/named_barrier.h"
#include "ptx/setmaxnreg.h"
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
constexpr int dS_slots = 2, reports = 2;
constexpr int group_of_steps = 8;  // whose sums are counted at once
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
    lcsf::Ring<1> keys;
    lcsf::Ring<slots<d>> queries;
    lcsf::Ring<dS_slots> scores;  // dS
    lcsf::Ring<1> dQ_ring[consumers];
    lcsf::Ring<reports> reports_ring;  // of the writers: the sums of a group of steps are complete
    lcsf::TaskSlots tasks;
};
template <class Element, int d>
using Maps = BackwardMaps<typename Memory<Element, d>::KeyTile, typename Memory<Element, d>::QueryTile>;

/// How far the sums of a place are, which is a step's queries of one head: one of these, and `a_block` for each block of
/// keys whose share is complete.
enum State : std::uint32_t { unknown, known, taken, written, a_block = 4 };

struct Problem {
    int N_q, N_k, group;    // queries, keys; heads that share a K and V
    lcsf::TaskOrder order;  // of blocks of keys
    float scale;
    const void *O, *dO;
    const float* lse;
    void* dQ;
    Statistics* statistics;
    float* sums;            // of dQ
    std::uint32_t *states, *statistics_taken, *tasks_taken;
};

template <int d, bool causal>
using Task = KeyBlockTask<Problem, B_r, B_c<d>, causal>;

// The roles, each for one task. The block has made `before` steps in the `tasks` tasks before it: rings go on.

template <int slots>
__device__ __forceinline__ lcsf::RingPosition<slots> place_in_ring(int n) {
    return {n % slots, unsigned(n / slots % 2)};
}

/// The statistics of a step's queries, by a warp.
template <class Element, int d, bool causal>
__device__ __forceinline__ void find_statistics(const Task<d, causal>& task, int place) {
    constexpr int lanes = d / chunk, rows = 32 / lanes, at_once = d == 64 ? 16 : 16;
    const Problem& p = task.p;
    const int lane = threadIdx.x % 32, head = place / task.blocks, i = place % task.blocks * B_r;
    const std::size_t row = std::size_t(head) * p.N_q + i;
    Statistics& to = p.statistics[place];
#pragma unroll
    for (int first = 0; first < B_r; first += rows * at_once) {
        float D[at_once];
#pragma unroll
        for (int n = 0; n < at_once; ++n) {
            const int r = first + n * rows + lane / lanes;
            D[n] = row_dot<d>(static_cast<const Element*>(p.O), static_cast<const Element*>(p.dO), row + r, i + r < p.N_q);
        }
        if (lane % lanes == 0)
#pragma unroll
            for (int n = 0; n < at_once; ++n) to.minus_D[first + n * rows + lane / lanes] = -D[n];
    }
    for (int r = lane; r < B_r; r += 32) to.lse[r] = i + r < p.N_q ? p.lse[row + r] * attention::log2_e : 0;
    __syncwarp();
    if (task.blocks_that_see(i / B_r) == 0)
        for (int r = lane; r < (min(p.N_q - i, B_r)) * d / chunk; r += 32)
            reinterpret_cast<uint4*>(static_cast<Element*>(p.dQ) + row * d)[r] = uint4{};
    if (lane == 0) ptx::store_release(p.states + place, known);
}
/// Until those are known or being found that this task needs, and some of the next.
template <class Element, int d, bool causal>
__device__ __forceinline__ void find_statistics(const Task<d, causal>& task) {
    const int places = task.p.order.batches * task.p.order.heads * task.p.group * task.blocks;
    const int needed = task.place_of({0, (task.kv_head + 1) * task.p.group, 0});
    int place = 0;
    do {
        if (threadIdx.x % 32 == 0) place = atomicAdd(task.p.statistics_taken, 1);
        place = __shfl_sync(0xFFFFFFFFu, place, 0);
        if (place >= places) break;
        find_statistics<Element, d, causal>(task, place);
    } while (place + 1 < needed);
}

/// The loads, by one thread.
template <class Element, int d, bool causal>
__device__ void produce(Memory<Element, d>& smem, const Maps<Element, d>& maps, const Task<d, causal>& task, int tasks,
                        int before) {
    using Smem = Memory<Element, d>;
    smem.keys.wait_empty(place_in_ring<1>(tasks));
    for (int u = 0; u < Smem::units_of_block; ++u) {
        const int row = task.j + u * unit;
        tile::load(typename Smem::KeyTile{smem.K[u]}, maps.K, smem.keys.full[0], row, task.kv_head, task.batch);
        tile::load(typename Smem::KeyTile{smem.V[u]}, maps.V, smem.keys.full[0], row, task.kv_head, task.batch);
    }
    auto at = place_in_ring<slots<d>>(before);
    for (Step step = task.first(); step.t < task.T_r; task.advance(step), at.advance()) {
        const std::size_t place = task.place_of(step);
        while (ptx::load_acquire(task.p.states + place) == unknown) {
        }
        ptx::fence_proxy_async();
        smem.queries.wait_empty(at);
        ptx::Barrier& full = smem.queries.full[at.slot];
        const int i = step.block * B_r;
        tile::load(typename Smem::QueryTile{smem.Q[at.slot]}, maps.Q, full, i, step.head, task.batch);
        tile::load(typename Smem::QueryTile{smem.dO[at.slot]}, maps.dO, full, i, step.head, task.batch);
        constexpr unsigned bytes = sizeof(Statistics);
        ptx::barrier_arrive_expect_tx(full, bytes);
        ptx::bulk_load(&smem.statistics[at.slot], task.p.statistics + place, bytes, full);
    }
}

/// What consumer w leaves of dQ goes to the sums; by one thread, which nobody but the buffer waits for.
template <class Element, int d, bool causal>
__device__ void write_queries(Memory<Element, d>& smem, const Task<d, causal>& task, int before, int& groups, int w) {
    Step step = task.first();
    while (step.t < task.T_r) {
        for (const int end = min(step.t + group_of_steps, task.T_r); step.t < end; task.advance(step)) {
            const int n = before + step.t;
            if (n % consumers != w) continue;
            const std::size_t place = task.place_of(step);
            std::uint32_t *state = task.p.states + place, was;
            do was = atomicCAS(state, known, taken);
            while (was == unknown);
            const bool first = was == known;
            if (!first)
                while (ptx::load_acquire(state) % a_block != written) {
                }
            const auto at = place_in_ring<1>(n / consumers);
            smem.dQ_ring[w].wait_full(at);
            float* sums = task.p.sums + place * (B_r * d);
            if (first)
                ptx::bulk_store(sums, smem.dQ[w], sizeof smem.dQ[w]);
            else
                ptx::bulk_reduce_add(sums, smem.dQ[w], sizeof smem.dQ[w]);
            ptx::bulk_commit();
            ptx::bulk_wait_read<0>();
            smem.dQ_ring[w].release(at);
            if (first) {
                ptx::bulk_wait<0>();
                ptx::add_release(state, written - taken);
            }
        }
        ptx::bulk_wait<0>();
        const auto report = place_in_ring<reports>(groups++);
        smem.reports_ring.wait_empty(report);
        ptx::barrier_arrive(smem.reports_ring.full[report.slot]);
    }
}

/// dQ of a step's queries from its sums, which lie in the order of an accumulator's registers; by a warp.
template <class Element, int d, bool causal>
__device__ void finish_queries(const Task<d, causal>& task, const Step& step) {
    const int lane = threadIdx.x % 32, i = step.block * B_r;
    const std::size_t place = task.place_of(step);
    const float4* sums = reinterpret_cast<const float4*>(task.p.sums + place * (B_r * d));
    Element* dQ = static_cast<Element*>(task.p.dQ) + (place / task.blocks * task.p.N_q + i) * d;
    const int quad = lane / 4;
    for (int k = 0; k < 4 * d / 32; ++k) {  // 16 rows of a warp, 32 columns
        const int warp = k % 4, c = k / 4 * 4 + lane % 4, row = warp * 16 + quad;
        float4 of_rows[4];
#pragma unroll
        for (int n = 0; n < 4; ++n) of_rows[n] = sums[c * warpgroup + warp * 32 + quad * 4 + n];
        uint4 upper, lower;
        std::uint32_t *u = &upper.x, *l = &lower.x;
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            u[n] = ptx::pack<Element>(of_rows[n].x * task.p.scale, of_rows[n].y * task.p.scale);
            l[n] = ptx::pack<Element>(of_rows[n].z * task.p.scale, of_rows[n].w * task.p.scale);
        }
        if (i + row < task.p.N_q) *reinterpret_cast<uint4*>(dQ + row * d + c * 8) = upper;
        if (i + row + 8 < task.p.N_q) *reinterpret_cast<uint4*>(dQ + (row + 8) * d + c * 8) = lower;
    }
}
/// The same of those whose last share came from this block, by a warp.
template <class Element, int d, bool causal>
__device__ void finish_queries(Memory<Element, d>& smem, const Task<d, causal>& task, int& groups) {
    const int lane = threadIdx.x % 32;
    for (int first = 0; first < task.T_r; first += group_of_steps) {
        const auto report = place_in_ring<reports>(groups++);
        smem.reports_ring.wait_full(report);
        __syncwarp();
        if (lane == 0) smem.reports_ring.release(report);
        bool complete = false;
        const Step mine = task.at(min(first + lane, task.T_r - 1));
        if (lane < group_of_steps && first + lane < task.T_r) {
            const unsigned was = ptx::fetch_add_acquire_release(task.p.states + task.place_of(mine), a_block);
            complete = int(was / a_block) + 1 == task.blocks_that_see(mine.block);
        }
        for (unsigned left = __ballot_sync(0xFFFFFFFFu, complete); left != 0; left &= left - 1)
            finish_queries<Element, d, causal>(task, task.at(first + __ffs(left) - 1));
    }
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
    const int before, w, first_unit = w * units<d>, first_row;
    // Of this lane's first row: the last that the first column of block 0 sees; or that is a key.
    const int last_row = (causal ? task.diagonal + tile::column_of(0, 0) : task.p.N_k - 1) - task.j -
                         first_unit * unit - int(threadIdx.x % warpgroup / 32 * 16) - tile::row_of(0, 0);
    Sums dK_reg[units<d>], dV_reg[units<d>];
    tile::Operand<Element, 16, B_r> P_operand;  // of dV, which may be under way until the next step waits for it
    lcsf::RingPosition<slots<d>> at = place_in_ring<slots<d>>(before);  // where this step's queries are
    ColumnValues lse;                      // of this step; behind load_ahead() of the next one

    __device__ __forceinline__ Consumer(Smem& smem, const Maps<Element, d>& maps, const Task<d, causal>& task,
                                        int before, int w, int warp)
        : smem(smem), maps(maps), task(task), before(before), w(w), first_row(16 * warp) {}
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
    __device__ __forceinline__ lcsf::RingPosition<dS_slots> place_of_scores(int t) const {
        return place_in_ring<dS_slots>(before + t);
    }
    __device__ __forceinline__ bool finds_queries_of(int t) const { return (before + t) % consumers == w; }
    __device__ __forceinline__ void release_queries_of_before() {
        if (ptx::elect_one()) smem.queries.release({at.slot == 0 ? slots<d> - 1 : at.slot - 1});
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
            tile::begin_multiply_transposed(P_t, K(u), Q_smem);
            ptx::wgmma_wait<1>();  // dK of the step before, or dV of the unit before
            ptx::pin(P_operand.fragment);
            if (u == 0 && step.t > 0) release_queries_of_before();
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
            tile::begin_multiply_of_transposed(dQ_reg, ScoreTile{smem.dS[place_of_scores(t).slot][u]}, KeyTile{smem.K[u]}, u > 0);
    }
    /// dQ of step t, done: its slot of dS^T is given back, and dQ goes to this consumer's buffer once that is empty.
    __device__ __forceinline__ void end_queries(const Sums& dQ_reg, int t) {
        if (ptx::elect_one()) smem.scores.release(place_of_scores(t));
        smem.dQ_ring[w].wait_empty(place_in_ring<1>((before + t) / consumers));
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
        announce(&smem.scores.full[place_of_scores(step.t).slot], step.t >= consumers && finds_queries_of(step.t));
        const int late = step.t - 1;
        if (late >= 0 && finds_queries_of(late)) {
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
        if (finds_queries_of(last)) {
            Sums dQ_reg;
            smem.scores.wait_full(place_of_scores(last));
            begin_queries(dQ_reg, last);
            tile::wait<0>(dQ_reg);
            ptx::pin(P_operand.fragment);
            end_queries(dQ_reg, last);
        }
        ptx::wgmma_wait<0>();
        ptx::fence_proxy_async();
        announce(nullptr, last > 0 || finds_queries_of(last));
        release_queries_of_before();
    }
    // END 22.2

    __device__ __forceinline__ void consume(int tasks) {
        smem.keys.wait_full(place_in_ring<1>(tasks));
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
        ptx::bulk_wait_read<0>();
        smem.keys.release(place_in_ring<1>(0));
    }
};

template <class Element, int d, bool causal>
__global__ void __launch_bounds__(threads, 1)
one_launch(const __grid_constant__ Maps<Element, d> maps, const __grid_constant__ Problem p) {
    auto& smem = *dynamic_shared<Memory<Element, d>>();
    const int warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x % warpgroup / 32, 0);
    const int role = __shfl_sync(0xFFFFFFFFu, threadIdx.x / warpgroup, 0);  // the same in all lanes: nvcc now knows
    if (threadIdx.x == 0) {
        smem.keys.init(2 * smem.units_of_block, consumers);
        smem.queries.init(3, 4 * consumers);
        smem.scores.init(4 * consumers, 4);
        for (int w = 0; w < consumers; ++w) smem.dQ_ring[w].init(4, 1);
        smem.reports_ring.init(consumers, 1);
        smem.tasks.init(4 * consumers + consumers + 1);
        ptx::fence_barrier_init();
    }
    __syncthreads();
    const int tasks = p.order.tasks();
    int before = 0, tasks_before = 0, groups = 0;
    if (role == 0) {
        ptx::registers_decrease<24>();
        if (warp == 0) {
            if (ptx::elect_one()) {
                for (lcsf::TaskProducer next; next.task < tasks; next.advance(smem.tasks)) {
                    next.ask(p.tasks_taken);
                    const Task<d, causal> task(p, next.task);
                    produce(smem, maps, task, tasks_before++, before);
                    before += task.T_r;
                }
            }
        } else {
            for (lcsf::TaskConsumer next; next.task < tasks; next.advance(smem.tasks)) {
                const Task<d, causal> task(p, next.task);
                if (warp == 3)
                    finish_queries(smem, task, groups);
                else if (ptx::elect_one())
                    write_queries(smem, task, before, groups, warp - 1);
                __syncwarp();  // before the other lanes of a writer wait, with which it would take turns
                before += task.T_r;
            }
        }
    } else {
        ptx::registers_increase<240>();
        for (lcsf::TaskConsumer next; next.task < tasks; next.advance(smem.tasks)) {
            const Task<d, causal> task(p, next.task);
            find_statistics<Element, d, causal>(task);
            Consumer<Element, d, causal> consumer(smem, maps, task, before, role - 1, warp);
            consumer.consume(tasks_before++);
            consumer.store_keys();
            before += task.T_r;
        }
    }
}

const Support supports{.stage = "23-one-launch", .head_dims = {64, 128}, .dtypes = {DType::bf16, DType::f16},
                       .causal = true, .grouped_query = true, .compute_capability = 90};

int blocks_of(int n, int size) { return (n + size - 1) / size; }
std::size_t steps(const AttentionShape& s) { return std::size_t(s.batch) * s.heads * blocks_of(s.n_q, B_r); }
std::size_t scratch_bytes(const AttentionShape& s) {
    const std::size_t step = sizeof(float) * B_r * s.head_dim + sizeof(Statistics) + sizeof(std::uint32_t);
    return steps(s) * step + 2 * sizeof(std::uint32_t);
}

void launch(const BackwardArgs& args) {
    const AttentionShape& s = args.shape;
    float* sums = static_cast<float*>(args.scratch);
    Statistics* statistics = reinterpret_cast<Statistics*>(sums + steps(s) * B_r * s.head_dim);
    std::uint32_t* states = reinterpret_cast<std::uint32_t*>(statistics + steps(s));
    check_cuda(cudaMemsetAsync(states, 0, (steps(s) + 2) * sizeof *states, args.stream), "nothing is known or taken");
    attention::with_types_of(s, [&]<class Element, int d, bool causal>() {
        using QueryTile = typename Memory<Element, d>::QueryTile;
        using KeyTile = typename Memory<Element, d>::KeyTile;
        const auto order = key_block_order(s, B_c<d>, (d == 64 ? 32 : 16) << 20);  // a section's bytes stay in L2
        const Problem p{s.n_q,  s.n_k, s.heads / s.kv_heads, order, args.scale, args.O, args.dO, args.lse, args.dQ, statistics,
                        sums, states, states + steps(s), states + steps(s) + 1};
        const auto maps = backward_maps<KeyTile, QueryTile>(args);
        const int blocks = std::min(order.tasks(), device_attribute(cudaDevAttrMultiProcessorCount));
        launch_kernel(one_launch<Element, d, causal>, {dim3(blocks), threads, sizeof(Memory<Element, d>), args.stream},
                      maps, p);
    });
}

const Registration registration({supports, launch, scratch_bytes});

}  // namespace
}  // namespace flashladder::attention_backward
