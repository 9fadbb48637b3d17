// Capstone 3: a gated product. What is asked for: chapters/capstone-3-gated-product/README.md.
//
// Supports  bf16; M, N, K multiples of 8; sm_90a
#include "lcsf/lcsf.h"
#include "operations/gated_product/stage.h"
#include "tile/global_tile.h"
#include "tile/warpgroup.h"

namespace flashladder::gated_product {
namespace {

// EXERCISE capstone-3.1 Build: the whole kernel, and launch(), which starts it. The contract is the README beside this
// file.
// STARTER void launch([[maybe_unused]] const Args& args) {}
// Two products with one left factor are one product with a factor twice as wide: 128 columns of B and the same 128 of G lie
// side by side in a slot, and one wgmma takes both. A lane then has an element of A B and, 16 fragments further, the
// element of A G that gates it.
struct Gated {
    static constexpr int consumers = 2, stages = 4, own_slots = 1, m = 64 * consumers, n = 128, k = 64;
    static constexpr bool turns = false, own_is_loaded = false;
    static constexpr lcsf::Schedule schedule = lcsf::Schedule::fixed;
    static constexpr int section = 16;  // rows of tasks that share columns of B and G while these are in L2
    using Layout = tile::Swizzled<128>;
    using FirstTile = tile::SharedTile<__nv_bfloat16, m, k, Layout>;
    using HalfTile = tile::SharedTile<__nv_bfloat16, k, n, Layout>;        // of B, or of G
    using SecondTile = tile::SharedTile<__nv_bfloat16, k, 2 * n, Layout>;  // both: panels of B, then of G
    using RowsOfA = tile::SharedTile<__nv_bfloat16, 64, k, Layout>;        // a consumer's
    using OwnTile = tile::SharedTile<__nv_bfloat16, 64, n, Layout>;        // C
    using OutputTile = tile::SharedTile<__nv_bfloat16, 16, n, Layout>;     // a warp's part of it
    using Consumer = lcsf::Consumer<Gated>;
    using State = tile::Accumulator<16, 2 * n>;

    struct Problem {
        tile::TensorMap<FirstTile> A;
        tile::TensorMap<HalfTile> B, G;
        tile::TensorMap<OutputTile> C;
        int rows, columns, steps;  // of tasks
    };
    struct Task {
        int row, column, steps;
    };

    // ---- tasks: a column of `section` tasks, then the next one
    __host__ __device__ static int tasks(const Problem& p) { return p.rows * p.columns; }
    __device__ static Task task(const Problem& p, int number) {
        const int most = min(section, p.rows), first = number / (most * p.columns) * most;
        const int rest = number - first * p.columns, height = min(most, p.rows - first);
        return {(first + rest % height) * m, rest / height * n, p.steps};
    }
    __device__ static int steps(const Task& task) { return task.steps; }

    // ---- load
    __device__ static void load_first(FirstTile A, ptx::Barrier& full, const Problem& p, const Task& task, int t) {
        tile::load(A, p.A, full, task.row, 0, 0, t * k);
    }
    /// One arrival for the bytes of both: tile::load would be one for each, and the slot expects one.
    __device__ static void load_second(SecondTile BG, ptx::Barrier& full, const Problem& p, const Task& task, int t) {
        constexpr int panel = HalfTile::stride;
        ptx::barrier_arrive_expect_tx(full, SecondTile::elements * sizeof(__nv_bfloat16));
#pragma unroll
        for (int c = 0; c < n; c += panel) {
            ptx::tma_load(BG.data + c * k, p.B.map, full, {task.column + c, t * k, 0, 0});
            ptx::tma_load(BG.data + HalfTile::elements + c * k, p.G.map, full, {task.column + c, t * k, 0, 0});
        }
    }

    // ---- compute: step t is begun before step t - 1 is waited for
    __device__ static bool works(const Task&, int) { return true; }
    __device__ __forceinline__ static void begin(State& UG, Consumer& c, const Problem&, const Task&) {
        tile::fill(UG, 0);
        begin_step(UG, c);
    }
    __device__ __forceinline__ static void compute(State& UG, Consumer& c, const Problem&, const Task& task) {
#pragma unroll 1
        for (int t = 1; t < task.steps; ++t) {
            const auto A = c.first.keep(), BG = c.second.keep();
            begin_step(UG, c);
            ptx::wgmma_wait<1>();
            c.first.give_back(A);
            c.second.give_back(BG);
        }
    }
    __device__ __forceinline__ static void begin_step(State& UG, Consumer& c) {
        const FirstTile A = c.first.take();
        tile::begin_multiply(UG, RowsOfA{A.data + c.number * RowsOfA::elements}, c.second.take());
    }

    // ---- finish, store
    __device__ static OutputTile output_of_warp(const Consumer& c) {
        return {c.own().data + c.warp * OutputTile::elements};
    }
    __device__ static float silu(float x) { return __fdividef(x, 1 + __expf(-x)); }
    __device__ __forceinline__ static void finish(State& UG, Consumer& c, const Problem&, const Task&) {
        tile::wait<0>(UG);
        c.first.give_back();
        c.second.give_back();
        tile::Accumulator<16, n> C;
#pragma unroll
        for (int x = 0; x < n / 8; ++x)
#pragma unroll
            for (int e = 0; e < 4; ++e) C.fragment[0][x][e] = UG.fragment[0][x][e] * silu(UG.fragment[0][x + n / 8][e]);
        tile::store(output_of_warp(c), C, 0);
    }
    __device__ static void store(const Consumer& c, const Problem& p, const Task& task) {
        tile::store(p.C, output_of_warp(c), task.row + c.number * 64 + c.warp * 16, 0, 0, task.column);
    }
};

template <class Tile>
tile::TensorMap<Tile> map(const void* matrix, int rows, int columns) {
    return tile::make_tensor_map<Tile>(matrix, {columns, columns, columns}, 1, 1, rows, columns);
}

void launch(const Args& args) {
    const auto [M, N, K] = args.shape;
    const auto blocks = [](int size, int block) { return (size + block - 1) / block; };
    lcsf::launch<Gated>({map<Gated::FirstTile>(args.A, M, K), map<Gated::HalfTile>(args.B, K, N),
                         map<Gated::HalfTile>(args.G, K, N), map<Gated::OutputTile>(args.C, M, N), blocks(M, Gated::m),
                         blocks(N, Gated::n), blocks(K, Gated::k)},
                        nullptr, args.stream);
}
// END capstone-3.1

const Registration registration({"capstone-3-gated-product", launch});

}  // namespace
}  // namespace flashladder::gated_product
