// Products of a warp: tensor cores on tiles in registers and shared memory, by ldmatrix and mma.m16n8k16 (rung 04).
// All 32 lanes of a warp call them together.
#pragma once

#include "ptx/ldmatrix.h"
#include "ptx/mma.h"
#include "tile/register_tile.h"
#include "tile/shared_tile.h"

namespace flashladder::tile {

/// A = the rows of `tile` from `first_row` on, columns from `first_column` on.
template <class Element, int rows, int columns, class Tile>
__device__ __forceinline__ void load(Operand<Element, rows, columns>& A, const Tile& tile, int first_row,
                                     int first_column = 0) {
    static_assert(std::is_same_v<Element, typename Tile::Element>, "load: the operand has elements of another type");
    static_assert(rows <= Tile::rows && columns <= Tile::columns, "load: the operand is larger than the tile");
    const int lane = threadIdx.x % 32;  // matrices 0, 1: rows 0 to 7, 8 to 15; matrices 2, 3: 8 columns further
#pragma unroll
    for (int r = 0; r < rows / 16; ++r)
#pragma unroll
        for (int c = 0; c < columns / 16; ++c)
            ptx::ldmatrix(A.fragment[r][c],
                          tile.at(first_row + lane % 16, first_column + 16 * c + lane / 16 * 8) + 16 * r * Tile::stride);
}

/// C += A B^T for 16 columns each: of A its fragments `i`, of B columns `x` on.
template <class Element, int rows, int columns, int depth, class Tile>
__device__ __forceinline__ void multiply_slice(Accumulator<rows, columns>& C, const Operand<Element, rows, depth>& A,
                                               int i, const Tile& B, int x) {
    static_assert(columns % 16 == 0, "C = A B^T: C must have 16 c columns, two fragments for each ldmatrix");
    const int lane = threadIdx.x % 32;  // matrices 0, 1: rows 0 to 7, 8 columns each; matrices 2, 3: 8 rows further
#pragma unroll
    for (int c = 0; c < columns; c += 16) {
        std::uint32_t b[4];
        ptx::ldmatrix(b, B.at(lane / 16 * 8 + lane % 8, x + lane / 8 % 2 * 8) + c * Tile::stride);
#pragma unroll
        for (int r = 0; r < rows / 16; ++r) {
            ptx::mma_m16n8k16<Element>(C.fragment[r][c / 8], A.fragment[r][i], {b[0], b[1]});
            ptx::mma_m16n8k16<Element>(C.fragment[r][c / 8 + 1], A.fragment[r][i], {b[2], b[3]});
        }
    }
}

/// C += A B^T for A (rows, depth) in registers, B (columns, depth) in shared memory.
template <class Element, int rows, int columns, int depth, class Tile>
__device__ __forceinline__ void multiply_transposed(Accumulator<rows, columns>& C,
                                                    const Operand<Element, rows, depth>& A, const Tile& B) {
    static_assert(std::is_same_v<Element, typename Tile::Element>, "A B^T: A and B must have elements of one type");
    static_assert(Tile::columns == depth, "A B^T: A and B must have as many columns as each other");
    static_assert(Tile::rows == columns, "C = A B^T: C must have as many columns as B has rows");
#pragma unroll
    for (int x = 0; x < depth; x += 16) multiply_slice(C, A, x / 16, B, x);
}

/// The same with A in shared memory, its rows from `first_row` on: costs reads, saves registers.
template <int rows, int columns, class TileA, class TileB>
__device__ __forceinline__ void multiply_transposed(Accumulator<rows, columns>& C, const TileA& A, int first_row,
                                                    const TileB& B) {
    using Element = typename TileA::Element;
    static_assert(std::is_same_v<Element, typename TileB::Element>, "A B^T: A and B must have elements of one type");
    static_assert(TileA::columns == TileB::columns, "A B^T: A and B must have as many columns as each other");
    static_assert(TileB::rows == columns, "C = A B^T: C must have as many columns as B has rows");
    static_assert(TileA::columns % 16 == 0, "A B^T: A and B must have 16 c columns, as mma takes them");
#pragma unroll
    for (int x = 0; x < TileA::columns; x += 16) {
        Operand<Element, rows, 16> a;
        load(a, A, first_row, x);
        multiply_slice(C, a, 0, B, x);
    }
}

/// C += A B for A (rows, depth) in registers, B (depth, columns) in shared memory.
template <class Element, int rows, int columns, int depth, class Tile>
__device__ __forceinline__ void multiply(Accumulator<rows, columns>& C, const Operand<Element, rows, depth>& A,
                                         const Tile& B) {
    static_assert(std::is_same_v<Element, typename Tile::Element>, "A B: A and B must have elements of one type");
    static_assert(Tile::rows == depth, "A B: B must have as many rows as A has columns");
    static_assert(Tile::columns == columns, "C = A B: C must have as many columns as B");
    static_assert(columns % 16 == 0, "C = A B: C must have 16 c columns, two fragments for each ldmatrix");
    const int lane = threadIdx.x % 32;  // matrices 0, 1: rows 0 to 7, 8 to 15; matrices 2, 3: 8 columns further
#pragma unroll
    for (int k = 0; k < depth; k += 16)
#pragma unroll
        for (int x = 0; x < columns; x += 16) {
            std::uint32_t b[4];
            ptx::ldmatrix_trans(b, B.at(lane % 16, x + lane / 16 * 8) + k * Tile::stride);
#pragma unroll
            for (int r = 0; r < rows / 16; ++r) {
                ptx::mma_m16n8k16<Element>(C.fragment[r][x / 8], A.fragment[r][k / 16], {b[0], b[1]});
                ptx::mma_m16n8k16<Element>(C.fragment[r][x / 8 + 1], A.fragment[r][k / 16], {b[2], b[3]});
            }
        }
}

}  // namespace flashladder::tile
