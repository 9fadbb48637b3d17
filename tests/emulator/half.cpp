// Half precision and bfloat16, as host code: conversions of all values, and that arithmetic rounds once. Held against
// the formats' definitions (number_format.h), and, where a double is too short, against whole numbers.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <doctest/doctest.h>

#include <array>
#include <climits>
#include <random>

#include "../number_format.h"
#include "../test_seed.h"

namespace flashladder {
namespace {

template <class T>
constexpr Format format = f16_format;
template <>
constexpr Format format<__nv_bfloat16> = bf16_format;

template <class T>
double value(T x) {
    return value_of(x.bits(), format<T>);
}

/// Every 16 bits.
template <class T, class Check>
void for_all(Check check) {
    for (unsigned bits = 0; bits < 0x10000; ++bits) check(T::of_bits(bits));
}

/// Pairs of zeros, ones, extremes, infinities and NaN, of any bits, and of bits that differ in few places.
template <class T, class Check>
void for_pairs(Check check) {
    const unsigned infinity = T(INFINITY).bits();
    for (const unsigned bits : {0u, 1u, unsigned(T(1).bits()), infinity - 1, infinity, 0x7FFFu})
        for (const unsigned other : {0u, 1u, unsigned(T(1).bits()), infinity - 1, infinity, 0x7FFFu})
            for (const unsigned signs : {0, 1, 2, 3})
                check(T::of_bits(bits | (signs & 1) << 15), T::of_bits(other | (signs & 2) << 14));
    std::mt19937 random(static_cast<std::uint32_t>(test_seed()));
    for (int i = 0; i < 100'000; ++i) {
        const unsigned bits = random() & 0xFFFF, other = i % 2 ? bits ^ (random() & 0x87FF) : random() & 0xFFFF;
        check(T::of_bits(bits), T::of_bits(other));
    }
}

#define BOTH __half, __nv_bfloat16

TEST_CASE_TEMPLATE("16-bit numbers: to float and back, sign, magnitude, kind", T, BOTH) {
    for_all<T>([](T x) {
        const double exact = value(x);
        REQUIRE(same(float(x), exact));
        REQUIRE(same(value(T(float(x))), exact));
        REQUIRE(same(value(T(exact)), exact));
        REQUIRE(same(value(-x), -exact));
        REQUIRE(same(value(__habs(x)), std::fabs(exact)));
        REQUIRE(__hisnan(x) == std::isnan(exact));
        REQUIRE(__hisinf(x) == (std::isinf(exact) ? (exact < 0 ? -1 : 1) : 0));
        REQUIRE(bool(x) == (exact != 0));
        REQUIRE(same(value(hsqrt(x)), rounded(std::sqrt(exact), format<T>)));
        REQUIRE(same(value(hrcp(x)), rounded(1 / exact, format<T>)));
        REQUIRE(same(value(hexp(x)), rounded(std::exp(exact), format<T>)));
        REQUIRE(same(value(htanh(x)), rounded(std::tanh(exact), format<T>)));
        REQUIRE(same(value(hfloor(x)), std::floor(exact)));
    });
}

TEST_CASE_TEMPLATE("16-bit numbers: arithmetic rounds once, to nearest", T, BOTH) {
    for_pairs<T>([](T a, T b) {
        const double x = value(a), y = value(b);
        // What a double loses of a sum is far below half a unit: no tie is made of it.
        REQUIRE(same(value(a + b), rounded(x + y, format<T>)));
        REQUIRE(same(value(a - b), rounded(x - y, format<T>)));
        REQUIRE(same(value(a * b), rounded(x * y, format<T>)));
        REQUIRE(same(value(a / b), rounded(x / y, format<T>)));
        T c = a;
        REQUIRE(same(value(c += b), value(a + b)));
        REQUIRE(same(value(__hmul_sat(a, b)), x * y > 0 ? std::min(1.0, rounded(x * y, format<T>)) : 0));
    });
}

TEST_CASE_TEMPLATE("16-bit numbers: comparisons, and which is larger", T, BOTH) {
    for_pairs<T>([](T a, T b) {
        const double x = value(a), y = value(b);
        const bool ordered = !std::isnan(x) && !std::isnan(y);
        REQUIRE((a == b) == (x == y));
        REQUIRE((a != b) == (x != y));
        REQUIRE((a < b) == (x < y));
        REQUIRE((a >= b) == (x >= y));
        REQUIRE(__hne(a, b) == (ordered && x != y));
        REQUIRE(__hltu(a, b) == (!ordered || x < y));
        REQUIRE(__hequ(a, b) == (!ordered || x == y));
        REQUIRE(same(value(__hmax(a, b)), x == y ? (std::signbit(x) ? y : x) : std::fmax(x, y)));
        REQUIRE(same(value(__hmin(a, b)), x == y ? (std::signbit(x) ? x : y) : std::fmin(x, y)));
        REQUIRE(same(value(__hmax_nan(a, b)), ordered ? value(__hmax(a, b)) : NAN));
    });
}

/// A half as a whole number of 2^-24.
__int128_t units(double x) { return static_cast<__int128_t>(std::ldexp(x, 24)); }

/// Whether x is the half nearest to n 2^-48, and even where two are.
bool is_nearest(__half x, __int128_t n) {
    const auto distance = [&](unsigned bits) {
        const bool overflow = (bits & 0x7FFF) == 0x7C00;  // counts as 2^16
        const double value = overflow ? (bits & 0x8000 ? -0x1p16 : 0x1p16) : value_of(std::uint16_t(bits), f16_format);
        const __int128_t d = (units(value) << 24) - n;
        return d < 0 ? -d : d;
    };
    const unsigned bits = x.bits();
    for (const unsigned other : {bits + 1, bits - 1}) {
        if ((other & 0x7FFF) > 0x7C00) continue;  // NaN, or the other side of 0
        const __int128_t here = distance(bits), there = distance(other);
        if (there < here || (there == here && bits & 1)) return false;
    }
    return true;
}

TEST_CASE("half precision: an FMA rounds once") {
    std::mt19937 random(static_cast<std::uint32_t>(test_seed()));
    const auto draw = [&] { return __half::of_bits(random() & 0xBFFF); };
    for (int i = 0; i < 200'000; ++i) {
        const __half a = draw(), b = draw(), c = i % 2 ? draw() : __half::of_bits((a * b).bits() ^ (random() & 0x8FFF));
        if (__hisnan(c) || __hisinf(c)) continue;
        const __int128_t n = units(value(a)) * units(value(b)) + (units(value(c)) << 24);
        if (n != 0) REQUIRE(is_nearest(__hfma(a, b, c), n));
    }
    // A float cannot hold these sums.
    const __half a = 1.5f, b = 1 + 0x1p-10f, least = __half::of_bits(1);  // a b is a tie
    CHECK(float(__hfma(a, b, __half(0))) == 1.5f + 0x1p-9f);
    CHECK(float(__hfma(a, b, -least)) == 1.5f + 0x1p-10f);
}

TEST_CASE("bfloat16: an FMA rounds once, though a double cannot hold the sum") {
    const auto least = __nv_bfloat16::of_bits(1);
    const __nv_bfloat16 a = 1.0625f, b = 1.0625f;  // 1.12890625: between 1.125 and 1.1328125, at the middle
    REQUIRE(float(a) * float(b) == 1.12890625f);
    CHECK(float(__hfma(a, b, __nv_bfloat16(0))) == 1.125f);  // to even
    CHECK(float(__hfma(a, b, least)) == 1.1328125f);
    CHECK(float(__hfma(a, b, -least)) == 1.125f);
    CHECK(float(__hfma(-a, b, -least)) == -1.1328125f);
    CHECK(float(__hfma(-a, b, least)) == -1.125f);
}

/// r is what x becomes by the rounding.
template <class T>
void check_directed(double x, T down, T up, T to_zero, T nearest) {
    REQUIRE(value(down) <= x);
    REQUIRE(value(up) >= x);
    const bool exact = value(down) == x;
    REQUIRE((value(up) == x) == exact);
    if (!exact && value(down) != 0 && !std::isinf(value(down)))  // side by side
        REQUIRE(up.bits() == (x < 0 ? down.bits() - 1 : down.bits() + 1));
    REQUIRE(same(value(to_zero), value(std::signbit(x) ? up : down)));
    REQUIRE(same(value(nearest), rounded(x, format<T>)));
}

TEST_CASE("floats and integers to 16 bits: to nearest, down, up and to zero") {
    std::mt19937_64 random(test_seed());
    for (int i = 0; i < 200'000; ++i) {
        const auto bits = static_cast<std::uint32_t>(random());
        const float x = std::bit_cast<float>(i % 2 ? bits : (bits & 0x8FFFFFFF) | 0x30000000);  // not far from 1
        if (std::isnan(x)) continue;
        check_directed(x, __float2half_rd(x), __float2half_ru(x), __float2half_rz(x), __float2half_rn(x));
        check_directed(x, __float2bfloat16_rd(x), __float2bfloat16_ru(x), __float2bfloat16_rz(x),
                       __float2bfloat16_rn(x));
        const auto n = static_cast<int>(random() >> (random() % 64));
        check_directed(n, __int2half_rd(n), __int2half_ru(n), __int2half_rz(n), __int2half_rn(n));
        check_directed(n, __int2bfloat16_rd(n), __int2bfloat16_ru(n), __int2bfloat16_rz(n), __int2bfloat16_rn(n));
    }
    // A double rounds these up to a power of two.
    CHECK(float(__ll2bfloat16_rz(LLONG_MAX)) == 0x1.FEp62f);
    CHECK(float(__ll2bfloat16_rd(LLONG_MAX)) == 0x1.FEp62f);
    CHECK(float(__ull2bfloat16_ru(ULLONG_MAX)) == 0x1p64f);
    CHECK(float(__ll2bfloat16_rz(LLONG_MIN)) == -0x1p63f);
    // A float rounds 2^30 + 2^22 + 1 to a tie, and a double 1 + 2^-11 + 2^-50 does not.
    CHECK(float(__int2bfloat16_rn((1 << 30) + (1 << 22) + 1)) == 0x1.02p30f);
    CHECK(float(__double2half(1 + 0x1p-11 + 0x1p-50)) == 1 + 0x1p-10f);
    CHECK(float(__double2half(1 + 0x1p-11)) == 1);
}

TEST_CASE_TEMPLATE("16-bit numbers to integers", T, BOTH) {
    for_all<T>([](T x) {
        const double exact = value(x);
        const auto expected = [](double whole, double low, double high) {
            return std::isnan(whole) ? 0 : std::min(std::max(whole, low), high);
        };
        if constexpr (std::is_same_v<T, __half>) {
            REQUIRE(__half2int_rn(x) == expected(std::nearbyint(exact), INT_MIN, INT_MAX));
            REQUIRE(__half2int_rd(x) == expected(std::floor(exact), INT_MIN, INT_MAX));
            REQUIRE(__half2uint_ru(x) == expected(std::ceil(exact), 0, UINT_MAX));
            REQUIRE(__half2short_rz(x) == expected(std::trunc(exact), SHRT_MIN, SHRT_MAX));
            REQUIRE(__half2uchar_rz(x) == expected(std::trunc(exact), 0, 255));
        } else {
            REQUIRE(__bfloat162int_rn(x) == expected(std::nearbyint(exact), INT_MIN, INT_MAX));
            REQUIRE(__bfloat162ushort_rz(x) == expected(std::trunc(exact), 0, USHRT_MAX));
        }
        REQUIRE(static_cast<int>(x) == expected(std::trunc(exact), INT_MIN, INT_MAX));
        REQUIRE(static_cast<signed char>(x) == expected(std::trunc(exact), -128, 127));
    });
    CHECK(__half2ll_rz(CUDART_NAN_FP16) == LLONG_MIN);
    CHECK(__half2ull_rn(CUDART_INF_FP16) == ULLONG_MAX);
}

TEST_CASE("pairs: element by element") {
    const __half2 x = {1.5f, -2}, y = {4, 8};
    CHECK(__half2_raw(x + y).x == __half(5.5f).bits());
    CHECK(float(__hfma2(x, y, y).y) == -8);
    CHECK(float((x / y).y) == -0.25f);
    CHECK(float(__lowhigh2highlow(x).x) == -2);
    CHECK(float(__lows2half2(x, y).y) == 4);
    CHECK(float(__highs2half2(x, y).x) == -2);
    CHECK(__hlt2_mask(x, y) == 0xFFFFFFFF);
    CHECK(__heq2_mask(x, {1.5f, 0}) == 0xFFFF);
    CHECK(!(x == __half2(1.5f, 0)));
    CHECK(!(x != __half2(1.5f, 0)));  // true if both differ
    CHECK(float(__hgt2(x, {0, 0}).x) == 1);
    CHECK(float(__hgt2(x, {0, 0}).y) == 0);
    const __half2 product = __hcmadd(__half2(1, 2), {3, 4}, {10, 20});  // (1 + 2i)(3 + 4i) + 10 + 20i
    CHECK(float(product.x) == 5);
    CHECK(float(product.y) == 30);
}

}  // namespace
}  // namespace flashladder
