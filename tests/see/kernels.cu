#include "kernels.h"

#include "../emulator/device_array.h"
#include "tile/copy.h"
#include "tile/multiply.h"
#include "tile/swizzled.h"

namespace flashladder {
namespace {

constexpr int rows = 64, columns = 64, warp = 32, threads = 128;

/// A tile, row by row, that writes down which place each lane of the first warp asks for first.
struct RecordingTile {
    using Element = __half;
    static constexpr int rows = flashladder::rows, columns = flashladder::columns, stride = columns;
    Element* data;
    Places* places;

    __device__ Element* at(int row, int column) const {
        if (threadIdx.x < warp && (*places)[threadIdx.x][0] < 0) (*places)[threadIdx.x] = {row, column};
        return data + row * columns + column;
    }
};

__global__ void record_kernel(TilePlaces* all, const __half* tensor, float* result) {
    auto* data = dynamic_shared<__half>();
    for (int i = threadIdx.x; i < rows * columns; i += threads) data[i] = __half(0);
    __syncthreads();
    tile::copy_in<threads>(RecordingTile{data, &all->copy_in}, tensor, 0, rows);
    __syncthreads();
    if (threadIdx.x >= warp) return;
    tile::Operand<__half, 16, columns> A;
    tile::Accumulator<16, rows> S{};
    tile::Accumulator<16, columns> O{};
    tile::load(A, RecordingTile{data, &all->load}, 0);
    tile::multiply_transposed(S, A, RecordingTile{data, &all->multiply_transposed});
    tile::multiply(O, tile::to_operand<__half>(S), RecordingTile{data, &all->multiply});
    __syncwarp();
    tile::store(RecordingTile{data, &all->store}, O, 0);
    result[threadIdx.x] = O.fragment[0][0][0];
}

using Offset = int (*)(int row, int column);

/// `offset` of a layout, in elements of 2 bytes, for tiles of `unit`, 2 unit, ... columns that are whole numbers of
/// panels.
template <class Layout, int rows, int unit, int panel, int... i>
constexpr auto offsets(std::integer_sequence<int, i...>) {
    const auto of = []<int columns>() -> Offset {
        if constexpr (columns % panel == 0) return Layout::template offset<rows, columns>;
        return nullptr;
    };
    return std::array<Offset, sizeof...(i)>{of.template operator()<(i + 1) * unit>()...};
}

template <int rows>
Offset offset_of(int width, int padding, int swizzle) {
    using Widths = std::make_integer_sequence<int, 1024 / 16>;
    static constexpr auto by_128 = offsets<tile::Swizzled<128>, rows, tile::chunk, 64>(Widths{});
    static constexpr auto by_64 = offsets<tile::Swizzled<64>, rows, tile::chunk, 32>(Widths{});
    static constexpr auto by_32 = offsets<tile::Swizzled<32>, rows, tile::chunk, 16>(Widths{});
    // Padding is that of a wider row.
    static constexpr auto plain =
        offsets<tile::RowMajor, rows, 2, 2>(std::make_integer_sequence<int, (1024 + 64) / 4>{});
    const int chunks = width / 16, words = (width + padding) / 4;
    if (swizzle == 0) return plain.at(static_cast<std::size_t>(words - 1));
    const auto& swizzled = swizzle == 128 ? by_128 : swizzle == 64 ? by_64 : by_32;
    return swizzled.at(static_cast<std::size_t>(chunks - 1));
}

}  // namespace
}  // namespace flashladder

std::uintptr_t address_in_tile(int width, int padding, int swizzle, int rows, int row, int byte) {
    using namespace flashladder;
    const auto of = rows == 16   ? offset_of<16>
                    : rows == 32 ? offset_of<32>
                    : rows == 64 ? offset_of<64>
                                 : offset_of<128>;
    return static_cast<std::uintptr_t>(of(width, padding, swizzle)(row, byte / 2) * 2 + byte % 2);
}

TilePlaces record_places() {
    using namespace flashladder;
    Places none;
    none.fill({-1, -1});
    const DeviceArray<TilePlaces> all(std::vector<TilePlaces>{{none, none, none, none, none}});
    const DeviceArray<__half> tensor(std::vector<__half>(rows * columns, __half(0)));
    const DeviceArray<float> result(warp);
    launch_kernel(record_kernel, {1, threads, rows * columns * sizeof(__half)}, all.data(), tensor.data(),
                  result.data());
    return all.download()[0];
}
