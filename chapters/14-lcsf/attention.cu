// Rung 14: load, compute, store, finish. What the last six rungs were is a template; what is left is attention.
//
// Idea      a kernel says which tiles it moves, how a task is computed from them, and which task is which. Roles,
//           rings, barriers, registers, turns, schedules and the store that goes on under the next task are
//           common/lcsf/lcsf.h, for any kernel of this kind: 14b-gemm is another one.
//           And no maximum is looked for: that some P are too large for the m that there is, their sum says.
// Saves     lines; of a step the comparisons, and the time in which nothing but these could go on.
// Costs     a template to learn. Which tiles are best for which shape, a model says (operations/attention/configurations.h).
//           S stays in registers until its P are known to be right: if they are not, they are made anew.
// Source    ThunderKittens (Spector et al., 2024): LCSF; the sum for a maximum is ours
// Supports  bf16, f16; d 64, 128, 256; any N_q and N_k; causal; grouped-query heads; LSE; any strides; scale > 0;
//           sm_90a
#include <algorithm>
#include <array>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "lcsf/lcsf.h"
#include "operations/attention/configurations.h"
#include "operations/attention/early_keys.h"
#include "operations/attention/forward_maps.h"
#include "operations/attention/launch_forward.h"
#include "operations/attention/sections.h"
#include "operations/attention/stage.h"
#include "tile/lazy_softmax.h"
#include "tile/warpgroup.h"

namespace flashladder::attention {
namespace {

constexpr int unit = 64;  // queries of a consumer

/// O = softmax(scale Q K^T) V. A task is up to `consumers` units of 64 queries of a head, against all keys that they
/// see.
template <class Element, bool causal, Configuration config>
struct Attention {
    static constexpr int d = config.d, B_c = config.B_c, B_r = unit * config.consumers;
    static constexpr int consumers = config.consumers, stages = config.stages, own_slots = config.own_slots;
    static constexpr lcsf::Schedule schedule = config.schedule;
    static constexpr bool turns = config.turns, own_is_loaded = true;
    static constexpr int early = early_keys(consumers, d, B_c);
    using OwnTile = tile::SharedTile<Element, unit, d, tile::Swizzled<128>>;       // Q_i, then O_i
    using FirstTile = tile::SharedTile<Element, B_c, d, tile::Swizzled<128>>;      // K_j
    using SecondTile = FirstTile;                                                  // V_j
    using OutputTile = tile::SharedTile<Element, 16, d, tile::Swizzled<128>>;      // a warp's part of O_i
    using Scores = tile::Accumulator<16, B_c>;
    using Consumer = lcsf::Consumer<Attention>;

    struct Problem {
        ForwardMaps<OwnTile, FirstTile, OutputTile> maps;
        int N_q, N_k, group;  // queries, keys; heads that share a K and V
        lcsf::TaskOrder order;
        int low;  // blocks of queries with one unit less: the first ones of a head
        tile::LazyScale scale;
        float* lse;
    };
    struct Task {
        int i, units, head, kv_head, batch, T_c;  // from query i on; blocks of keys
    };
    struct State {
        tile::Accumulator<16, d> O;
        tile::Operand<Element, 16, B_c> P;
        tile::LazySoftmax softmax;
        int j;  // the key that the next step begins with: the last block, which has the mask, comes first
    };

    // ---- tasks
    __host__ __device__ static int tasks(const Problem& p) { return p.order.tasks(); }
    __device__ static Task task(const Problem& p, int n) {
        const auto [block, head, batch] = p.order.template place<true>(n);
        const int i = block * B_r - min(block, p.low) * unit, units = consumers - (block < p.low);
        // EXERCISE 14.1 No query of this task sees the keys from `end` on. If causal, which are these? In the starter a
        // task goes over all keys: right, and too much.
        // TODO: your code, instead of this.
        const int end = p.N_k;
        // END 14.1
        return {i, units, head, head / p.group, batch, max((end + B_c - 1) / B_c, 1)};
    }
    __device__ static int steps(const Task& task) { return task.T_c; }

