// What cuda_fp16.h and cuda_bf16.h have in common: each includes this once, behind its types, and says how it calls
// them. Half and Half2 are the types, FLASHLADDER_HALF is the first one's name within the names of functions, and
// FLASHLADDER_HALF2 the second one's.
//
// Results are computed as doubles and rounded once, to nearest. A double has more than twice as many bits, so it makes
// no difference that a sum, a quotient or a root is rounded to it first; products are exact. Functions that a GPU
// approximates are as exact as the C library.

#define FLASHLADDER_JOIN_(a, b, c) a##b##c
#define FLASHLADDER_JOIN(a, b, c) FLASHLADDER_JOIN_(a, b, c)
#define FLASHLADDER_NAMED(before, after) FLASHLADDER_JOIN(before, FLASHLADDER_HALF, after)
#define FLASHLADDER_NAMED2(before, after) FLASHLADDER_JOIN(before, FLASHLADDER_HALF2, after)

// ---- conversions ---------------------------------------------------------------------------------------------------

__forceinline__ float FLASHLADDER_NAMED(__, 2float)(Half x) { return x; }
__forceinline__ Half FLASHLADDER_NAMED(__float2, )(float x) { return x; }
__forceinline__ Half FLASHLADDER_NAMED(__float2, _rn)(float x) { return x; }
__forceinline__ Half FLASHLADDER_NAMED(__float2, _rz)(float x) { return Half::rounded(x, emulator::Rounding::zero); }
__forceinline__ Half FLASHLADDER_NAMED(__float2, _ru)(float x) { return Half::rounded(x, emulator::Rounding::up); }
__forceinline__ Half FLASHLADDER_NAMED(__float2, _rd)(float x) { return Half::rounded(x, emulator::Rounding::down); }
__forceinline__ Half FLASHLADDER_NAMED(__double2, )(double x) { return x; }

__forceinline__ unsigned short FLASHLADDER_NAMED(__, _as_ushort)(Half x) { return x.bits(); }
__forceinline__ short FLASHLADDER_NAMED(__, _as_short)(Half x) { return short(x.bits()); }
__forceinline__ Half FLASHLADDER_NAMED(__ushort_as_, )(unsigned short bits) { return Half::of_bits(bits); }
__forceinline__ Half FLASHLADDER_NAMED(__short_as_, )(short bits) { return Half::of_bits(bits); }

#define FLASHLADDER_TO_INTEGER(integer, T, suffix, round)                 \
    __forceinline__ T FLASHLADDER_NAMED(__, 2##integer##suffix)(Half x) { \
        return emulator::saturated<T>(round(float(x)));                   \
    }
#define FLASHLADDER_FROM_INTEGER(integer, T, suffix, rounding)                   \
    __forceinline__ Half FLASHLADDER_NAMED(__##integer##2, suffix)(T x) {        \
        return Half::rounded(emulator::to_odd(x), emulator::Rounding::rounding); \
    }
#define FLASHLADDER_INTEGER(integer, T)                     \
    FLASHLADDER_TO_INTEGER(integer, T, _rn, std::nearbyint) \
    FLASHLADDER_TO_INTEGER(integer, T, _rz, std::trunc)     \
    FLASHLADDER_TO_INTEGER(integer, T, _ru, std::ceil)      \
    FLASHLADDER_TO_INTEGER(integer, T, _rd, std::floor)     \
    FLASHLADDER_FROM_INTEGER(integer, T, _rn, nearest)      \
    FLASHLADDER_FROM_INTEGER(integer, T, _rz, zero)         \
    FLASHLADDER_FROM_INTEGER(integer, T, _ru, up)           \
    FLASHLADDER_FROM_INTEGER(integer, T, _rd, down)
FLASHLADDER_INTEGER(short, short)
FLASHLADDER_INTEGER(ushort, unsigned short)
FLASHLADDER_INTEGER(int, int)
FLASHLADDER_INTEGER(uint, unsigned)
FLASHLADDER_INTEGER(ll, long long)
FLASHLADDER_INTEGER(ull, unsigned long long)
FLASHLADDER_TO_INTEGER(char, signed char, _rz, std::trunc)
FLASHLADDER_TO_INTEGER(uchar, unsigned char, _rz, std::trunc)
#undef FLASHLADDER_INTEGER
#undef FLASHLADDER_FROM_INTEGER
#undef FLASHLADDER_TO_INTEGER

// ---- pairs ---------------------------------------------------------------------------------------------------------

