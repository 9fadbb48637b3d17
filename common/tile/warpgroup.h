// Products of a warpgroup: wgmma on tiles in shared memory and in registers (rung 09). All 128 threads call them
// together. Each of the four warps has 16 of the 64 rows, in the layouts that tile/register_tile.h describes.
//
// A product is begun, and the threads go on. Until wait() the accumulator and an operand in registers belong to the tensor
// cores, and tiles in shared memory must stay.
#pragma once

#include "ptx/wgmma.h"
#include "tile/swizzled.h"

namespace flashladder::tile {

/// The 16 columns from `column` on of a tile, all rows: an operand whose index k runs along the rows.
template <class Tile>
__device__ __forceinline__ ptx::Descriptor columns_of(const Tile& tile, int column) {
    static_assert(std::is_same_v<typename Tile::Layout, Swizzled<128>>, "wgmma: tiles have the 128-byte swizzle");
    return ptx::matrix_descriptor(tile.data, 16, 8 * 128, ptx::Swizzle::bytes_128) +
           (column / 64 * Tile::rows * 128 + column % 64 * 2);
}

/// The 16 rows from `row` on of a tile, all columns: an operand whose index k runs from row to row.
template <class Tile>
__device__ __forceinline__ ptx::Descriptor rows_of(const Tile& tile, int row) {
    static_assert(std::is_same_v<typename Tile::Layout, Swizzled<128>>, "wgmma: tiles have the 128-byte swizzle");
    return ptx::matrix_descriptor(tile.data, Tile::rows * 128, 8 * 128, ptx::Swizzle::bytes_128) + row * 128;
}

/// The elements of an accumulator in the order of wgmma's registers.
template <int columns>
__device__ __forceinline__ auto registers(Accumulator<16, columns>& C) -> float (&)[columns / 2] {
    return reinterpret_cast<float(&)[columns / 2]>(C.fragment);
}

/// Begins C = A B^T, or C += A B^T if `add`, for A (64, depth) and B (columns, depth), both in shared memory.
template <int columns, class TileA, class TileB>
__device__ __forceinline__ void begin_multiply_transposed(Accumulator<16, columns>& C, const TileA& A, const TileB& B,
                                                          bool add = false) {
    using Element = typename TileA::Element;
    static_assert(std::is_same_v<Element, typename TileB::Element>, "A B^T: A and B must have elements of one type");
    static_assert(TileA::rows == 64, "C = A B^T: A must have 64 rows, as a warpgroup multiplies them");
    static_assert(TileA::columns == TileB::columns, "A B^T: A and B must have as many columns as each other");
    static_assert(TileB::rows == columns, "C = A B^T: C must have as many columns as B has rows");
    ptx::wgmma_fence(registers(C));
#pragma unroll
    for (int k = 0; k < TileA::columns; k += 16)
        ptx::wgmma<Element>(registers(C), columns_of(A, k), columns_of(B, k), add || k > 0);
    ptx::wgmma_commit();
}

/// The same, where the first `depth` columns of A are in registers too, and are read from there.
template <class Element, int columns, int depth, class TileA, class TileB>
__device__ __forceinline__ void begin_multiply_transposed(Accumulator<16, columns>& C, Operand<Element, 16, depth>& first,
                                                          const TileA& A, const TileB& B, bool add = false) {
    static_assert(TileA::columns == TileB::columns && TileB::rows == columns && depth <= TileA::columns);
    ptx::pin(first.fragment);
    ptx::wgmma_fence(registers(C));
#pragma unroll
    for (int k = 0; k < depth; k += 16)
        ptx::wgmma<Element, ptx::Major::k>(registers(C), first.fragment[0][k / 16], columns_of(B, k), add || k > 0);
#pragma unroll
    for (int k = depth; k < TileA::columns; k += 16)
        ptx::wgmma<Element>(registers(C), columns_of(A, k), columns_of(B, k), true);
    ptx::wgmma_commit();
}

/// Begins C += A B, or C = A B if not `add`, for A (64, depth) in registers and B (depth, columns) in shared memory.
template <class Element, int columns, int depth, class Tile>
__device__ __forceinline__ void begin_multiply(Accumulator<16, columns>& C, Operand<Element, 16, depth>& A,
                                               const Tile& B, bool add = true) {
    static_assert(std::is_same_v<Element, typename Tile::Element>, "A B: A and B must have elements of one type");
    static_assert(Tile::rows == depth, "A B: B must have as many rows as A has columns");
    static_assert(Tile::columns == columns, "C = A B: C must have as many columns as B");
    ptx::pin(A.fragment);
    ptx::wgmma_fence(registers(C));
#pragma unroll
    for (int k = 0; k < depth; k += 16)
        ptx::wgmma<Element, ptx::Major::mn>(registers(C), A.fragment[0][k / 16], rows_of(B, k), add || k > 0);
    ptx::wgmma_commit();
}

/// The same for A (64, depth) and B (depth, columns), both in shared memory.
template <int columns, class TileA, class TileB>
__device__ __forceinline__ void begin_multiply(Accumulator<16, columns>& C, const TileA& A, const TileB& B,
                                               bool add = true) {
    using Element = typename TileA::Element;
    static_assert(std::is_same_v<Element, typename TileB::Element>, "A B: A and B must have elements of one type");
    static_assert(TileA::rows == 64, "C = A B: A must have 64 rows, as a warpgroup multiplies them");
    static_assert(TileB::rows == TileA::columns, "A B: B must have as many rows as A has columns");
    static_assert(TileB::columns == columns, "C = A B: C must have as many columns as B");
    ptx::wgmma_fence(registers(C));
#pragma unroll
    for (int k = 0; k < TileA::columns; k += 16)
        ptx::wgmma<Element, ptx::Major::k, ptx::Major::mn>(registers(C), columns_of(A, k), rows_of(B, k), add || k > 0);
    ptx::wgmma_commit();
}

/// Begins C += A^T B, or C = A^T B if not `add`, for A (depth, 64) and B (depth, columns), both in shared memory.
template <int columns, class TileA, class TileB>
__device__ __forceinline__ void begin_multiply_of_transposed(Accumulator<16, columns>& C, const TileA& A,
                                                             const TileB& B, bool add = true) {
    using Element = typename TileA::Element;
    static_assert(std::is_same_v<Element, typename TileB::Element>, "A^T B: A and B must have elements of one type");
    static_assert(TileA::columns == 64, "C = A^T B: A must have 64 columns, as a warpgroup multiplies them");
    static_assert(TileA::rows == TileB::rows, "A^T B: A and B must have as many rows as each other");
    static_assert(TileB::columns == columns, "C = A^T B: C must have as many columns as B");
    ptx::wgmma_fence(registers(C));
#pragma unroll
    for (int k = 0; k < TileA::rows; k += 16)
        ptx::wgmma<Element, ptx::Major::mn, ptx::Major::mn>(registers(C), rows_of(A, k), rows_of(B, k), add || k > 0);
    ptx::wgmma_commit();
}

/// Until all products are done but the last `pending` that were begun. C is one of those that are.
template <int pending, int columns>
__device__ __forceinline__ void wait(Accumulator<16, columns>& C) {
    ptx::wgmma_wait<pending>(registers(C));
}
/// The same, where the last of them had A in registers: these are free again too.
template <int pending, int columns, class Element, int depth>
__device__ __forceinline__ void wait(Accumulator<16, columns>& C, Operand<Element, 16, depth>& A) {
    wait<pending>(C);
    ptx::pin(A.fragment);
}

}  // namespace flashladder::tile
