// Rung 13: a lean softmax. The tensor cores wait for instructions now, so every one that can go has to go.
//
// Idea      the m of the softmax need not be the largest score, only near it. So it stays until some P would exceed
//           2^24. Whether one would, an integer maximum of three tells, two scores an instruction: no shuffles, nothing
//           to rescale. Then three consumers with blocks of 64 keys keep the tensor cores busier than two with 128.
// Saves     half of the comparisons, the shuffles and the multiplication of O, in nearly all steps; blocks that none of
//           a consumer's queries sees; rows that do not exist, as tasks have two or three units of 64 queries.
// Costs     a slow path that almost never runs; O leaves through the shared memory of its Q.
// Source    the lazy rescale: FlashAttention-4's softmax; the rest is ours
// Supports  bf16, f16; d 64, 128; any N_q and N_k; causal; grouped-query heads; LSE; any strides; scale > 0; sm_90a
#include <algorithm>
#include <climits>

#include "lcsf/ring.h"
#include "lcsf/turns.h"
#include "operations/attention/forward_maps.h"
#include "operations/attention/launch_forward.h"
#include "operations/attention/stage.h"
#include "operations/attention/task_order.h"
#include "ptx/elect.h"
#include "ptx/setmaxnreg.h"
#include "tile/online_softmax.h"
#include "tile/warpgroup.h"

namespace flashladder::attention {
namespace {

constexpr int warpgroup = 128, unit = 64;  // threads; queries of a consumer

/// What makes the softmax lean, and what else saves work; the variants leave out some of them.
struct Saving {
    bool lazy = true;   // m stays where it is while it can
    bool mixed = true;  // tasks of `consumers` units, and of one less
    bool skip = true;   // no consumer computes with a block that none of its queries sees
};

/// Consumers of a block; keys of a tile; slots of the rings of K and V; what is saved, in the order of Saving.
template <int consumers_, int B_c_, int stages_, bool... saving_>
struct Config {
    static constexpr int consumers = consumers_, B_c = B_c_, stages = stages_;
    static constexpr Saving saving{saving_...};
    static constexpr int B_r = unit * consumers, threads = warpgroup * (1 + consumers);
    static constexpr int producer_registers = consumers == 3 ? 32 : 40, consumer_registers = consumers == 3 ? 160 : 232;
};

template <class Element_, int d_, class Config_>
struct Shared {
    using Element = Element_;
    using Config = Config_;
    static constexpr int d = d_;
    using QueryTile = tile::SharedTile<Element, unit, d, tile::Swizzled<128>>;  // of a consumer
    using OutputTile = tile::SharedTile<Element, 16, d, tile::Swizzled<128>>;   // of a warp, where its Q has been
    using KeyTile = tile::SharedTile<Element, Config::B_c, d, tile::Swizzled<128>>;
    using Maps = ForwardMaps<QueryTile, KeyTile, OutputTile>;
    alignas(1024) Element Q[2][Config::consumers][QueryTile::elements];
    Element K[Config::stages][KeyTile::elements], V[Config::stages][KeyTile::elements];
    lcsf::Ring<2> Q_ring[Config::consumers];
    lcsf::Ring<Config::stages> K_ring, V_ring;
    lcsf::TaskSlots tasks;
};

struct Problem {
    int N_q, N_k, group;    // queries, keys; heads that share a K and V
    lcsf::TaskOrder order;  // rung 11's
    int low;                // blocks of queries with one unit less: the first ones
    float scale_log2, slack;  // slack: by how much a score may exceed m
    float lowest;             // where m begins: lower than any score, and finite when it is scaled
    float* lse;
    unsigned* taken;  // how many tasks of the dynamic schedule have been asked for
};

/// What is to be done: `units` times 64 queries from query i on, against T_c blocks of keys, at least one.
struct Task {
    int i, units, head, kv_head, batch, T_c;
};

template <bool causal, class Config>
__device__ __forceinline__ Task task_number(const Problem& p, int n) {
    const auto [block, head, batch] = p.order.place<causal || Config::saving.mixed>(n);
    // T_r blocks of 3 units have more rows than there are queries: the first p.low blocks have one unit less.
    const int units = Config::consumers - (block < p.low), i = block * Config::B_r - min(block, p.low) * unit;
    const int end = causal ? min(p.N_k, i + units * unit + p.N_k - p.N_q) : p.N_k;
    return {i, units, head, head / p.group, batch, max((end + Config::B_c - 1) / Config::B_c, 1)};
}

/// The producer, one thread. The last block of keys comes first: it is the one with a mask.
template <bool causal, class Memory, class Maps>
__device__ __forceinline__ void produce(Memory& smem, const Maps& maps, const Problem& p) {
    using Config = typename Memory::Config;
    using KeyTile = typename Memory::KeyTile;
    lcsf::RingPosition<2> query;
    lcsf::RingPosition<Config::stages> key;  // of V too: as many tiles go through both rings
    lcsf::TaskProducer tasks;
    while (tasks.task < p.order.tasks()) {
        const auto [i, units, head, kv_head, batch, T_c] = task_number<causal, Config>(p, tasks.task);
        tasks.ask(p.taken);
        for (int t = T_c - 1; t >= 0; --t) {
            const int j = t * Config::B_c, slot = key.slot;
            smem.K_ring.wait_empty(key);
            tile::load(KeyTile{smem.K[slot]}, maps.K, smem.K_ring.full[slot], j, kv_head, batch);
            for (int c = 0; t == T_c - 1 && c < Config::consumers; ++c) {
                smem.Q_ring[c].wait_empty(query);
                const typename Memory::QueryTile Q_smem{smem.Q[query.slot][c]};
                tile::load(Q_smem, maps.Q, smem.Q_ring[c].full[query.slot], i + c * unit, head, batch);
            }
            smem.V_ring.wait_empty(key);
            tile::load(KeyTile{smem.V[slot]}, maps.V, smem.V_ring.full[slot], j, kv_head, batch);
            key.advance();
        }
        query.advance();
        tasks.advance(smem.tasks);
    }
}

/// A consumer, 128 threads: a unit of each task against all keys that come.
template <bool causal, class Memory, class Maps>
struct Consumer {
    using Config = typename Memory::Config;
    using KeyTile = typename Memory::KeyTile;
    using Scores = tile::Accumulator<16, Config::B_c>;

