// Tiles of tensors in device memory, moved by TMA (rung 08): one thread asks, a barrier counts the bytes. Where rows,
// heads and batches lie, and where the tensor ends, is in its map.
#pragma once

#include "tensor.h"
#include "ptx/cluster.h"
#include "ptx/fence.h"
#include "ptx/mbarrier.h"
#include "ptx/tensor_map.h"
#include "ptx/tma.h"
#include "tile/copy.h"
#include "tile/swizzled.h"

namespace flashladder::tile {

/// How TMA sees a (batch, heads, n, columns) tensor: in boxes of a panel of Tile. A parameter of a kernel, or a
/// member of one, and as such `const __grid_constant__`.
template <class Tile>
struct TensorMap {
    static constexpr int panel = Tile::stride;  // columns
    static_assert(std::is_same_v<typename Tile::Layout, SwizzledFor<Tile::columns>>,
                  "TMA fills tiles that are swizzled: SwizzledFor<columns>");
    static_assert(Tile::rows <= 256, "a box of TMA has at most 256 rows");
    static_assert(Tile::rows % 8 == 0, "the pattern of a swizzle has 8 rows, and each panel begins with a new one");
    CUtensorMap map;
};

/// Rows of a tensor have as many columns as a tile, or more: they may be wider than one. Throws CudaError where the driver
/// refuses: the address and the strides are multiples of 16 bytes.
template <class Tile>
TensorMap<Tile> make_tensor_map(const void* tensor, const Strides& strides, int batch, int heads, int n,
                                int columns = Tile::columns) {
    using Element = typename Tile::Element;
    constexpr ptx::Swizzle swizzles[] = {ptx::Swizzle::bytes_32, ptx::Swizzle::bytes_64, ptx::Swizzle::bytes_128};
    constexpr std::uint32_t panel = TensorMap<Tile>::panel, bytes = panel * sizeof(Element);
    return {ptx::make_tensor_map<Element, 4>(
        static_cast<const Element*>(tensor),
        {std::uint64_t(columns), std::uint64_t(n), std::uint64_t(heads), std::uint64_t(batch)},
        {strides.row * sizeof(Element), strides.head * sizeof(Element), strides.batch * sizeof(Element)},
        {panel, Tile::rows, 1, 1}, swizzles[bytes / 64])};
}

/// Asks for the rows from `row` on of a head, from a column on, and is one of the arrivals that `full` expects: its phase
/// then ends when all bytes of the tile have come. What is past the end becomes 0. By one thread; waits for nothing.
template <class Tile>
__device__ __forceinline__ void load(const Tile& tile, const TensorMap<Tile>& tensor, ptx::Barrier& full, int row,
                                     int head, int batch, int column = 0) {
    ptx::barrier_arrive_expect_tx(full, Tile::elements * sizeof(typename Tile::Element));
#pragma unroll
    for (int c = 0; c < Tile::columns; c += TensorMap<Tile>::panel)
        ptx::tma_load(tile.data + c * Tile::rows, tensor.map, full, {column + c, row, head, batch});
}

/// The same for both blocks of a cluster of two, which ask for the same tile: each one asks for every other panel, and both
/// get all of them.
template <class Tile>
__device__ __forceinline__ void load_for_both(const Tile& tile, const TensorMap<Tile>& tensor, ptx::Barrier& full, int row,
                                              int head, int batch, int column = 0) {
    static_assert(Tile::columns % (2 * TensorMap<Tile>::panel) == 0, "half of the panels for each block");
    ptx::barrier_arrive_expect_tx(full, Tile::elements * sizeof(typename Tile::Element));
    const int first = int(ptx::cluster_rank()) * TensorMap<Tile>::panel;
#pragma unroll
    for (int c = 0; c < Tile::columns; c += 2 * TensorMap<Tile>::panel)
        ptx::tma_load_multicast(tile.data + (first + c) * Tile::rows, tensor.map, full, {column + first + c, row, head, batch}, 3);
}

/// Begins to write the tile to the rows from `row` on of a head, from a column on, without what is past the end. By one
/// thread, after fence_proxy_async() by all who wrote the tile, and a barrier. The tile may change again after
/// ptx::bulk_wait_read<0>(), which must come before the thread returns.
template <class Tile>
__device__ __forceinline__ void store(const TensorMap<Tile>& tensor, const Tile& tile, int row, int head, int batch,
                                      int column = 0) {
#pragma unroll
    for (int c = 0; c < Tile::columns; c += TensorMap<Tile>::panel)
        ptx::tma_store(tensor.map, tile.data + c * Tile::rows, {column + c, row, head, batch});
    ptx::bulk_commit();
}

/// A TensorMap of heads of which the first ones lie before the tensor: head h begins h - before strides behind its start. A box
/// must not reach there. A map that begins before its tensor is no such thing: where there is no memory, a load answers with
/// an illegal address (an H100), whatever its box. So it begins with the tensor, and goes back by a dimension more, whose
/// stride is 2^34 bytes less that of a head, and whose coordinate always 2^30: 2^64 bytes are none.
template <class Tile>
struct ShiftedMap {
    static constexpr int far = 1 << 30;
    CUtensorMap map;
    int before;
};

/// Of a (batch, heads, n, columns) tensor whose head number `before` begins at `tensor`, and whose rows may be narrower than
/// a tile: zeros come behind them, and nothing is written there. Throws as make_tensor_map() does.
template <class Tile>
ShiftedMap<Tile> make_shifted_map(const void* tensor, int before, const Strides& strides, int batch, int heads, int n,
                                  int columns) {
    using Element = typename Tile::Element;
    static_assert(std::is_same_v<typename Tile::Layout, Swizzled<128>>, "the boxes of a shifted map have the 128-byte swizzle");
    constexpr std::uint64_t turn = 1ull << 34;
    constexpr std::uint32_t panel = TensorMap<Tile>::panel;
    const std::uint64_t far = ShiftedMap<Tile>::far, behind = far + std::uint64_t(heads) - std::uint64_t(before),
                        head = std::uint64_t(strides.head) * sizeof(Element);
    return {ptx::make_tensor_map<Element, 5>(
                static_cast<const Element*>(tensor),
                {std::uint64_t(columns), std::uint64_t(n), behind, far + 1, std::uint64_t(batch)},
                {strides.row * sizeof(Element), head, turn - head, strides.batch * sizeof(Element)},
                {panel, Tile::rows, 1, 1, 1}, ptx::Swizzle::bytes_128),
            before};
}
/// As of a TensorMap.
template <class Tile>
__device__ __forceinline__ void load(const Tile& tile, const ShiftedMap<Tile>& tensor, ptx::Barrier& full, int row,
                                     int head, int batch) {
    constexpr int far = ShiftedMap<Tile>::far;
    ptx::barrier_arrive_expect_tx(full, Tile::elements * sizeof(typename Tile::Element));
#pragma unroll
    for (int c = 0; c < Tile::columns; c += TensorMap<Tile>::panel)
        ptx::tma_load(tile.data + c * Tile::rows, tensor.map, full, {c, row, far - tensor.before + head, far, batch});
}
template <class Tile>
__device__ __forceinline__ void store(const ShiftedMap<Tile>& tensor, const Tile& tile, int row, int head, int batch) {
    constexpr int far = ShiftedMap<Tile>::far;
#pragma unroll
    for (int c = 0; c < Tile::columns; c += TensorMap<Tile>::panel)
        ptx::tma_store(tensor.map, tile.data + c * Tile::rows, {c, row, far - tensor.before + head, far, batch});
    ptx::bulk_commit();
}

/// The same for what a warp has in registers, by way of a tile of its own, which it may have stored before: waits until
/// that has been read. By a warp; lane 0 begins the copy.
template <class Tile, int rows, int columns>
__device__ __forceinline__ void store_by_way_of(const Tile& tile, const Accumulator<rows, columns>& C,
                                                const TensorMap<Tile>& tensor, int row, int head, int batch) {
    static_assert(Tile::rows == rows && Tile::columns == columns, "store_by_way_of: the tile has the shape of what goes through it");
    if (threadIdx.x % 32 == 0) ptx::bulk_wait_read<0>();
    __syncwarp();
    store(tile, C, 0);
    ptx::fence_proxy_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0) store(tensor, tile, row, head, batch);
}

}  // namespace flashladder::tile
