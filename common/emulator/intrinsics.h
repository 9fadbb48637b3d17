// Arithmetic that CUDA has as functions: of integers, of floats, conversions, and loads and stores with a hint for the
// cache, which is none here. Where an instruction of a GPU is approximate, this is as exact as the C library.
#pragma once

#include <math.h>  // with these two, abs, exp and their kin take a float without std:: too, as in CUDA
#include <stdlib.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "vector_types.h"

// ---- integers ------------------------------------------------------------------------------------------------------

using std::max;
using std::min;
// Of two types: of the common one, as CUDA's overloads are.
template <class A, class B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B> && !std::is_same_v<A, B>) constexpr auto min(A a, B b) {
    using T = std::common_type_t<A, B>;
    return T(a) < T(b) ? T(a) : T(b);
}
template <class A, class B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B> && !std::is_same_v<A, B>) constexpr auto max(A a, B b) {
    using T = std::common_type_t<A, B>;
    return T(a) > T(b) ? T(a) : T(b);
}
inline unsigned umin(unsigned a, unsigned b) { return std::min(a, b); }
inline unsigned umax(unsigned a, unsigned b) { return std::max(a, b); }

inline int __vimax3_s32(int a, int b, int c) { return std::max({a, b, c}); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline int __ffsll(long long x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned long long>(x)) + 1; }
inline unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int i = 0; i < 32; ++i) reversed |= (x >> i & 1) << (31 - i);
    return reversed;
}
inline unsigned long long __brevll(unsigned long long x) {
    return static_cast<unsigned long long>(__brev(unsigned(x))) << 32 | __brev(unsigned(x >> 32));
}
/// Four of the eight bytes of y and x, x first, which the nibbles of `selector` name; their highest bit asks for the
/// sign, eight times.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const std::uint64_t bytes = std::uint64_t(y) << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        const unsigned nibble = selector >> 4 * i & 15;
        unsigned byte = unsigned(bytes >> 8 * (nibble & 7)) & 255;
        if (nibble & 8) byte = byte & 128 ? 255 : 0;
        result |= byte << 8 * i;
    }
    return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return unsigned((std::uint64_t(high) << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return unsigned((std::uint64_t(high) << 32 | low) >> (shift & 31));
}
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}
inline int __mul24(int x, int y) {
    const auto low = [](int v) { return std::int64_t(int(unsigned(v) << 8) >> 8); };
    return int(low(x) * low(y));
}
inline unsigned __umul24(unsigned x, unsigned y) { return (x & 0xFFFFFF) * (y & 0xFFFFFF); }
inline int __mulhi(int x, int y) { return int(std::int64_t(x) * y >> 32); }
inline unsigned __umulhi(unsigned x, unsigned y) { return unsigned(std::uint64_t(x) * y >> 32); }
inline long long __mul64hi(long long x, long long y) {
    return static_cast<long long>(static_cast<__int128_t>(x) * y >> 64);
}
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return static_cast<unsigned long long>(static_cast<__uint128_t>(x) * y >> 64);
}
inline unsigned __sad(int x, int y, unsigned z) { return unsigned(std::abs(std::int64_t(x) - y)) + z; }
inline unsigned __usad(unsigned x, unsigned y, unsigned z) { return (x < y ? y - x : x - y) + z; }
inline int __hadd(int x, int y) { return int((std::int64_t(x) + y) >> 1); }
inline int __rhadd(int x, int y) { return int((std::int64_t(x) + y + 1) >> 1); }
inline unsigned __uhadd(unsigned x, unsigned y) { return unsigned((std::uint64_t(x) + y) >> 1); }
inline unsigned __urhadd(unsigned x, unsigned y) { return unsigned((std::uint64_t(x) + y + 1) >> 1); }
inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; ++i) c += std::int8_t(a >> 8 * i) * std::int8_t(b >> 8 * i);
    return c;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 4; ++i) c += (a >> 8 * i & 255) * (b >> 8 * i & 255);
    return c;
}

// ---- floats --------------------------------------------------------------------------------------------------------

