// The online softmax of rung 03 in the layout of rung 04. Base 2: log2(e) goes into the scale of the scores, so that an
// exponential is one instruction.
#pragma once

#include "ptx/ex2.h"
#include "ptx/mma.h"
#include "tile/register_tile.h"

namespace flashladder::tile {

constexpr float log_2 = 0.69314718056f, lowest = -3.40282347e38f;  // the lowest finite float

/// The largest element of each row and of `m`, in all four lanes of its quad.
template <int rows, int columns>
__device__ __forceinline__ RowValues<rows> row_max(const Accumulator<rows, columns>& S, RowValues<rows> m) {
#pragma unroll
    for (int r = 0; r < rows / 16; ++r)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float& largest = m.value[r][h];
#pragma unroll
            for (int c = 0; c < columns / 8; ++c)
                largest = fmaxf(largest, fmaxf(S.fragment[r][c][2 * h], S.fragment[r][c][2 * h + 1]));
            for (int lanes = 1; lanes < 4; lanes *= 2)
                largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, lanes));
        }
    return m;
}

/// S becomes P = 2^(S - m).
template <int rows, int columns>
__device__ __forceinline__ void exponentials(Accumulator<rows, columns>& S, const RowValues<rows>& m) {
#pragma unroll
    for (int r = 0; r < rows / 16; ++r)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
#pragma unroll
            for (int c = 0; c < columns / 8; ++c)
#pragma unroll
                for (int e = 2 * h; e < 2 * h + 2; ++e)
                    S.fragment[r][c][e] = ptx::ex2_approx(S.fragment[r][c][e] - m.value[r][h]);
        }
}

/// By what O and l of each row are multiplied when its m becomes m_new: 2^(m - m_new).
template <int rows>
__device__ __forceinline__ RowValues<rows> rescale_factor(const RowValues<rows>& m, const RowValues<rows>& m_new) {
    RowValues<rows> factor;
#pragma unroll
    for (int r = 0; r < rows / 16; ++r)
#pragma unroll
        for (int h = 0; h < 2; ++h)
            factor.value[r][h] = ptx::ex2_approx(m.value[r][h] - m_new.value[r][h]);
    return factor;
}

/// l of each row by a product with ones: the tensor core adds up rows faster than lanes do, these are the sums of the
/// rounded P that O is made of, and nobody has to keep the floats for them.
template <int rows>
struct SumsByTensorCore {
    Accumulator<rows, 8> l;  // P times a matrix of ones: the sum of a row, in all eight columns

    __device__ __forceinline__ SumsByTensorCore() { fill(l, 0); }
    __device__ __forceinline__ void rescale(const RowValues<rows>& factor) { multiply_rows(l, factor); }
    template <class Element, int keys>
    __device__ __forceinline__ void add(const Operand<Element, rows, keys>& P) {
        const std::uint32_t ones = ptx::pack<Element>(1, 1);
#pragma unroll
        for (int r = 0; r < rows / 16; ++r)
#pragma unroll
            for (int c = 0; c < keys / 16; ++c)
                ptx::mma_m16n8k16<Element>(l.fragment[r][0], P.fragment[r][c], {ones, ones});
    }
    __device__ __forceinline__ RowValues<rows> sums() const {
        RowValues<rows> sums;
#pragma unroll
        for (int r = 0; r < rows / 16; ++r)
#pragma unroll
            for (int h = 0; h < 2; ++h) sums.value[r][h] = l.fragment[r][0][2 * h];
        return sums;
    }
};

/// l of each row by additions: every lane adds up what it has, and the quads put it together at the end. For kernels
/// whose tensor cores have no time for this.
template <int rows>
struct SumsByLanes {
    RowValues<rows> l;  // of the lane's own columns

