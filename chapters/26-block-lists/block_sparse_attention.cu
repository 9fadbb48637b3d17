// Rung 26: the loop over keys is data. A list says which blocks of keys a block of queries sees.
//
// Idea      step t of a task belongs to the t-th number in its list. What is not in a list is neither loaded nor
//           multiplied. Tasks are of unlike length now, so a small kernel puts the longest first.
// Saves     work: what remains is the density, the share of blocks that are listed.
// Costs     a launch before the kernel, and a number that is read before a tile can be asked for.
// Source    FlashAttention (Dao et al., 2022), section 3.3: block-sparse FlashAttention; rung 14 for the kernel
// Supports  bf16, f16; d 64, 128; any N_q and N_k; causal; grouped-query heads; LSE; any strides; lists by head or for
//           all; scale > 0; sm_90a
#include <algorithm>

#include "lcsf/lcsf.h"
#include "operations/attention/forward_maps.h"
#include "operations/attention/forward_steps.h"
#include "operations/attention/launch_forward.h"
#include "operations/attention/sections.h"
#include "operations/block_sparse_attention/plan.h"
#include "operations/block_sparse_attention/stage.h"

namespace flashladder::block_sparse_attention {
namespace {

using attention::unit;

// ---- before: the order of the tasks

constexpr int buckets = 512;  // and threads of a block

/// Tasks are T_r blocks of queries for each head. They are ordered section by section: heads whose K and V have room in
/// L2.
struct Planner {
    const int *first, *blocks;  // the lists
    bool per_head, causal;
    int heads, T_r, T_c, N_q, N_k;
    int tasks, tasks_of_section;
    PlannedTask* plan;

