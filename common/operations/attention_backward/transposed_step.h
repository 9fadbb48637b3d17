// What a warp computes of a step of the way back between its products, on transposed scores: rows are keys, columns are
// queries (built in rungs 18 to 22; rung 25 stands on it).
#pragma once

#include "ptx/convert.h"
#include "ptx/ex2.h"
#include "ptx/ldmatrix.h"
#include "tile/register_tile.h"

namespace flashladder::attention_backward {

/// What is known of a step's queries before: with these two, probabilities and their gradients need no other key.
template <int queries>
struct Statistics {
    float lse[queries];      // in base 2
    float minus_D[queries];  // -rowsum(dO O)
};

/// A number of each column, as an accumulator's lane needs them: two of each 8 columns. Here and below `column` is the lane's
/// first, tile::column_of(0, 0), and `lane` its number: said by who keeps it, as a kernel short of registers would read it anew
/// for each use.
template <int columns>
using ColumnValues = float2[columns / 8];

template <int columns>
__device__ __forceinline__ void load_columns(ColumnValues<columns>& values, const float (&of_columns)[columns],
                                             int column) {
#pragma unroll
    for (int c = 0; c < columns / 8; ++c) values[c] = *reinterpret_cast<const float2*>(&of_columns[8 * c + column]);
}

/// Each element becomes the number of its column.
template <int columns>
__device__ __forceinline__ void fill_columns(tile::Accumulator<16, columns>& C, const float (&of_columns)[columns],
                                             int column) {
#pragma unroll
    for (int c = 0; c < columns / 8; ++c) {
        const float2 value = *reinterpret_cast<const float2*>(&of_columns[8 * c + column]);
#pragma unroll
        for (int e = 0; e < 4; ++e) C.fragment[0][c][e] = e % 2 ? value.y : value.x;
    }
}

/// Scores become weights: P^T = exp2(scale_log2 S^T - LSE), and 0 where a query does not see a key. Of the lane's first row,
/// `last` is the last row that its first column sees, counted from it; if causal, each column sees one more.
template <bool causal, int columns>
__device__ __forceinline__ void weigh_transposed(tile::Accumulator<16, columns>& P_t, const ColumnValues<columns>& lse,
                                                 float scale_log2, int last) {
#pragma unroll
    for (int c = 0; c < columns / 8; ++c)
#pragma unroll
        for (int e = 0; e < 4; ++e)
            P_t.fragment[0][c][e] = fmaf(scale_log2, P_t.fragment[0][c][e], -(e % 2 ? lse[c].y : lse[c].x));
    if (8 > last)
#pragma unroll
        for (int c = 0; c < columns / 8; ++c)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                if (e / 2 * 8 > last + (causal ? 8 * c + e % 2 : 0)) P_t.fragment[0][c][e] = -INFINITY;
#pragma unroll
    for (int c = 0; c < columns / 8; ++c)
#pragma unroll
        for (int e = 0; e < 4; ++e) P_t.fragment[0][c][e] = ptx::ex2_approx(P_t.fragment[0][c][e]);
}

/// 16 rows of a swizzled tile, from `first_row` on, by stmatrix.
template <class Element, class Tile>
__device__ __forceinline__ void store_rows(const Tile& tile, const tile::Accumulator<16, Tile::columns>& C, int first_row,
                                           unsigned lane = threadIdx.x % 32) {
    constexpr int columns = Tile::columns;
    const int first =
        Tile::Layout::template offset<Tile::rows, columns>(first_row + int(lane % 16), int(lane / 16 * tile::chunk));
#pragma unroll
    for (int c = 0; c < columns / 8; c += 2) {
        std::uint32_t matrices[4];
#pragma unroll
        for (int m = 0; m < 4; ++m) {
            const float(&of)[4] = C.fragment[0][c + m / 2];
            matrices[m] = ptx::pack<Element>(of[m % 2 * 2], of[m % 2 * 2 + 1]);
        }
        ptx::stmatrix(tile.data + c / 8 * (Tile::rows * 64) + (first ^ tile::chunk * (c % 8)), matrices);
    }
}

}  // namespace flashladder::attention_backward
