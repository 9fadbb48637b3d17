// Rung 27: few queries, many keys. The keys are split into parts, and what comes of the parts is merged.
//
// Idea      softmax is associative: O and LSE of two parts of the keys are all that it takes to know O and LSE of both. So
//           one head's keys are work for many multiprocessors. And queries of all heads that share K and V are rows of
//           one tile, which so few queries would not fill.
// Saves     time, where there are fewer heads than multiprocessors; K and V are read once for all heads of a group.
// Costs     O of each part in floats, written and read again, and a second launch.
// Source    Flash-Decoding (Dao et al., 2023); LSE from FlashAttention-2; rung 14 for the kernel
// Supports  bf16, f16; d 64, 128, 256; any N_q and N_k; causal; grouped-query heads; LSE; any strides; scale > 0;
//           sm_90a
#include <algorithm>
#include <climits>
#include <string>
#include <type_traits>

#include "lcsf/lcsf.h"
#include "operations/attention/launch_forward.h"
#include "operations/attention/packed_rows.h"
#include "operations/attention/parts.h"
#include "operations/attention/stage.h"
#include "tile/lazy_softmax.h"
#include "tile/warpgroup.h"

namespace flashladder::attention {
namespace {

// ---- O and LSE of each part

/// O = softmax(scale Q K^T) V over a part of the keys. A task is a tile of queries against one of its parts. Form is what a
/// variant has made of it, else void.
template <class Element, int d_, bool causal, class Form = void>
struct PartOfAttention {
    // No more is under way than it takes to keep the memory busy: with three times as much it is slower.
    static constexpr int d = d_, B_c = block_of_keys, consumers = 1, stages = d == 64 ? 4 : 2, own_slots = 2;
    static constexpr lcsf::Schedule schedule = lcsf::Schedule::fixed;
    static constexpr bool turns = false, own_is_loaded = true;
    using OwnTile = tile::SharedTile<Element, tile_rows, d, tile::Swizzled<128>>;  // Q_i
    using FirstTile = tile::SharedTile<Element, B_c, d, tile::Swizzled<128>>;      // K_j
    using SecondTile = FirstTile;                                                  // V_j
    using Scores = tile::Accumulator<16, B_c>;
    using Consumer = lcsf::Consumer<std::conditional_t<std::is_void_v<Form>, PartOfAttention, Form>>;

    struct Problem {
        tile::TensorMap<OwnTile> Q;
        tile::TensorMap<FirstTile> K, V;
        Packing packing;
        int N_q, N_k, heads, tasks;
        int T_r, parts;  // tiles of queries, of the heads of a tile; parts of their keys
        tile::LazyScale scale;
        PartialResults<float> partial;
        Results<Element> results;  // of rows whose part is all there is
    };
    struct Task {
        int i, first_head, heads, kv_head, batch;  // from query i on; so many heads are of the group
        int part, first, end;                      // blocks of keys, from `first` on up to, but not with, `end`
    };
    struct State {
        tile::Accumulator<16, d> O;
        tile::LazySoftmax softmax;
    };

    // ---- tasks
    __host__ __device__ static int tasks(const Problem& p) { return p.tasks; }
    __device__ static Task task(const Problem& p, int n) {
        const int part = n % p.parts, tile = n / p.parts, tiles_of_head = p.T_r * p.packing.tiles_of_group;
        const int kv_heads = p.heads / p.packing.group, kv_head = tile / tiles_of_head % kv_heads;
        const int in_group = tile / p.T_r % p.packing.tiles_of_group * p.packing.heads;
        const int i = tile % p.T_r * p.packing.queries(), behind = min(i + p.packing.queries(), p.N_q);
        const int seen = causal ? max(behind + p.N_k - p.N_q, 0) : p.N_k, T_c = (seen + B_c - 1) / B_c;  // keys, blocks
        // EXERCISE 27.2 Of the T_c blocks of keys, which ones does this part have? All parts together have each of them
        // once, and none has more than one block more than another. There may be fewer blocks than parts. In the starter
        // each part has one block, and the first one all that are left: right, and slow.
        // STARTER const int end = max(T_c - p.parts + part + 1, 0), first = part == 0 ? 0 : max(end - 1, 0);
        const int first = part * T_c / p.parts, end = (part + 1) * T_c / p.parts;
        // END 27.2
        return {i,    kv_head * p.packing.group + in_group, min(p.packing.heads, p.packing.group - in_group),
                kv_head, tile / tiles_of_head / kv_heads, part, first, end};
    }
    __device__ static int steps(const Task& task) { return max(task.end - task.first, 1); }
    /// A part without keys has a step too: with the block behind the last key, which moves no byte.
    __device__ static int first_key(const Problem& p, const Task& task, int t) {
        return task.first < task.end ? (task.end - 1 - t) * B_c : p.N_k;
    }