    Memory& smem;
    const Maps& maps;
    const Problem& p;
    int consumer, warp, lane;
    lcsf::Turns<Config::consumers> turns = {consumer};
    lcsf::RingPosition<2> query = {};
    lcsf::RingPosition<Config::stages> key = {}, value = {};  // V_j is read a step later than K_j
    tile::Operand<typename Memory::Element, 16, Config::B_c> P_reg = {};
    tile::Accumulator<16, Memory::d> O_reg = {};
    tile::OnlineSoftmax<16, tile::SumsByLanes> softmax = {};  // m of scores as they are
    tile::RowValues<16> rescale = {};                         // by what O is to be multiplied, where m has been raised
    int O_slot = -1;                                          // slot of Q from which O leaves; -1: none

    __device__ __forceinline__ void begin_scores(Scores& S_reg) {
        smem.K_ring.wait_full(key);
        turns.wait();
        const typename Memory::QueryTile Q_smem{smem.Q[query.slot][consumer]};
        tile::begin_multiply_transposed(S_reg, Q_smem, KeyTile{smem.K[key.slot]});
    }
    __device__ __forceinline__ void begin_output() {
        smem.V_ring.wait_full(value);
        tile::begin_multiply(O_reg, P_reg, KeyTile{smem.V[value.slot]});
    }
    __device__ __forceinline__ void end_scores() {
        if (lane == 0) smem.K_ring.release(key);
        key.advance();
    }
    __device__ __forceinline__ void end_output() {
        tile::wait<0>(O_reg, P_reg);
        give_back_values();
    }
    __device__ __forceinline__ void give_back_values() {
        if (lane == 0) smem.V_ring.release(value);
        value.advance();
    }

    __device__ __forceinline__ void hide(Scores& S_reg, int first_row, int j) {
        const int last_key = first_row + p.N_k - p.N_q;  // that all rows of the warp see
        if (causal && j + Config::B_c - 1 > last_key) tile::hide_right_of(S_reg, last_key - j);
        if (!causal && j + Config::B_c > p.N_k) tile::hide_columns(S_reg, p.N_k - j);
    }

    // EXERCISE 13.3 Build: weigh(). S becomes P = 2^(scale S - scale m), and l takes it up. m is raised in the first
    // step of a task, and then only where a score of the warp's rows exceeds its m by p.slack or more; in each step, if
    // !Config::saving.lazy. Returns whether m has been raised: O is then to be multiplied by `rescale`. What has to be
    // kept from step to step is yours. The starter raises m in each step.
    // TODO: your code, instead of this.
    template <bool first = false>
    __device__ __forceinline__ bool weigh(Scores& S_reg) {
        const auto m_new = tile::row_max(S_reg, softmax.m);
        for (int h = 0; h < 2; ++h) {
            const float by = softmax.m.value[0][h] - m_new.value[0][h];
            rescale.value[0][h] = ptx::ex2_approx(by * p.scale_log2);
        }
        softmax.m = m_new;
        softmax.l.rescale(rescale);
        for (int c = 0; c < Config::B_c / 8; ++c)
            for (int e = 0; e < 4; ++e) {
                float& s = S_reg.fragment[0][c][e];
                s = ptx::ex2_approx(fmaf(s, p.scale_log2, -softmax.m.value[0][e / 2] * p.scale_log2));
                softmax.l.l.value[0][e / 2] += s;
            }
        return true;
    }
    // END 13.3

