#include "fragments.h"

namespace flashladder {
namespace {

template <class Layout, int rows, int columns>
__global__ void offsets_kernel(int* offsets) {
    const tile::SharedTile<__half, rows, columns, Layout> tile{dynamic_shared<__half>()};
    for (int i = threadIdx.x; i < rows * columns; i += warp)
        offsets[i] = int(tile.at(i / columns, i % columns) - tile.data);
}

template <class Layout, int rows, int columns>
std::vector<int> offsets() {
    const DeviceArray<int> offsets(rows * columns);
    launch_kernel(offsets_kernel<Layout, rows, columns>, {1, warp, 1024}, offsets.data());
    return offsets.download();
}

template <int rows, int columns>
void add(std::vector<LayoutCase>& cases) {
    for_layouts<columns>([&]<class Layout>() {
        using Tile = tile::SharedTile<__half, rows, columns, Layout>;
        cases.push_back({name_of<Layout>(), swizzle_of<Layout>, rows, columns, Tile::stride, Tile::elements,
                         offsets<Layout, rows, columns>});
    });
}

template <int... columns>
std::vector<WidestSwizzle> widest() {
    return {{columns, tile::SwizzledFor<columns>::chunks * 16}...};
}

}  // namespace

std::vector<LayoutCase> layout_cases() {
    std::vector<LayoutCase> cases;
    add<16, 16>(cases);
    add<64, 16>(cases);
    add<32, 32>(cases);
    add<16, 64>(cases);
    add<128, 64>(cases);
    add<16, 128>(cases);
    add<64, 128>(cases);
    return cases;
}

std::vector<WidestSwizzle> widest_swizzles() { return widest<16, 32, 48, 64, 80, 96, 128, 192, 256>(); }

}  // namespace flashladder