    // ---- load
    __device__ static void load_own(OwnTile Q_i, ptx::Barrier& full, const Problem& p, const Task& task, int) {
        tile::load(Q_i, p.Q, full, task.first_head, task.i, task.batch);  // the map has heads where others have rows
    }
    __device__ static void load_first(FirstTile K_j, ptx::Barrier& full, const Problem& p, const Task& task, int t) {
        tile::load(K_j, p.K, full, first_key(p, task, t), task.kv_head, task.batch);
    }
    __device__ static void load_second(SecondTile V_j, ptx::Barrier& full, const Problem& p, const Task& task, int t) {
        tile::load(V_j, p.V, full, first_key(p, task, t), task.kv_head, task.batch);
    }

    // ---- compute, finish
    __device__ static bool works(const Task&, int) { return true; }
    // EXERCISE 27.1 Which head is row `row` of a tile, counted from the tile's first one on, and which query? In the
    // starter rows are queries of one head, as in the rungs before.
    // STARTER __device__ __forceinline__ static int head_of(const Problem& p, int row) { return 0; }
    // STARTER __device__ __forceinline__ static int query_of(const Problem& p, const Task& task, int row) {
    // STARTER     return task.i + row;
    // STARTER }
    __device__ __forceinline__ static int head_of(const Problem& p, int row) { return row % p.packing.heads; }
    __device__ __forceinline__ static int query_of(const Problem& p, const Task& task, int row) {
        return task.i + row / p.packing.heads;
    }
    // END 27.1
    /// The lane's row h of two, of the tile.
    __device__ __forceinline__ static int row_of(const Consumer& c, int h) { return c.warp * 16 + tile::row_of(0, h); }
    /// Of the block from key j on, the scores of keys that a row does not see become -infinity.
    __device__ __forceinline__ static void
    hide(Scores& S, int j, const Consumer& c, const Problem& p, const Task& task) {
        if (j + B_c <= p.N_k && (!causal || j + B_c <= task.i + 1 + p.N_k - p.N_q)) return;
        int behind[2];  // the last key that a row sees, from key j on
        for (int h = 0; h < 2; ++h)
            behind[h] = (causal ? min(query_of(p, task, row_of(c, h)) + 1 + p.N_k - p.N_q, p.N_k) : p.N_k) - j;
#pragma unroll
        for (int x = 0; x < B_c / 8; ++x)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                if (tile::column_of(x, e) >= behind[e / 2]) S.fragment[0][x][e] = -INFINITY;
    }
    template <bool first>
    __device__ __forceinline__ static void
    step(State& s, Consumer& c, const Problem& p, const Task& task, int t) {
        Scores S;
        tile::begin_multiply_transposed(S, c.own(), c.first.take());
        tile::wait<0>(S);
        c.first.give_back();
        hide(S, first_key(p, task, t), c, p, task);
        tile::Operand<Element, 16, B_c> P;
        s.softmax.template update<first>(S, P, s.O, p.scale);
        tile::begin_multiply(s.O, P, c.second.take());
        tile::wait<0>(s.O, P);
        c.second.give_back();
    }
    __device__ __forceinline__ static void begin(State& s, Consumer& c, const Problem& p, const Task& task) {
        s.softmax.begin(p.scale);
        tile::fill(s.O, 0);
        step<true>(s, c, p, task, 0);
    }
    __device__ __forceinline__ static void compute(State& s, Consumer& c, const Problem& p, const Task& task) {
#pragma unroll 1
        for (int t = 1; t < steps(task); ++t) step<false>(s, c, p, task, t);
    }
    __device__ __forceinline__ static void finish(State& s, Consumer& c, const Problem& p, const Task& task) {
        cudaTriggerProgrammaticLaunchCompletion();  // the merge may begin to begin
        const auto lse = s.softmax.finish(s.O, p.scale);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int head = head_of(p, row_of(c, h)), query = query_of(p, task, row_of(c, h));
            const bool stores = head < task.heads && query < p.N_q;
            const int row = (task.batch * p.heads + task.first_head + head) * p.N_q + query;
            const std::size_t place = p.partial.place(row, task.part);
            float* LSE = p.parts == 1 ? p.results.LSE : p.partial.LSE;
            if (LSE && stores && c.lane % 4 == 0) LSE[place] = lse.value[0][h];
            if (p.parts == 1)
                store_row(p.results.row_of_O(row), s.O, h, stores);
            else
                store_row(p.partial.O + place * d, s.O, h, stores);
        }
    }
    __device__ static void store(const Consumer&, const Problem&, const Task&) {}  // nothing leaves by TMA
};

// ---- the merge

constexpr int merge_warps = 4;

// EXERCISE 27.3 Build: block x of merge_warps * 32 threads merges the parts of row x, and writes O and, if it is wanted,
// LSE. A row that no part has seen a key of has O 0 and LSE -infinity; what is NaN in a part is NaN in the row. Parts are
// there once it has waited for the kernel before. The starter takes the first part for all.
// STARTER template <class Element, int d>
// STARTER __global__ void __launch_bounds__(merge_warps * 32)
// STARTER     merge_parts(const PartialResults<const float> partial, const Results<Element> results) {
// STARTER     const int x = blockIdx.x;
// STARTER     cudaGridDependencySynchronize();
// STARTER     if (threadIdx.x < d / 2) {
// STARTER         const float* pair = partial.O + partial.place(x, 0) * d + 2 * threadIdx.x;
// STARTER         store_pair(results.row_of_O(x) + 2 * threadIdx.x, pair[0], pair[1]);
// STARTER     }
// STARTER     if (results.LSE && threadIdx.x == 0) results.LSE[x] = partial.LSE[partial.place(x, 0)];
// STARTER }
template <class Element, int d>
__global__ void __launch_bounds__(merge_warps * 32)
    merge_parts(const PartialResults<const float> partial, const Results<Element> results) {
    constexpr int at_once = 4;  // parts that a warp loads under one another
    __shared__ float2 sums[merge_warps][d / 2];  // of the weighted O of each warp's parts
    __shared__ float largest_of[merge_warps], sum_of[merge_warps];
    const int x = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    cudaGridDependencySynchronize();

    // Parts are keys to it, LSE their scores, O their values: rung 01's loop.
    float largest = -INFINITY, sum = 0;
    float2 O[d / 64] = {};
    for (int part = warp; part < partial.parts; part += at_once * merge_warps) {
        float LSE[at_once], larger = largest;
        float2 pairs[at_once][d / 64];
#pragma unroll
        for (int n = 0; n < at_once; ++n) {
            const bool there = part + n * merge_warps < partial.parts;
            const std::size_t place = partial.place(x, part + n * merge_warps);
            LSE[n] = there ? partial.LSE[place] : -INFINITY;
            larger = fmaxf(larger, LSE[n]);
#pragma unroll
            for (int c = 0; c < d / 64; ++c)
                pairs[n][c] = there ? reinterpret_cast<const float2*>(partial.O + place * d)[c * 32 + lane] : float2{};
        }
        const float shift = larger == -INFINITY ? 0 : larger;  // else -infinity less itself
        const float factor = expf(largest - shift);
        largest = larger, sum *= factor;
#pragma unroll
        for (int c = 0; c < d / 64; ++c) O[c].x *= factor, O[c].y *= factor;
#pragma unroll
        for (int n = 0; n < at_once; ++n) {
            const float weight = expf(LSE[n] - shift);
            sum += weight;
#pragma unroll
            for (int c = 0; c < d / 64; ++c) O[c].x += weight * pairs[n][c].x, O[c].y += weight * pairs[n][c].y;
        }
    }
#pragma unroll
    for (int c = 0; c < d / 64; ++c) sums[warp][c * 32 + lane] = O[c];
    if (lane == 0) largest_of[warp] = largest, sum_of[warp] = sum;
    __syncthreads();

    for (int pair = threadIdx.x; pair < d / 2; pair += merge_warps * 32) {
        largest = -INFINITY, sum = 0;
        for (const float of_warp : largest_of) largest = fmaxf(largest, of_warp);
        const float shift = largest == -INFINITY ? 0 : largest;
        float2 total = {};
        for (int w = 0; w < merge_warps; ++w) {
            const float weight = expf(largest_of[w] - shift);
            sum += weight * sum_of[w];
            total.x += weight * sums[w][pair].x, total.y += weight * sums[w][pair].y;
        }
        const float inverse = sum == 0 ? 0 : 1 / sum;
        store_pair(results.row_of_O(x) + 2 * pair, total.x * inverse, total.y * inverse);
        if (results.LSE && pair == 0) results.LSE[x] = sum == 0 ? -INFINITY : largest + logf(sum);
    }
}
// END 27.3

// ---- how many parts

// EXERCISE 27.4 Into how many parts are the keys split, for `tiles` tiles of queries against up to `blocks` blocks of
// keys? A launch takes as long as the multiprocessor with most to do. In the starter there is one part: right, and slow.
// STARTER int parts_for(int tiles, int blocks, int multiprocessors) { return 1; }
int parts_for(int tiles, int blocks, int multiprocessors) {
    constexpr int fewest_blocks = 4;  // of a part: its start, its end and the merge cost about two
    int best = 1, least = INT_MAX;
    for (int parts = 1; parts <= std::clamp(blocks / fewest_blocks, 1, multiprocessors); ++parts) {
        const int tasks = (tiles * parts + multiprocessors - 1) / multiprocessors;  // of a multiprocessor
        const int time = tasks * ((blocks + parts - 1) / parts + 2);
        if (time < least) best = parts, least = time;
    }
    return best;
}
// END 27.4

int parts_of(const AttentionShape& s) {
    return parts_for(tiles_of(s), blocks_of_keys(s), device_attribute(cudaDevAttrMultiProcessorCount));
}

template <class Element, int d>
void launch_merge(const PartialResults<float>& partial, const Results<Element>& results, cudaStream_t stream) {
    launch_kernel(merge_parts<Element, d>,
                  {.grid = dim3(unsigned(partial.rows)), .block = dim3(merge_warps * 32), .stream = stream,
                   .dependent = true},
                  PartialResults<const float>{partial.O, partial.LSE, partial.rows, partial.parts}, results);
}
template <class Kernel, class Element>
typename Kernel::Problem problem_of(const ForwardArgs& args, const PartialResults<float>& partial,
                                    const Results<Element>& results) {
    const AttentionShape& s = args.shape;
    const Packing packing = packing_of(s);
    return {packed_map<typename Kernel::OwnTile>(args, packing.heads, packing.queries()),
            tile::make_tensor_map<typename Kernel::FirstTile>(args.K, args.K_strides, s.batch, s.kv_heads, s.n_k),
            tile::make_tensor_map<typename Kernel::SecondTile>(args.V, args.V_strides, s.batch, s.kv_heads, s.n_k),
            packing, s.n_q, s.n_k, s.heads, tiles_of(s) * partial.parts, blocks_of_queries(s), partial.parts,
            tile::lazy_scale(args.scale * log2_e), partial, results};
}

/// Calls f.operator()<d>() for head_dim, 64, 128 or 256.
template <class F>
void with_head_dim_of(const AttentionShape& s, F f) {
    switch (s.head_dim) {
        case 64: return f.template operator()<64>();
        case 128: return f.template operator()<128>();
        default: return f.template operator()<256>();
    }
}
void launch_in(int parts, const ForwardArgs& args) {
    const AttentionShape& s = args.shape;
    const PartialResults<float> partial = partial_results(args.scratch, s, parts);
    with_element_and_causal_of(s, [&]<class Element, bool causal>() {
        const Results<Element> results = {static_cast<Element*>(args.O), args.lse, args.O_strides, s.heads, s.n_q};
        with_head_dim_of(s, [&]<int d>() {
            using Kernel = PartOfAttention<Element, d, causal>;
            lcsf::launch<Kernel>(problem_of<Kernel>(args, partial, results), nullptr, args.stream);
            if (parts > 1) launch_merge<Element, d>(partial, results, args.stream);
        });
    });
}
void launch(const ForwardArgs& args) { launch_in(parts_of(args.shape), args); }
std::size_t scratch_bytes(const AttentionShape& s) { return bytes_of_partial_results(s, parts_of(s)); }

const Support supports{.stage = "27-merge", .head_dims = {64, 128, 256}, .dtypes = {DType::bf16, DType::f16},
                       .causal = true, .lse = true, .grouped_query = true, .strides = true, .positive_scale = true,
                       .compute_capability = 90};
const Registration registration = {{supports, launch, scratch_bytes}};

/// So many parts, whatever the problem.
template <int parts>
Registration variant() {
    Support s = supports.for_variant(parts == 1 ? "1 part" : std::to_string(parts) + " parts");
    s.causal = true, s.dtypes = supports.dtypes;
    return {{s, [](const ForwardArgs& args) { launch_in(parts, args); },
             [](const AttentionShape& shape) { return bytes_of_partial_results(shape, parts); }}};
}
const Registration variants[] = {variant<1>(), variant<3>(), variant<8>(), variant<200>()};

}  // namespace
}  // namespace flashladder::attention
