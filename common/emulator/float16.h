// The bits of bfloat16 and IEEE half precision. Always inlined: kernels are compiled with hooks, the emulator without,
// and neither may end up with the other's copy.
#pragma once

#include <bit>
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

}  // namespace emulator
