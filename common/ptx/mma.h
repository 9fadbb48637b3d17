// The tensor core of sm_80: one warp multiplies a 16x16 by a 16x8 matrix. What lane l holds, with g = l / 4, t = l % 4
// and two 16-bit elements a register, the lower index low:
//
//   A (16x16)  a[0]: row g, columns 2t, 2t + 1    a[1]: row g + 8    a[2], a[3]: as these, columns + 8
//   B (16x8)   b[0]: rows 2t, 2t + 1, column g    b[1]: rows + 8
//   D (16x8)   d[0], d[1]: row g, columns 2t, 2t + 1    d[2], d[3]: row g + 8
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "ptx/backend.h"

namespace flashladder::ptx {

// PTX ISA, "Multiply-and-accumulate instruction: mma", m16n8k16 with .bf16 or .f16 and .f32; sm_80.
// All 32 lanes of a warp, together.
// Works on registers alone: nothing to order.
template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                                             Where where = Where::current()) {
    constexpr bool bf16 = std::is_same_v<T, __nv_bfloat16>;
    static_assert(bf16 || std::is_same_v<T, __half>, "elements are __nv_bfloat16 or __half");
#ifdef __CUDACC__
    if constexpr (bf16)
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    emulator::mma_m16n8k16(d, a, b, bf16, where);
#endif
}

}  // namespace flashladder::ptx
