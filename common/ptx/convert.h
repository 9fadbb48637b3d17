#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>
#include <type_traits>

#include "ptx/backend.h"

namespace flashladder::ptx {

// PTX ISA, "Data movement and conversion instructions: cvt", to .bf16x2 or .f16x2 from two .f32, .rn; sm_80.
// Any thread.
// Two floats, rounded to nearest even, as the two elements of a register: `low` is the one with the lower index.
template <class T>
__device__ __forceinline__ std::uint32_t pack(float low, float high) {
    constexpr bool bf16 = std::is_same_v<T, __nv_bfloat16>;
    static_assert(bf16 || std::is_same_v<T, __half>, "elements are __nv_bfloat16 or __half");
    std::uint32_t bits;
#ifdef __CUDACC__
    if constexpr (bf16)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
#else
    const auto bits_of = [](float x) { return std::uint32_t(std::bit_cast<std::uint16_t>(T(x))); };
    bits = bits_of(high) << 16 | bits_of(low);
#endif
    return bits;
}

}  // namespace flashladder::ptx