    /// Task n, without what is hidden by `causal` as a whole: the end of its list.
    __device__ PlannedTask find(int n) const {
        const int block_of_queries = n % T_r, head = n / T_r;
        const int* of_list = first + (per_head ? head % heads * T_r : 0) + block_of_queries;
        const int begin = of_list[0], behind = min((block_of_queries + 1) * block, N_q) + N_k - N_q;  // a key
        int end = of_list[1];
        for (int low = begin; causal && low < end;) {
            const int middle = (low + end) / 2;
            blocks[middle] * block < behind ? low = middle + 1 : end = middle;
        }
        return {block_of_queries, head, end, end - begin};
    }
    /// The longest tasks have bucket 0. Only with more blocks of keys than buckets do several lengths share one.
    __device__ int bucket_of(const PlannedTask& task) const { return (T_c - task.steps) / (T_c / buckets + 1); }
};

// EXERCISE 26.3 Build: block x puts the tasks of section x into their places, plan[x * tasks_of_section] and behind:
// each once, by their buckets, of which bucket 0 comes first. The starter leaves each task at its number: right, and
// slow.
// TODO: your code, instead of this.
__global__ void __launch_bounds__(buckets) plan_tasks(const Planner p) {
    const int begin = blockIdx.x * p.tasks_of_section, end = min(begin + p.tasks_of_section, p.tasks);
    for (int n = begin + threadIdx.x; n < end; n += buckets) p.plan[n] = p.find(n);
}
// END 26.3

// ---- rung 14's kernel, over lists

/// O = softmax(scale Q K^T) V. A task is a block of queries, 64 for each consumer, against the keys of its list.
template <class Element, int d_, bool causal_>
struct BlockSparseAttention
    : attention::ForwardSteps<BlockSparseAttention<Element, d_, causal_>, Element, d_, keys_of_step<d_>> {
    using Steps = attention::ForwardSteps<BlockSparseAttention, Element, d_, keys_of_step<d_>>;
    static constexpr bool causal = causal_;
    static constexpr int d = d_, B_c = keys_of_step<d>, steps_of_block = block / B_c;
    static constexpr int consumers = block / unit, teams = d == 64 ? 2 : 1, stages = d == 64 ? 4 : 2, own_slots = 2;
    static constexpr lcsf::Schedule schedule = lcsf::Schedule::dynamic;
    static constexpr bool turns = true, own_is_loaded = true;
    using OwnTile = tile::SharedTile<Element, unit, d, tile::Swizzled<128>>;   // Q_i, then O_i
    using FirstTile = tile::SharedTile<Element, B_c, d, tile::Swizzled<128>>;  // K_j
    using SecondTile = FirstTile;                                              // V_j
    using typename Steps::OutputTile, typename Steps::State;
    using Steps::first_row, Steps::output_of_warp;  // C++ finds names of such a base only if told to
    using Consumer = lcsf::Consumer<BlockSparseAttention>;

    static constexpr auto maps = attention::forward_maps<OwnTile, FirstTile, OutputTile>;  // of arguments

    struct Problem {
        attention::ForwardMaps<OwnTile, FirstTile, OutputTile> maps;
        int N_q, N_k, heads, group;  // queries, keys; heads of a batch, and those that share a K and V
        int tasks;
        const PlannedTask* plan;
        const int* blocks;  // of all lists
        tile::LazyScale scale;
        float* lse;
    };
    struct Task {
        int i, units, head, kv_head, batch;  // from query i on
        int end, listed;                     // its list: so many numbers, up to this place
    };

    // ---- tasks
    __host__ __device__ static int tasks(const Problem& p) { return p.tasks; }
    __device__ static int queries(const Problem& p, const Task&) { return p.N_q; }
    __device__ static int keys(const Problem& p, const Task&) { return p.N_k; }
    __device__ static Task task(const Problem& p, int n) {
        const PlannedTask planned = p.plan[n];
        const int i = planned.block * block, head = planned.head % p.heads;
        const int units = min((p.N_q - i + unit - 1) / unit, consumers);
        return {i, units, head, head / p.group, planned.head / p.heads, planned.end, planned.steps};
    }
    __device__ static int steps(const Task& task) { return max(task.listed * steps_of_block, 1); }
    /// With which key the blocks of a task begin: block 0 is the first that it computes with.
    __device__ static int first_key_of_block(const Problem& p, const Task& task, int n) {
        // EXERCISE 26.1 A list is gone through from its end, for the blocks that need a mask stand there. An empty one
        // has a block too, behind all keys: TMA fills it with zeros, and nobody sees it. In the starter a task goes
        // over the first blocks of keys, as many as its list has: right if these are listed.
        // TODO: your code, instead of this.
        return (max(task.listed, 1) - 1 - n) * block;
        // END 26.1
    }
    /// With which key step t begins: a block is gone through from its end too.
    __device__ static int first_key(const Problem& p, const Task& task, int t) {
        const int step_of_block = steps_of_block - 1 - t % steps_of_block;
        return first_key_of_block(p, task, t / steps_of_block) + step_of_block * B_c;
    }

    // ---- load
    __device__ static void load_own(OwnTile Q_i, ptx::Barrier& full, const Problem& p, const Task& task, int consumer) {
        tile::load(Q_i, p.maps.Q, full, task.i + consumer * unit, task.head, task.batch);
    }
    __device__ static void load_first(FirstTile K_j, ptx::Barrier& full, const Problem& p, const Task& task, int t) {
        tile::load(K_j, p.maps.K, full, first_key(p, task, t), task.kv_head, task.batch);
    }
    __device__ static void load_second(SecondTile V_j, ptx::Barrier& full, const Problem& p, const Task& task, int t) {
        tile::load(V_j, p.maps.V, full, first_key(p, task, t), task.kv_head, task.batch);
    }

    // ---- compute, finish
    __device__ static bool works(const Task& task, int consumer) { return consumer < task.units; }
    /// The step with which a consumer begins; those before it are skipped.
    __device__ __forceinline__ static int first_step(Consumer& c, const Problem& p, const Task& task) {
        // EXERCISE 26.2 Whose step is it? There may be steps at first in which no query of this consumer sees a key: if
        // causal, or if half a block is behind the last key. Skip them, but not the last step of a task. The starter
        // skips what is behind the last key alone: right, and slow.
        // TODO: your code, instead of this.
        int t = 0;
        for (; t < steps(task) - 1 && first_key(p, task, t) >= p.N_k; ++t) c.skip();
        return t;
        // END 26.2
    }
    __device__ __forceinline__ static void finish(State& s, Consumer& c, const Problem& p, const Task& task) {
        const auto lse = Steps::end_output(s, c, p);
        const unsigned row = (task.batch * p.heads + task.head) * p.N_q;
        if (p.lse) tile::store_rows(p.lse, lse, row + first_row(c, task), row + p.N_q);
        tile::store(output_of_warp(c), s.O, 0);
    }

    // ---- store
    __device__ static void store(const Consumer& c, const Problem& p, const Task& task) {
        tile::store(p.maps.O, output_of_warp(c), first_row(c, task), task.head, task.batch);
    }
};

int tasks_of(const AttentionShape& s) { return s.batch * s.heads * blocks_of(s.n_q); }

/// The plan, then the word that counts the tasks that are taken.
std::size_t scratch_bytes(const AttentionShape& s) { return tasks_of(s) * sizeof(PlannedTask) + sizeof(unsigned); }

void launch(const Args& args) {
    attention::with_types_of(args.shape, [&]<class Element, int d, bool causal>() {
        using Kernel = BlockSparseAttention<Element, d, causal>;
        const AttentionShape& s = args.shape;
        AttentionShape unequal = s;  // tasks are of unlike length, as if causal
        unequal.causal = true;
        const int section = attention::heads_of_a_section(unequal), tasks = tasks_of(s), T_r = blocks_of(s.n_q);
        PlannedTask* const plan = static_cast<PlannedTask*>(args.scratch);
        const Planner planner{args.first, args.blocks,       args.list_heads > 1, causal, s.heads, T_r,
                              blocks_of(s.n_k), s.n_q, s.n_k, tasks, section * T_r, plan};
        const dim3 sections((tasks - 1) / planner.tasks_of_section + 1);
        launch_kernel(plan_tasks, {.grid = sections, .block = dim3(buckets), .stream = args.stream}, planner);
        const typename Kernel::Problem problem{
            Kernel::maps(args), s.n_q, s.n_k, s.heads, s.heads / s.kv_heads, tasks, plan, args.blocks,
            tile::lazy_scale(args.scale * attention::log2_e), args.lse};
        lcsf::launch<Kernel>(problem, reinterpret_cast<unsigned*>(plan + tasks), args.stream);
    });
}

const attention::Support supports{.stage = "26-block-lists", .head_dims = {64, 128},
                                  .dtypes = {DType::bf16, DType::f16}, .causal = true, .lse = true,
                                  .grouped_query = true, .strides = true, .positive_scale = true,
                                  .compute_capability = 90};
const Registration registration = {{supports, launch, scratch_bytes}};

}  // namespace
}  // namespace flashladder::block_sparse_attention
