// Rung 27b: keys and values in pages, anywhere in a pool. A table says where.
//
// Idea      a block of keys is not one box of TMA, but a box for each page, or part of a page, that it lies in. The
//           boxes signal one barrier, so whoever waits for the block does not know of pages. What is behind a
//           sequence's last key never comes: the last box begins as many rows earlier.
// Saves     memory: a sequence has the pages that it needs, and not room for the longest one.
// Costs     an entry of a table before each box, boxes of few rows, and a mask that knows where the last box begins. And a
//           plan of the parts before, as only the device knows how long sequences are.
// Source    PagedAttention (Kwon et al., 2023), whose kernel is another one; rung 27 for the kernel, 26 for the plan
// Supports  bf16, f16; d 64, 128, 256; pages of any multiple of 8 keys; a length for each sequence; any N_q; causal;
//           grouped-query heads; LSE; any strides; scale > 0; sm_90a
#include <algorithm>
#include <numeric>
#include <string>

#include "lcsf/lcsf.h"
#include "operations/attention/launch_forward.h"
#include "operations/attention/merge.h"
#include "operations/paged_attention/planner.h"
#include "operations/paged_attention/stage.h"
#include "tile/divisor.h"
#include "tile/lazy_softmax.h"
#include "tile/warpgroup.h"

namespace flashladder::paged_attention {
namespace {

using attention::PackedTiles;

/// O = softmax(scale Q K^T) V over a part of the keys of a sequence. A task is a tile of queries against such a part.
template <class Element, int d_, bool causal>
struct PagedAttention {
    static constexpr int d = d_, B_c = attention::block_of_keys, consumers = 1, stages = d == 64 ? 4 : 2, own_slots = 2;
    static constexpr lcsf::Schedule schedule = lcsf::Schedule::dynamic;
    static constexpr bool turns = false, own_is_loaded = true;
    using OwnTile = tile::SharedTile<Element, attention::tile_rows, d, tile::Swizzled<128>>;  // Q_i
    using FirstTile = tile::SharedTile<Element, B_c, d, tile::Swizzled<128>>;                 // K_j
    using SecondTile = FirstTile;                                                             // V_j
    using Scores = tile::Accumulator<16, B_c>;
    using Consumer = lcsf::Consumer<PagedAttention>;
    static constexpr int panel = tile::TensorMap<FirstTile>::panel;  // columns of a box

    struct Problem {
        tile::TensorMap<OwnTile> Q;
        CUtensorMap K, V;  // boxes of (box, panel) of a page
        PackedTiles tiles;
        const PlannedPart* plan;  // of a head
        const int* planned;       // how many
        int most;                 // of all heads, at most
        Pool pool;
        Divisor by_page_size;
        int box;  // rows: as many as divide a page and a block
        const int* block_table;
        tile::LazyScale scale;
        attention::PartialResults<float> partial;
        attention::Results<Element> results;
    };
    struct Task : PackedTiles::Task {
        int N_k;           // of its sequence
        int part, parts;   // of its tile
        int first, steps;  // blocks of keys
    };
    struct State {
        tile::Accumulator<16, d> O;
        tile::LazySoftmax softmax;
    };

    // ---- tasks
    static int most_tasks(const Problem& p) { return p.most; }
    __device__ static int tasks(const Problem& p) { return *p.planned * p.tiles.heads_of_tiles(); }
    __device__ static Task task(const Problem& p, int n) {
        const int heads = p.tiles.heads_of_tiles();
        const PlannedPart of = p.plan[n / heads];
        return {p.tiles.task(of.tile_of_queries, n % heads, of.sequence), of.N_k, of.part, of.parts, of.first, of.steps};
    }
    __device__ static int steps(const Task& task) { return task.steps; }
    /// The block behind the last key moves no byte.
    __device__ static int first_key(const Task& task, int t) {
        return min((task.first + task.steps - 1 - t) * B_c, task.N_k);
    }

