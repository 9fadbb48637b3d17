// What a warp computes of a step of the way back between its products, on transposed scores: rows are keys, columns are
// queries (built in rungs 18 to 22; rung 25 stands on it).
#pragma once

#include "ptx/convert.h"
#include "ptx/ex2.h"
#include "ptx/ldmatrix.h"
#include "tile/warpgroup.h"

namespace flashladder::attention_backward {

/// What is known of a step's queries before: with -LSE / scale and -D, probabilities and their gradients need no other key.
/// The tensor cores add them to the scores: each number is there as three of 16 bits, and the sum of these times
/// their weights has the digits of a float.
template <class Element, int queries>
struct alignas(128) Statistics {
    static constexpr int parts = 3;
    Element rows[queries][tile::chunk];  // of operand B: parts of the one, parts of the other, and zeros

    /// 2^10, 1, 2^-10: f16 has neither large nor small numbers. With these it has 2^-34 to 2^26.
    __host__ __device__ static constexpr float weight(int part) { return part == 0 ? 1024.f : part == 1 ? 1.f : 1 / 1024.f; }
    /// By one thread, for query i.
    __device__ __forceinline__ void set(int i, float of_scores, float of_gradients) {
        alignas(16) Element row[tile::chunk] = {};
#pragma unroll
        for (int n = 0; n < parts; ++n) {
            row[n] = Element(of_scores / weight(n)), of_scores -= float(row[n]) * weight(n);
            row[parts + n] = Element(of_gradients / weight(n)), of_gradients -= float(row[parts + n]) * weight(n);
        }
        reinterpret_cast<uint4&>(rows[i]) = reinterpret_cast<uint4&>(row);
    }
};

/// Operand A of that product, 16 columns for 16 rows of scores, all the same: weights from column `first` on, or else 0.
template <class Element>
__device__ __forceinline__ tile::Operand<Element, 16, 16> weights_of_statistics(int first, unsigned lane) {
    using Of = Statistics<Element, 8>;
    float pair[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
        const int part = int(lane % 4 * 2) + e - first;
        pair[e] = part < 0 || part >= Of::parts ? 0 : part == 0 ? Of::weight(0) : part == 1 ? Of::weight(1) : Of::weight(2);
    }
    tile::Operand<Element, 16, 16> A;
    A.fragment[0][0][0] = A.fragment[0][0][1] = ptx::pack<Element>(pair[0], pair[1]);
    A.fragment[0][0][2] = A.fragment[0][0][3] = 0;
    return A;
}

/// Begins C = A B^T, to each column added what the statistics have for it by `weights`. As tile::begin_multiply_transposed().
template <class Element, int columns, class TileA, class TileB>
__device__ __forceinline__ void begin_scores(tile::Accumulator<16, columns>& C, const TileA& A, const TileB& B,
                                             tile::Operand<Element, 16, 16>& weights, const Statistics<Element, columns>& of) {
    ptx::pin(weights.fragment);
    ptx::wgmma_fence(tile::registers(C));
#pragma unroll
    for (int k = 0; k < TileA::columns; k += 16)
        ptx::wgmma<Element>(tile::registers(C), tile::columns_of(A, k), tile::columns_of(B, k), k > 0);
    // Rows of 8 elements: what would be the other 8 is these again, for which there is no weight.
    const ptx::Descriptor rows = ptx::matrix_descriptor(of.rows, 0, 128, ptx::Swizzle::none);
    ptx::wgmma<Element>(tile::registers(C), weights.fragment[0][0], rows, true);
    ptx::wgmma_commit();
}

/// Scores, less LSE / scale, become weights: P^T = exp2(scale_log2 S^T), and 0 where a query does not see a key. Of the lane's
/// first row, `last` is the last row that its first column sees, counted from it; if causal, each column sees one more.
template <bool causal, int columns>
__device__ __forceinline__ void weigh_transposed(tile::Accumulator<16, columns>& P_t, float scale_log2, int last) {
#pragma unroll
    for (int c = 0; c < columns / 8; ++c)
#pragma unroll
        for (int e = 0; e < 4; ++e) P_t.fragment[0][c][e] *= scale_log2;
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

/// 16 rows of a swizzled tile, from `first_row` on, by stmatrix. `lane`: said by who keeps its number, as a kernel short of
/// registers would read it anew for each use.
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