__forceinline__ Half2 FLASHLADDER_NAMED2(make_, )(Half x, Half y) { return {x, y}; }
__forceinline__ Half2 FLASHLADDER_NAMED2(__halves2, )(Half x, Half y) { return {x, y}; }
__forceinline__ Half2 FLASHLADDER_NAMED(__, FLASHLADDER_NAMED2(2, ))(Half x) { return {x, x}; }
__forceinline__ Half2 FLASHLADDER_NAMED2(__float2, _rn)(float x) { return {x, x}; }
__forceinline__ Half2 FLASHLADDER_NAMED2(__floats2, _rn)(float x, float y) { return {x, y}; }
__forceinline__ Half2 FLASHLADDER_NAMED2(__float22, _rn)(float2 x) { return {x.x, x.y}; }
__forceinline__ float2 FLASHLADDER_NAMED2(__, 2float2)(Half2 x) { return {x.x, x.y}; }
__forceinline__ float __low2float(Half2 x) { return x.x; }
__forceinline__ float __high2float(Half2 x) { return x.y; }
__forceinline__ Half FLASHLADDER_NAMED(__low2, )(Half2 x) { return x.x; }
__forceinline__ Half FLASHLADDER_NAMED(__high2, )(Half2 x) { return x.y; }
__forceinline__ Half2 FLASHLADDER_NAMED2(__low2, )(Half2 x) { return {x.x, x.x}; }
__forceinline__ Half2 FLASHLADDER_NAMED2(__high2, )(Half2 x) { return {x.y, x.y}; }
__forceinline__ Half2 FLASHLADDER_NAMED2(__lows2, )(Half2 x, Half2 y) { return {x.x, y.x}; }
__forceinline__ Half2 FLASHLADDER_NAMED2(__highs2, )(Half2 x, Half2 y) { return {x.y, y.y}; }
__forceinline__ Half2 __lowhigh2highlow(Half2 x) { return {x.y, x.x}; }

// ---- arithmetic ----------------------------------------------------------------------------------------------------

/// `name`, its kin `rn`, which no compiler may make a part of an FMA, and `sat`, clamped to [0, 1]; of pairs too.
#define FLASHLADDER_OPERATION(name, op)                                                                         \
    __forceinline__ Half __h##name(Half x, Half y) { return double(x) op double(y); }                           \
    __forceinline__ Half __h##name##_rn(Half x, Half y) { return __h##name(x, y); }                             \
    __forceinline__ Half __h##name##_sat(Half x, Half y) { return emulator::clamped(double(x) op double(y)); }  \
    __forceinline__ Half2 __h##name##2(Half2 x, Half2 y) { return {__h##name(x.x, y.x), __h##name(x.y, y.y)}; } \
    __forceinline__ Half2 __h##name##2_rn(Half2 x, Half2 y) { return __h##name##2(x, y); }                      \
    __forceinline__ Half2 __h##name##2_sat(Half2 x, Half2 y) {                                                  \
        return {__h##name##_sat(x.x, y.x), __h##name##_sat(x.y, y.y)};                                          \
    }
FLASHLADDER_OPERATION(add, +)
FLASHLADDER_OPERATION(sub, -)
FLASHLADDER_OPERATION(mul, *)
#undef FLASHLADDER_OPERATION
__forceinline__ Half __hdiv(Half x, Half y) { return double(x) / double(y); }
__forceinline__ Half2 __h2div(Half2 x, Half2 y) { return {__hdiv(x.x, y.x), __hdiv(x.y, y.y)}; }

/// x y + z, rounded once.
__forceinline__ Half __hfma(Half x, Half y, Half z) { return emulator::sum_to_odd(double(x) * double(y), z); }
__forceinline__ Half __hfma_sat(Half x, Half y, Half z) {
    return emulator::clamped(emulator::sum_to_odd(double(x) * double(y), z));
}
/// 0 for what is less.
__forceinline__ Half __hfma_relu(Half x, Half y, Half z) {
    const double sum = emulator::sum_to_odd(double(x) * double(y), z);
    return sum <= 0 ? 0.0 : sum;
}
__forceinline__ Half2 __hfma2(Half2 x, Half2 y, Half2 z) { return {__hfma(x.x, y.x, z.x), __hfma(x.y, y.y, z.y)}; }
__forceinline__ Half2 __hfma2_sat(Half2 x, Half2 y, Half2 z) {
    return {__hfma_sat(x.x, y.x, z.x), __hfma_sat(x.y, y.y, z.y)};
}
__forceinline__ Half2 __hfma2_relu(Half2 x, Half2 y, Half2 z) {
    return {__hfma_relu(x.x, y.x, z.x), __hfma_relu(x.y, y.y, z.y)};
}
/// The same of complex numbers: each part by two FMAs.
__forceinline__ Half2 __hcmadd(Half2 x, Half2 y, Half2 z) {
    const Half negative = Half::of_bits(x.y.bits() ^ 0x8000);
    return {__hfma(negative, y.y, __hfma(x.x, y.x, z.x)), __hfma(x.y, y.x, __hfma(x.x, y.y, z.y))};
}

