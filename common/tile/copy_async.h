// A tile from device memory to shared memory by cp.async (rung 07): the copies run while the threads go on.
#pragma once

#include "ptx/cp_async.h"
#include "tile/shared_tile.h"

namespace flashladder::tile {

/// As copy_in does it, but asked for alone: nothing is committed, nothing is waited for.
template <int threads, class Tile>
__device__ __forceinline__ void copy_in_async(const Tile& tile, const typename Tile::Element* tensor,
                                              unsigned first_row, unsigned N) {
    constexpr int chunks = Tile::columns / chunk, rows = threads / chunks;  // of a row; that the block copies at once
    static_assert(threads % (8 * chunks) == 0, "copy_in_async: the block must copy 8 r rows at once, 8 columns a thread");
    static_assert(Tile::rows % rows == 0, "copy_in_async: the tile must be a multiple of what the block copies at once");
    const int row = threadIdx.x / chunks, column = threadIdx.x % chunks * chunk;
    const typename Tile::Element* source = tensor + std::size_t(first_row + row) * Tile::columns + column;
#pragma unroll
    for (int r = 0; r < Tile::rows; r += rows) {
        const int valid = first_row + row + r < N ? 16 : 0;  // bytes; of none, the address does not matter
        ptx::cp_async<16>(tile.at(row, column) + r * Tile::stride, source + r * Tile::columns, valid);
    }
}

}  // namespace flashladder::tile
