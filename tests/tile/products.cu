#include "fragments.h"
#include "tile/multiply.h"
#include "tile/transposed_scores.h"

namespace flashladder {
namespace {

template <class Tile, int rows, int columns, bool transposed>
__global__ void load_kernel(const std::uint16_t* matrix, int first_row, int first_column, std::uint16_t* results) {
    const Tile tile{dynamic_shared<typename Tile::Element>()};
    write(tile, matrix);
    __syncthreads();
    const int first = threadIdx.x / warp * rows;
    tile::Operand<typename Tile::Element, rows, columns> A;
    if constexpr (transposed) tile::load_transposed(A, tile, first_column + first);
    else tile::load(A, tile, first_row + first, first_column);
    write(results + first * columns, A);
}

template <class Tile, int rows, int columns, bool transposed>
Bits16 load(const Bits16& matrix, int first_row, int first_column) {
    const DeviceArray<std::uint16_t> matrix_device(matrix), results(std::size_t(2) * rows * columns);
    launch_kernel(load_kernel<Tile, rows, columns, transposed>, {1, 2 * warp, Tile::elements * 2}, matrix_device.data(), first_row,
                  first_column, results.data());
    return results.download();
}

template <int turn, int rows, int columns, int tile_rows, int tile_columns, bool transposed = false>
void add_loads(std::vector<LoadCase>& cases) {
    for_layouts<tile_columns>([&]<class Layout>() {
        using T = ElementOf<turn + swizzle_of<Layout> / 32>;
        using Tile = tile::SharedTile<T, tile_rows, tile_columns, Layout>;
        cases.push_back({name_of<Layout>(), element_of<T>, rows, columns, tile_rows, tile_columns,
                         load<Tile, rows, columns, transposed>});
    });
}

/// The tiles of a product, each in the layout if it is wide enough, else row-major.
template <class T, int rows, int columns, int depth, class Layout>
struct Tiles {
    using A = tile::SharedTile<T, 2 * rows + 8, depth, IfFits<Layout, depth>>;
    using B_t = tile::SharedTile<T, columns, depth, IfFits<Layout, depth>>;
    using B = tile::SharedTile<T, depth, columns, IfFits<Layout, columns>>;
    static constexpr std::size_t bytes = (A::elements + B_t::elements + B::elements) * 2;
};

template <class T, int rows, int columns, int depth, class Layout>
__global__ void multiply_kernel(const std::uint16_t* A, const std::uint16_t* B_t, const std::uint16_t* B,
                                const float* C, int first_row, float* transposed, float* transposed_from_shared,
                                float* plain) {
    using All = Tiles<T, rows, columns, depth, Layout>;
    const typename All::A A_smem{dynamic_shared<T>()};
    const typename All::B_t B_t_smem{A_smem.data + All::A::elements};
    const typename All::B B_smem{B_t_smem.data + All::B_t::elements};
    write(A_smem, A), write(B_t_smem, B_t), write(B_smem, B);
    __syncthreads();
    const int first = threadIdx.x / warp * rows;
    tile::Operand<T, rows, depth> A_reg;
    tile::load(A_reg, A_smem, first_row + first);
    tile::Accumulator<rows, columns> C_reg;
    read(C_reg, C + first * columns);
    tile::multiply_transposed(C_reg, A_reg, B_t_smem);
    write(transposed + first * columns, C_reg);
    read(C_reg, C + first * columns);
    tile::multiply_transposed(C_reg, A_smem, first_row + first, B_t_smem);
    write(transposed_from_shared + first * columns, C_reg);
    read(C_reg, C + first * columns);
    tile::multiply(C_reg, A_reg, B_smem);
    write(plain + first * columns, C_reg);
}

template <class T, int rows, int columns, int depth, class Layout>
Products multiply(const Bits16& A, const Bits16& B_t, const Bits16& B, const Floats& C, int first_row) {
    const DeviceArray<std::uint16_t> A_device(A), B_t_device(B_t), B_device(B);
    const DeviceArray<float> C_device(C), transposed(C.size()), transposed_from_shared(C.size()), plain(C.size());
    launch_kernel(multiply_kernel<T, rows, columns, depth, Layout>,
                  {1, 2 * warp, Tiles<T, rows, columns, depth, Layout>::bytes}, A_device.data(), B_t_device.data(),
                  B_device.data(), C_device.data(), first_row, transposed.data(), transposed_from_shared.data(),
                  plain.data());
    return {transposed.download(), transposed_from_shared.download(), plain.download()};
}

template <int turn, int rows, int columns, int depth>
void add_products(std::vector<ProductCase>& cases) {
    for_layouts<(columns > depth ? columns : depth)>([&]<class Layout>() {
        using T = ElementOf<turn + swizzle_of<Layout> / 32>;
        cases.push_back(
            {name_of<Layout>(), element_of<T>, rows, columns, depth, multiply<T, rows, columns, depth, Layout>});
    });
}

}  // namespace

std::vector<LoadCase> load_cases() {
    std::vector<LoadCase> cases;
    add_loads<0, 16, 16, 32, 16>(cases);
    add_loads<1, 16, 32, 40, 32>(cases);
    add_loads<0, 32, 64, 64, 64>(cases);
    add_loads<1, 32, 16, 72, 128>(cases);
    add_loads<0, 16, 128, 32, 128>(cases);
    return cases;
}

std::vector<LoadCase> transposed_load_cases() {
    std::vector<LoadCase> cases;
    add_loads<0, 16, 16, 16, 32, true>(cases);
    add_loads<1, 16, 64, 64, 64, true>(cases);
    add_loads<0, 16, 128, 128, 64, true>(cases);
    add_loads<1, 32, 48, 48, 128, true>(cases);
    return cases;
}

std::vector<ProductCase> product_cases() {
    std::vector<ProductCase> cases;
    add_products<0, 16, 16, 16>(cases);
    add_products<1, 32, 32, 32>(cases);
    add_products<0, 16, 32, 64>(cases);
    add_products<1, 32, 64, 64>(cases);
    add_products<0, 16, 64, 128>(cases);
    add_products<1, 32, 16, 128>(cases);
    add_products<0, 16, 128, 16>(cases);
    add_products<1, 32, 128, 32>(cases);
    return cases;
}

}  // namespace flashladder