__forceinline__ Half __hneg(Half x) { return Half::of_bits(x.bits() ^ 0x8000); }
__forceinline__ Half __habs(Half x) { return Half::of_bits(x.bits() & 0x7FFF); }
__forceinline__ Half2 __hneg2(Half2 x) { return {__hneg(x.x), __hneg(x.y)}; }
__forceinline__ Half2 __habs2(Half2 x) { return {__habs(x.x), __habs(x.y)}; }

/// The number where the other is none; `nan`: none then.
#define FLASHLADDER_EXTREME(name, larger)                                                                       \
    __forceinline__ Half __h##name(Half x, Half y) { return larger; }                                           \
    __forceinline__ Half __h##name##_nan(Half x, Half y) {                                                      \
        return std::isunordered(float(x), float(y)) ? Half::of_bits(0x7FFF) : __h##name(x, y);                  \
    }                                                                                                           \
    __forceinline__ Half2 __h##name##2(Half2 x, Half2 y) { return {__h##name(x.x, y.x), __h##name(x.y, y.y)}; } \
    __forceinline__ Half2 __h##name##2_nan(Half2 x, Half2 y) {                                                  \
        return {__h##name##_nan(x.x, y.x), __h##name##_nan(x.y, y.y)};                                          \
    }
FLASHLADDER_EXTREME(max, emulator::larger(x, y))
FLASHLADDER_EXTREME(min, -emulator::larger(-float(x), -float(y)))
#undef FLASHLADDER_EXTREME

/// exp is `hexp` and, of pairs, `h2exp`.
#define FLASHLADDER_FUNCTION(name, value)     \
    __forceinline__ Half h##name(Half half) { \
        const double x = half;                \
        return value;                         \
    }                                         \
    __forceinline__ Half2 h2##name(Half2 x) { return {h##name(x.x), h##name(x.y)}; }
FLASHLADDER_FUNCTION(exp, std::exp(x))
FLASHLADDER_FUNCTION(exp2, std::exp2(x))
FLASHLADDER_FUNCTION(exp10, std::pow(10, x))
FLASHLADDER_FUNCTION(log, std::log(x))
FLASHLADDER_FUNCTION(log2, std::log2(x))
FLASHLADDER_FUNCTION(log10, std::log10(x))
FLASHLADDER_FUNCTION(sqrt, std::sqrt(x))
FLASHLADDER_FUNCTION(rsqrt, 1 / std::sqrt(x))
FLASHLADDER_FUNCTION(rcp, 1 / x)
FLASHLADDER_FUNCTION(sin, std::sin(x))
FLASHLADDER_FUNCTION(cos, std::cos(x))
FLASHLADDER_FUNCTION(tanh, std::tanh(x))
FLASHLADDER_FUNCTION(tanh_approx, std::tanh(x))
FLASHLADDER_FUNCTION(ceil, std::ceil(x))
FLASHLADDER_FUNCTION(floor, std::floor(x))
FLASHLADDER_FUNCTION(rint, std::nearbyint(x))
FLASHLADDER_FUNCTION(trunc, std::trunc(x))
#undef FLASHLADDER_FUNCTION

// ---- comparisons ---------------------------------------------------------------------------------------------------

__forceinline__ bool __hisnan(Half x) { return std::isnan(float(x)); }
__forceinline__ int __hisinf(Half x) { return std::isinf(float(x)) ? (float(x) < 0 ? -1 : 1) : 0; }
__forceinline__ Half2 __hisnan2(Half2 x) { return {__hisnan(x.x), __hisnan(x.y)}; }

/// One comparison: of two; of pairs, as 1 and 0, as a mask, and whether it holds for both.
#define FLASHLADDER_COMPARISON(name, holds)                                                                     \
    __forceinline__ bool __h##name(Half half, Half other) {                                                     \
        const float x = half, y = other;                                                                        \
        return holds;                                                                                           \
    }                                                                                                           \
    __forceinline__ Half2 __h##name##2(Half2 x, Half2 y) { return {__h##name(x.x, y.x), __h##name(x.y, y.y)}; } \
    __forceinline__ unsigned __h##name##2_mask(Half2 x, Half2 y) {                                              \
        return (__h##name(x.x, y.x) ? 0xFFFF : 0) | (__h##name(x.y, y.y) ? 0xFFFF0000 : 0);                     \
    }                                                                                                           \
    __forceinline__ bool __hb##name##2(Half2 x, Half2 y) { return __h##name(x.x, y.x) && __h##name(x.y, y.y); }