    __device__ __forceinline__ SumsByLanes() { fill(l, 0); }
    __device__ __forceinline__ void rescale(const RowValues<rows>& factor) { multiply_rows(l, factor); }
    template <int keys>
    __device__ __forceinline__ void add(const Accumulator<rows, keys>& P) {
#pragma unroll
        for (int r = 0; r < rows / 16; ++r)
#pragma unroll
            for (int c = 0; c < keys / 8; ++c)
#pragma unroll
                for (int e = 0; e < 4; ++e) l.value[r][e / 2] += P.fragment[r][c][e];
    }
    __device__ __forceinline__ RowValues<rows> sums() const {
        RowValues<rows> sums = l;
#pragma unroll
        for (int r = 0; r < rows / 16; ++r)
#pragma unroll
            for (int h = 0; h < 2; ++h)
                for (int lanes = 1; lanes < 4; lanes *= 2)
                    sums.value[r][h] += __shfl_xor_sync(0xFFFFFFFFu, sums.value[r][h], lanes);
        return sums;
    }
};

/// Of so many rows of a warp: the largest score so far, and the sum of the exponentials relative to it. By a warp.
template <int rows, template <int> class Sums = SumsByTensorCore>
struct OnlineSoftmax {
    RowValues<rows> m;  // of scores in base 2, in all four lanes of a quad
    Sums<rows> l;

    /// No key has been seen. m is finite, so that differences with it are never NaN: hidden keys count 2^-inf = 0, and
    /// the rescale of a row that has still seen none is 2^0.
    __device__ __forceinline__ OnlineSoftmax() { fill(m, lowest); }

    /// S, in base 2, becomes P = 2^(S - m) with the m that covers S too. -infinity in S is a key that is not seen.
    template <int keys, int d>
    __device__ __forceinline__ void update(Accumulator<rows, keys>& S, Accumulator<rows, d>& O) {
        const RowValues<rows> m_new = row_max(S, m);
        exponentials(S, m_new);
        raise(m_new, O);
    }

    /// m becomes m_new, and O and l what they are relative to that.
    template <int d>
    __device__ __forceinline__ void raise(const RowValues<rows>& m_new, Accumulator<rows, d>& O) {
        const RowValues<rows> rescale = rescale_factor(m, m_new);
        m = m_new;
        l.rescale(rescale);
        multiply_rows(O, rescale);
    }

    /// l takes up P: an operand, or an accumulator before it is rounded, as Sums has it.
    template <class Weights>
    __device__ __forceinline__ void add(const Weights& P) {
        l.add(P);
    }

    /// l of each row. By a warp.
    __device__ __forceinline__ RowValues<rows> sums() const { return l.sums(); }

    /// Divides O by `sums`. A row that has seen no key becomes 0.
    /// Returns the natural logarithm of the sum of the exponentials of the scaled scores; -infinity for such a row.
    template <int d>
    __device__ __forceinline__ RowValues<rows> finish(Accumulator<rows, d>& O, const RowValues<rows>& sums) const {
        RowValues<rows> inverse, lse;
#pragma unroll
        for (int r = 0; r < rows / 16; ++r)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const float sum = sums.value[r][h];
                inverse.value[r][h] = sum == 0 ? 0 : 1 / sum;  // NaN stays NaN
                lse.value[r][h] = sum == 0 ? -INFINITY : m.value[r][h] * log_2 + logf(sum);
            }
        multiply_rows(O, inverse);
        return lse;
    }
    template <int d>
    __device__ __forceinline__ RowValues<rows> finish(Accumulator<rows, d>& O) const {
        return finish(O, sums());
    }
};

/// Each row's value to rows `first_row` on of `vector`, without those from row N on. By a warp.
template <int rows>
__device__ __forceinline__ void store_rows(float* vector, const RowValues<rows>& values, unsigned first_row,
                                           unsigned N) {
    if (threadIdx.x % 4 != 0) return;
#pragma unroll
    for (int r = 0; r < rows / 16; ++r)
#pragma unroll
        for (int h = 0; h < 2; ++h)
            if (first_row + row_of(r, h) < N) vector[first_row + row_of(r, h)] = values.value[r][h];
}

}  // namespace flashladder::tile
