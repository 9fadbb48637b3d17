// Rung 25: rung 22 on the template, which has learned what gradients need: memory of a kernel's own, and writers.
//
// Idea      load, compute, store, finish: what is moved and multiplied is said here, and the template has the rest. A
//           grid as large as the GPU takes blocks of keys one after the other, the next one's queries under the end of
//           this one. dQ of a head that has ended is shared out among the tasks that come later: each makes a few blocks
//           of queries. And what is known of a query, LSE and D, is part of a product's operand
// Saves     the start of a block for each task and its first loads; the wait for a block that makes dQ of a whole head;
//           most of what lanes load from shared memory
// Costs     a gap between two tasks, where K and V come into the place that dK and dV have left; dQ is made in it. A
//           product of 16 more columns for all scores and all their gradients
// Source    ThunderKittens (Spector et al., 2024): load, compute, store, finish; rungs 14 and 22
// Supports  bf16, f16; d 64, 128; causal; grouped queries; any N_q and N_k; any strides; sm_90a
#include "lcsf/lcsf.h"
#include "operations/attention/launch_forward.h"
#include "operations/attention_backward/backward_maps.h"
#include "operations/attention_backward/key_block_task.h"
#include "operations/attention_backward/query_sums.h"
#include "operations/attention_backward/row_dot.h"
#include "operations/attention_backward/stage.h"
#include "operations/attention_backward/transposed_step.h"
#include "ptx/named_barrier.h"
#include "tile/warpgroup.h"

namespace flashladder::attention_backward {
namespace {

constexpr int unit = 64, B_r = 64;  // keys of a consumer; queries of a step
constexpr int threads = 384;        // of a block of find_statistics
using tile::chunk;

/// dQ: (batch, heads, N_q, d), of any strides.
template <class Element>
struct Gradient {
    Element* tensor;
    Strides strides;

    __device__ __forceinline__ Element* row(int batch, int head, int i) const {
        return tensor + batch * strides.batch + head * strides.head + i * strides.row;
    }
};

/// 4 of the 8 columns that a lane and its neighbour have of two pairs each: whole sectors.
template <class Element>
__device__ __forceinline__ void store_half(Element* row, float scale, float2 here, float2 next, bool odd, bool stores) {
    const std::uint32_t a = ptx::pack<Element>(scale * here.x, scale * here.y);
    const std::uint32_t b = ptx::pack<Element>(scale * next.x, scale * next.y);
    const std::uint32_t theirs = __shfl_xor_sync(0xFFFFFFFFu, odd ? a : b, 1);
    if (stores) *reinterpret_cast<uint2*>(row) = odd ? uint2{theirs, b} : uint2{a, theirs};
}

// ---- before: the statistics of each query

/// Of a head's queries, and of as many behind them as make whole steps: those are 0. Each by d / 8 lanes.
template <class Element, int d>
__global__ void __launch_bounds__(threads)
find_statistics(Rows<Element> O, Rows<Element> dO, const float* lse, Statistics<Element, B_r>* statistics,
                std::uint32_t* states, std::uint32_t* writers_done, unsigned* taken, float of_LSE, int N_q, int padded) {
    constexpr int lanes = d / chunk;
    const int i = blockIdx.x * (threads / lanes) + threadIdx.x / lanes;
    const unsigned head = blockIdx.z * gridDim.y + blockIdx.y;
    const float D = row_dot<d>(O.row(blockIdx.z, blockIdx.y, i), dO.row(blockIdx.z, blockIdx.y, i), i < N_q);
    if (i >= padded || threadIdx.x % lanes != 0) return;
    const std::size_t step = (std::size_t(head) * padded + i) / B_r;
    const float LSE = i < N_q ? lse[std::size_t(head) * N_q + i] : 0;
    statistics[step].set(i % B_r, LSE == -INFINITY ? 0 : of_LSE * LSE, -D);  // no key is seen where LSE is -inf
    if (i % B_r == 0) states[step] = untouched;
    if (i == 0) writers_done[head] = 0;  // as many as heads: no fewer than kv heads
    if (i == 0 && head == 0) *taken = 0;
}

// ---- the gradients

/// dK and dV of a block of keys, whose queries pass by in steps, and dQ of each step, which is added to the sums.
template <class Element, int d, bool causal>
struct Backward {
    static constexpr int consumers = d == 64 ? 3 : 2, writers = consumers;  // a writer for what each consumer leaves of dQ
    static constexpr int stages = d == 64 ? 4 : 2, own_slots = 1;
    static constexpr lcsf::Schedule schedule = lcsf::Schedule::dynamic;
    static constexpr bool follows_a_kernel = true, turns = false, own_is_loaded = true;
    static constexpr int B_c = consumers * unit, dS_slots = 2;
    static constexpr bool few_registers = consumers == 3;  // a thread has 160 of them, not 240
    static constexpr bool dS_in_registers = !few_registers;  // for dK; then no product is under way where a step begins
    template <int rows, int columns>
    using Tile = tile::SharedTile<Element, rows, columns, tile::Swizzled<128>>;
    using KeyTile = Tile<unit, d>;
    using ScoreTile = Tile<unit, B_r>;
    using QueryTile = Tile<B_r, d>;
    using FirstTile = Tile<2 * d, 64>;  // Q_i, and dO_i behind it; with them come the statistics. A step waits once
    using OwnTile = Tile<2 * d, 64>;    // a consumer's keys of K, then of V; then of dK and dV
    using OutputTile = Tile<16, d>;     // of dK or dV, by a warp
    static constexpr int first_loads = 3, own_loads = 2;
    using Consumer = lcsf::Consumer<Backward>;
    using Scores = tile::Accumulator<16, B_r>;  // of a warp's 16 keys
    using Sums = tile::Accumulator<16, d>;

