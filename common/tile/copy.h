// A tile between device memory and shared memory, by all threads of a block, 16 bytes each: neighbouring threads take
// neighbouring chunks of a row, so that a warp meets whole sectors. Barriers are the caller's.
#pragma once

#include "tile/shared_tile.h"

namespace flashladder::tile {

/// Rows `first_row` on of `tensor`, of as many columns as the tile; from row N on the tile becomes 0. The rows of all
/// heads count as one matrix: fewer than 2^32 of them, since more would fit no memory. `tensor` is aligned to 16 bytes.
template <int threads, class Tile>
__device__ __forceinline__ void copy_in(const Tile& tile, const typename Tile::Element* tensor, unsigned first_row,
                                        unsigned N) {
    constexpr int chunks = Tile::columns / chunk, rows = threads / chunks;  // of a row; that the block copies at once
    static_assert(threads % (8 * chunks) == 0, "copy_in: the block must copy 8 r rows at once, 8 columns a thread");
    static_assert(Tile::rows % rows == 0, "copy_in: the tile must be a multiple of what the block copies at once");
    const int row = threadIdx.x / chunks, column = threadIdx.x % chunks * chunk;
    const typename Tile::Element* source = tensor + std::size_t(first_row + row) * Tile::columns + column;
#pragma unroll
    for (int r = 0; r < Tile::rows; r += rows) {
        uint4 values{0, 0, 0, 0};
        if (first_row + row + r < N) values = *reinterpret_cast<const uint4*>(source + r * Tile::columns);
        *reinterpret_cast<uint4*>(tile.at(row, column) + r * Tile::stride) = values;
    }
}

/// Rows of the tile to rows `first_row` on of `tensor`, without those from row N on.
template <int threads, class Tile>
__device__ __forceinline__ void copy_out(typename Tile::Element* tensor, const Tile& tile, unsigned first_row, unsigned N) {
    constexpr int chunks = Tile::columns / chunk, rows = threads / chunks;
    static_assert(threads % (8 * chunks) == 0, "copy_out: the block must copy 8 r rows at once, 8 columns a thread");
    static_assert(Tile::rows % rows == 0, "copy_out: the tile must be a multiple of what the block copies at once");
    const int row = threadIdx.x / chunks, column = threadIdx.x % chunks * chunk;
    typename Tile::Element* target = tensor + std::size_t(first_row + row) * Tile::columns + column;
#pragma unroll
    for (int r = 0; r < Tile::rows; r += rows)
        if (first_row + row + r < N)
            *reinterpret_cast<uint4*>(target + r * Tile::columns) =
                *reinterpret_cast<const uint4*>(tile.at(row, column) + r * Tile::stride);
}

/// An accumulator, rounded, to the tile, from row `first_row` and column `first_column` on. By a warp.
template <int rows, int columns, class Tile>
__device__ __forceinline__ void store(const Tile& tile, const Accumulator<rows, columns>& C, int first_row,
                                      int first_column = 0) {
    static_assert(rows <= Tile::rows && columns <= Tile::columns, "store: the accumulator is larger than the tile");
#pragma unroll
    for (int r = 0; r < rows / 16; ++r)
#pragma unroll
        for (int c = 0; c < columns / 8; ++c)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                auto* pair = tile.at(first_row + row_of(0, 0), first_column + column_of(c, 0)) + (16 * r + 8 * h) * Tile::stride;
                *reinterpret_cast<std::uint32_t*>(pair) =
                    ptx::pack<typename Tile::Element>(C.fragment[r][c][2 * h], C.fragment[r][c][2 * h + 1]);
            }
}

}  // namespace flashladder::tile
