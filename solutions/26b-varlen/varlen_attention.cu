// Rung 26b: sequences of unlike length, packed row behind row. A box of TMA ends where its sequence does.
//
// Idea      a tensor map has a dimension more, whose stride is the row's again. So a row has many coordinates, and
//           the end of a dimension can lie behind any row: behind the last one of each sequence. What is behind it comes
//           as zeros, moves no byte, and is not written.
// Saves     padding, and all that would keep neighbours apart: a map for each sequence, zeros by hand, plain stores.
// Costs     a small kernel before, as the host knows neither how many tasks there are nor how long they are.
// Source    Triton's ragged descriptors; rung 14 for the kernel, 26 for the order
// Supports  bf16, f16; d any multiple of 8 up to 256, and another one for V and O; any lengths, 0 too, of queries and of
//           keys; causal; grouped-query heads; LSE; any strides; scale > 0; sm_90a
#include <algorithm>

#include "lcsf/lcsf.h"
#include "operations/attention/forward_steps.h"
#include "operations/attention/launch_forward.h"
#include "operations/attention/longest_first.h"
#include "operations/attention/sections.h"
#include "operations/varlen_attention/configurations.h"
#include "operations/varlen_attention/plan.h"
#include "operations/varlen_attention/stage.h"
#include "tile/global_tile.h"

namespace flashladder::varlen_attention {
namespace {

// ---- before: which tasks there are, and in which order

/// By the device alone: the host has not seen the lists.
struct Planner {
    const int *cu_seqlens_q, *cu_seqlens_k;
    int sequences, consumers, B_c;
    bool causal;
    int places;
    PlannedTask* plan;
    int* planned;     // how many tasks a head has
    unsigned* taken;  // of all, by the blocks of the kernel behind

