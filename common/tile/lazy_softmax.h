// The softmax of rung 14: m stays where it is while no exponential grows too large, as in rung 13. Here their sum tells it,
// which is needed anyway: no maximum is looked for.
#pragma once

#include "ptx/keep_behind.h"
#include "tile/online_softmax.h"

namespace flashladder::tile {

/// What scores are multiplied by for exponentials of base 2, positive, and what follows from that. A member of a kernel's
/// parameter.
struct LazyScale {
    float log2;    // the scale itself
    float lowest;  // where m begins: finite, also when it is scaled
};
inline LazyScale lazy_scale(float scale_log2) { return {scale_log2, scale_log2 > 1 ? lowest / scale_log2 : lowest}; }

/// What P may sum up to in a lane: bf16 has the exponents of floats, f16 ends at 2^16.
template <class Element>
constexpr float most_of_a_lane = std::is_same_v<Element, __nv_bfloat16> ? 0x1p24f : 0x1p8f;

/// Of 16 rows of a warp: a maximum m that is one of some scores, and the sum of the exponentials relative to it. Scores come
/// as they are.
struct LazySoftmax {
    OnlineSoftmax<16, SumsByLanes> exact;  // m of scores as they are

    /// Before the first scores of a row.
    __device__ __forceinline__ void begin(const LazyScale& scale) {
        exact = {};
        fill(exact.m, scale.lowest);
    }
    /// P = 2^(log2 (S - m)). -infinity in S is a key that is not seen. Where some P are too large for the m that there was, m
    /// is raised, and O rescaled; behind the `first` scores m is always raised, and O is left alone.
    /// P and O may belong to the tensor cores: nothing is written before free() has been called, once, when the
    /// exponentials of the first `early` keys are there.
    template <bool first, int early = 0, class Element, int keys, int d, class Free>
    __device__ __forceinline__ void update(const Accumulator<16, keys>& S, Operand<Element, 16, keys>& P,
                                           Accumulator<16, d>& O, const LazyScale& scale, Free free) {
        if (first) raise(S, scale);
        auto sums = weigh<early>(S, P, scale.log2, free);
        const bool too_large = !(sums.value[0][0] <= most_of_a_lane<Element> && sums.value[0][1] <= most_of_a_lane<Element>);
        if (!first && __any_sync(0xFFFFFFFFu, too_large)) {
            multiply_rows(O, raise(S, scale));
            sums = weigh<0>(S, P, scale.log2, [] {});
        }
        for (int h = 0; h < 2; ++h) exact.l.l.value[0][h] += sums.value[0][h];
    }
    template <bool first, class Element, int keys, int d>
    __device__ __forceinline__ void update(const Accumulator<16, keys>& S, Operand<Element, 16, keys>& P,
                                           Accumulator<16, d>& O, const LazyScale& scale) {
        update<first>(S, P, O, scale, [] {});
    }
    /// By what O is multiplied behind the last product: 1 / sum, or 0 for a row that has seen no key. And the natural logarithm
    /// of the sum of the exponentials of the scaled scores: -infinity for such a row.
    struct Normalizer {
        RowValues<16> inverse, lse;
    };
    /// Known before the last product is done. By a warp.
    __device__ __forceinline__ Normalizer normalizer(const LazyScale& scale) const {
        const RowValues<16> sums = exact.sums();
        Normalizer of;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            // 1 / sum and logf() have branches, for numbers that a sum never is, and a warp takes rows one by one then.
            const float sum = sums.value[0][h];
            of.inverse.value[0][h] = sum == 0 ? 0 : __fdividef(1, sum);  // NaN stays NaN
            of.lse.value[0][h] = exact.m.value[0][h] * scale.log2 * log_2 + __logf(sum);  // of 0 it is -infinity
        }
        return of;
    }
    /// The same, and O has been multiplied. Returns the logarithms.
    template <int d>
    __device__ __forceinline__ RowValues<16> finish(Accumulator<16, d>& O, const LazyScale& scale) {
        const auto of = normalizer(scale);
        multiply_rows(O, of.inverse);
        return of.lse;
    }

private:
    /// P with the m that there is. Returns its sums, of the lane's own columns.
    template <int early, class Element, int keys, class Free>
    __device__ __forceinline__ RowValues<16> weigh(const Accumulator<16, keys>& S, Operand<Element, 16, keys>& P,
                                                   float scale_log2, Free free) const {
        const float shifts[] = {exact.m.value[0][0] * scale_log2, exact.m.value[0][1] * scale_log2};
        float sums[2][2];  // two of each row, as each addition waits for the one before it
        float p[keys / 8][4];
#pragma unroll
        for (int c = 0; c < keys / 8; ++c) {
            if (8 * c == early) {
                if (c > 0) ptx::keep_behind(sums[0][0] + sums[0][1] + sums[1][0] + sums[1][1]);
                free();
            }
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                p[c][e] = ptx::ex2_approx(fmaf(S.fragment[0][c][e], scale_log2, -shifts[e / 2]));
                float& sum = sums[e / 2][e % 2];
                sum = c == 0 ? p[c][e] : sum + p[c][e];
            }
        }
        static_assert(early % 8 == 0 && early < keys, "free() is called behind 0, 8, ... keys, but not behind all");
#pragma unroll
        for (int c = 0; c < keys / 8; ++c)
#pragma unroll
            for (int h = 0; h < 2; ++h)
                P.fragment[0][c / 2][c % 2 * 2 + h] = ptx::pack<Element>(p[c][2 * h], p[c][2 * h + 1]);
        return {{{sums[0][0] + sums[0][1], sums[1][0] + sums[1][1]}}};
    }
    /// m becomes the largest score of all so far. Returns by what a row is multiplied.
    template <int keys>
    __device__ __forceinline__ RowValues<16> raise(const Accumulator<16, keys>& S, const LazyScale& scale) {
        const auto m_new = row_max(S, exact.m);
        RowValues<16> factor;
#pragma unroll
        for (int h = 0; h < 2; ++h)
            factor.value[0][h] = ptx::ex2_approx((exact.m.value[0][h] - m_new.value[0][h]) * scale.log2);
        exact.m = m_new;
        exact.l.rescale(factor);
        return factor;
    }
};

}  // namespace flashladder::tile