    struct Problem {
        tile::TensorMap<QueryTile> Q, dO;
        tile::TensorMap<KeyTile> K, V;
        tile::TensorMap<OutputTile> dK, dV;
        int N_q, N_k, group;    // queries, keys; heads that share a K and V
        int blocks;             // of queries, of a head
        lcsf::TaskOrder order;  // of blocks of keys
        int lag;                // tasks: so many behind task n, its share of dQ is made
        int share_blocks;       // of queries; the last shares of a head have fewer
        float scale, scale_log2;  // of scores; the same, but never 0, for exponentials in base 2
        const Statistics<Element, B_r>* statistics;
        QuerySums sums;
        Gradient<Element> dQ;
    };
    /// B_c keys of a head, and the steps by which the queries of all heads of the group pass. What can be said anew is
    /// not kept: registers are for products, and those who load have few.
    struct Task {
        const Problem& p;
        int j, kv_head, batch;  // from key j on

        /// Query i sees the keys up to i + diagonal.
        __device__ __forceinline__ int diagonal() const { return p.N_k - p.N_q; }
        __device__ __forceinline__ int first_block() const { return first_block_that_sees(j); }
        __device__ __forceinline__ int first_block_that_sees(int key) const {
            return causal ? max(0, key - diagonal()) / B_r : 0;
        }
        __device__ __forceinline__ int steps() const { return p.group * (p.blocks - first_block()); }
        __device__ __forceinline__ Step step(int t) const {
            Step step{t, kv_head * p.group, first_block() + t};
            for (; step.block >= p.blocks; ++step.head) step.block -= p.blocks - first_block();
            return step;
        }
        __device__ __forceinline__ void advance(Step& step, int first_block) const {
            ++step.t;
            if (++step.block == p.blocks) step.block = first_block, ++step.head;
        }
        /// Where something of a step lies for all heads one after the other, in blocks of queries.
        __device__ __forceinline__ int place_of(const Step& step) const {
            return (batch * p.order.heads * p.group + step.head) * p.blocks + step.block;
        }
    };
    /// What a warp keeps of a task in memory: registers are for products.
    struct Notes {
        int row, kv_head, batch;  // from its first key on
    };
    /// What consumers tell each other, and what writers take from them.
    struct Shared {
        Element dS[dS_slots][consumers][ScoreTile::elements];  // of dS^T
        float dQ[consumers][B_r * d];                          // in the order of the accumulator's registers
        Statistics<Element, B_r> statistics[stages];
        lcsf::Ring<dS_slots> scores;  // dS
        lcsf::Ring<1> dQ_ring[consumers];
        lcsf::Ring<1> share_ring;
        int share;  // of dQ: the number of the task whose it is, or below 0
        Notes notes[4 * consumers];  // of each warp
    };
    struct State {
        Sums dK, dV;
        tile::Operand<Element, 16, B_r> P, dS;  // of dV and dK, which may be under way until end_step() has waited
        unsigned steps = 0;  // so far
        unsigned lane[1];    // the same as a consumer's, but the compiler does not know it: see compute()
    };

