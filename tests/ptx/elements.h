// 16-bit elements on the host, for tests.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstring>
#include <random>

#include "kernels.h"

namespace flashladder {

using Random = std::mt19937_64;

inline int draw(Random& random, int low, int high) { return low + int(random() % unsigned(high - low + 1)); }

template <class T>
std::uint16_t bits_of(T x) {
    std::uint16_t bits;
    static_assert(sizeof x == sizeof bits);
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline std::uint16_t to_bits(Element element, float x) {
    return element == Element::bf16 ? bits_of(__float2bfloat16_rn(x)) : bits_of(__float2half_rn(x));
}
inline float from_bits(Element element, std::uint16_t bits) {
    if (element == Element::f16) {
        __half x;
        std::memcpy(static_cast<void*>(&x), &bits, sizeof bits);
        return __half2float(x);
    }
    __nv_bfloat16 x;
    std::memcpy(static_cast<void*>(&x), &bits, sizeof bits);
    return __bfloat162float(x);
}

/// Bits of whole numbers: their products and sums are exact in float.
inline Bits16 whole_elements(Random& random, Element element, std::size_t n) {
    Bits16 x(n);
    for (auto& bits : x) bits = to_bits(element, float(draw(random, -9, 9)));
    return x;
}

inline Bits16 normal_elements(Random& random, Element element, std::size_t n) {
    Bits16 x(n);
    std::normal_distribution<float> normal;
    for (auto& bits : x) bits = to_bits(element, normal(random));
    return x;
}

inline Bits16 any_bits(Random& random, std::size_t n) {
    Bits16 x(n);
    for (auto& bits : x) bits = std::uint16_t(random());
    return x;
}

}  // namespace flashladder
