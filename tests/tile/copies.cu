#include "fragments.h"
#include "tile/copy.h"
#include "tile/copy_async.h"
#include "tile/online_softmax.h"

namespace flashladder {
namespace {

template <class Tile, int threads, bool async>
__global__ void copy_in_kernel(const typename Tile::Element* tensor, unsigned first_row, unsigned N,
                               std::uint16_t* result) {
    const Tile tile{dynamic_shared<typename Tile::Element>()};
    auto* memory = reinterpret_cast<std::uint16_t*>(tile.data);
    for (int i = threadIdx.x; i < Tile::elements + guard; i += threads) memory[i] = poison;
    __syncthreads();
    if constexpr (async) {
        tile::copy_in_async<threads>(tile, tensor, first_row, N);
        ptx::cp_async_commit();
        ptx::cp_async_wait<0>();
    } else {
        tile::copy_in<threads>(tile, tensor, first_row, N);
    }
    __syncthreads();
    read(tile, result);
    for (int i = threadIdx.x; i < guard; i += threads) result[Tile::elements + i] = memory[Tile::elements + i];
}

template <class Tile, int threads>
__global__ void copy_out_kernel(const std::uint16_t* values, unsigned first_row, unsigned N,
                                typename Tile::Element* tensor) {
    const Tile tile{dynamic_shared<typename Tile::Element>()};
    write(tile, values);
    __syncthreads();
    tile::copy_out<threads>(tensor, tile, first_row, N);
}

/// `skipped` rows before the array: of a tensor so large we have only the part that is used.
template <class Tile>
typename Tile::Element* tensor_of(const DeviceArray<std::uint16_t>& array, unsigned skipped) {
    const auto begin = reinterpret_cast<std::uintptr_t>(array.data());
    return reinterpret_cast<typename Tile::Element*>(begin - std::uintptr_t(skipped) * Tile::columns * 2);
}

template <class Tile, int threads, bool async>
Bits16 copy_in(const Bits16& tensor, unsigned skipped, unsigned first_row, unsigned N) {
    const DeviceArray<std::uint16_t> tensor_device(tensor), result(Tile::elements + guard);
    launch_kernel(copy_in_kernel<Tile, threads, async>, {1, threads, (Tile::elements + guard) * 2},
                  tensor_of<Tile>(tensor_device, skipped), first_row, N, result.data());
    return result.download();
}

template <class Tile, int threads>
Bits16 copy_out(const Bits16& tile, unsigned skipped, unsigned first_row, unsigned N, int rows_after) {
    const DeviceArray<std::uint16_t> tile_device(tile);
    const DeviceArray<std::uint16_t> tensor(Bits16(std::size_t(rows_after) * Tile::columns, poison));
    launch_kernel(copy_out_kernel<Tile, threads>, {1, threads, Tile::elements * 2}, tile_device.data(), first_row, N,
                  tensor_of<Tile>(tensor, skipped));
    return tensor.download();
}

template <int turn, int rows, int columns, int threads>
void add_copies(std::vector<CopyCase>& cases) {
    for_layouts<columns>([&]<class Layout>() {
        using Tile = tile::SharedTile<ElementOf<turn + swizzle_of<Layout> / 32>, rows, columns, Layout>;
        cases.push_back({name_of<Layout>(), rows, columns, threads, copy_in<Tile, threads, false>,
                         copy_in<Tile, threads, true>, copy_out<Tile, threads>});
    });
}

template <class Tile, int rows, int columns>
__global__ void store_kernel(const float* C, int first_row, int first_column, std::uint16_t* result) {
    const Tile tile{dynamic_shared<typename Tile::Element>()};
    auto* memory = reinterpret_cast<std::uint16_t*>(tile.data);
    for (int i = threadIdx.x; i < Tile::elements; i += blockDim.x) memory[i] = poison;
    __syncthreads();
    const int first = threadIdx.x / warp * rows;
    tile::Accumulator<rows, columns> C_reg;
    read(C_reg, C + first * columns);
    tile::store(tile, C_reg, first_row + first, first_column);
    __syncthreads();
    read(tile, result);
}

template <class Tile, int rows, int columns>
Bits16 store(const Floats& C, int first_row, int first_column) {
    const DeviceArray<float> C_device(C);
    const DeviceArray<std::uint16_t> result(Tile::elements);
    launch_kernel(store_kernel<Tile, rows, columns>, {1, 2 * warp, Tile::elements * 2}, C_device.data(), first_row,
                  first_column, result.data());
    return result.download();
}

template <int turn, int rows, int columns, int tile_rows, int tile_columns>
void add_stores(std::vector<StoreCase>& cases) {
    for_layouts<tile_columns>([&]<class Layout>() {
        using T = ElementOf<turn + swizzle_of<Layout> / 32>;
        using Tile = tile::SharedTile<T, tile_rows, tile_columns, Layout>;
        cases.push_back(
            {name_of<Layout>(), element_of<T>, rows, columns, tile_rows, tile_columns, store<Tile, rows, columns>});
    });
}

__global__ void store_rows_kernel(const float* values, unsigned first_row, unsigned N, float* vector) {
    tile::RowValues<32> v;
    read(v, values + threadIdx.x / warp * 32);
    tile::store_rows(vector, v, first_row + threadIdx.x / warp * 32, N);
}

}  // namespace

std::vector<CopyCase> copy_cases() {
    std::vector<CopyCase> cases;
    add_copies<0, 16, 128, 128>(cases);
    add_copies<1, 64, 64, 128>(cases);
    add_copies<0, 64, 32, 128>(cases);
    add_copies<1, 128, 16, 256>(cases);
    add_copies<0, 32, 16, 32>(cases);
    add_copies<1, 64, 128, 256>(cases);
    return cases;
}

std::vector<StoreCase> store_cases() {
    std::vector<StoreCase> cases;
    add_stores<0, 16, 16, 32, 16>(cases);
    add_stores<1, 32, 64, 72, 64>(cases);
    add_stores<0, 16, 8, 48, 64>(cases);
    add_stores<1, 32, 32, 80, 128>(cases);
    add_stores<0, 16, 128, 48, 128>(cases);
    return cases;
}

Floats store_rows(const Floats& values, unsigned skipped, unsigned first_row, unsigned N, int n) {
    const DeviceArray<float> values_device(values), vector(Floats(std::size_t(n), -1));
    const auto begin = reinterpret_cast<std::uintptr_t>(vector.data()) - std::uintptr_t(skipped) * sizeof(float);
    launch_kernel(store_rows_kernel, {1, 2 * warp}, values_device.data(), first_row, N,
                  reinterpret_cast<float*>(begin));
    return vector.download();
}

}  // namespace flashladder
