// The bits of bfloat16 and IEEE half precision, and how wider numbers are rounded to them. Always inlined: kernels are
// compiled with hooks, the emulator without, and neither may end up with the other's copy.
#pragma once

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>

namespace emulator {

[[gnu::always_inline]] constexpr float float_from_bf16(std::uint16_t bits) {
    return std::bit_cast<float>(std::uint32_t(bits) << 16);
}

/// To nearest, ties to even. Every NaN becomes 0x7FFF, as the conversion instruction has it.
[[gnu::always_inline]] constexpr std::uint16_t bf16_from_float(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FFF;
    return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

[[gnu::always_inline]] constexpr float float_from_f16(std::uint16_t bits) {
    const std::uint32_t sign = std::uint32_t(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3FF;
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | fraction << 13);
    if (exponent > 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
    const float subnormal = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -subnormal : subnormal;
}

/// To nearest, ties to even; what would round to 65536 becomes infinite, every NaN 0x7FFF.
[[gnu::always_inline]] constexpr std::uint16_t f16_from_float(float x) {
    constexpr std::uint32_t infinity = 0x7F800000u, overflow = 0x477FF000u, smallest_normal = 0x38800000u;
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > infinity) return 0x7FFF;
    if (magnitude >= overflow) return static_cast<std::uint16_t>(sign | 0x7C00);
    if (magnitude < smallest_normal) {
        // The last bit of a float near 0.5 is worth 2^-24, as that of a subnormal half is: the addition rounds.
        const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
        return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(rounded) - 0x3F000000u));
    }
    const std::uint32_t rebiased = magnitude - (112u << 23);
    return static_cast<std::uint16_t>(sign | (rebiased + 0xFFF + (rebiased >> 13 & 1)) >> 13);
}

// ---- rounding once -------------------------------------------------------------------------------------------------

// A number that is rounded to a wider format and then to 16 bits may be rounded twice: to a tie, and then away from
// where it was. Not if the wider format's last bit is set to 1 where something is lost ("round to odd"), for then it is
// no tie, nor a number of 16 bits.

[[gnu::always_inline]] constexpr float float_to_odd(double x) {
    const auto nearest = static_cast<float>(x);
    const double lost = x - static_cast<double>(nearest);
    if (!(lost != 0) || x - x != 0) return nearest;  // exact; NaN or infinite
    const auto bits = std::bit_cast<std::uint32_t>(nearest);
    const std::uint32_t towards_zero = bits - ((lost < 0) == (x > 0));
    return std::bit_cast<float>(towards_zero | 1);
}

/// a + b.
[[gnu::always_inline]] constexpr double sum_to_odd(double a, double b) {
    const double sum = a + b, part = sum - a, lost = (a - (sum - part)) + (b - part);
    if (!(lost != 0) || sum - sum != 0) return sum;
    const auto bits = std::bit_cast<std::uint64_t>(sum);
    const std::uint64_t towards_zero = bits - ((lost < 0) == (sum > 0));
    return std::bit_cast<double>(towards_zero | 1);
}

template <std::floating_point T>
[[gnu::always_inline]] constexpr double to_odd(T x) {
    return static_cast<double>(x);
}
template <std::integral T>
[[gnu::always_inline]] constexpr double to_odd(T x) {
    const bool negative = x < 0;
    auto magnitude = negative ? 0 - static_cast<std::uint64_t>(x) : static_cast<std::uint64_t>(x);
    constexpr std::uint64_t lost = (1 << 11) - 1;  // a double has 53 of 64 bits
    if (magnitude >> 53) magnitude = (magnitude & ~lost) | (magnitude & lost ? lost + 1 : 0);
    return negative ? -static_cast<double>(magnitude) : static_cast<double>(magnitude);
}

enum class Rounding { nearest, zero, up, down };

/// The 16 bits of a number, rounded once. `nearest` rounds a float, `value` is what bits mean.
template <std::uint16_t (*nearest)(float), float (*value)(std::uint16_t)>
[[gnu::always_inline]] constexpr std::uint16_t rounded(double x, Rounding rounding) {
    const std::uint16_t bits = nearest(float_to_odd(x));
    const auto result = static_cast<double>(value(bits));
    const bool negative = bits & 0x8000;
    const bool beyond = negative ? result < x : result > x, short_of = negative ? result > x : result < x;
    if (beyond && (rounding == Rounding::zero || rounding == (negative ? Rounding::up : Rounding::down)))
        return static_cast<std::uint16_t>(bits - 1);
    if (short_of && rounding == (negative ? Rounding::down : Rounding::up)) return static_cast<std::uint16_t>(bits + 1);
    return bits;
}

[[gnu::always_inline]] constexpr std::uint16_t f16_from(double x, Rounding rounding = Rounding::nearest) {
    return rounded<f16_from_float, float_from_f16>(x, rounding);
}
[[gnu::always_inline]] constexpr std::uint16_t bf16_from(double x, Rounding rounding = Rounding::nearest) {
    return rounded<bf16_from_float, float_from_bf16>(x, rounding);
}

/// To [0, 1]; NaN becomes 0.
[[gnu::always_inline]] inline double clamped(double x) { return x > 0 ? (x < 1 ? x : 1) : 0; }
/// The number where one is NaN, and 0 rather than -0.
[[gnu::always_inline]] inline float larger(float x, float y) {
    return x > y || y != y || (x == y && !std::signbit(x)) ? x : y;
}

}  // namespace emulator
