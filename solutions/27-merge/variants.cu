// Rung 27 without the second kernel: whichever block is the last to have computed a part of a tile merges all of them.
//
// Saves     a kernel behind the slowest part: a tile is merged as soon as its own parts are there
// Costs     a count of each tile, which somebody has to set to 0; all rows of a tile are merged by one block. That is more
//           than it saves: the lesson has times
#ifndef FLASHLADDER_RUNG
#define FLASHLADDER_RUNG "attention.cu"  // or a chapter's
#endif
#include FLASHLADDER_RUNG

#include "ptx/memory_order.h"
#include "ptx/named_barrier.h"

namespace flashladder::attention {
namespace {

/// The first kernel, with more to do at a task's end.
template <class Element, int d, bool causal>
struct MergedByLast : PartOfAttention<Element, d, causal, MergedByLast<Element, d, causal>> {
    using Part = PartOfAttention<Element, d, causal, MergedByLast>;
    using Consumer = lcsf::Consumer<MergedByLast>;
    static constexpr bool follows_a_kernel = true;  // which sets the counts to 0

    struct Problem : Part::Problem {
        std::uint32_t* come;  // of each tile: how many of its parts are there
    };
    struct Task : Part::Task {
        int tile;
    };
    __device__ static Task task(const Problem& p, int n) { return {Part::task(p, n), n / p.parts}; }

    /// The four warps of the consumer. The template has no barriers of this kind where there are no turns.
    __device__ __forceinline__ static void meet() { ptx::named_barrier_sync(1, lcsf::warpgroup); }
    __device__ __forceinline__ static void
    finish(typename Part::State& s, Consumer& c, const Problem& p, const Task& task) {
        Part::finish(s, c, p, task);  // its trigger lets nobody begin: no kernel is dependent on this one
        bool& is_last = *reinterpret_cast<bool*>(c.own().data);  // Q_i is not read any more, and was not given back yet
        meet();  // all have stored their rows of the part
        // One thread speaks for all. Release: who reads this count, or a later one, sees the part. Acquire: if the others
        // are there, this thread sees them; and behind the barrier all do.
        if (c.warp == 0 && c.lane == 0)
            is_last = ptx::fetch_add_acquire_release(p.come + task.tile, 1) == unsigned(p.parts - 1);
        meet();
        if (!is_last) return;
#pragma unroll 1
        for (int row_of_tile = c.warp; row_of_tile < tile_rows; row_of_tile += 4) {
            const int head = Part::head_of(p, row_of_tile), query = Part::query_of(p, task, row_of_tile);
            if (head >= task.heads || query >= p.N_q) continue;
            merge_row(p, (task.batch * p.heads + task.first_head + head) * p.N_q + query, c.lane);
        }
    }

    /// By one warp. A lane weighs a part of 32, and has pairs of columns of O, of so many parts under way at once.
    static constexpr int at_once = 8;
    __device__ __forceinline__ static void merge_row(const Problem& p, int row, int lane) {
        const float* LSE = p.partial.LSE + p.partial.place(row, 0);
        const float2* pairs = reinterpret_cast<const float2*>(p.partial.O + p.partial.place(row, 0) * d) + lane;
        float largest = -INFINITY, sum = 0;
        for (int part = lane; part < p.parts; part += 32) largest = fmaxf(largest, LSE[part]);
#pragma unroll
        for (int lanes = 16; lanes > 0; lanes /= 2)
            largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, lanes));
        const float shift = largest == -INFINITY ? 0 : largest;  // else -infinity less itself
        float2 O[d / 64] = {};
        for (int first = 0; first < p.parts; first += 32) {
            const float weight = first + lane < p.parts ? expf(LSE[first + lane] - shift) : 0;
            sum += weight;
            for (int next = first; next < min(first + 32, p.parts); next += at_once) {
                float2 of[at_once][d / 64] = {};
#pragma unroll
                for (int n = 0; n < at_once; ++n)
#pragma unroll
                    for (int c = 0; c < d / 64; ++c)
                        if (next + n < p.parts) of[n][c] = pairs[(next + n) * (d / 2) + c * 32];
#pragma unroll
                for (int n = 0; n < at_once; ++n) {
                    const float of_part = __shfl_sync(0xFFFFFFFFu, weight, next - first + n);  // 0 behind the last one
#pragma unroll
                    for (int c = 0; c < d / 64; ++c) O[c].x += of_part * of[n][c].x, O[c].y += of_part * of[n][c].y;
                }
            }
        }
#pragma unroll
        for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, lanes);
        const float inverse = sum == 0 ? 0 : 1 / sum;
#pragma unroll
        for (int c = 0; c < d / 64; ++c)
            store_pair(p.results.row_of_O(row) + 2 * (c * 32 + lane), O[c].x * inverse, O[c].y * inverse);
        if (p.results.LSE && lane == 0) p.results.LSE[row] = sum == 0 ? -INFINITY : largest + logf(sum);
    }
};

constexpr int threads_that_set = 256;
__global__ void __launch_bounds__(threads_that_set) no_part_has_come(std::uint32_t* come, int tiles) {
    const int tile = int(blockIdx.x * blockDim.x + threadIdx.x);
    if (tile < tiles) come[tile] = 0;
}

/// So many parts; 0: as the rung has it. The counts lie behind what the parts leave.
template <int asked>
int parts_or(const AttentionShape& s) {
    return asked == 0 ? parts_of(s) : asked;
}
template <int asked>
std::size_t bytes_with_counts(const AttentionShape& s) {
    return bytes_of_partial_results(s, parts_or<asked>(s)) + std::size_t(tiles_of(s)) * sizeof(std::uint32_t);
}
template <int asked>
void launch_last_block(const ForwardArgs& args) {
    const AttentionShape& s = args.shape;
    const int parts = parts_or<asked>(s), tiles = tiles_of(s);
    if (parts == 1) return launch_in(1, args);  // there is nothing to merge
    const PartialResults<float> partial = partial_results(args.scratch, s, parts);
    std::uint32_t* come = reinterpret_cast<std::uint32_t*>(partial.LSE + std::size_t(partial.rows) * std::size_t(parts));
    launch_kernel(no_part_has_come,
                  {.grid = dim3(unsigned((tiles + threads_that_set - 1) / threads_that_set)),
                   .block = dim3(threads_that_set), .stream = args.stream},
                  come, tiles);
    with_element_and_causal_of(s, [&]<class Element, bool causal>() {
        const Results<Element> results = {static_cast<Element*>(args.O), args.lse, args.O_strides, s.heads, s.n_q};
        with_head_dim_of(s, [&]<int d>() {
            using Kernel = MergedByLast<Element, d, causal>;
            lcsf::launch<Kernel>({problem_of<typename Kernel::Part>(args, partial, results), come}, nullptr, args.stream);
        });
    });
}

template <int asked>
Registration last_block(std::string name) {
    Support s = supports;
    s.variant = std::move(name);
    return {{s, launch_last_block<asked>, bytes_with_counts<asked>}};
}
const Registration by_last_block[] = {last_block<0>("last_block"), last_block<3>("last_block, 3 parts"),
                                      last_block<8>("last_block, 8 parts"), last_block<200>("last_block, 200 parts")};

}  // namespace
}  // namespace flashladder::attention