    // ---- load
    // EXERCISE 14.2 Ask for what a task and its steps need: from which row on, of which head? In the starter all
    // consumers have the same queries, keys come from the first one on, and K and V have as many heads as Q.
    // TODO: your code, instead of this.
    __device__ static void load_own(OwnTile Q_i, ptx::Barrier& full,
                                    const Problem& p, const Task& task, int consumer) {
        tile::load(Q_i, p.maps.Q, full, task.i, task.head, task.batch);
    }
    __device__ static void load_first(FirstTile K_j, ptx::Barrier& full,
                                      const Problem& p, const Task& task, int t) {
        tile::load(K_j, p.maps.K, full, t * B_c, task.head, task.batch);
    }
    __device__ static void load_second(SecondTile V_j, ptx::Barrier& full,
                                       const Problem& p, const Task& task, int t) {
        tile::load(V_j, p.maps.V, full, t * B_c, task.head, task.batch);
    }
    // END 14.2

    // ---- compute, finish
    __device__ static bool works(const Task& task, int consumer) { return consumer < task.units; }
    __device__ __forceinline__ static int first_row(const Consumer& c, const Task& task) {
        return task.i + c.number * unit + c.warp * 16;
    }
    /// Of the block from key s.j on, the scores of keys that a query of the warp does not see become -infinity.
    __device__ __forceinline__ static void
    hide(Scores& S, const State& s, const Consumer& c, const Problem& p, const Task& task) {
        const int j = s.j, last_key = first_row(c, task) + p.N_k - p.N_q;
        if (causal && j + B_c - 1 > last_key) tile::hide_right_of(S, last_key - j);
        if (!causal && j + B_c > p.N_k) tile::hide_columns(S, p.N_k - j);
    }
    /// Where a warp's rows of O leave from.
    __device__ static OutputTile output_of_warp(const Consumer& c) {
        return {c.own().data + c.warp * OutputTile::elements};
    }
    // EXERCISE 14.3 Build: what a consumer does with a task. `begin`, `compute` and `finish` are called in this order;
    // behind them each warp has written its 16 rows of O to c.own(), and LSE. In each step but the first, two products are
    // under way at once: S, and P V of the block before; the exponentials of `early` keys come while O takes that up. With a
    // block that no query of this consumer sees nothing is computed, but for one block a task. The turn passes once a step,
    // when all products of the step have begun, and a tile is given back when nothing reads it any more. The starter does
    // one thing after the other, with all blocks: right, and slow.
    // TODO: your code, instead of this.
    __device__ __forceinline__ static void begin(State& s, Consumer& c, const Problem& p,
                                                 const Task& task) {
        s.j = (task.T_c - 1) * B_c;
        s.softmax.begin(p.scale);
        tile::fill(s.O, 0);
        step<true>(s, c, p, task);
    }
    __device__ __forceinline__ static void compute(State& s, Consumer& c, const Problem& p,
                                                   const Task& task) {
        while (s.j >= 0) step<false>(s, c, p, task);
    }
    template <bool first>
    __device__ __forceinline__ static void step(State& s, Consumer& c, const Problem& p,
                                                const Task& task) {
        Scores S;
        const FirstTile K_j = c.first.take();
        c.turns.wait();
        tile::begin_multiply_transposed(S, c.own(), K_j);
        tile::wait<0>(S);
        hide(S, s, c, p, task);
        s.softmax.template update<first>(S, s.P, s.O, p.scale);
        tile::begin_multiply(s.O, s.P, c.second.take());
        tile::wait<0>(s.O, s.P);
        c.turns.pass();
        c.first.give_back();
        c.second.give_back();
        s.j -= B_c;
    }
    __device__ __forceinline__ static void finish(State& s, Consumer& c, const Problem& p,
                                                  const Task& task) {
        const auto lse = s.softmax.finish(s.O, p.scale);
        const unsigned row = (task.batch * p.order.heads + task.head) * p.N_q;
        if (p.lse) tile::store_rows(p.lse, lse, row + first_row(c, task), row + p.N_q);
        tile::store(output_of_warp(c), s.O, 0);
    }
    // END 14.3

