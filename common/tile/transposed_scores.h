// S^T = K Q^T in the registers of a warp (rung 18): its rows are keys, its columns queries.
#pragma once

#include "ptx/ldmatrix.h"
#include "tile/register_tile.h"
#include "tile/shared_tile.h"

namespace flashladder::tile {

/// Sets to -infinity the rows from `first` on: keys past the end.
template <int rows, int columns>
__device__ __forceinline__ void hide_rows(Accumulator<rows, columns>& S_t, int first) {
    first -= row_of(0, 0);  // what depends on the lane goes to one side: the other is a constant for each element
#pragma unroll
    for (int r = 0; r < rows / 16; ++r)
#pragma unroll
        for (int c = 0; c < columns / 8; ++c)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                if (16 * r + e / 2 * 8 >= first) S_t.fragment[r][c][e] = -INFINITY;
}

/// Sets to -infinity what lies below the diagonal, where row = column + `diagonal`: keys that come too late.
template <int rows, int columns>
__device__ __forceinline__ void hide_below(Accumulator<rows, columns>& S_t, int diagonal) {
    diagonal += column_of(0, 0) - row_of(0, 0);
#pragma unroll
    for (int r = 0; r < rows / 16; ++r)
#pragma unroll
        for (int c = 0; c < columns / 8; ++c)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                if (16 * r + e / 2 * 8 > 8 * c + e % 2 + diagonal) S_t.fragment[r][c][e] = -INFINITY;
}

/// A = columns of `tile` from `first_column` on, as rows: its transpose.
template <class Element, int rows, int columns, class Tile>
__device__ __forceinline__ void load_transposed(Operand<Element, rows, columns>& A, const Tile& tile,
                                                int first_column) {
    static_assert(std::is_same_v<Element, typename Tile::Element>, "load_transposed: elements of another type");
    static_assert(columns == Tile::rows && rows <= Tile::columns, "load_transposed: A has as many columns as the tile rows");
    const int lane = threadIdx.x % 32;  // matrices 0, 1: columns 0 to 7, 8 to 15 of the tile; 2, 3: 8 rows further
#pragma unroll
    for (int r = 0; r < rows / 16; ++r)
#pragma unroll
        for (int c = 0; c < columns / 16; ++c)
            ptx::ldmatrix_trans(A.fragment[r][c], tile.at(lane / 16 * 8 + lane % 8, first_column + 16 * r + lane / 8 % 2 * 8) +
                                                      16 * c * Tile::stride);
}

}  // namespace flashladder::tile
