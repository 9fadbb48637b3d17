#include "harness/dtype.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>

namespace flashladder {

const char* to_string(DType dtype) {
    switch (dtype) {
        case DType::f32: return "f32";
        case DType::bf16: return "bf16";
        case DType::f16: return "f16";
        case DType::i32: return "i32";
    }
    return "?";
}

DType parse_dtype(const std::string& name) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
        if (name == to_string(dtype)) return dtype;
    throw std::invalid_argument("dtype '" + name + "' is not f32, bf16 or f16");
}

float round_to(DType dtype, float x) {
    switch (dtype) {
        case DType::f32:
        case DType::i32:
            return x;
        case DType::bf16: {
            if (std::isnan(x)) return x;
            std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
            bits += 0x7FFF + (bits >> 16 & 1);  // half of the last kept bit; ties go to even
            return std::bit_cast<float>(bits & 0xFFFF0000u);
        }
        case DType::f16: {
            // The spacing of f16 around x: 2^-10 of its power of two, not below 2^-24.
            if (!std::isfinite(x)) return x;
            const float spacing = std::ldexp(1.0f, std::max(std::ilogb(x == 0 ? 1e-30f : x), -14) - 10);
            const float rounded = std::nearbyint(x / spacing) * spacing;
            return std::abs(rounded) > 65504 ? std::copysign(std::numeric_limits<float>::infinity(), x) : rounded;
        }
    }
    return x;
}

std::uint16_t to_bits(DType dtype, float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    if (dtype == DType::bf16) return static_cast<std::uint16_t>(bits >> 16);
    const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
    if (std::isnan(x)) return sign | 0x7E00;
    if (std::isinf(x)) return sign | 0x7C00;
    const float magnitude = std::abs(x);
    if (magnitude < 0x1p-14f) return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(magnitude * 0x1p24f));
    return static_cast<std::uint16_t>(sign | ((bits >> 13 & 0x3FFFF) - (112 << 10)));
}

float from_bits(DType dtype, std::uint16_t bits) {
    if (dtype == DType::bf16) return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
    const float sign = bits & 0x8000 ? -1.0f : 1.0f;
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    if (exponent == 31)
        return std::bit_cast<float>(static_cast<std::uint32_t>(bits & 0x8000) << 16 | 0x7F800000u |
                                    static_cast<std::uint32_t>(fraction) << 13);  // an infinity, or the same NaN
    return sign *
           (exponent == 0 ? std::ldexp(float(fraction), -24) : std::ldexp(float(1024 + fraction), exponent - 25));
}

double epsilon(DType dtype) { return dtype == DType::f32 ? 0x1p-23 : dtype == DType::f16 ? 0x1p-10 : 0x1p-7; }

double one_rounding(DType dtype, double size) {
    return size == 0 ? 0 : std::ldexp(epsilon(dtype) / 2, std::ilogb(size));
}

double allowed_error(DType dtype) {
    switch (dtype) {
        case DType::f32: return 1e-5;
        case DType::bf16: return 5e-3;
        case DType::f16: return 1e-3;
        case DType::i32: break;
    }
    return 0;
}

std::string found_text(double found) {
    if (!std::isnan(found)) return fmt::format("{:.6g}", found);
    constexpr std::uint32_t fill = 0xFFFF0000;  // what is left of it in a float, whatever the dtype
    const bool filled = (std::bit_cast<std::uint32_t>(static_cast<float>(found)) & fill) == fill;
    return filled ? "nan (as what nobody has written)" : "nan (which was computed)";
}

std::string element_text(const std::string& element, DType dtype, double found, double wanted, double allowed) {
    std::string text = fmt::format("{} is {}, expected {:.6g}", element, found_text(found), wanted);
    const double off = std::fabs(found - wanted);
    if (!std::isfinite(off)) return text;
    text += fmt::format(": off by {:.2e}, where one rounding to {} allows {:.2e}", off, to_string(dtype), allowed);
    return off <= 4 * allowed ? text + ": perhaps rounded more than once, or not to the nearest" : text;
}

}  // namespace flashladder
