// Rung 27 without the second kernel: whichever block is the last to have computed a part of a tile merges all of them.
//
// Saves     that the merge waits for all blocks of the kernel before, and starts blocks of its own
// Costs     a count of each tile, which somebody has to set to 0; the parts of a tile are read by one block alone
#ifndef FLASHLADDER_RUNG
#define FLASHLADDER_RUNG "attention.cu"  // or a chapter's
#endif
#include FLASHLADDER_RUNG

#include "operations/attention/merge.h"
#include "ptx/memory_order.h"
#include "ptx/named_barrier.h"

namespace flashladder::attention {
namespace {

/// The first kernel, with more to do at a task's end.
template <class Element, int d, bool causal>
struct MergedByLast : PartOfAttention<Element, d, causal, MergedByLast<Element, d, causal>> {
    using Part = PartOfAttention<Element, d, causal, MergedByLast>;
    using Consumer = lcsf::Consumer<MergedByLast>;

    struct Problem : Part::Problem {
        std::uint32_t* come;  // of each tile: how many parts are there. The kernel before sets it to 0
    };
    struct Task : Part::Task {
        int tile;
    };
    /// For the merge, where Q_i was.
    struct Shared {
        MergeOfWarps<d> of_warps[2];  // of two rows in a row, so that these need one barrier each
        bool is_last;
    };
    static_assert(sizeof(Shared) <= Part::OwnTile::elements * sizeof(Element));

    /// Having it is what makes the template wait for the kernel before.
    static int most_tasks(const Problem& p) { return p.tasks; }
    __device__ static Task task(const Problem& p, int n) { return {Part::task(p, n), n / p.parts}; }

    /// The four warps of the consumer. The template has no barriers of this kind where there are no turns.
    __device__ __forceinline__ static void meet() { ptx::named_barrier_sync(1, lcsf::warpgroup); }
    __device__ __forceinline__ static void
    finish(typename Part::State& s, Consumer& c, const Problem& p, const Task& task) {
        Part::finish(s, c, p, task);
        Shared& smem = *reinterpret_cast<Shared*>(c.own().data);  // until the template gives it back, it is the consumer's
        const int thread = c.warp * 32 + c.lane;
        meet();  // all have stored their rows of the part, and read Q_i for the last time
        // One thread speaks for all. Release: who reads this count, or a later one, sees the part. Acquire: if the others
        // are there, this thread sees them; and behind the barrier all do.
        if (thread == 0) smem.is_last = ptx::fetch_add_acquire_release(p.come + task.tile, 1) == unsigned(p.parts - 1);
        meet();
        if (smem.is_last) merge(smem, p, task, thread);
    }
    /// All rows of the tile that are rows of the problem.
    __device__ __forceinline__ static void merge(Shared& smem, const Problem& p, const Task& task, int thread) {
        const PartialResults<const float> partial = {p.partial.O, p.partial.LSE, p.partial.rows, p.partial.parts};
        const int behind = min(task.i + p.packing.queries(), p.N_q);
        int merged = 0;
#pragma unroll 1
        for (int head = 0; head < task.heads; ++head)
#pragma unroll 1
            for (int query = task.i; query < behind; ++query) {
                const int row = (task.batch * p.heads + task.first_head + head) * p.N_q + query;
                merge_row<Element, d>(partial, p.results, p.parts, row, thread, smem.of_warps[merged++ % 2], meet);
            }
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