    // ---- tasks
    __host__ __device__ static int tasks(const Problem& p) { return p.order.tasks(); }
    static int most_tasks(const Problem& p) { return tasks(p); }  // find_statistics sets `taken`
    __device__ __forceinline__ static Task task(const Problem& p, int n) {
        const auto place = p.order.template place<false>(n);
        return {p, place.block * B_c, place.head, place.batch};
    }
    __device__ static int steps(const Task& task) { return task.steps(); }
    __device__ static bool works(const Task&, int) { return true; }
    __device__ static void init(Shared& shared) {
        shared.scores.init(4 * consumers, 4);
        for (auto& ring : shared.dQ_ring) ring.init(4, 1);
        shared.share_ring.init(1, 4 * consumers);
    }

    // ---- load
    __device__ __forceinline__ static void load_first(FirstTile queries, ptx::Barrier& full, const Problem& p,
                                                      const Task& task, int t, Shared& shared, int slot) {
        const Step step = task.step(t);
        const int i = step.block * B_r;
        tile::load(Q_of(queries.data), p.Q, full, i, step.head, task.batch);
        tile::load(dO_of(queries.data), p.dO, full, i, step.head, task.batch);
        constexpr unsigned bytes = sizeof(Statistics<Element, B_r>);
        ptx::barrier_arrive_expect_tx(full, bytes);
        ptx::bulk_load(&shared.statistics[slot], p.statistics + task.place_of(step), bytes, full);
    }
    __device__ __forceinline__ static QueryTile Q_of(Element* queries) { return {queries}; }
    __device__ __forceinline__ static QueryTile dO_of(Element* queries) { return {queries + QueryTile::elements}; }
    __device__ __forceinline__ static void load_own(OwnTile own, ptx::Barrier& full, const Problem& p, const Task& task,
                                                    int consumer) {
        const int row = task.j + consumer * unit;
        tile::load(K_of(own.data), p.K, full, row, task.kv_head, task.batch);
        tile::load(V_of(own.data), p.V, full, row, task.kv_head, task.batch);
    }
    __device__ __forceinline__ static KeyTile K_of(Element* own) { return {own}; }
    __device__ __forceinline__ static KeyTile V_of(Element* own) { return {own + KeyTile::elements}; }

    // ---- dQ goes to the sums
    struct Writer {
        const unsigned number;
        unsigned steps = 0;  // so far

        /// What a consumer leaves of dQ, in its turn. By one thread, which nobody but the buffer waits for.
        __device__ __forceinline__ void write(Shared& shared, const Problem& p, const Task& task,
                                              const lcsf::TaskConsumer& tasks) {
            if (threadIdx.x % 32 != 0) return;
            if (number == 0) {
                const lcsf::RingPosition<1> share_at = {0, tasks.before % 2};
                const int share = tasks.task - p.lag;
                if (share >= 0) wait_for_sums(p, share);
                shared.share_ring.wait_empty(share_at);
                shared.share = share;
                ptx::barrier_arrive(shared.share_ring.full[0]);
            }
            for (Step step = task.step(0); step.t < task.steps(); task.advance(step, task.first_block()), ++steps) {
                if (steps % consumers != number) continue;
                const lcsf::RingPosition<1> dQ_at = {0, steps / consumers % 2};
                const int place = task.place_of(step);
                // A claim that waits for data while this block has another task under way could have others wait for it,
                // and it for them, in a circle: those of a task's first steps come behind their data.
                if (step.t < consumers) shared.dQ_ring[number].wait_full(dQ_at);
                const bool first = p.sums.template claim<false>(place, 0);
                if (step.t >= consumers) shared.dQ_ring[number].wait_full(dQ_at);
                p.sums.template put<false>(place, shared.dQ[number], first, 0);
                shared.dQ_ring[number].release(dQ_at);
            }
            p.sums.complete();
            ptx::add_release(p.sums.blocks_done + task.batch * p.order.heads + task.kv_head, 1);
        }
    };