    /// A block of keys that this consumer does not need.
    __device__ __forceinline__ void skip_step() {
        // EXERCISE 13.1 The other consumers need the block, and share the turns and the slots of K and V with this one:
        // all of that goes on as in a step. But nothing is computed. The starter computes, for nobody.
        // TODO: your code, instead of this.
        step<true>(0, 0);
        // END 13.1
    }
    /// The first block of a task, behind which there is no P yet.
    __device__ __forceinline__ void first_step(int first_row, int j) {
        Scores S_reg;
        begin_scores(S_reg);
        turns.pass();
        tile::wait<0>(S_reg);
        end_scores();
        hide(S_reg, first_row, j);
        weigh<true>(S_reg);
        P_reg = tile::to_operand<typename Memory::Element>(S_reg);
    }
    /// S and P of block j, while O takes up the block before.
    template <bool masked>
    __device__ __forceinline__ void step(int first_row, int j) {
        Scores S_reg;
        begin_scores(S_reg);
        begin_output();
        turns.pass();
        tile::wait<1>(S_reg);
        end_scores();
        if (masked) hide(S_reg, first_row, j);
        const bool raised = weigh(S_reg);
        end_output();
        P_reg = tile::to_operand<typename Memory::Element>(S_reg);
        if (raised) tile::multiply_rows(O_reg, rescale);
    }

