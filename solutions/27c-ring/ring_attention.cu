// Rung 27c: one sequence on several GPUs. K and V go around; each round's O is merged into what lies there.
//
// Idea      in round r rank g computes with the K and V of rank g - r, while they travel on to rank g + 1: a copy is
//           under way beside the kernel. If causal, the sequence is dealt out in a zigzag, so that no rank waits.
// Saves     memory: no GPU has more than its shard, and two buffers. Time, nearly by the number of GPUs.
// Costs     O in float, read and written in each round but the first and the last: 8 d bytes a query.
// Source    Ring Attention (Liu, Zaharia, Abbeel, 2023); zigzag: Zhu's ring-flash-attention (2024); rungs 14 and 27
// Supports  bf16, f16; d 64, 128, 256; any number of ranks, of which N is a multiple, causal of twice that;
//           grouped-query heads; LSE; scale > 0; sm_90a
#include <algorithm>

#include "lcsf/lcsf.h"
#include "operations/attention/configurations.h"
#include "operations/attention/forward_maps.h"
#include "operations/attention/forward_steps.h"
#include "operations/attention/launch_forward.h"
#include "operations/attention/task_order.h"
#include "operations/ring_attention/links.h"
#include "operations/ring_attention/stage.h"

namespace flashladder::ring_attention {
namespace {

using attention::Configuration, attention::unit;

// ---- a round

/// What a rank computes in a round: so many of its queries, from one on, against the first keys of another's shard; all
/// keys of these, or, by a mask, each query those up to its own place.
struct Part {
    int first_query, queries, keys;
    bool masked;
};
/// Rank g with the shard of rank h, of n rows each.
Part part_of(int g, int h, int n, bool causal) {
    // EXERCISE 27c.1 If causal, rank g has chunks g and 2 G - 1 - g of the sequence, one behind the other. Which of its
    // queries see keys of rank h, and which of these keys? No round but that with its own shard needs a mask. In the
    // starter every query sees every key of others: right if not causal.
    // STARTER return {0, n, n, causal && h == g};
    if (!causal || h == g) return {0, n, n, causal};
    return h < g ? Part{0, n, n / 2, false} : Part{n / 2, n / 2, n, false};
    // END 27c.1
}
/// Of the rows of rank g, so many, from the first one on, are complete behind a round.
int rows_done(int round, int g, int G, int n, bool causal) {
    if (round == G - 1) return n;
    return causal && round >= g ? n / 2 : 0;  // then come ranks behind it, for its second half alone
}

constexpr Configuration configuration(int d, bool masked) {
    if (d == 64) return {.d = 64, .consumers = 3, .B_c = 128, .stages = 4};
    if (d == 128) return {.d = 128, .consumers = 3, .B_c = 64, .stages = 4, .turns = !masked};
    return {.d = 256, .consumers = 2, .B_c = 64, .stages = 2, .own_slots = 1};
}

/// Rung 14's kernel, which goes on from what the rounds before have left.
template <class Element, int d_, bool causal_>
struct RingAttention
    : attention::ForwardSteps<RingAttention<Element, d_, causal_>, Element, d_, configuration(d_, causal_).B_c> {
    static constexpr Configuration config = configuration(d_, causal_);
    static constexpr int d = d_, B_c = config.B_c, B_r = unit * config.consumers;
    static constexpr int consumers = config.consumers, stages = config.stages, own_slots = config.own_slots;
    static constexpr lcsf::Schedule schedule = lcsf::Schedule::dynamic;
    static constexpr bool causal = causal_, turns = config.turns, own_is_loaded = true;
    using Steps = attention::ForwardSteps<RingAttention, Element, d, B_c>;
    using OwnTile = tile::SharedTile<Element, unit, d, tile::Swizzled<128>>;   // Q_i, then O_i
    using FirstTile = tile::SharedTile<Element, B_c, d, tile::Swizzled<128>>;  // K_j
    using SecondTile = FirstTile;                                              // V_j
    using typename Steps::OutputTile, typename Steps::State;
    using Steps::first_row, Steps::output_of_warp;  // C++ finds names of such a base only if told to
    using Consumer = lcsf::Consumer<RingAttention>;

    static constexpr auto maps = attention::forward_maps<OwnTile, FirstTile, OutputTile>;  // of arguments

    /// Rows are counted from the part's first query on. Those of a head are rows_of_head apart.
    struct Problem {
        attention::ForwardMaps<OwnTile, FirstTile, OutputTile> maps;
        int N_q, N_k, rows_of_head, group;  // queries, keys; heads that share a K and V
        lcsf::TaskOrder order;
        tile::LazyScale scale;
        bool fresh;           // nothing lies in between yet
        int done;             // rows up to this one are complete now
        float *O, *LSE, *lse;  // in between; and LSE of what is complete, if it is wanted
    };
    struct Task {
        int i, units, head, kv_head, batch, T_c;  // from query i on; blocks of keys
    };

    // ---- tasks
    __host__ __device__ static int tasks(const Problem& p) { return p.order.tasks(); }
    __device__ static int queries(const Problem& p, const Task&) { return p.N_q; }
    __device__ static int keys(const Problem& p, const Task&) { return p.N_k; }
    __device__ static Task task(const Problem& p, int n) {
        const auto [block, head, batch] = p.order.template place<true>(n);
        const int i = block * B_r, units = min((p.N_q - i + unit - 1) / unit, consumers);
        const int end = causal ? min(p.N_k, i + units * unit) : p.N_k;
        return {i, units, head, head / p.group, batch, (end + B_c - 1) / B_c};
    }
    __device__ static int steps(const Task& task) { return task.T_c; }
    __device__ static int first_key(const Problem&, const Task& task, int t) { return (task.T_c - 1 - t) * B_c; }

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
    __device__ __forceinline__ static int first_step(Consumer& c, const Problem& p, const Task& task) {
        int t = 0;
        const int last_seen = task.i + c.number * unit + unit - 1;  // key, by any query of the unit
        for (; causal && first_key(p, task, t) > last_seen; ++t) c.skip();
        return t;
    }
    __device__ __forceinline__ static void finish(State& s, Consumer& c, const Problem& p, const Task& task) {
        auto lse = Steps::end_output(s, c, p);
        const int row = first_row(c, task) + tile::row_of(0, 0);  // and 8 rows further
        const unsigned place = (task.batch * p.order.heads + task.head) * p.rows_of_head + row;
        const auto O_of = [&](int h) {  // this lane's columns in between, each 8 floats behind the other
            return reinterpret_cast<float2*>(p.O + (place + 8 * h) * std::size_t(d) + tile::column_of(0, 0));
        };
#pragma unroll
        for (int h = 0; h < 2; ++h)
            if (row + 8 * h < p.N_q) merge(s, lse.value[0][h], h, p.fresh, p.LSE + place + 8 * h, O_of(h));
        __syncwarp();  // four lanes have read what one of them writes
#pragma unroll
        for (int h = 0; h < 2; ++h)
            if (row + 8 * h < min(p.N_q, p.done)) {
                if (p.lse && c.lane % 4 == 0) p.lse[place + 8 * h] = lse.value[0][h];
            } else if (row + 8 * h < p.N_q) {
                if (c.lane % 4 == 0) p.LSE[place + 8 * h] = lse.value[0][h];
#pragma unroll
                for (int x = 0; x < d / 8; ++x)
                    O_of(h)[x * 4] = {s.O.fragment[0][x][2 * h], s.O.fragment[0][x][2 * h + 1]};
            }
        if (first_row(c, task) < p.done) tile::store(output_of_warp(c), s.O, 0);
    }
    /// Row h of this lane, of which s.O has these columns and `lse` the LSE, by the keys of this round: by those of the
    /// rounds before too, whose LSE and O lie there.
    __device__ __forceinline__ static void merge(State& s, float& lse, int h, bool fresh, const float* LSE_before,
                                                 const float2* O_before) {
        // EXERCISE 27c.2 The merge of two parts of the keys, as rung 27 has it. If `fresh`, nothing lies there,
        // and what is in memory may be NaN. Of keys that have no weight at all LSE is -infinity, and O is 0; both parts
        // may be of that kind. In the starter a round forgets those before.
        // STARTER (void)s, (void)lse, (void)h, (void)fresh, (void)LSE_before, (void)O_before;
        if (fresh) return;
        const float before = *LSE_before, larger = fmaxf(before, lse);
        const float shift = larger == -INFINITY ? 0 : larger;  // else -infinity less itself
        const float weight_before = expf(before - shift), weight = expf(lse - shift), sum = weight_before + weight;
        const float inverse = sum == 0 ? 0 : 1 / sum;
        lse = sum == 0 ? -INFINITY : larger + logf(sum);
#pragma unroll
        for (int x = 0; x < d / 8; ++x) {
            const float2 O = O_before[x * 4];
            float* pair = s.O.fragment[0][x] + 2 * h;
            pair[0] = (weight_before * O.x + weight * pair[0]) * inverse;
            pair[1] = (weight_before * O.y + weight * pair[1]) * inverse;
        }
        // END 27c.2
    }

    // ---- store
    __device__ static void store(const Consumer& c, const Problem& p, const Task& task) {
        if (first_row(c, task) < p.done)
            tile::store(p.maps.O, output_of_warp(c), first_row(c, task), task.head, task.batch);
    }
};

/// A round of a rank, whose K and V have come.
void launch_round(const RoundArgs& args) {
    const AttentionShape& shard = args.shape;
    const int n = shard.n_q, sender = (args.rank - args.round + args.ranks) % args.ranks;
    const Part part = part_of(args.rank, sender, n, shard.causal);
    attention::ForwardArgs of_part = args;  // a part of each of these tensors, from its first query on
    of_part.shape.n_q = part.queries, of_part.shape.n_k = part.keys, of_part.shape.causal = part.masked;
    const std::size_t rows = static_cast<std::size_t>(part.first_query);
    const std::size_t bytes = rows * static_cast<std::size_t>(shard.head_dim) * bytes_per_element(shard.dtype);
    of_part.Q = static_cast<const char*>(args.Q) + bytes, of_part.O = static_cast<char*>(args.O) + bytes;
    const ring_attention::State state = state_in(args.scratch, shard, args.ranks);
    const int done = rows_done(args.round, args.rank, args.ranks, n, shard.causal) - part.first_query;
    attention::with_element_and_causal_of(of_part.shape, [&]<class Element, bool causal>() {
        const auto launch_for = [&]<int d>() {
            using Kernel = RingAttention<Element, d, causal>;
            lcsf::launch<Kernel>(
                {Kernel::maps(of_part), part.queries, part.keys, n, shard.heads / shard.kv_heads,
                 attention::task_order(of_part.shape, Kernel::B_r, Kernel::config.section),
                 tile::lazy_scale(args.scale * attention::log2_e), args.round == 0, done,
                 state.O + rows * static_cast<std::size_t>(d), state.lse + rows, args.lse ? args.lse + rows : nullptr},
                state.taken, args.stream);
        };
        switch (shard.head_dim) {
            case 64: return launch_for.template operator()<64>();
            case 128: return launch_for.template operator()<128>();
            default: return launch_for.template operator()<256>();
        }
    });
}

// ---- all of them

/// A K and V, and where in which device's memory.
struct KeysAndValues {
    int device;
    void *K, *V;
};
/// What rank g computes with in a round: its own shard, then what lies in one of two buffers, in turns.
KeysAndValues with_what(const Args& args, int g, int round) {
    const Rank& rank = args.ranks[static_cast<std::size_t>(g)];
    if (round == 0) return {rank.device, const_cast<void*>(rank.K), const_cast<void*>(rank.V)};
    const AttentionShape shard = shard_of(args.shape, static_cast<int>(args.ranks.size()));
    char* const buffer = static_cast<char*>(state_in(rank.scratch, shard, static_cast<int>(args.ranks.size())).behind) +
                         (round - 1) % 2 * bytes_of_buffer(shard);
    return {rank.device, buffer, buffer + shard.kv_elements() * bytes_per_element(shard.dtype)};
}

/// The K and V with which the rank before g computes in a round are copied to where rank g has them in the next one.
void copy(const Args& args, int g, int round, cudaStream_t stream) {
    const int G = static_cast<int>(args.ranks.size());
    if (round + 1 >= G) check_cuda(cudaErrorInvalidValue, "copy() in the last round, behind which nobody computes");
    const KeysAndValues from = with_what(args, (g + G - 1) % G, round), to = with_what(args, g, round + 1);
    const AttentionShape shard = shard_of(args.shape, G);
    const std::size_t bytes = shard.kv_elements() * bytes_per_element(shard.dtype);
    const OnDevice on(to.device);
    check_cuda(cudaMemcpyPeerAsync(to.K, to.device, from.K, from.device, bytes, stream), "K travels");
    check_cuda(cudaMemcpyPeerAsync(to.V, to.device, from.V, from.device, bytes, stream), "V travels");
}
void compute(const Args& args, int g, int round) {
    const int G = static_cast<int>(args.ranks.size());
    const Rank& rank = args.ranks[static_cast<std::size_t>(g)];
    const KeysAndValues with = with_what(args, g, round);
    const AttentionShape shard = shard_of(args.shape, G);
    const Strides rows = contiguous(shard.heads, shard.n_q, shard.head_dim),
                  keys = contiguous(shard.kv_heads, shard.n_k, shard.head_dim);
    const OnDevice on(rank.device);
    launch_round({{.shape = shard, .Q = rank.Q, .K = with.K, .V = with.V, .O = rank.O, .lse = rank.lse,
                   .scale = args.scale, .scratch = rank.scratch, .stream = rank.stream, .Q_strides = rows,
                   .K_strides = keys, .V_strides = keys, .O_strides = rows},
                  G, g, round});
}

void launch(const Args& args) {
    const int G = static_cast<int>(args.ranks.size());
    const auto stream = [&](int g) { return args.ranks[static_cast<std::size_t>(g)].stream; };
    Links links(args.ranks, G);
    // EXERCISE 27c.3 Build: in each round but the last all ranks copy, and in each all compute. Rank g computes on
    // stream(g) and copies on links.copies(g), which wait for one another by events alone: links.record(), links.wait().
    // When has what is copied arrived where it is copied from? When does nobody need any more what it overwrites? Ranks
    // may be called again as soon as their streams are done. In the starter the host waits: right, and slow.
    // STARTER for (int round = 0; round < G; ++round) {
    // STARTER     for (int g = 0; g < G; ++g) {
    // STARTER         compute(args, g, round);
    // STARTER         check_cuda(cudaStreamSynchronize(stream(g)), "computing");
    // STARTER     }
    // STARTER     for (int g = 0; g < G && round + 1 < G; ++g) {
    // STARTER         copy(args, g, round, links.copies(g));
    // STARTER         check_cuda(cudaStreamSynchronize(links.copies(g)), "copying");
    // STARTER     }
    // STARTER }
    for (int g = 0; g < G; ++g) links.record(Links::begun, g, 0, stream(g));
    for (int round = 0; round < G; ++round)
        for (int g = 0; g < G; ++g) {
            const int before = (g + G - 1) % G, next = (g + 1) % G;
            const cudaStream_t copies = links.copies(g);
            if (round + 1 < G) {
                if (round == 0) {
                    links.wait(copies, Links::begun, g, 0);
                    links.wait(copies, Links::begun, before, 0);
                } else {
                    links.wait(copies, Links::arrived, before, round - 1);
                }
                if (round >= 2) {  // what lies where this goes was needed by a kernel, and by the next rank's copy
                    links.wait(copies, Links::computed, g, round - 1);
                    links.wait(copies, Links::arrived, next, round - 1);
                }
                copy(args, g, round, copies);
                links.record(Links::arrived, g, round, links.copies(g));
            }
            if (round > 0) links.wait(stream(g), Links::arrived, g, round - 1);
            compute(args, g, round);
            links.record(Links::computed, g, round, stream(g));
        }
    for (int g = 0; g < G && G > 1; ++g) links.wait(stream(g), Links::arrived, (g + 1) % G, G - 2);
    // END 27c.3
}

const attention::Support supports{.stage = "27c-ring", .head_dims = {64, 128, 256},
                                  .dtypes = {DType::bf16, DType::f16}, .causal = true, .lse = true,
                                  .grouped_query = true, .positive_scale = true, .compute_capability = 90};
const Registration registration = {{supports, launch, launch_round}};

}  // namespace
}  // namespace flashladder::ring_attention
