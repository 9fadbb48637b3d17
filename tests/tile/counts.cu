// Bank conflicts of the operations, counted: none with the swizzle of a tile's width, and how many without.
#include "emulator/counters.h"

#include <doctest/doctest.h>

#include "fragments.h"
#include "tile/copy.h"
#include "tile/copy_async.h"
#include "tile/multiply.h"
#include "tile/transposed_scores.h"

namespace flashladder {
namespace {

using emulator::Access, emulator::SharedWork;

enum class Operation {
    load,
    load_transposed,
    multiply_transposed,
    from_shared,
    multiply,
    store,
    copy_in,
    copy_in_async,
    copy_out,
};

constexpr int rows = 32, threads = 128;

/// Only the operation reads or writes shared memory in a way that is counted apart: see below.
template <int columns, class Layout>
__global__ void operation_kernel(Operation operation, __half* tensor, float* results) {
    const tile::SharedTile<__half, 64, columns, Layout> tile{dynamic_shared<__half>()};
    auto* zeros = reinterpret_cast<uint4*>(tile.data);
    if (operation != Operation::store && operation != Operation::copy_in)
        for (int i = threadIdx.x; i < tile.elements / tile::chunk; i += blockDim.x) zeros[i] = {0, 0, 0, 0};
    __syncthreads();
    if (operation == Operation::copy_in) tile::copy_in<threads>(tile, tensor, 0, 64);
    if (operation == Operation::copy_in_async) {
        tile::copy_in_async<threads>(tile, tensor, 0, 64);
        ptx::cp_async_commit();
        ptx::cp_async_wait<0>();
    }
    if (operation == Operation::copy_out) tile::copy_out<threads>(tensor, tile, 0, 64);
    if (threadIdx.x >= warp) return;
    tile::Operand<__half, rows, columns> A{};
    tile::Operand<__half, rows, 64> P{};
    tile::Operand<__half, 16, 64> A_t{};
    tile::Accumulator<rows, 64> S{};
    tile::Accumulator<rows, columns> O{};
    if (operation == Operation::load) tile::load(A, tile, 0);
    if (operation == Operation::load_transposed) tile::load_transposed(A_t, tile, 0);
    if (operation == Operation::multiply_transposed) tile::multiply_transposed(S, A, tile);
    if (operation == Operation::from_shared) tile::multiply_transposed(S, tile, 0, tile);
    if (operation == Operation::multiply) tile::multiply(O, P, tile);
    if (operation == Operation::store) tile::store(tile, O, 0);
    results[threadIdx.x] = S.fragment[0][0][0] + O.fragment[0][0][0] + float(A.fragment[0][0][0] + A_t.fragment[0][0][0]);
}

/// Bank conflicts for each wavefront that is needed.
template <int columns, class Layout>
double conflicts(Operation operation) {
    const DeviceArray<__half> tensor(64 * columns);
    check_cuda(cudaMemset(tensor.data(), 0, 64 * columns * 2), "filling");
    const DeviceArray<float> results(warp);
    const auto work = emulator::count_work([&] {
        launch_kernel(operation_kernel<columns, Layout>, {1, threads, 64 * columns * 2}, operation, tensor.data(),
                      results.data());
    });
    REQUIRE(work.launches.size() == 1);
    const bool writes = operation == Operation::store || operation == Operation::copy_in;
    const SharedWork& shared = work.launches[0].total.shared_of(operation == Operation::copy_in_async ? Access::cp_async
                                                                : writes                              ? Access::write
                                                                                                      : Access::read);
    REQUIRE(shared.wavefronts > 0);
    return double(shared.conflicts) / double(shared.wavefronts - shared.conflicts);
}

constexpr Operation operations[] = {
    Operation::load,  Operation::load_transposed, Operation::multiply_transposed, Operation::from_shared, Operation::multiply,
    Operation::store, Operation::copy_in,         Operation::copy_in_async,       Operation::copy_out};

/// Whether it meets whole rows of a tile, and not 16 bytes of 8 rows.
bool of_whole_rows(Operation operation) {
    return operation == Operation::copy_in || operation == Operation::copy_in_async || operation == Operation::copy_out;
}

template <int columns>
void check_conflicts() {
    const int apart = columns * 2 >= 128 ? 1 : 128 / (columns * 2);  // rows until a bank is met again
    for (const Operation operation : operations) {
        INFO(columns, " columns, operation ", int(operation));
        CHECK(conflicts<columns, tile::SwizzledFor<columns>>(operation) == 0);
        const bool whole_rows = of_whole_rows(operation);
        CHECK(conflicts<columns, tile::RowMajor>(operation) == (whole_rows ? 0 : 8 / apart - 1));
    }
}

TEST_CASE(
    "counts: no bank conflicts with the swizzle of the tile's width; 7 of 8 wavefronts without, where rows are wide") {
    check_conflicts<16>();
    check_conflicts<32>();
    check_conflicts<64>();
    check_conflicts<128>();
}

/// Narrow panels of a wide tile: ldmatrix and store find 8 rows in 8 groups of banks, copies of whole rows do not.
TEST_CASE("counts: a narrow swizzle suffices for products") {
    for (const Operation operation : operations) {
        CAPTURE(int(operation));
        const bool whole_rows = of_whole_rows(operation);
        CHECK((conflicts<64, tile::Swizzled<32>>(operation) == 0) == !whole_rows);
        CHECK((conflicts<64, tile::Swizzled<64>>(operation) == 0) == !whole_rows);
    }
}

}  // namespace
}  // namespace flashladder