    // ---- dQ from the sums
    /// Until all sums of task n's head are complete; who has waited sees them. By one thread.
    __device__ __forceinline__ static void wait_for_sums(const Problem& p, int n) {
        const Task of = task(p, n);
        const std::uint32_t* done = p.sums.blocks_done + of.batch * p.order.heads + of.kv_head;
        const unsigned all = writers * p.order.T_r;
        while (ptx::load_acquire(done) != all) {
        }
    }
    /// By a consumer, while what a task begins with is on its way.
    __device__ __forceinline__ static void between(Consumer& c, const Problem& p, unsigned tasks_before) {
        if (tasks_before > 0) take_share(c, p, tasks_before - 1);
    }
    /// A writer has waited for the sums of the share that belongs to this team's task number `before`.
    __device__ __forceinline__ static void take_share(Consumer& c, const Problem& p, unsigned before) {
        Shared& shared = c.smem.shared;
        const lcsf::RingPosition<1> at = {0, before % 2};
        shared.share_ring.wait_full(at);
        const int share = shared.share;
        __syncwarp();
        if (c.lane == 0) shared.share_ring.release(at);
        if (share >= 0) finish_share(c, p, share);
    }
    /// By a consumer, behind its last task.
    __device__ __forceinline__ static void end(Consumer& c, const Problem& p, unsigned tasks_before) {
        between(c, p, tasks_before);
        finish_last_shares(c, p);
    }
    // EXERCISE 25.2 Build: shares. finish_share() makes dQ of the share of task n: p.share_blocks of its head's p.group * p.blocks
    // blocks of queries, as many shares as there are blocks of keys, by finish_blocks(). finish_last_shares() makes those
    // that belong to no task, of all blocks together.
    // TODO: your code, instead of this.
    __device__ static void finish_share(Consumer&, const Problem&, int) {}
    __device__ static void finish_last_shares(Consumer&, const Problem&) {}
    // END 25.2
    /// dQ of block b of the queries of task `of`'s head, and of those that share its K, and of each `consumers`-th one behind
    /// it, below `end`. By a consumer.
    __device__ __forceinline__ static void finish_blocks(const Consumer& c, const Problem& p, const Task& of, int b, int end) {
        for (; b < end; b += consumers) {
            float4 sums[d / 8];
            load_sums(sums, c, p, of, b);
            store_queries(sums, c, p, of, b);
        }
    }
    /// Of block b this warp's part of the sums, 16 queries: in the order of an accumulator's registers.
    __device__ __forceinline__ static void load_sums(float4 (&sums)[d / 8], const Consumer& c, const Problem& p,
                                                     const Task& of, int b) {
        const std::size_t place = std::size_t(of.batch * p.order.heads + of.kv_head) * p.group * p.blocks + b;
        const float4* from = reinterpret_cast<const float4*>(p.sums.sums + place * B_r * d) + c.warp * 32 + lane_anew(c);
        // Of queries that see no key nobody has set the sums.
        const bool are_set = !causal || (b % p.blocks + 1) * B_r + of.diagonal() > 0;
#pragma unroll
        for (int n = 0; n < d / 8; ++n) sums[n] = are_set ? __ldcg(from + n * lcsf::warpgroup) : float4{};
    }
    __device__ __forceinline__ static void store_queries(const float4 (&sums)[d / 8], const Consumer& c, const Problem& p,
                                                         const Task& of, int b) {
        const int lane = lane_anew(c), odd = lane % 2;
        const int head = b / p.blocks, i = (b - head * p.blocks) * B_r + c.warp * 16 + lane / 4;
        Element* row = p.dQ.row(of.batch, of.kv_head * p.group + head, i) + odd * 8 + lane % 4 / 2 * 4;
#pragma unroll
        for (int n = 0; n < d / 8; n += 2) {
            // Of a row two lanes store 8 columns each, whole sectors.
            const float4 here = sums[n], next = sums[n + 1];
            store_half(row + 8 * n, p.scale, {here.x, here.y}, {next.x, next.y}, odd, i < p.N_q);
            store_half(row + 8 * p.dQ.strides.row + 8 * n, p.scale, {here.z, here.w}, {next.z, next.w}, odd, i + 8 < p.N_q);
        }
    }
    __device__ __forceinline__ static int lane_anew(const Consumer& c) {
        unsigned lane[1] = {unsigned(c.lane)};
        ptx::pin(lane);  // or what follows from it would be kept in registers from task to task
        return int(lane[0]);
    }