    /// All steps of a task. Before the last product, `tasks` goes on to the next one: its number comes under that.
    __device__ __forceinline__ void compute(const Task& task, int first_row, lcsf::TaskConsumer& tasks) {
        const int first_of_unit = task.i + consumer * unit, last_key = first_of_unit + p.N_k - p.N_q;  // that all see
        int j = (task.T_c - 1) * Config::B_c;
        softmax = {};
        tile::fill(softmax.m, p.lowest);
        tile::fill(O_reg, 0);
        // EXERCISE 13.2 If causal, the first queries of a task see less than the last ones do: which blocks does no
        // query of this unit see? One block must remain. The starter skips none.
        // TODO: your code, instead of this.
        // END 13.2
        first_step(first_row, j);
        give_back_queries();
        for (j -= Config::B_c; causal && j >= 0 && j + Config::B_c - 1 > last_key; j -= Config::B_c)
            step<true>(first_row, j);
#pragma unroll 1
        for (; j >= 0; j -= Config::B_c) step<false>(first_row, j);
        tasks.advance(smem.tasks);
        begin_output();
        end_output();
    }
    /// O goes where Q has been: all products with it are over.
    __device__ __forceinline__ void store(const Task& task, int first_row) {
        O_slot = query.slot;
        const typename Memory::OutputTile O_smem{smem.Q[O_slot][consumer] + warp * Memory::OutputTile::elements};
        tile::multiply_rows(softmax.m, tile::RowValues<16>{{{p.scale_log2, p.scale_log2}}});
        const auto lse_rows = softmax.finish(O_reg);
        const unsigned q_rows = (task.batch * p.order.heads + task.head) * p.N_q;
        if (p.lse) tile::store_rows(p.lse, lse_rows, q_rows + first_row, q_rows + p.N_q);
        tile::store_by_way_of(O_smem, O_reg, maps.O, first_row, task.head, task.batch);
    }
    /// Once O has left from there, the slot is free for other queries: a step into the next task it long has.
    __device__ __forceinline__ void give_back_queries() {
        if (O_slot >= 0 && lane == 0) {
            ptx::bulk_wait_read<0>();
            ptx::barrier_arrive(smem.Q_ring[consumer].empty[O_slot]);
        }
        O_slot = -1;
    }
    __device__ __forceinline__ void consume() {
        turns.open();
        for (lcsf::TaskConsumer tasks; tasks.task < p.order.tasks();) {
            const Task task = task_number<causal, Config>(p, tasks.task);
            const int first_row = task.i + consumer * unit + warp * 16;
            smem.Q_ring[consumer].wait_full(query);
            if (consumer < task.units) {
                compute(task, first_row, tasks);
                store(task, first_row);
            } else {  // no queries for this consumer
                give_back_queries();
                for (int t = 0; t < task.T_c; ++t) skip_step();
                if (lane == 0) smem.Q_ring[consumer].release(query);
                tasks.advance(smem.tasks);
            }
            query.advance();
        }
        turns.close();
        if (lane == 0) ptx::bulk_wait_read<0>();
    }
};

template <class Element, int d, bool causal, class Config>
__global__ void __launch_bounds__(Config::threads, 1)
    lean_flash(const __grid_constant__ typename Shared<Element, d, Config>::Maps maps,
               const __grid_constant__ Problem p) {
    using Memory = Shared<Element, d, Config>;
    auto& smem = *dynamic_shared<Memory>();
    const int role = __shfl_sync(0xFFFFFFFFu, threadIdx.x / warpgroup, 0);
    if (threadIdx.x == 0) {
        constexpr int warps = 4 * Config::consumers;  // one lane of each releases
        for (auto& ring : smem.Q_ring) ring.init(1, 4);
        smem.K_ring.init(1, warps);
        smem.V_ring.init(1, warps);
        smem.tasks.init(warps);
        ptx::fence_barrier_init();
    }
    __syncthreads();

    if (role == 0) {
        ptx::registers_decrease<Config::producer_registers>();
        if (threadIdx.x / 32 == 0 && ptx::elect_one()) produce<causal>(smem, maps, p);
    } else {
        ptx::registers_increase<Config::consumer_registers>();
        const int warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x % warpgroup / 32, 0), lane = threadIdx.x % 32;
        Consumer<causal, Memory, typename Memory::Maps>{smem, maps, p, role - 1, warp, lane}.consume();
    }
}

/// By what factor of 2 P may exceed 1: bf16 has the exponents of floats, f16 ends at 2^16.
template <class Element>
constexpr float slack_log2 = std::is_same_v<Element, __nv_bfloat16> ? 24 : 8;

template <class Element, int d, bool causal, class Config>
void launch_config(const ForwardArgs& args) {
    using Memory = Shared<Element, d, Config>;
    const AttentionShape& s = args.shape;
    const lcsf::TaskOrder order = task_order(s, Config::B_r);
    const int too_many = order.T_r * Config::consumers - (s.n_q + unit - 1) / unit;  // units without a query
    const float scale_log2 = args.scale * log2_e;
    auto* taken = static_cast<unsigned*>(args.scratch);
    const Problem p{s.n_q, s.n_k, s.heads / s.kv_heads, order, Config::saving.mixed ? std::min(too_many, order.T_r) : 0,
                    scale_log2, slack_log2<Element> / scale_log2, tile::lowest / std::max(1.0f, scale_log2), args.lse,
                    taken};
    check_cuda(cudaMemsetAsync(taken, 0, sizeof *taken, args.stream), "no task is taken");
    launch_kernel(lean_flash<Element, d, causal, Config>,
                  {.grid = dim3(std::min(order.tasks(), device_attribute(cudaDevAttrMultiProcessorCount))),
                   .block = Config::threads, .shared_bytes = sizeof(Memory), .stream = args.stream},
                  forward_maps<typename Memory::QueryTile, typename Memory::KeyTile, typename Memory::OutputTile>(args),
                  p);
}

template <int d, bool... saving>
using Three = std::conditional_t<d == 64, Config<3, 128, 4, saving...>, Config<3, 64, 4, saving...>>;
template <int d, bool... saving>
using Two = Config<2, 128, 2, saving...>;  // rung 12's

void launch(const ForwardArgs& args) {
    with_types_of(args.shape, [&]<class Element, int d, bool causal>() {
        launch_config<Element, d, causal, Three<d>>(args);
    });
}
template <template <int, bool...> class Tiles, bool... saving>
void launch_variant(const ForwardArgs& args) {
    with_bf16_types_of(args.shape, [&]<class Element, int d, bool causal>() {
        launch_config<Element, d, causal, Tiles<d, saving...>>(args);
    });
}
std::size_t scratch_bytes(const AttentionShape&) { return sizeof(unsigned); }

const Support supports{.stage = "13-lean-softmax", .head_dims = {64, 128}, .dtypes = {DType::bf16, DType::f16},
                       .causal = true, .lse = true, .grouped_query = true, .strides = true, .positive_scale = true,
                       .compute_capability = 90};
Support variant(std::string name) {
    Support s = supports.for_variant(std::move(name));
    s.causal = true;
    return s;
}
const Registration registrations[] = {
    {{supports, launch, scratch_bytes}},
    {{variant("two consumers"), launch_variant<Two, false, false, false>, scratch_bytes}},
    {{variant("two consumers, lazy"), launch_variant<Two, true, false, false>, scratch_bytes}},
    {{variant("three consumers"), launch_variant<Three, false, false, false>, scratch_bytes}},
    {{variant("three consumers, lazy"), launch_variant<Three, true, false, false>, scratch_bytes}},
    {{variant("and blocks skipped"), launch_variant<Three, true, false, true>, scratch_bytes}},
    {{variant("all but lazy"), launch_variant<Three, false, true, true>, scratch_bytes}},
};

}  // namespace
}  // namespace flashladder::attention
