// The softmax of rung 13: m stays where it is while no exponential grows too large.
#pragma once

#include <climits>

#include "tile/online_softmax.h"

namespace flashladder::tile {

/// What scores are multiplied by for exponentials of base 2, positive, and what follows from that. A member of a kernel's
/// parameter.
struct LazyScale {
    float log2;    // the scale itself
    float slack;   // by how much a score may exceed m
    float lowest;  // where m begins: finite, also when it is scaled
};

/// P in bf16 may exceed 1 by a factor of up to 2^24, as bf16 has the exponents of floats; in f16, which ends at 2^16, by
/// 2^8.
template <class Element>
LazyScale lazy_scale(float scale_log2) {
    return {scale_log2, (std::is_same_v<Element, __nv_bfloat16> ? 24 : 8) / scale_log2,
            scale_log2 > 1 ? lowest / scale_log2 : lowest};
}

/// Of 16 rows of a warp: a maximum that no score so far has exceeded by `slack`, and the sum of the exponentials relative to
/// it. Scores come as they are.
struct LazySoftmax {
    OnlineSoftmax<16, SumsByLanes> exact;  // m of scores as they are
    RowValues<16> factor;                  // by which rows were multiplied when m was raised
    int bounds[2];                         // of the scores of a row, as bits: from there on m must be raised

    /// Before the first scores of a row.
    __device__ __forceinline__ void begin(const LazyScale& scale) {
        exact = {};
        fill(exact.m, scale.lowest);
    }
    /// S becomes P = 2^(log2 (S - m)). Returns whether O is to be multiplied by `factor`, which does not matter behind the
    /// `first` scores. -infinity in S is a key that is not seen.
    template <bool first, int keys>
    __device__ __forceinline__ bool update(Accumulator<16, keys>& S, const LazyScale& scale) {
        const bool raised = first || reaches_bounds(S);
        if (raised) raise(S, scale);
        exponentials(S, scale.log2);
        return raised;
    }
    /// Divides O by the sums. Returns the natural logarithm of the sum of the exponentials of the scaled scores.
    template <int d>
    __device__ __forceinline__ RowValues<16> finish(Accumulator<16, d>& O, const LazyScale& scale) {
        multiply_rows(exact.m, RowValues<16>{{{scale.log2, scale.log2}}});
        return exact.finish(O);
    }

    // trial
    template <bool first, int keys>
    __device__ __forceinline__ bool look(Accumulator<16, keys>& S, const LazyScale& scale) {
        const bool raised = first || reaches_bounds(S);
        if (raised) raise(S, scale);
        return raised;
    }
    /// One of `polynomial` without ex2, if there are any; passed() before the last `early` groups of 8 keys.
    template <int polynomial, int early, int keys, class Passed>
    __device__ __forceinline__ void find(Accumulator<16, keys>& S, const LazyScale& scale, Passed passed) {
        const float shifts[] = {exact.m.value[0][0] * scale.log2, exact.m.value[0][1] * scale.log2};
        auto& l = exact.l.l.value[0];
        float odd[2] = {};
#pragma unroll
        for (int c = 0; c < keys / 8; ++c) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                float& s = S.fragment[0][c][e];
                const float x = fmaf(s, scale.log2, -shifts[e / 2]);
                if (polynomial && (4 * c + e) % (polynomial ? polynomial : 1) == (c % 4)) s = power_of_2(x);
                else s = ptx::ex2_volatile(x);
                (e % 2 ? odd[e / 2] : l[e / 2]) += s;
            }
            if (c == keys / 8 - 1 - early) passed((odd[1] + l[1]) + (odd[0] + l[0]));
        }
        l[0] += odd[0], l[1] += odd[1];
    }
    __device__ __forceinline__ static float power_of_2(float x) {
        constexpr float magic = 12582912;  // 1.5 2^23: behind it a sum is rounded to a whole number
        x = fmaxf(x, -126.f);
        const float t = x + magic, f = x - (t - magic);
        const float y = fmaf(fmaf(fmaf(f, 0.05517182f, 0.24261151f), f, 0.69326100f), f, 0.99992805f);
        return __int_as_float(__float_as_int(y) + (__float_as_int(t) << 23));
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
    __device__ __forceinline__ void raise(const Accumulator<16, keys>& S, const LazyScale& scale) {
        const auto m_new = row_max(S, exact.m);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            factor.value[0][h] = ptx::ex2_approx((exact.m.value[0][h] - m_new.value[0][h]) * scale.log2);
            const float bound = m_new.value[0][h] + scale.slack;
            bounds[h] = bound > 0 ? __float_as_int(bound) : INT_MIN;  // else floats and bits differ in order: always raise
        }
        exact.m = m_new;
        exact.l.rescale(factor);
    }
};

}  // namespace flashladder::tile
