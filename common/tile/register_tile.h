// Tiles in the registers of a warp, in the layouts of mma.sync that rung 04 draws. Of every 16 rows, lane l = 4 g + t
// holds some elements of rows g and g + 8; the four lanes with the same g, a quad, share these rows.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "ptx/convert.h"

namespace flashladder::tile {

/// (rows, columns) floats: C and D of mma.m16n8k16. `fragment[r][c]` is rows 16 r on, columns 8 c on: a lane has
/// columns 2t and 2t + 1 of row g in [0] and [1], of row g + 8 in [2] and [3].
template <int rows_, int columns_>
struct Accumulator {
    static constexpr int rows = rows_, columns = columns_;
    static_assert(rows % 16 == 0 && columns % 8 == 0, "an accumulator has 16 r rows and 8 c columns, as mma leaves it");
    float fragment[rows / 16][columns / 8][4];
};

/// (rows, columns) elements of 16 bits: A of mma.m16n8k16. `fragment[r][c]` is rows 16 r on, columns 16 c on.
template <class Element_, int rows_, int columns_>
struct Operand {
    using Element = Element_;
    static constexpr int rows = rows_, columns = columns_;
    static_assert(sizeof(Element) == 2, "elements of an operand have 16 bits");
    static_assert(rows % 16 == 0 && columns % 16 == 0, "an operand has 16 r rows and 16 c columns, as mma takes it");
    std::uint32_t fragment[rows / 16][columns / 16][4];
};

/// A float for each row of an accumulator: of the rows g and g + 8 of every 16.
template <int rows>
struct RowValues {
    static_assert(rows % 16 == 0, "values of rows come for 16 r rows, as an accumulator has them");
    float value[rows / 16][2];
};

/// The row of a lane's value [r][h], and the column of its accumulator element [r][c][e] within the 8.
__device__ inline int row_of(int r, int h) { return 16 * r + 8 * h + threadIdx.x % 32 / 4; }
__device__ inline int column_of(int c, int e) { return 8 * c + threadIdx.x % 4 * 2 + e % 2; }

/// The same, of a lane's number that the caller keeps. (As a default of one function: in rung 18 nvcc spills registers.)
__device__ inline int row_of(int r, int h, unsigned lane) { return 16 * r + 8 * h + lane / 4; }
__device__ inline int column_of(int c, int e, unsigned lane) { return 8 * c + lane % 4 * 2 + e % 2; }

/// Sets every element.
template <int rows, int columns>
__device__ __forceinline__ void fill(Accumulator<rows, columns>& C, float value) {
#pragma unroll
    for (int r = 0; r < rows / 16; ++r)
#pragma unroll
        for (int c = 0; c < columns / 8; ++c)
#pragma unroll
            for (int e = 0; e < 4; ++e) C.fragment[r][c][e] = value;
}

/// Sets the value of every row.
template <int rows>
__device__ __forceinline__ void fill(RowValues<rows>& v, float value) {
#pragma unroll
    for (int r = 0; r < rows / 16; ++r) v.value[r][0] = v.value[r][1] = value;
}

/// Multiplies every element.
template <int rows, int columns>
__device__ __forceinline__ void multiply_all(Accumulator<rows, columns>& C, float factor) {
#pragma unroll
    for (int r = 0; r < rows / 16; ++r)
#pragma unroll
        for (int c = 0; c < columns / 8; ++c)
#pragma unroll
            for (int e = 0; e < 4; ++e) C.fragment[r][c][e] *= factor;
}

/// Each element of C times the one of B in its place.
template <int rows, int columns>
__device__ __forceinline__ void multiply_elements(Accumulator<rows, columns>& C, const Accumulator<rows, columns>& B) {
#pragma unroll
    for (int r = 0; r < rows / 16; ++r)
#pragma unroll
        for (int c = 0; c < columns / 8; ++c)
#pragma unroll
            for (int e = 0; e < 4; ++e) C.fragment[r][c][e] *= B.fragment[r][c][e];
}

/// Multiplies each row by its value.
template <int rows, int columns>
__device__ __forceinline__ void multiply_rows(Accumulator<rows, columns>& C, const RowValues<rows>& factor) {
#pragma unroll
    for (int r = 0; r < rows / 16; ++r)
#pragma unroll
        for (int c = 0; c < columns / 8; ++c)
#pragma unroll
            for (int e = 0; e < 4; ++e) C.fragment[r][c][e] *= factor.value[r][e / 2];
}
template <int rows>
__device__ __forceinline__ void multiply_rows(RowValues<rows>& v, const RowValues<rows>& factor) {
#pragma unroll
    for (int r = 0; r < rows / 16; ++r)
#pragma unroll
        for (int h = 0; h < 2; ++h) v.value[r][h] *= factor.value[r][h];
}

/// Sets to -infinity what lies in columns from `first` on: keys past the end.
template <int rows, int columns>
__device__ __forceinline__ void hide_columns(Accumulator<rows, columns>& S, int first) {
    first -= column_of(0, 0);  // what depends on the lane goes to one side: the other is a constant for each element
#pragma unroll
    for (int c = 0; c < columns / 8; ++c)
#pragma unroll
        for (int e = 0; e < 4; ++e)
            if (8 * c + e % 2 >= first)
#pragma unroll
                for (int r = 0; r < rows / 16; ++r) S.fragment[r][c][e] = -INFINITY;
}

/// Sets to -infinity what lies right of the diagonal, where column = row + `diagonal`: keys that come too late.
template <int rows, int columns>
__device__ __forceinline__ void hide_right_of(Accumulator<rows, columns>& S, int diagonal) {
    diagonal += row_of(0, 0) - column_of(0, 0);
#pragma unroll
    for (int r = 0; r < rows / 16; ++r)
#pragma unroll
        for (int c = 0; c < columns / 8; ++c)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                if (8 * c + e % 2 > 16 * r + e / 2 * 8 + diagonal) S.fragment[r][c][e] = -INFINITY;
}

/// Rounds an accumulator to an operand. Two accumulators of 8 columns side by side are an operand of 16: every lane
/// has the same places of both, so nothing moves.
template <class Element, int rows, int columns>
__device__ __forceinline__ Operand<Element, rows, columns> to_operand(const Accumulator<rows, columns>& C) {
    static_assert(columns % 16 == 0,
                  "to_operand: two accumulators of 8 columns make an operand of 16; C must have 16 c columns");
    Operand<Element, rows, columns> A;
#pragma unroll
    for (int r = 0; r < rows / 16; ++r)
#pragma unroll
        for (int c = 0; c < columns / 16; ++c)
#pragma unroll
            for (int i = 0; i < 4; ++i) {  // rows g, g + 8 of the left 8 columns, then of the right 8
                const float* pair = C.fragment[r][2 * c + i / 2] + i % 2 * 2;
                A.fragment[r][c][i] = ptx::pack<Element>(pair[0], pair[1]);
            }
    return A;
}

}  // namespace flashladder::tile