    // ---- store
    __device__ static void store(const Consumer& c, const Problem& p, const Task& task) {
        tile::store(p.maps.O, output_of_warp(c), first_row(c, task), task.head, task.batch);
    }
};

template <class Element, bool causal, Configuration config>
void launch_configuration(const ForwardArgs& args) {
    using Kernel = Attention<Element, causal, config>;
    const AttentionShape& s = args.shape;
    const QueryTasks of_head = query_tasks(config, s, device_attribute(cudaDevAttrMultiProcessorCount));
    const lcsf::TaskOrder order(of_head.tasks, s.heads, s.batch, heads_of_a_section(s, config.section),
                                of_head.late);
    lcsf::launch<Kernel>(
        {forward_maps<typename Kernel::OwnTile, typename Kernel::FirstTile, typename Kernel::OutputTile>(args), s.n_q,
         s.n_k, s.heads / s.kv_heads, order, of_head.low,
         tile::lazy_scale(args.scale * log2_e), args.lse},
        static_cast<unsigned*>(args.scratch), args.stream);
}

/// A learner's program has a few configurations, to be compiled soon, fewer in f16, and that of the exercises bf16 alone.
template <class Element>
constexpr bool is_compiled([[maybe_unused]] std::size_t i) {
    [[maybe_unused]] constexpr bool bf16 = std::is_same_v<Element, __nv_bfloat16>;
#ifdef FLASHLADDER_EXERCISES
    if (!bf16) return false;
#endif
#ifdef FLASHLADDER_LEARNER
    return i == 0 || i == 11 || i == 17 || (bf16 && (i == 6 || i == 14));
#else
    return true;
#endif
}

/// Which one is the fastest, operations/attention/configurations.h expects from the number of tasks and of their steps.
template <class Element, bool causal, std::size_t i>
void launch_if(std::size_t best, const ForwardArgs& args) {
    if constexpr (is_chosen(i, causal) && is_compiled<Element>(i))
        if (i == best) launch_configuration<Element, causal, configurations[i]>(args);
}
void launch(const ForwardArgs& args) {
    with_element_and_causal_of(args.shape, [&]<class Element, bool causal>() {
        const int multiprocessors = device_attribute(cudaDevAttrMultiProcessorCount);
        const int best = configuration_for(args.shape, multiprocessors, is_compiled<Element>);
        if (best < 0) throw std::logic_error("compiled without variants");
        [&]<std::size_t... i>(std::index_sequence<i...>) {
            (launch_if<Element, causal, i>(std::size_t(best), args), ...);
        }(std::make_index_sequence<configurations.size()>());
    });
}
template <std::size_t i>
void launch_variant(const ForwardArgs& args) {
    with_bf16_and_causal_of(args.shape, [&]<class Element, bool causal>() {
        launch_configuration<Element, causal, configurations[i]>(args);
    });
}
std::size_t scratch_bytes(const AttentionShape&) { return sizeof(unsigned); }

const Support supports{.stage = "14-lcsf", .head_dims = {64, 128, 256}, .dtypes = {DType::bf16, DType::f16},
                       .causal = true, .lse = true, .grouped_query = true, .strides = true, .positive_scale = true,
                       .compute_capability = 90};
const Registration registration = {{supports, launch, scratch_bytes}};

/// Each configuration that is compiled is a variant of its head_dim.
template <std::size_t i>
Registration variant() {
    Support s = supports.for_variant(to_string(configurations[i]));
    s.causal = true, s.head_dims = {configurations[i].d};
    return {{s, launch_variant<i>, scratch_bytes}};
}
constexpr auto compiled = [] {
    std::array<std::size_t, configurations.size()> numbers{};
    std::size_t count = 0;
    for (std::size_t i = 0; i < configurations.size(); ++i)
        if (is_compiled<__nv_bfloat16>(i)) numbers[count++] = i;
    return std::pair(numbers, count);
}();
const auto variants = []<std::size_t... k>(std::index_sequence<k...>) {
    return std::array{variant<compiled.first[k]>()...};
}(std::make_index_sequence<compiled.second>());

}  // namespace
}  // namespace flashladder::attention