    // ---- compute
    __device__ __forceinline__ static void begin(State&, Consumer&, const Problem&, const Task&) {}  // no output leaves here
    __device__ __forceinline__ static void compute(State& s, Consumer& c, const Problem& p, const Task& task) {
        const int first_key = task.j + c.number * unit;
        if (c.lane == 0) notes(c) = {first_key + c.warp * 16, task.kv_head, task.batch};
        __syncwarp();
        tile::fill(s.dK, 0), tile::fill(s.dV, 0);
        // A lane's number costs nothing to read anew, the compiler believes, and has no register for it: four times in a
        // step, and each time what follows waits for it. Of a shuffle it does not believe that.
        s.lane[0] = __shfl_sync(0xFFFFFFFFu, c.lane, c.lane);
        const int first_block = task.first_block(), steps = task.steps();
        // Blocks of queries before that one see none of this consumer's keys: none of all, if it has no key.
        const int first_seen = first_key < p.N_k ? task.first_block_that_sees(first_key) : p.blocks;
        for (Step step = task.step(0); step.t < steps; task.advance(step, first_block)) {
            if (step.block < first_seen) {
                const lcsf::RingPosition<dS_slots> passed = scores_of(s.steps);
                pass_scores(s, c, step);
                end_step<false>(s, c, step);
                // Or it would run ahead, as far as slots of dS^T allow, and wait there in the steps to come.
                c.smem.shared.scores.wait_full(passed);
                continue;
            }
            multiply_scores(s, c, p, task, step);
            end_step<true>(s, c, step);
        }
        end_steps(s, c, task);
    }