    // ---- load
    struct Place {
        int page, row;  // of the pool; of the page
    };
    /// Where key j of a sequence is, j < N_k.
    __device__ static Place place_of(const Problem& p, int sequence, int j) {
        // EXERCISE 27b.1 In which page is key j, and which row of the page is it? In the starter every key is row 0 of
        // page 0.
        // STARTER return {0, 0};
        const int n = p.by_page_size.quotient(j);
        return {p.block_table[sequence * p.pool.pages_of_sequence + n], j - n * p.pool.page_size};
        // END 27b.1
    }
    /// The keys from j on are rows of one box, j < N_k. By how many rows is it asked for earlier than where key j is?
    __device__ static int rows_earlier(const Problem& p, int N_k, int j) {
        // EXERCISE 27b.2 So many that the sequence's last key is the last row of its box: what is behind it might be
        // NaN, and 0 times NaN is NaN. Boxes that are full begin where they are. In the starter all do.
        // STARTER return 0;
        return max(j + p.box - N_k, 0);
        // END 27b.2
    }
    /// The block of keys from j on, of the pool of K or of V. By one thread.
    __device__ static void load_block(FirstTile block, const CUtensorMap& pool, ptx::Barrier& full, const Problem& p,
                                      const Task& task, int j) {
        // EXERCISE 27b.3 Build: ask for the boxes that the block consists of, each from its page; zeros behind the last
        // key. The starter asks for the first box alone, and the rest are zeros: right where a page has B_c keys.
        // STARTER for (int x = 0; x < FirstTile::elements; ++x) block.data[x] = Element(0);
        // STARTER ptx::fence_proxy_async();
        // STARTER if (j == task.N_k) return ptx::barrier_arrive(full);
        // STARTER const Place from = place_of(p, task.batch, j);
        // STARTER const int row = from.row - rows_earlier(p, task.N_k, j);
        // STARTER ptx::barrier_arrive_expect_tx(full, p.box * d * sizeof(Element));
        // STARTER for (int column = 0; column < d; column += panel)
        // STARTER     ptx::tma_load(block.data + column * B_c, pool, full, {column, row, task.kv_head, from.page});
        ptx::barrier_arrive_expect_tx(full, FirstTile::elements * sizeof(Element));
        for (int row = 0; row < B_c; row += p.box) {
            const int key = j + row;
            Place from = {0, p.pool.page_size};  // past the end of a page: TMA brings zeros, and moves no byte
            if (key < task.N_k) {
                from = place_of(p, task.batch, key);
                from.row -= rows_earlier(p, task.N_k, key);
            }
#pragma unroll
            for (int column = 0; column < d; column += panel)
                ptx::tma_load(block.data + column * B_c + row * panel, pool, full,
                              {column, from.row, task.kv_head, from.page});
        }
        // END 27b.3
    }
    __device__ static void load_own(OwnTile Q_i, ptx::Barrier& full, const Problem& p, const Task& task, int) {
        tile::load(Q_i, p.Q, full, task.first_head, task.i, task.batch);  // the map has heads where others have rows
    }
    __device__ static void load_first(FirstTile K_j, ptx::Barrier& full, const Problem& p, const Task& task, int t) {
        load_block(K_j, p.K, full, p, task, first_key(task, t));
    }
    __device__ static void load_second(SecondTile V_j, ptx::Barrier& full, const Problem& p, const Task& task, int t) {
        load_block(V_j, p.V, full, p, task, first_key(task, t));
    }

