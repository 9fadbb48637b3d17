#include "fragments.h"
#include "ptx/fence.h"
#include "tile/global_tile.h"

namespace flashladder {
namespace {

constexpr int threads = 64;

/// Two rounds of one barrier.
template <class Tile>
__global__ void load_kernel(const __grid_constant__ tile::TensorMap<Tile> tensor, TileAt first, TileAt second,
                            std::uint16_t* result) {
    const Tile tile{dynamic_shared<typename Tile::Element>()};
    __shared__ ptx::Barrier full;
    auto* memory = reinterpret_cast<std::uint16_t*>(tile.data);
    for (int i = threadIdx.x; i < Tile::elements + guard; i += threads) memory[i] = poison;
    if (threadIdx.x == 0) {
        ptx::barrier_init(full, 1);
        ptx::fence_barrier_init();
    }
    ptx::fence_proxy_async();
    __syncthreads();
    for (int round = 0; round < 2; ++round) {
        const TileAt at = round == 0 ? first : second;
        if (threadIdx.x == 0) tile::load(tile, tensor, full, at.row, at.head, at.batch, at.column);
        ptx::barrier_wait(full, round);
        std::uint16_t* const shown = result + round * (Tile::elements + guard);
        read(tile, shown);
        for (int i = threadIdx.x; i < guard; i += threads) shown[Tile::elements + i] = memory[Tile::elements + i];
        __syncthreads();
    }
}

template <class Tile>
__global__ void store_kernel(const __grid_constant__ tile::TensorMap<Tile> tensor, const std::uint16_t* values,
                             TileAt at) {
    const Tile tile{dynamic_shared<typename Tile::Element>()};
    write(tile, values);
    ptx::fence_proxy_async();
    __syncthreads();
    if (threadIdx.x != 0) return;
    tile::store(tensor, tile, at.row, at.head, at.batch, at.column);
    ptx::bulk_wait_read<0>();
}

struct Places {
    TileAt at[stored_tiles];
};

/// Accumulators of two warps, one after the other by way of one tile a warp.
template <class Tile>
__global__ void store_by_way_kernel(const __grid_constant__ tile::TensorMap<Tile> tensor, const float* C,
                                    Places places) {
    const int w = threadIdx.x / warp;
    const Tile tile{dynamic_shared<typename Tile::Element>() + w * Tile::elements};
    for (int i = 0; i < stored_tiles; ++i) {
        const TileAt at = places.at[i];
        tile::Accumulator<Tile::rows, Tile::columns> C_reg;
        read(C_reg, C + (i * storing_warps + w) * Tile::elements);
        tile::store_by_way_of(tile, C_reg, tensor, at.row + w * Tile::rows, at.head, at.batch);
    }
    if (threadIdx.x % warp == 0) ptx::bulk_wait_read<0>();
}

template <class Tile>
tile::TensorMap<Tile> map_of(const std::uint16_t* memory, const Tensor& t) {
    const Strides strides{t.batch_stride, t.head_stride, t.row_stride};
    return t.columns ? tile::make_tensor_map<Tile>(memory, strides, t.batch, t.heads, t.n, t.columns)
                     : tile::make_tensor_map<Tile>(memory, strides, t.batch, t.heads, t.n);
}

template <class Tile>
Bits16 load(const Bits16& memory, const Tensor& tensor, const TileAt& first, const TileAt& second) {
    const DeviceArray<std::uint16_t> memory_device(memory), result(2 * (Tile::elements + guard));
    launch_kernel(load_kernel<Tile>, {1, threads, (Tile::elements + guard) * 2},
                  map_of<Tile>(memory_device.data(), tensor), first, second, result.data());
    return result.download();
}

template <class Tile>
Bits16 store(const Bits16& tile, const Tensor& tensor, const TileAt& at, std::size_t memory) {
    const DeviceArray<std::uint16_t> tile_device(tile), memory_device(Bits16(memory, poison));
    launch_kernel(store_kernel<Tile>, {1, threads, Tile::elements * 2}, map_of<Tile>(memory_device.data(), tensor),
                  tile_device.data(), at);
    return memory_device.download();
}

template <class Tile>
Bits16 store_by_way(const Floats& C, const Tensor& tensor, const std::vector<TileAt>& places, std::size_t memory) {
    const DeviceArray<float> C_device(C);
    const DeviceArray<std::uint16_t> memory_device(Bits16(memory, poison));
    launch_kernel(store_by_way_kernel<Tile>, {1, storing_warps * warp, storing_warps * Tile::elements * 2},
                  map_of<Tile>(memory_device.data(), tensor), C_device.data(),
                  Places{{places[0], places[1], places[2]}});
    return memory_device.download();
}

template <class Tile>
void make(const Tensor& tensor, int bytes) {
    const DeviceArray<std::uint16_t> memory(4096);
    map_of<Tile>(memory.data() + bytes / 2, tensor);
}

template <class T, int rows, int columns>
void add(std::vector<GlobalCase>& cases) {
    using Layout = tile::SwizzledFor<columns>;
    using Tile = tile::SharedTile<T, rows, columns, Layout>;
    cases.push_back({swizzle_of<Layout>, element_of<T>, rows, columns, load<Tile>, store<Tile>, make<Tile>});
}

template <class T, int rows, int columns>
WayCase way_case() {
    return {element_of<T>, rows, columns, store_by_way<tile::SharedTile<T, rows, columns, tile::SwizzledFor<columns>>>};
}

}  // namespace

std::vector<GlobalCase> global_cases() {
    std::vector<GlobalCase> cases;
    add<__nv_bfloat16, 16, 16>(cases);   // 32 bytes
    add<__half, 24, 48>(cases);          // 3 panels of 32 bytes
    add<__half, 64, 32>(cases);          // 64 bytes
    add<__nv_bfloat16, 40, 96>(cases);   // 3 panels of 64 bytes
    add<__nv_bfloat16, 128, 64>(cases);  // 128 bytes
    add<__half, 256, 64>(cases);         // as many rows as a box can have
    add<__half, 64, 128>(cases);         // 2 panels of 128 bytes
    add<__nv_bfloat16, 8, 192>(cases);   // 3 panels of 128 bytes
    return cases;
}

std::vector<WayCase> way_cases() {
    return {way_case<__nv_bfloat16, 16, 64>(), way_case<__half, 16, 64>(), way_case<__nv_bfloat16, 16, 128>(),
            way_case<__half, 16, 128>(),       way_case<__half, 32, 32>(), way_case<__nv_bfloat16, 64, 16>()};
}

bool has_tma() {
    int device = 0, major = 0;
    check_cuda(cudaGetDevice(&device), "device");
    check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "compute capability");
    return major >= 9;
}

}  // namespace flashladder