    /// Of a step: scores, their weights and gradients, and dV begins.
    __device__ __forceinline__ static void multiply_scores(State& s, Consumer& c, const Problem& p, const Task& task,
                                                           const Step& step) {
        Shared& shared = c.smem.shared;
        if (few_registers) ptx::pin(s.lane);  // or what follows from it would be kept in them
        int own_row[1] = {notes(c).row + tile::row_of(0, 0, s.lane[0]) - (causal ? tile::column_of(0, 0, s.lane[0]) : 0)};
        ptx::pin(own_row);  // or its sum would begin in a uniform register, which products wait for
        // Of this lane's first row: the last that the first column of block 0 sees; or that is a key.
        const int last_row = (causal ? task.diagonal() + step.block * B_r : p.N_k - 1) - own_row[0];
        const QueryTile Q_smem = Q_of(c.smem.first[c.first.at.slot]), dO_smem = dO_of(c.smem.first[c.first.at.slot]);
        const auto& statistics = shared.statistics[c.first.at.slot];
        c.first.take();
        Scores P_t, dS_t;
        auto weights_of_LSE = weights_of_statistics<Element>(0, s.lane[0]);
        begin_scores(P_t, K_of(c.own().data), Q_smem, weights_of_LSE, statistics);
        if (few_registers) tile::wait<0>(P_t, weights_of_LSE);  // or nvcc has too few, and serialises all products
        ptx::wgmma_wait<1>();                                   // dK of the step before
        give_back_step_before(c, step.t);
        auto weights_of_D = weights_of_statistics<Element>(Statistics<Element, B_r>::parts, s.lane[0]);
        begin_scores(dS_t, V_of(c.own().data), dO_smem, weights_of_D, statistics);
        tile::wait<1>(P_t, weights_of_LSE);
        weigh_transposed<causal>(P_t, p.scale_log2, last_row);
        s.P = tile::to_operand<Element>(P_t);
        tile::wait<0>(dS_t, weights_of_D);
        tile::multiply_elements(dS_t, P_t);
        shared.scores.wait_empty(scores_of(s.steps));
        if (dS_in_registers) s.dS = tile::to_operand<Element>(dS_t);
        store_rows<Element>(own_scores(s, c), dS_t, 16 * c.warp, s.lane[0]);
        ptx::fence_proxy_async();  // waits for these stores, and dQ's: before a product begins that slows them
        tile::begin_multiply(s.dV, s.P, dO_smem);
    }
    /// Of a step whose queries see none of this consumer's keys: its dS^T is 0.
    __device__ __forceinline__ static void pass_scores(State& s, Consumer& c, const Step& step) {
        Shared& shared = c.smem.shared;
        c.first.take();
        ptx::wgmma_wait<0>();  // dK of the step before
        give_back_step_before(c, step.t);
        shared.scores.wait_empty(scores_of(s.steps));
        Element* rows = own_scores(s, c).data + c.warp * 16 * B_r;  // of this warp
#pragma unroll
        for (int n = 0; n < 16 * B_r; n += 32 * chunk) *reinterpret_cast<uint4*>(rows + n + s.lane[0] * chunk) = uint4{};
        ptx::fence_proxy_async();
    }
    /// Where this consumer's part of dS^T of a step is.
    __device__ __forceinline__ static ScoreTile own_scores(const State& s, const Consumer& c) {
        return {c.smem.shared.dS[s.steps % dS_slots][c.number]};
    }
    /// Step t: what the products of step t - 1 have read, if there was one.
    __device__ __forceinline__ static void give_back_step_before(Consumer& c, int t) {
        if (t > 0 && ptx::elect_one()) c.smem.first_ring.release({c.first.at.slot == 0 ? stages - 1 : c.first.at.slot - 1});
    }
    /// Whether it is this consumer who finds dQ of a step: they take turns.
    __device__ __forceinline__ static bool finds_queries(const Consumer& c, unsigned step) {
        return step % consumers == unsigned(c.number);
    }
    /// Behind dV dS^T is announced, and dK begins. One consumer finds dQ of the step before too.
    template <bool seen>
    __device__ __forceinline__ static void end_step(State& s, Consumer& c, const Step& step) {
        Shared& shared = c.smem.shared;
        announce(shared, c, &shared.scores.full[s.steps % dS_slots], step.t > 1 && finds_queries(c, s.steps - 2));
        if (step.t > 0 && finds_queries(c, s.steps - 1)) {
            Sums dQ;
            const lcsf::RingPosition<dS_slots> dS_late = scores_of(s.steps - 1);
            shared.scores.wait_full(dS_late);
            if (dS_in_registers && seen) tile::wait<0>(s.dV, s.P);  // there is room for two operands, or for dQ and one
            begin_queries(dQ, c, dS_late.slot);
            if (seen) begin_keys(s, c);
            tile::wait<seen ? 1 : 0>(dQ);
            if (few_registers) ptx::pin(s.P.fragment);
            end_queries(s, c, dQ, dS_late);
        } else if (seen) {
            begin_keys(s, c);
            tile::wait<1>(s.dV, s.P);  // where the next scores begin registers are needed
        }
        if (dS_in_registers && seen) tile::wait<0>(s.dK, s.dS);
        ++s.steps;
        c.first.keep();
    }
    /// What remains behind the last step: its dQ, and what its products have read.
    __device__ __forceinline__ static void end_steps(State& s, Consumer& c, const Task& task) {
        Shared& shared = c.smem.shared;
        const bool has_turn = finds_queries(c, s.steps - 1);
        if (has_turn) {
            Sums dQ;
            const lcsf::RingPosition<dS_slots> dS_late = scores_of(s.steps - 1);
            shared.scores.wait_full(dS_late);
            begin_queries(dQ, c, dS_late.slot);
            tile::wait<0>(dQ);
            ptx::pin(s.P.fragment);
            end_queries(s, c, dQ, dS_late);
        }
        ptx::wgmma_wait<0>();
        ptx::fence_proxy_async();
        announce(shared, c, nullptr, has_turn || (task.steps() > 1 && finds_queries(c, s.steps - 2)));
        give_back_step_before(c, task.steps());
    }
    __device__ __forceinline__ static lcsf::RingPosition<dS_slots> scores_of(unsigned step) {
        return {int(step % dS_slots), step / dS_slots % 2};
    }
    /// Begins dQ of a step, from dS^T of all; a group for each consumer.
    __device__ __forceinline__ static void begin_queries(Sums& dQ, const Consumer& c, int dS_slot) {
#pragma unroll
        for (int w = 0; w < consumers; ++w)
            tile::begin_multiply_of_transposed(dQ, ScoreTile{c.smem.shared.dS[dS_slot][w]}, K_of(c.smem.own[c.own_at.slot][w]),
                                               w > 0);
    }
    /// dQ is done: its slot of dS^T is given back, and dQ goes to this consumer's buffer once that is empty.
    __device__ __forceinline__ static void end_queries(State& s, Consumer& c, const Sums& dQ,
                                                       const lcsf::RingPosition<dS_slots>& dS_late) {
        Shared& shared = c.smem.shared;
        if (ptx::elect_one()) shared.scores.release(dS_late);
        shared.dQ_ring[c.number].wait_empty({0, (s.steps - 1) / consumers % 2});
        float4* to = reinterpret_cast<float4*>(shared.dQ[c.number]) + c.warp * 32 + s.lane[0];
#pragma unroll
        for (int n = 0; n < d / 8; ++n) {
            const float(&of)[4] = dQ.fragment[0][n];
            to[n * lcsf::warpgroup] = make_float4(of[0], of[1], of[2], of[3]);
        }
    }
    /// Begins dK of a step, from this consumer's dS^T: of registers, or of all four warps' in shared memory.
    __device__ __forceinline__ static void begin_keys(State& s, Consumer& c) {
        const QueryTile Q_smem = Q_of(c.smem.first[c.first.at.slot]);
        if constexpr (dS_in_registers) {
            tile::begin_multiply(s.dK, s.dS, Q_smem);
        } else {
            ptx::named_barrier_sync(2 + c.number, lcsf::warpgroup);
            tile::begin_multiply(s.dK, own_scores(s, c), Q_smem);
        }
    }
    /// What this warp has stored, all lanes behind a fence, is announced: dS^T, unless null, and dQ.
    __device__ __forceinline__ static void announce(Shared& shared, const Consumer& c, ptx::Barrier* scores_full,
                                                    bool queries) {
        __syncwarp();
        const bool elected = ptx::elect_one();
        if (elected && scores_full) ptx::barrier_arrive(*scores_full);
        if (elected && queries) ptx::barrier_arrive(shared.dQ_ring[c.number].full[0]);
    }