    // ---- compute, finish
    __device__ static bool works(const Task&, int) { return true; }
    /// Of the block from key j on, the scores of keys that a row does not see become -infinity, and those of what came
    /// because the last box began earlier. Blocks come from the last one on, so only a part's first step has that.
    template <bool first>
    __device__ __forceinline__ static void
    hide(Scores& S, int j, const Consumer& c, const Problem& p, const Task& task) {
        const int N_k = task.N_k, diagonal = N_k - p.tiles.N_q;
        if (!(first && j + B_c > N_k) && (!causal || j + B_c <= task.i + 1 + diagonal)) return;
        const int last = max(N_k - 1 - j, 0) / p.box * p.box;  // the column with which the last box begins
        const int earlier = first && j + B_c > N_k ? rows_earlier(p, N_k, j + last) : 0;
        int seen[2];  // so many keys from j on, by a row
        for (int h = 0; h < 2; ++h) {
            const int query = p.tiles.query_of(task, c.warp * 16 + tile::row_of(0, h));
            seen[h] = (causal ? min(query + 1 + diagonal, N_k) : N_k) - j;
        }
#pragma unroll
        for (int x = 0; x < B_c / 8; ++x)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int column = tile::column_of(x, e), key = column < last ? column : column - earlier;
                if (key >= seen[e / 2] || (first && key < min(column, last))) S.fragment[0][x][e] = -INFINITY;
            }
    }
    template <bool first>
    __device__ __forceinline__ static void
    step(State& s, Consumer& c, const Problem& p, const Task& task, int t) {
        Scores S;
        tile::begin_multiply_transposed(S, c.own(), c.first.take());
        tile::wait<0>(S);
        c.first.give_back();
        hide<first>(S, first_key(task, t), c, p, task);
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
        attention::store_part(p.partial, p.results, s.O, lse, p.tiles, task, task.part, task.parts, c.warp);
    }
    __device__ static void store(const Consumer&, const Problem&, const Task&) {}  // nothing leaves by TMA
};

/// A pool as TMA sees it: boxes of `box` rows of a page.
template <class Kernel, class Element>
CUtensorMap map_of_pages(const void* pages, const Strides& strides, const Args& args, int box) {
    const auto bytes = [](std::int64_t elements) { return std::uint64_t(elements) * sizeof(Element); };
    return ptx::make_tensor_map<Element, 4>(static_cast<const Element*>(pages),
                                            {std::uint64_t(Kernel::d), std::uint64_t(args.pool.page_size),
                                             std::uint64_t(args.shape.kv_heads), std::uint64_t(args.pool.pages)},
                                            {bytes(strides.row), bytes(strides.head), bytes(strides.batch)},
                                            {Kernel::panel, std::uint32_t(box), 1, 1}, ptx::Swizzle::bytes_128);
}
// ---- launch

/// What lies in the scratch memory.
struct Scratch {
    PlannedPart* plan;
    attention::PartialResults<float> partial;
    int* parts;  // of each tile of queries, sequence by sequence
    int* planned;
    unsigned* taken;
};
std::size_t scratch_bytes_of(const AttentionShape& s, int most_parts) {
    const std::size_t tiles = std::size_t(s.batch) * std::size_t(attention::blocks_of_queries(s));
    return tiles * (std::size_t(most_parts) * sizeof(PlannedPart) + sizeof(int)) + 2 * sizeof(int) +
           attention::bytes_of_partial_results(s, most_parts);
}
Scratch scratch_of(const Args& args, int most_parts) {
    const int tiles = args.shape.batch * attention::blocks_of_queries(args.shape);
    PlannedPart* const plan = static_cast<PlannedPart*>(args.scratch);
    const auto partial = attention::partial_results(plan + tiles * most_parts, args.shape, most_parts);
    int* const parts = reinterpret_cast<int*>(partial.LSE + std::size_t(partial.rows) * most_parts);
    return {plan, partial, parts, parts + tiles, reinterpret_cast<unsigned*>(parts + tiles + 1)};
}

template <class Element, int d, bool causal>
void launch_kernels(const Args& args, int asked, int most_parts) {
    using Kernel = PagedAttention<Element, d, causal>;
    const Scratch scratch = scratch_of(args, most_parts);
    const PackedTiles tiles = attention::packed_tiles(args.shape);
    const int box = std::gcd(args.pool.page_size, Kernel::B_c);
    const attention::Results<Element> results = {static_cast<Element*>(args.O), args.lse, args.O_strides,
                                                 args.shape.heads, args.shape.n_q};
    launch_kernel(plan_parts,
                  {.grid = dim3(1), .block = dim3(attention::buckets), .stream = args.stream, .dependent = true},
                  Planner{args.lengths, tiles, causal, asked, most_parts,
                          device_attribute(cudaDevAttrMultiProcessorCount), scratch.plan, scratch.parts, scratch.planned,
                          scratch.taken});
    lcsf::launch<Kernel>({attention::packed_map<typename Kernel::OwnTile>(args, tiles.packing.heads,
                                                                          tiles.packing.queries()),
                          map_of_pages<Kernel, Element>(args.K, args.K_strides, args, box),
                          map_of_pages<Kernel, Element>(args.V, args.V_strides, args, box), tiles, scratch.plan,
                          scratch.planned, attention::tiles_of(args.shape) * most_parts, args.pool,
                          Divisor(unsigned(args.pool.page_size)), box, args.block_table,
                          tile::lazy_scale(args.scale * attention::log2_e), scratch.partial, results},
                         scratch.taken, args.stream);
    attention::launch_merge<Element, d>(scratch.partial, results, tiles, scratch.parts, args.stream);
}
void launch_with(const Args& args, int asked, int most_parts) {
    attention::with_element_and_causal_of(args.shape, [&]<class Element, bool causal>() {
        switch (args.shape.head_dim) {
            case 64: return launch_kernels<Element, 64, causal>(args, asked, most_parts);
            case 128: return launch_kernels<Element, 128, causal>(args, asked, most_parts);
            default: return launch_kernels<Element, 256, causal>(args, asked, most_parts);
        }
    });
}

/// Of the longest sequence, though it may be the only long one: its parts fill the GPU twice.
int most_parts_of(const AttentionShape& s) {
    const int tiles = attention::tiles_of(s) / s.batch, blocks = attention::blocks_of_keys(s);
    return std::clamp(2 * device_attribute(cudaDevAttrMultiProcessorCount) / tiles, 1,
                      std::max(blocks / fewest_blocks, 1));
}
void launch(const Args& args) { launch_with(args, 0, most_parts_of(args.shape)); }
std::size_t scratch_bytes(const AttentionShape& s) { return scratch_bytes_of(s, most_parts_of(s)); }

const attention::Support supports{.stage = "27b-paged", .head_dims = {64, 128, 256},
                                  .dtypes = {DType::bf16, DType::f16}, .causal = true, .lse = true,
                                  .grouped_query = true, .strides = true, .positive_scale = true,
                                  .compute_capability = 90};
const Registration registration = {{supports, launch, scratch_bytes}};

/// So many parts of the longest, whatever the problem.
template <int parts>
Registration variant() {
    attention::Support s = supports.for_variant(parts == 1 ? "1 part" : std::to_string(parts) + " parts");
    s.causal = true, s.dtypes = supports.dtypes;
    return {{s, [](const Args& args) { launch_with(args, parts, parts); },
             [](const AttentionShape& shape) { return scratch_bytes_of(shape, parts); }}};
}
const Registration variants[] = {variant<1>(), variant<3>()};

}  // namespace
}  // namespace flashladder::paged_attention
