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
template <int stages_, int section, lcsf::Schedule schedule_>
struct Gemm {
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
        // TODO: your code, instead of this.
        const int row = number / p.columns, column = number % p.columns;
        // END 14b.1
        return {row * m, column * n, p.steps};
    }
    __device__ static int steps(const Task& task) { return task.steps; }

    // EXERCISE 14b.2 Build: what the template has to know of C = A B: tiles, loads, and what a consumer does with them.
    // One step's product is under way when the next one begins, and tiles go back when nothing reads them any more. The
    // starter is the least that the template takes: its consumers have no work, so that nobody writes C.
    // TODO: your code, instead of this.
    static constexpr int own_slots = 1;
    static constexpr bool turns = true, own_is_loaded = false;
    using FirstTile = tile::SharedTile<__nv_bfloat16, 64, 64, tile::Swizzled<128>>;
    using SecondTile = FirstTile;
    using OwnTile = FirstTile;
    using OutputTile = FirstTile;
    using Consumer = lcsf::Consumer<Gemm>;
    struct State {};
    struct Problem {
        tile::TensorMap<FirstTile> A;
        tile::TensorMap<SecondTile> B;
        tile::TensorMap<OutputTile> C;
        int rows, columns, steps;  // of tasks
    };
    __device__ static void load_first(FirstTile A, ptx::Barrier& full,
                                      const Problem& p, const Task& task, int t) {
        tile::load(A, p.A, full, task.row, 0, 0, 0);
    }
    __device__ static void load_second(SecondTile B, ptx::Barrier& full,
                                       const Problem& p, const Task& task, int t) {
        tile::load(B, p.B, full, 0, 0, 0, task.column);
    }
    __device__ static bool works(const Task&, int consumer) { return false; }
    __device__ static void begin(State& s, Consumer& c, const Problem& p, const Task& task) {}
    __device__ static void compute(State& s, Consumer& c, const Problem& p, const Task& task) {}
    __device__ static void finish(State& s, Consumer& c, const Problem& p, const Task& task) {}
    __device__ static void store(const Consumer& c, const Problem& p, const Task& task) {}
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
                          map<typename Kernel::OutputTile>(args.C, M, N), blocks(M, Kernel::m), blocks(N, Kernel::n),
                          blocks(K, Kernel::k)},
                         static_cast<unsigned*>(args.scratch), args.stream);
}

constexpr int everything = INT_MAX;
constexpr const char* folder = "14b-gemm";
const Registration registrations[] = {
    {{folder, "", launch<Gemm<3, 16, lcsf::Schedule::fixed>>}},
    {{folder, "2 slots", launch<Gemm<2, 16, lcsf::Schedule::fixed>>}},
    {{folder, "dynamic", launch<Gemm<3, 16, lcsf::Schedule::dynamic>>, sizeof(unsigned)}},
    {{folder, "one block each", launch<Gemm<3, 16, lcsf::Schedule::one_each>>}},
    {{folder, "sections of 1", launch<Gemm<3, 1, lcsf::Schedule::fixed>>}},
    {{folder, "sections of 4", launch<Gemm<3, 4, lcsf::Schedule::fixed>>}},
    {{folder, "one section", launch<Gemm<3, everything, lcsf::Schedule::fixed>>}},
};

}  // namespace
}  // namespace flashladder::gemm