inline float __expf(float x) { return std::exp(x); }
inline float __exp10f(float x) { return std::pow(10.0f, x); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __log10f(float x) { return std::log10(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline float __tanf(float x) { return std::tan(x); }
inline void __sincosf(float x, float* sine, float* cosine) { *sine = std::sin(x), *cosine = std::cos(x); }
inline float __tanhf(float x) { return std::tanh(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x > 0 ? std::min(x, 1.0f) : 0; }  // NaN becomes 0
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __frsqrt_rn(float x) { return float(1 / std::sqrt(double(x))); }
inline float __frcp_rn(float x) { return 1 / x; }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dsub_rn(double x, double y) { return x - y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __ddiv_rn(double x, double y) { return x / y; }
inline double __dsqrt_rn(double x) { return std::sqrt(x); }
inline double __drcp_rn(double x) { return 1 / x; }
inline double __fma_rn(double x, double y, double z) { return std::fma(x, y, z); }

inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float rcbrtf(float x) { return 1 / std::cbrt(x); }
inline float norm3df(float x, float y, float z) { return std::hypot(x, y, z); }
inline float rnorm3df(float x, float y, float z) { return 1 / std::hypot(x, y, z); }
inline double norm3d(double x, double y, double z) { return std::hypot(x, y, z); }
inline double rnorm3d(double x, double y, double z) { return 1 / std::hypot(x, y, z); }
inline float rhypotf(float x, float y) { return 1 / std::hypot(x, y); }
inline double rhypot(double x, double y) { return 1 / std::hypot(x, y); }
inline float normcdff(float x) { return float(std::erfc(-double(x) * 0.70710678118654752) / 2); }
inline double normcdf(double x) { return std::erfc(-x * 0.70710678118654752) / 2; }
// New C libraries have these, with the same results, so they are declared as these do.
extern "C" {
inline double sinpi(double x) noexcept {
    const double turned = std::remainder(x, 2);  // exact
    return turned == std::trunc(turned) ? std::copysign(0.0, x) : std::sin(turned * 3.14159265358979323846);
}
inline double cospi(double x) noexcept {
    const double turned = std::fabs(std::remainder(x, 2));
    return turned == 0.5 ? 0 : std::cos(turned * 3.14159265358979323846);
}
inline float sinpif(float x) noexcept { return float(sinpi(x)); }
inline float cospif(float x) noexcept { return float(cospi(x)); }
}
inline void sincospif(float x, float* sine, float* cosine) { *sine = sinpif(x), *cosine = cospif(x); }
inline void sincospi(double x, double* sine, double* cosine) { *sine = sinpi(x), *cosine = cospi(x); }

// ---- conversions ---------------------------------------------------------------------------------------------------

inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline int __double2hiint(double x) { return int(std::bit_cast<std::uint64_t>(x) >> 32); }
inline int __double2loint(double x) { return int(std::bit_cast<std::uint64_t>(x)); }
inline double __hiloint2double(int high, int low) {
    return std::bit_cast<double>(std::uint64_t(unsigned(high)) << 32 | unsigned(low));
}

namespace emulator {

/// A whole number as an integer: the nearest that there is, and for NaN 0, or 2^63 in 64 bits.
template <class Int, class Float>
constexpr Int saturated(Float x) {
    if (x != x) return sizeof(Int) < 8 ? Int(0) : Int(1ull << 63);
    constexpr Float end = Float(2) * Float(Int(1) << (std::numeric_limits<Int>::digits - 1));  // first one too large
    if (x >= end) return std::numeric_limits<Int>::max();
    if (x <= Float(std::numeric_limits<Int>::min())) return std::numeric_limits<Int>::min();
    return Int(x);
}

}  // namespace emulator

#define FLASHLADDER_CONVERSIONS(from, From, to, To)                                               \
    inline To __##from##2##to##_rn(From x) { return emulator::saturated<To>(std::nearbyint(x)); } \
    inline To __##from##2##to##_rz(From x) { return emulator::saturated<To>(std::trunc(x)); }     \
    inline To __##from##2##to##_ru(From x) { return emulator::saturated<To>(std::ceil(x)); }      \
    inline To __##from##2##to##_rd(From x) { return emulator::saturated<To>(std::floor(x)); }
FLASHLADDER_CONVERSIONS(float, float, int, int)
FLASHLADDER_CONVERSIONS(float, float, uint, unsigned)
FLASHLADDER_CONVERSIONS(float, float, ll, long long)
FLASHLADDER_CONVERSIONS(float, float, ull, unsigned long long)
FLASHLADDER_CONVERSIONS(double, double, int, int)
FLASHLADDER_CONVERSIONS(double, double, uint, unsigned)
FLASHLADDER_CONVERSIONS(double, double, ll, long long)
FLASHLADDER_CONVERSIONS(double, double, ull, unsigned long long)
#undef FLASHLADDER_CONVERSIONS
inline float __int2float_rn(int x) { return float(x); }
inline float __uint2float_rn(unsigned x) { return float(x); }
inline float __ll2float_rn(long long x) { return float(x); }
inline float __ull2float_rn(unsigned long long x) { return float(x); }
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }
inline double __ll2double_rn(long long x) { return double(x); }
inline double __ull2double_rn(unsigned long long x) { return double(x); }
inline float __double2float_rn(double x) { return float(x); }

// ---- loads and stores with a hint ----------------------------------------------------------------------------------

#define FLASHLADDER_LOAD(name)                         \
    template <class T>                                 \
    [[gnu::always_inline]] inline T name(const T* p) { \
        return *p;                                     \
    }
FLASHLADDER_LOAD(__ldg)
FLASHLADDER_LOAD(__ldca)
FLASHLADDER_LOAD(__ldcg)
FLASHLADDER_LOAD(__ldcs)
FLASHLADDER_LOAD(__ldcv)
FLASHLADDER_LOAD(__ldlu)
#undef FLASHLADDER_LOAD
#define FLASHLADDER_STORE(name)                                                    \
    template <class T>                                                             \
    [[gnu::always_inline]] inline void name(T* p, std::type_identity_t<T> value) { \
        *p = value;                                                                \
    }
FLASHLADDER_STORE(__stwb)
FLASHLADDER_STORE(__stcg)
FLASHLADDER_STORE(__stcs)
FLASHLADDER_STORE(__stwt)
#undef FLASHLADDER_STORE
