// The softmax of rung 13: m stays where it is while no exponential grows too large.
#pragma once

#include <climits>

#include "tile/online_softmax.h"

namespace flashladder::tile {

/// By what factor of 2 a P may exceed 1: bf16 has the exponents of floats, f16 ends at 2^16.
template <class Element>
constexpr float slack_log2 = std::is_same_v<Element, __nv_bfloat16> ? 24 : 8;

/// Of 16 rows of a warp: a maximum that no score so far has exceeded by `slack`, and the sum of the exponentials relative to
/// it. Scores come as they are; `scale_log2`, positive, is what they are multiplied by for exponentials of base 2.
struct LazySoftmax {
    OnlineSoftmax<16, SumsByLanes> exact;  // m of scores as they are
    RowValues<16> factor;                  // by which rows were multiplied when m was raised
    int bounds[2];                         // of the scores of a row, as bits: from there on m must be raised

    /// S becomes P = 2^(scale_log2 (S - m)). Returns whether O is to be multiplied by `factor`. -infinity in S is a key
    /// that is not seen.
    template <int keys>
    __device__ __forceinline__ bool update(Accumulator<16, keys>& S, float scale_log2, float slack) {
        const bool raised = reaches_bounds(S);
        if (raised) raise(S, scale_log2, slack);
        exponentials(S, scale_log2);
        return raised;
    }
    /// The same for the first S of a row, before which there is no O.
    template <int keys>
    __device__ __forceinline__ void begin(Accumulator<16, keys>& S, float scale_log2, float slack) {
        exact = {};
        fill(exact.m, lowest / fmaxf(1, scale_log2));  // scaled, it is still finite
        raise(S, scale_log2, slack);
        exponentials(S, scale_log2);
    }
    /// Divides O by the sums. Returns the natural logarithm of the sum of the exponentials of the scaled scores.
    template <int d>
    __device__ __forceinline__ RowValues<16> finish(Accumulator<16, d>& O, float scale_log2) {
        multiply_rows(exact.m, RowValues<16>{{{scale_log2, scale_log2}}});
        return exact.finish(O);
    }

private:
    template <int keys>
    __device__ __forceinline__ void exponentials(Accumulator<16, keys>& S, float scale_log2) {
        const float shifts[] = {exact.m.value[0][0] * scale_log2, exact.m.value[0][1] * scale_log2};
        auto& l = exact.l.l.value[0];
        float odd[2] = {};  // a second sum of each row, as each addition waits for the one before it
#pragma unroll
        for (int c = 0; c < keys / 8; ++c)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                float& s = S.fragment[0][c][e];
                s = ptx::ex2_approx(fmaf(s, scale_log2, -shifts[e / 2]));
                (e % 2 ? odd[e / 2] : l[e / 2]) += s;
            }
        l[0] += odd[0], l[1] += odd[1];
    }
    /// Whether a score of the warp has reached its row's bound. As bits, floats from 0 on are in the order of integers, and
    /// negative ones are less than all of them.
    template <int keys>
    __device__ __forceinline__ bool reaches_bounds(const Accumulator<16, keys>& S) const {
        int largest[2] = {INT_MIN, INT_MIN};
#pragma unroll
        for (int c = 0; c < keys / 8; ++c)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const float* pair = S.fragment[0][c] + 2 * h;
                largest[h] = __vimax3_s32(largest[h], __float_as_int(pair[0]), __float_as_int(pair[1]));
            }
        return __any_sync(0xFFFFFFFFu, largest[0] >= bounds[0] || largest[1] >= bounds[1]);
    }
    template <int keys>
    __device__ __forceinline__ void raise(const Accumulator<16, keys>& S, float scale_log2, float slack) {
        const auto m_new = row_max(S, exact.m);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            factor.value[0][h] = ptx::ex2_approx((exact.m.value[0][h] - m_new.value[0][h]) * scale_log2);
            const float bound = m_new.value[0][h] + slack;
            bounds[h] = bound > 0 ? __float_as_int(bound) : INT_MIN;  // else floats and bits differ in order: always raise
        }
        exact.m = m_new;
        exact.l.rescale(factor);
    }
};

}  // namespace flashladder::tile
