// 14b: C = A B through the template of rung 14: what a kernel has to say that is not attention.
//
// Supports  bf16; M, N, K multiples of 8; sm_90a
#include <climits>

#include "lcsf/lcsf.h"
#include "operations/gemm/stage.h"
#include "tile/global_tile.h"
#include "tile/warpgroup.h"

namespace flashladder::gemm {
namespace {

/// A task is 64 rows of C for each consumer, and 256 columns. A step multiplies 64 columns of A by 64 rows of B.
template <int stages_, int section, lcsf::Schedule schedule_, bool shared = false>
struct Gemm {
    static constexpr bool second_is_shared = shared;
    static constexpr int consumers = 2, stages = stages_, m = 64 * consumers, n = 256, k = 64;
    static constexpr lcsf::Schedule schedule = schedule_;

    // ---- tasks
    struct Problem;
    struct Task {
        int row, column, steps;  // of C, from there on
    };
    __host__ __device__ static int tasks(const Problem& p) { return p.rows * p.columns; }
    __device__ static Task task(const Problem& p, int number) {
        // EXERCISE 14b.1 Tasks with neighbouring numbers run at the same time. A section is `section` rows of tasks, or
        // all there are; the last one is what is left. Sections come from the top, and each goes column by column.
        // Which row of tasks, of p.rows, and which column, of p.columns, has this number? In the starter row by row.
        // STARTER const int row = number / p.columns, column = number % p.columns;
        const int most = min(section, p.rows), first = number / (most * p.columns) * most;
        const int rest = number - first * p.columns, height = min(most, p.rows - first);
        const int row = first + rest % height, column = rest / height;
        // END 14b.1
        return {row * m, column * n, p.steps};
    }
    __device__ static int steps(const Task& task) { return task.steps; }

    // EXERCISE 14b.2 Build: what the template has to know of C = A B: tiles, loads, and what a consumer does with them.
    // One step's product is under way when the next one begins, and tiles go back when nothing reads them any more. The
    // starter is the least that the template takes: its consumers have no work, so that nobody writes C.
    // STARTER static constexpr int own_slots = 1;
    // STARTER static constexpr bool turns = true, own_is_loaded = false;
    // STARTER using FirstTile = tile::SharedTile<__nv_bfloat16, 64, 64, tile::Swizzled<128>>;
    // STARTER using SecondTile = FirstTile;
    // STARTER using OwnTile = FirstTile;
    // STARTER using OutputTile = FirstTile;
    // STARTER using Consumer = lcsf::Consumer<Gemm>;
    // STARTER struct State {};
    // STARTER struct Problem {
    // STARTER     tile::TensorMap<FirstTile> A;
    // STARTER     tile::TensorMap<SecondTile> B;
    // STARTER     tile::TensorMap<OutputTile> C;
    // STARTER     int rows, columns, steps;  // of tasks
    // STARTER };
    // STARTER __device__ static void load_first(FirstTile A, ptx::Barrier& full,
    // STARTER                                   const Problem& p, const Task& task, int t) {
    // STARTER     tile::load(A, p.A, full, task.row, 0, 0, 0);
    // STARTER }
    // STARTER __device__ static void load_second(SecondTile B, ptx::Barrier& full,
    // STARTER                                    const Problem& p, const Task& task, int t) {
    // STARTER     tile::load(B, p.B, full, 0, 0, 0, task.column);
    // STARTER }
    // STARTER __device__ static bool works(const Task&, int consumer) { return false; }
    // STARTER __device__ static void begin(State& s, Consumer& c, const Problem& p, const Task& task) {}
    // STARTER __device__ static void compute(State& s, Consumer& c, const Problem& p, const Task& task) {}
    // STARTER __device__ static void finish(State& s, Consumer& c, const Problem& p, const Task& task) {}
    // STARTER __device__ static void store(const Consumer& c, const Problem& p, const Task& task) {}
    static_assert(stages >= 2, "Gemm: two steps are under way at a time, and each needs a slot");
    static constexpr int own_slots = 1;
    static constexpr bool turns = false, own_is_loaded = false;
    using Layout = tile::Swizzled<128>;
    using FirstTile = tile::SharedTile<__nv_bfloat16, m, k, Layout>;
    using SecondTile = tile::SharedTile<__nv_bfloat16, k, n, Layout>;
    using RowsOfA = tile::SharedTile<__nv_bfloat16, 64, k, Layout>;     // a consumer's
    using OwnTile = tile::SharedTile<__nv_bfloat16, 64, n, Layout>;     // C
    using OutputTile = tile::SharedTile<__nv_bfloat16, 16, n, Layout>;  // a warp's part of it
    using Consumer = lcsf::Consumer<Gemm>;
    using State = tile::Accumulator<16, n>;
    struct Problem {
        tile::TensorMap<FirstTile> A;
        tile::TensorMap<SecondTile> B;
        tile::TensorMap<OutputTile> C;
        int rows, columns, steps;  // of tasks
    };

