// The 16-bit formats as their definitions have them, to hold against what the emulator does with bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace flashladder {

/// A floating-point format: the digits behind the binary point, the exponents of its normal numbers.
struct Format {
    int digits, lowest, highest;
};
inline constexpr Format bf16_format{7, -126, 127}, f16_format{10, -14, 15};

/// To nearest, ties to even, by way of double; the value, not its bits.
inline double rounded(double x, const Format& format) {
    if (x == 0 || std::isinf(x) || std::isnan(x)) return x;
    const double unit = std::ldexp(1.0, std::max(std::ilogb(x), format.lowest) - format.digits);
    const double nearest = std::nearbyint(x / unit) * unit;
    const bool too_large = std::fabs(nearest) >= std::ldexp(1.0, format.highest + 1);
    return too_large ? std::copysign(INFINITY, x) : nearest;
}

/// What 16 bits stand for, read digit by digit.
inline double value_of(std::uint16_t bits, const Format& format) {
    const int exponent = (bits & 0x7FFF) >> format.digits, fraction = bits & ((1 << format.digits) - 1);
    const double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == format.highest - format.lowest + 2) return fraction ? NAN : sign * INFINITY;
    const double significand = exponent == 0 ? fraction : fraction + (1 << format.digits);
    return sign * std::ldexp(significand, std::max(exponent, 1) + format.lowest - 1 - format.digits);
}

/// As numbers, of which 0 and -0 are two, and NaN is one.
inline bool same(double x, double y) {
    return std::isnan(x) ? std::isnan(y) : x == y && std::signbit(x) == std::signbit(y);
}

}  // namespace flashladder
