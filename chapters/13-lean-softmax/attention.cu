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

#include "operations/attention/forward_block.h"
#include "operations/attention/forward_maps.h"
#include "operations/attention/launch_forward.h"
#include "operations/attention/overlapped_consumer.h"
#include "operations/attention/stage.h"
#include "operations/attention/task_order.h"
#include "ptx/elect.h"
#include "ptx/setmaxnreg.h"
#include "tile/online_softmax.h"

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
struct Tiles {
    using Element = Element_;
    using Config = Config_;
    static constexpr int d = d_;
    using QueryTile = tile::SharedTile<Element, unit, d, tile::Swizzled<128>>;  // of a consumer
    using OutputTile = tile::SharedTile<Element, 16, d, tile::Swizzled<128>>;   // of a warp, where its Q has been
    using KeyTile = tile::SharedTile<Element, Config::B_c, d, tile::Swizzled<128>>;
    using Maps = ForwardMaps<QueryTile, KeyTile, OutputTile>;
    alignas(1024) Element Q[2][Config::consumers][QueryTile::elements];
    Element K[Config::stages][KeyTile::elements], V[Config::stages][KeyTile::elements];
};

/// What is to be done: `units` times 64 queries from query i on, against T_c blocks of keys, at least one.
struct Task {
    int i, units, head, kv_head, batch, T_c;
};

struct Problem {
    int N_q, N_k, group;    // queries, keys; heads that share a K and V
    lcsf::TaskOrder order;  // rung 11's
    int low;                // blocks of queries with one unit less: the first ones
    float scale_log2, slack;  // slack: by how much a score may exceed m
    float lowest;             // where m begins: lower than any score, and finite when it is scaled
    float* lse;
    unsigned* taken;  // how many tasks of the dynamic schedule have been asked for

    template <bool causal, class Config>
    __device__ __forceinline__ Task task(int n) const {
        const auto [block, head, batch] = order.place<causal || Config::saving.mixed>(n);
        // T_r blocks of 3 units have more rows than there are queries: the first `low` blocks have one unit less.
        const int units = Config::consumers - (block < low), i = block * Config::B_r - min(block, low) * unit;
        const int end = causal ? min(N_k, i + units * unit + N_k - N_q) : N_k;
        return {i, units, head, head / group, batch, max((end + Config::B_c - 1) / Config::B_c, 1)};
    }
};

/// A consumer, 128 threads: a unit of each task against all keys that come. Its products begin and end as in rung 12.
template <bool causal, class Memory, class Maps>
struct Consumer : OverlappedConsumer<Memory> {
    using Base = OverlappedConsumer<Memory>;  // C++ finds names of a base with template arguments only if told to
    using typename Base::Config, typename Base::Scores;
    using Base::smem, Base::consumer, Base::warp, Base::lane, Base::turns, Base::query, Base::key, Base::value;
    using Base::P_reg, Base::O_reg, Base::begin_scores, Base::begin_output, Base::end_scores, Base::end_output;
    using Base::give_back_values;

    const Maps& maps;
    const Problem& p;
    tile::OnlineSoftmax<16, tile::SumsByLanes> softmax = {};  // m of scores as they are
    tile::RowValues<16> rescale = {};                         // by what O is to be multiplied, where m has been raised
    int O_slot = -1;                                          // slot of Q from which O leaves; -1: none

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
        // all of that goes on as in a step. But nothing is computed, so K_j and V_j both go back in this step, each
        // when all lanes of a warp have seen that it has come. The starter computes, for nobody.
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
        // query of this unit see? One block must remain. Variants with Config::saving.skip false skip none, as the
        // starter.
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
            const Task task = p.task<causal, Config>(tasks.task);
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
    lean_flash(const __grid_constant__ typename Tiles<Element, d, Config>::Maps maps, const __grid_constant__ Problem p) {
    using Memory = ForwardMemory<Tiles<Element, d, Config>>;
    auto& smem = *dynamic_shared<Memory>();
    const int role = __shfl_sync(0xFFFFFFFFu, threadIdx.x / warpgroup, 0);
    smem.init_barriers();
    if (role == 0) {
        ptx::registers_decrease<Config::producer_registers>();
        if (threadIdx.x / 32 == 0 && ptx::elect_one()) produce<causal>(smem, maps, p);
    } else {
        ptx::registers_increase<Config::consumer_registers>();
        const int warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x % warpgroup / 32, 0), lane = threadIdx.x % 32;
        Consumer<causal, Memory, typename Memory::Maps>{{smem, role - 1, warp, lane}, maps, p}.consume();
    }
}

template <class Element, int d, bool causal, class Config>
void launch_config(const ForwardArgs& args) {
    using Memory = ForwardMemory<Tiles<Element, d, Config>>;
    const AttentionShape& s = args.shape;
    const lcsf::TaskOrder order = task_order(s, Config::B_r);
    const int too_many = order.T_r * Config::consumers - (s.n_q + unit - 1) / unit;  // units without a query
    const float scale_log2 = args.scale * log2_e;
    // By what factor of 2 P may exceed 1: bf16 has the exponents of floats, f16 ends at 2^16.
    const float slack_log2 = std::is_same_v<Element, __nv_bfloat16> ? 24 : 8;
    const Problem p{s.n_q, s.n_k, s.heads / s.kv_heads, order, Config::saving.mixed ? std::min(too_many, order.T_r) : 0,
                    scale_log2, slack_log2 / scale_log2, tile::lowest / std::max(1.0f, scale_log2), args.lse,
                    static_cast<unsigned*>(args.scratch)};
    launch_persistent(
        lean_flash<Element, d, causal, Config>, args, order.tasks(), Config::threads, sizeof(Memory),
        forward_maps<typename Memory::QueryTile, typename Memory::KeyTile, typename Memory::OutputTile>(args), p);
}

template <int d, bool... saving>
using Three = std::conditional_t<d == 64, Config<3, 128, 4, saving...>, Config<3, 64, 4, saving...>>;

void launch(const ForwardArgs& args) {
    with_types_of(args.shape, [&]<class Element, int d, bool causal>() {
        launch_config<Element, d, causal, Three<d>>(args);
    });
}
std::size_t scratch_bytes(const AttentionShape&) { return sizeof(unsigned); }

const Support supports{.stage = "13-lean-softmax", .head_dims = {64, 128}, .dtypes = {DType::bf16, DType::f16},
                       .causal = true, .lse = true, .grouped_query = true, .strides = true, .positive_scale = true,
                       .compute_capability = 90};
const Registration registration({supports, launch, scratch_bytes});

}  // namespace
}  // namespace flashladder::attention