FLASHLADDER_COMPARISON(eq, x == y)
FLASHLADDER_COMPARISON(ne, (x < y || x > y))
FLASHLADDER_COMPARISON(lt, x < y)
FLASHLADDER_COMPARISON(le, x <= y)
FLASHLADDER_COMPARISON(gt, x > y)
FLASHLADDER_COMPARISON(ge, x >= y)
// True of NaN.
FLASHLADDER_COMPARISON(equ, !(x < y || x > y))
FLASHLADDER_COMPARISON(neu, x != y)
FLASHLADDER_COMPARISON(ltu, !(x >= y))
FLASHLADDER_COMPARISON(leu, !(x > y))
FLASHLADDER_COMPARISON(gtu, !(x <= y))
FLASHLADDER_COMPARISON(geu, !(x < y))
#undef FLASHLADDER_COMPARISON

// ---- operators -----------------------------------------------------------------------------------------------------

#define FLASHLADDER_OPERATORS(T, two)                                   \
    __forceinline__ T operator+(T x, T y) { return __hadd##two(x, y); } \
    __forceinline__ T operator-(T x, T y) { return __hsub##two(x, y); } \
    __forceinline__ T operator*(T x, T y) { return __hmul##two(x, y); } \
    __forceinline__ T& operator+=(T& x, T y) { return x = x + y; }      \
    __forceinline__ T& operator-=(T& x, T y) { return x = x - y; }      \
    __forceinline__ T& operator*=(T& x, T y) { return x = x * y; }      \
    __forceinline__ T& operator/=(T& x, T y) { return x = x / y; }      \
    __forceinline__ T operator+(T x) { return x; }                      \
    __forceinline__ T operator-(T x) { return __hneg##two(x); }
__forceinline__ Half operator/(Half x, Half y) { return __hdiv(x, y); }
__forceinline__ Half2 operator/(Half2 x, Half2 y) { return __h2div(x, y); }
FLASHLADDER_OPERATORS(Half, )
FLASHLADDER_OPERATORS(Half2, 2)
#undef FLASHLADDER_OPERATORS
__forceinline__ Half& operator++(Half& x) { return x += Half(1); }
__forceinline__ Half& operator--(Half& x) { return x -= Half(1); }
__forceinline__ Half2& operator++(Half2& x) { return x += Half2(1, 1); }
__forceinline__ Half2& operator--(Half2& x) { return x -= Half2(1, 1); }
__forceinline__ Half operator++(Half& x, int) { return std::exchange(x, x + Half(1)); }
__forceinline__ Half operator--(Half& x, int) { return std::exchange(x, x - Half(1)); }
__forceinline__ Half2 operator++(Half2& x, int) { return std::exchange(x, x + Half2(1, 1)); }
__forceinline__ Half2 operator--(Half2& x, int) { return std::exchange(x, x - Half2(1, 1)); }

__forceinline__ bool operator==(Half x, Half y) { return __heq(x, y); }
__forceinline__ bool operator!=(Half x, Half y) { return __hneu(x, y); }
__forceinline__ bool operator<(Half x, Half y) { return __hlt(x, y); }
__forceinline__ bool operator<=(Half x, Half y) { return __hle(x, y); }
__forceinline__ bool operator>(Half x, Half y) { return __hgt(x, y); }
__forceinline__ bool operator>=(Half x, Half y) { return __hge(x, y); }
// Of pairs: true if it holds for both.
__forceinline__ bool operator==(Half2 x, Half2 y) { return __hbeq2(x, y); }
__forceinline__ bool operator!=(Half2 x, Half2 y) { return __hbneu2(x, y); }
__forceinline__ bool operator<(Half2 x, Half2 y) { return __hblt2(x, y); }
__forceinline__ bool operator<=(Half2 x, Half2 y) { return __hble2(x, y); }
__forceinline__ bool operator>(Half2 x, Half2 y) { return __hbgt2(x, y); }
__forceinline__ bool operator>=(Half2 x, Half2 y) { return __hbge2(x, y); }

#undef FLASHLADDER_NAMED2
#undef FLASHLADDER_NAMED
#undef FLASHLADDER_JOIN
#undef FLASHLADDER_JOIN_