    // ---- load
    __device__ static void load_first(FirstTile A, ptx::Barrier& full, const Problem& p, const Task& task, int t) {
        tile::load(A, p.A, full, task.row, 0, 0, t * k);
    }
    __device__ static void load_second(SecondTile B, ptx::Barrier& full, const Problem& p, const Task& task, int t) {
        if (shared)
            tile::load_for_both(B, p.B, full, t * k, 0, 0, task.column);
        else
            tile::load(B, p.B, full, t * k, 0, 0, task.column);
    }

    // ---- compute: step t is begun before step t - 1 is waited for
    __device__ static bool works(const Task&, int) { return true; }
    __device__ __forceinline__ static void begin(State& C, Consumer& c, const Problem&, const Task&) {
        tile::fill(C, 0);
        begin_step(C, c);
    }
    __device__ __forceinline__ static void compute(State& C, Consumer& c, const Problem&, const Task& task) {
#pragma unroll 1
        for (int t = 1; t < task.steps; ++t) {
            const auto A = c.first.keep(), B = c.second.keep();
            begin_step(C, c);
            ptx::wgmma_wait<1>();
            c.first.give_back(A);
            c.second.give_back(B);
        }
    }
    __device__ __forceinline__ static void begin_step(State& C, Consumer& c) {
        const FirstTile A = c.first.take();
        tile::begin_multiply(C, RowsOfA{A.data + c.number * RowsOfA::elements}, c.second.take());
    }

    // ---- finish, store
    __device__ static OutputTile output_of_warp(const Consumer& c) {
        return {c.own().data + c.warp * OutputTile::elements};
    }
    __device__ __forceinline__ static void finish(State& C, Consumer& c, const Problem&, const Task&) {
        tile::wait<0>(C);
        c.first.give_back();
        c.second.give_back();
        tile::store(output_of_warp(c), C, 0);
    }
    __device__ static void store(const Consumer& c, const Problem& p, const Task& task) {
        tile::store(p.C, output_of_warp(c), task.row + c.number * 64 + c.warp * 16, 0, 0, task.column);
    }
    // END 14b.2
};

template <class Tile>
tile::TensorMap<Tile> map(const void* matrix, int rows, int columns) {
    return tile::make_tensor_map<Tile>(matrix, {columns, columns, columns}, 1, 1, rows, columns);
}
template <class Kernel>
void launch(const Args& args) {
    const auto [M, N, K] = args.shape;
    const auto blocks = [](int size, int block) { return (size + block - 1) / block; };
    lcsf::launch<Kernel>({map<typename Kernel::FirstTile>(args.A, M, K), map<typename Kernel::SecondTile>(args.B, K, N),
                          map<typename Kernel::OutputTile>(args.C, M, N), blocks(M, Kernel::m * (Kernel::second_is_shared ? 2 : 1)) * (Kernel::second_is_shared ? 2 : 1), blocks(N, Kernel::n),
                          blocks(K, Kernel::k)},
                         static_cast<unsigned*>(args.scratch), args.stream);
}

constexpr int everything = INT_MAX;
constexpr const char* folder = "14b-gemm";
const Registration registrations[] = {
    {{folder, "", launch<Gemm<3, 16, lcsf::Schedule::fixed>>}},
    {{folder, "pairs", launch<Gemm<3, 16, lcsf::Schedule::fixed, true>>}},
    {{folder, "pairs, dynamic", launch<Gemm<3, 16, lcsf::Schedule::dynamic, true>>, sizeof(unsigned)}},
    {{folder, "2 slots", launch<Gemm<2, 16, lcsf::Schedule::fixed>>}},
    {{folder, "dynamic", launch<Gemm<3, 16, lcsf::Schedule::dynamic>>, sizeof(unsigned)}},
    {{folder, "one block each", launch<Gemm<3, 16, lcsf::Schedule::one_each>>}},
    {{folder, "sections of 1", launch<Gemm<3, 1, lcsf::Schedule::fixed>>}},
    {{folder, "sections of 4", launch<Gemm<3, 4, lcsf::Schedule::fixed>>}},
    {{folder, "one section", launch<Gemm<3, everything, lcsf::Schedule::fixed>>}},
};

}  // namespace
}  // namespace flashladder::gemm
