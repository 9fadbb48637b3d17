// Tiles of 16-bit elements in shared memory. A layout says where the 16-byte chunk of a row lies; the operations of a
// warp and of a block on a tile do not care which one it is.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "tile/register_tile.h"

namespace flashladder::tile {

constexpr int chunk = 8;  // elements in 16 bytes: a row of a matrix of ldmatrix, and what a thread copies at once

/// Rows one after the other.
struct RowMajor {
    /// Elements from a row to the next within the same column. In every layout a row 8 further is 8 strides further.
    template <int columns>
    static constexpr int stride = columns;
    /// Elements that a tile takes.
    template <int rows, int columns>
    static constexpr int elements = rows * columns;
    /// Elements from the start of the tile to (row, column).
    template <int rows, int columns>
    __device__ static int offset(int row, int column) {
        return row * columns + column;
    }
};

/// A tile at `data`, which a kernel has cut out of its shared memory. Columns within a chunk are neighbours.
template <class Element_, int rows_, int columns_, class Layout_ = RowMajor>
struct SharedTile {
    using Element = Element_;
    using Layout = Layout_;
    static constexpr int rows = rows_, columns = columns_;
    static constexpr int stride = Layout::template stride<columns>;
    static constexpr int elements = Layout::template elements<rows, columns>;
    static_assert(sizeof(Element) == 2, "elements of a shared tile have 16 bits");
    static_assert(columns % chunk == 0, "a row of a shared tile is a whole number of 16-byte chunks");
    Element* data;

    __device__ Element* at(int row, int column) const {
        return data + Layout::template offset<rows, columns>(row, column);
    }
};

/// The first columns of a tile, as an operand of a product: what the others hold counts for nothing.
template <class Tile, int columns_>
struct FirstColumns : Tile {
    static constexpr int columns = columns_;
    static_assert(columns % chunk == 0 && columns <= Tile::columns, "FirstColumns: whole chunks of the tile's columns");
};
template <int columns, class Tile>
__device__ __forceinline__ FirstColumns<Tile, columns> first_columns(const Tile& tile) {
    return {tile};
}

}  // namespace flashladder::tile