    // ---- finish: dK and dV leave by way of K and V
    __device__ __forceinline__ static void finish(State& s, Consumer& c, const Problem& p, const Task&) {
        // EXERCISE 25.1 dK and dV are stored where K and V are. Until when are those read, and which barriers say so?
        // TODO: your code, instead of this.
        // END 25.1
        ptx::pin(tile::registers(s.dK));
        ptx::pin(tile::registers(s.dV));
        tile::multiply_all(s.dK, p.scale);
        store_rows<Element>(output(c, K_of(c.own().data)), s.dK, 0);
        store_rows<Element>(output(c, V_of(c.own().data)), s.dV, 0);
    }
    __device__ __forceinline__ static void store(const Consumer& c, const Problem& p, const Task&) {
        const Notes of = notes(c);
        tile::store(p.dK, output(c, K_of(c.own().data)), of.row, of.kv_head, of.batch);
        tile::store(p.dV, output(c, V_of(c.own().data)), of.row, of.kv_head, of.batch);
    }
    __device__ __forceinline__ static Notes& notes(const Consumer& c) { return c.smem.shared.notes[c.number * 4 + c.warp]; }
    /// This warp's 16 rows of K or V.
    __device__ __forceinline__ static OutputTile output(const Consumer& c, const KeyTile& of) {
        return {of.data + c.warp * OutputTile::elements};
    }
};

const Support supports{.stage = "25-lcsf-backward", .head_dims = {64, 128}, .dtypes = {DType::bf16, DType::f16},
                       .causal = true, .grouped_query = true, .strides = true, .compute_capability = 90};

int blocks_of(int n, int size) { return (n + size - 1) / size; }
std::size_t steps(const AttentionShape& s) { return std::size_t(s.batch) * s.heads * blocks_of(s.n_q, B_r); }
std::size_t scratch_bytes(const AttentionShape& s) {
    const std::size_t step = sizeof(float) * B_r * s.head_dim + sizeof(Statistics<__half, B_r>) + sizeof(std::uint32_t);
    return steps(s) * step + s.batch * s.heads * sizeof(std::uint32_t) + sizeof(unsigned);
}

void launch(const BackwardArgs& args) {
    const AttentionShape& s = args.shape;
    float* sums = static_cast<float*>(args.scratch);
    // LSE is divided by it; scores that are scaled by less are nothing beside LSE.
    const float scale = std::copysign(std::max(std::abs(args.scale), 1e-6f), args.scale);
    attention::with_types_of(s, [&]<class Element, int d, bool causal>() {
        using Kernel = Backward<Element, d, causal>;
        auto* statistics = reinterpret_cast<Statistics<Element, B_r>*>(sums + steps(s) * B_r * d);
        std::uint32_t* states = reinterpret_cast<std::uint32_t*>(statistics + steps(s));
        std::uint32_t* writers_done = states + steps(s);
        unsigned* taken = writers_done + s.batch * s.heads;
        const int padded = blocks_of(s.n_q, B_r) * B_r;
        const dim3 of_statistics(blocks_of(padded, threads / (d / chunk)), s.heads, s.batch);
        launch_kernel(find_statistics<Element, d>, {of_statistics, threads, 0, args.stream},
                      Rows<Element>{args.O, args.O_strides}, Rows<Element>{args.dO, args.dO_strides}, args.lse, statistics,
                      states, writers_done, taken, -1 / scale, s.n_q, padded);
        const auto maps = backward_maps<typename Kernel::KeyTile, typename Kernel::QueryTile, typename Kernel::OutputTile>(args);
        const lcsf::TaskOrder order(blocks_of(s.n_k, Kernel::B_c), s.kv_heads, s.batch, heads_that_take_turns(s));
        const int lag = order.section * order.T_r + device_attribute(cudaDevAttrMultiProcessorCount);
        const int share_blocks = blocks_of(s.heads / s.kv_heads * (padded / B_r), order.T_r);
        lcsf::launch<Kernel>({maps.Q, maps.dO, maps.K, maps.V, maps.dK, maps.dV, s.n_q, s.n_k, s.heads / s.kv_heads,
                              padded / B_r, order, lag, share_blocks, args.scale, scale * attention::log2_e, statistics,
                              {sums, states, writers_done, nullptr},
                              {static_cast<Element*>(args.dQ), args.dQ_strides}},
                             taken, args.stream);
    });
}

const Registration registration({supports, launch, scratch_bytes});

}  // namespace
}  // namespace flashladder::attention_backward