    struct Place {
        int sequence, block;  // of queries
    };
    /// The first one of sequence b.
    __device__ int first_place(int b) const { return places_of(cu_seqlens_q[b], b, consumers); }
    /// Whose place x is. Some places have no block: there, `block` is one that the sequence has not.
    __device__ Place place(int x) const {
        // EXERCISE 26b.1 Which sequence's places have begun last, up to x? In the starter all are sequence 0's.
        // STARTER return {0, x};
        int low = 0, high = sequences;  // it is low, or one between the two
        while (high - low > 1) {
            const int middle = (low + high) / 2;
            (first_place(middle) <= x ? low : high) = middle;
        }
        return {low, x - first_place(low)};
        // END 26b.1
    }
    /// The steps of a task, of a sequence with N_q queries and N_k keys. `behind` is the query behind its last one, or a
    /// later one.
    __device__ int steps(int behind, int N_q, int N_k) const {
        // EXERCISE 26b.2 A task goes over the blocks from key 0 on, of B_c keys, up to the last one of which one of its
        // queries sees a key. It has a step, too, if they see none. In the starter over all keys of the sequence:
        // right, if it has keys, and too much.
        // STARTER return (N_k + B_c - 1) / B_c;
        const int seen = causal ? min(N_k, behind + N_k - N_q) : N_k;
        return max((seen + B_c - 1) / B_c, 1);
        // END 26b.2
    }
    /// Of no steps, if there is none. Blocks of a sequence have as many units, or one less: the first ones.
    __device__ PlannedTask find(int x) const {
        const auto [b, block] = place(x);
        const int first_q = cu_seqlens_q[b], N_q = cu_seqlens_q[b + 1] - first_q;
        const int all = (N_q + unit - 1) / unit, blocks = (all + consumers - 1) / consumers;
        if (block >= blocks) return {};
        const int low = blocks * consumers - all, units = consumers - (block < low);
        const int i = (block * consumers - min(block, low)) * unit;
        const int first_k = cu_seqlens_k[b], N_k = cu_seqlens_k[b + 1] - first_k;
        return {first_q, N_q, first_k, N_k, i, units, steps(i + units * unit, N_q, N_k)};
    }
};

/// One block. The kernel behind may begin to begin.
__global__ void __launch_bounds__(attention::buckets) plan_tasks(const Planner p) {
    cudaTriggerProgrammaticLaunchCompletion();
    const int tasks = attention::plan_longest_first(p.plan, p.places, [&](int x) { return p.find(x); });
    if (threadIdx.x == 0) *p.planned = tasks, *p.taken = 0;
}

// ---- boxes that end with a sequence

/// Where a box lies in the second and the third dimension of a packed_map(). The first one is that of columns, the last
/// one that of heads.
struct Box {
    int row, end;
};
// EXERCISE 26b.3 Build: a map of a packed tensor of `rows` rows of d columns, and where in it the box of the rows from i on
// lies, of a sequence that has the N rows from `first` on. It has Tile::rows rows, and ends with the sequence, if that is
// sooner.
// In the starter a box that begins in the sequence has whatever is there: right where nothing comes behind.
// STARTER template <class Tile>
// STARTER tile::ShiftedMap<Tile>
// STARTER packed_map(const void* tensor, const Strides& strides, int rows, int heads, int d) {
// STARTER     return tile::make_shifted_map<Tile>(tensor, 0, {strides.head, strides.row, strides.row}, heads, 1,
// STARTER                                         std::max(rows, 1), d);
// STARTER }
// STARTER template <class Tile>
// STARTER __device__ Box box_of(int first, int N, int i) {
// STARTER     return {first + i, i < N ? 0 : 1};  // end 1 is outside
// STARTER }
template <class Tile>
tile::ShiftedMap<Tile>
packed_map(const void* tensor, const Strides& strides, int rows, int heads, int d) {
    return tile::make_shifted_map<Tile>(tensor, Tile::rows, {strides.head, strides.row, strides.row}, heads, rows + 1,
                                        Tile::rows, d);
}
template <class Tile>
__device__ Box box_of(int first, int N, int i) {
    const int rows = min(N - i, Tile::rows);  // with less than none a box lies further behind the end
    return {Tile::rows - rows, first + i + rows};
}
// END 26b.3

// ---- rung 14's kernel

/// O = softmax(scale Q K^T) V of packed sequences.
template <class Element, bool causal_, Configuration config>
struct VarlenAttention
    : attention::ForwardSteps<VarlenAttention<Element, causal_, config>, Element, config.d, config.B_c, d_v_of(config)> {
    using Steps = attention::ForwardSteps<VarlenAttention, Element, config.d, config.B_c, d_v_of(config)>;
    static constexpr bool causal = causal_;
    static constexpr int B_c = config.B_c;
    static constexpr int consumers = config.consumers, stages = config.stages, own_slots = config.own_slots;
    static constexpr lcsf::Schedule schedule = config.schedule;
    static constexpr bool turns = config.turns, own_is_loaded = true;
    using OwnTile = typename Steps::template Panels<unit, config.d>;          // Q_i, then O_i
    using FirstTile = typename Steps::template Panels<B_c, config.d>;         // K_j
    using SecondTile = typename Steps::template Panels<B_c, d_v_of(config)>;  // V_j
    using typename Steps::OutputTile, typename Steps::State;
    using Steps::first_row, Steps::last_key, Steps::output_of_warp;  // C++ finds names of such a base only if told to
    using Consumer = lcsf::Consumer<VarlenAttention>;

    struct Problem {
        tile::ShiftedMap<OwnTile> Q;
        tile::ShiftedMap<FirstTile> K;
        tile::ShiftedMap<SecondTile> V;
        tile::ShiftedMap<OutputTile> O;
        const PlannedTask* plan;  // of a head
        const int* planned;       // how many
        int most;                 // of all heads, at most
        int heads, section, group;  // heads that take turns, and those that share a K and V
        int total_q;
        tile::LazyScale scale;
        float* lse;
    };
    struct Task : PlannedTask {
        int head, kv_head;
    };

    // ---- tasks
    static int most_tasks(const Problem& p) { return p.most; }
    __device__ static int tasks(const Problem& p) { return *p.planned * p.heads; }
    __device__ static Task task(const Problem& p, int n) {
        // lcsf::TaskOrder's order; but how many tasks a head has, the host does not know.
        const int tasks_of_section = *p.planned * p.section, rest = n % tasks_of_section;
        const int first_head = n / tasks_of_section * p.section, turns = min(p.section, p.heads - first_head);
        const int head = first_head + rest % turns;
        return {p.plan[rest / turns], head, head / p.group};
    }
    __device__ static int steps(const Task& task) { return task.PlannedTask::steps; }
    __device__ static int queries(const Problem&, const Task& task) { return task.N_q; }
    __device__ static int keys(const Problem&, const Task& task) { return task.N_k; }
    __device__ static int first_key(const Problem&, const Task& task, int t) { return (steps(task) - 1 - t) * B_c; }

    // ---- load
    __device__ static void load_own(OwnTile Q_i, ptx::Barrier& full, const Problem& p, const Task& task, int consumer) {
        const int N_q = works(task, consumer) ? task.N_q : 0;  // else these queries are another task's
        const Box box = box_of<OwnTile>(task.first_q, N_q, task.i + consumer * unit);
        tile::load(Q_i, p.Q, full, box.row, box.end, task.head);
    }
    __device__ static void load_first(FirstTile K_j, ptx::Barrier& full, const Problem& p, const Task& task, int t) {
        const Box box = box_of<FirstTile>(task.first_k, task.N_k, first_key(p, task, t));
        tile::load(K_j, p.K, full, box.row, box.end, task.kv_head);
    }
    __device__ static void load_second(SecondTile V_j, ptx::Barrier& full, const Problem& p, const Task& task, int t) {
        const Box box = box_of<SecondTile>(task.first_k, task.N_k, first_key(p, task, t));
        tile::load(V_j, p.V, full, box.row, box.end, task.kv_head);
    }

    // ---- compute, finish
    __device__ static bool works(const Task& task, int consumer) { return consumer < task.units; }
    /// The first step of which a query of this consumer sees a key, or the last one, if there is none.
    __device__ __forceinline__ static int first_step(Consumer& c, const Problem& p, const Task& task) {
        const int last_seen = last_key(task.i + c.number * unit + unit - 1, p, task);
        int t = 0;
        for (; causal && first_key(p, task, t) > max(last_seen, 0); ++t) c.skip();
        return t;
    }
    __device__ __forceinline__ static void finish(State& s, Consumer& c, const Problem& p, const Task& task) {
        const auto lse = Steps::end_output(s, c, p);
        const unsigned row = task.head * p.total_q + task.first_q;
        if (p.lse) tile::store_rows(p.lse, lse, row + first_row(c, task), row + task.N_q);
        tile::store(output_of_warp(c), s.O, 0);
    }

    // ---- store
    __device__ static void store(const Consumer& c, const Problem& p, const Task& task) {
        const Box box = box_of<OutputTile>(task.first_q, task.N_q, first_row(c, task));
        tile::store(p.O, output_of_warp(c), box.row, box.end, task.head);
    }
};

// ---- launch

/// The plan, how many tasks it has, and the word that counts those that are taken.
template <std::size_t number>
std::size_t scratch_bytes(const Shape& s, int sequences) {
    const int places = places_of(s.n_q, sequences, configurations[number].consumers);
    return places * sizeof(PlannedTask) + sizeof(int) + sizeof(unsigned);
}

template <class Element, bool causal, std::size_t number>
void launch_configuration(const Args& args) {
    constexpr Configuration config = configurations[number];
    using Kernel = VarlenAttention<Element, causal, config>;
    const Shape s = args.whole_shape();
    const int places = places_of(s.n_q, args.sequences, config.consumers);
    PlannedTask* const plan = static_cast<PlannedTask*>(args.scratch);
    int* const planned = reinterpret_cast<int*>(plan + places);
    unsigned* const taken = reinterpret_cast<unsigned*>(planned + 1);
    launch_kernel(plan_tasks, {.grid = dim3(1), .block = dim3(attention::buckets), .stream = args.stream},
                  Planner{args.cu_seqlens_q, args.cu_seqlens_k, args.sequences, config.consumers, config.B_c, causal,
                          places, plan, planned, taken});
    attention::AttentionShape unequal = s;  // tasks are of unlike length, as if causal
    unequal.causal = true, unequal.n_k = std::max(s.n_k, 1);
    const void *K = s.n_k > 0 ? args.K : plan, *V = s.n_k > 0 ? args.V : plan;  // a load looks where its map begins
    const typename Kernel::Problem problem{
        packed_map<typename Kernel::OwnTile>(args.Q, args.Q_strides, s.n_q, s.heads, s.head_dim),
        packed_map<typename Kernel::FirstTile>(K, args.K_strides, s.n_k, s.kv_heads, s.head_dim),
        packed_map<typename Kernel::SecondTile>(V, args.V_strides, s.n_k, s.kv_heads, s.columns_of_V()),
        packed_map<typename Kernel::OutputTile>(args.O, args.O_strides, s.n_q, s.heads, s.columns_of_V()),
        plan, planned, places * s.heads, s.heads, attention::heads_of_a_section(unequal, config.section),
        s.heads / s.kv_heads, s.n_q, tile::lazy_scale(args.scale * attention::log2_e), args.lse};
    lcsf::launch<Kernel>(problem, taken, args.stream);
}
/// run<number>() with the number of the stage's configuration for such heads.
template <class Run>
auto with_configuration_for(const Shape& s, Run run) {
    switch (number_for(s.head_dim, s.columns_of_V())) {
        case number_for(64, 64): return run.template operator()<number_for(64, 64)>();
        case number_for(96, 96): return run.template operator()<number_for(96, 96)>();
        case number_for(128, 128): return run.template operator()<number_for(128, 128)>();
        case number_for(192, 128): return run.template operator()<number_for(192, 128)>();
        case number_for(192, 192): return run.template operator()<number_for(192, 192)>();
        default: return run.template operator()<number_for(256, 256)>();
    }
}
void launch(const Args& args) {
    attention::with_element_and_causal_of(args.shape, [&]<class Element, bool causal>() {
        with_configuration_for(args.whole_shape(),
                               [&]<std::size_t number>() { launch_configuration<Element, causal, number>(args); });
    });
}
std::size_t scratch_bytes_of(const Shape& s, int sequences) {
    return with_configuration_for(s, [&]<std::size_t number>() { return scratch_bytes<number>(s, sequences); });
}

const attention::Support supports{.stage = "26b-varlen", .head_dims = attention::multiples_of(8, 256),
                                  .dtypes = {DType::bf16, DType::f16}, .causal = true, .lse = true,
                                  .grouped_query = true, .strides = true, .positive_scale = true,
                                  .compute_capability = 90};
const Registration registration = {{supports, launch, scratch_bytes_of}};

template <std::size_t number>
Registration variant() {
    attention::Support s = supports.for_variant(to_string(configurations[number]));
    s.causal = true, s.head_dims = {configurations[number].d};
    return {{s,
             [](const Args& args) {
                 attention::with_bf16_and_causal_of(args.shape, [&]<class Element, bool causal>() {
                     launch_configuration<Element, causal, number>(args);
                 });
             },
             scratch_bytes<number>}};
}
const Registration variants[] = {variant<1>(), variant<4>(), variant<5>()};

}  // namespace
}  // namespace flashladder::varlen_attention
