// The tensor core of sm_90: a warpgroup (four warps, the first a multiple of four) multiplies a 64x16 by a 16xN matrix
// while its threads go on. B comes from shared memory, A from there or from registers, the sums D are registers. With
// w = warp % 4, g = lane / 4, t = lane % 4:
//
//   D (64xN)   d[4 j], d[4 j + 1]: row 16 w + g, columns 8 j + 2 t and the next; d[4 j + 2], d[4 j + 3]: row + 8
//   A (64x16)  as mma_m16n8k16 has it, for the rows 16 w to 16 w + 15
//
// From issue to wait, the registers of D and A belong to the tensor core. nvcc does not know that, so it is told: D is
// passed to wgmma_fence() and wgmma_wait(), other registers to pin().
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "ptx/backend.h"
#include "ptx/swizzle.h"
#include "ptx/timeline.h"

namespace flashladder::ptx {

/// Which index of A (its row), or of B (its column), lies along k in memory: `k` means that k is contiguous.
enum class Major { k = 0, mn = 1 };

/// Where a matrix lies in shared memory. Its 16-byte chunks hold 8 elements along the contiguous index; with W = 1, 2,
/// 4, 8 chunks to a row of the swizzle, the chunk of element (mn, k), k from 0 to 15, is at
///
///   k:            start + mn % 8 * 16 W + mn / 8 * stride + k / 8 * (W == 1 ? leading : 16)
///   mn, W == 1:   start + k % 8 * 16 + k / 8 * leading + mn / 8 * stride
///   mn, W > 1:    start + k % 8 * 16 W + k / 8 * stride + mn / 8 % W * 16 + mn / 8 / W * leading
///
/// and, if W > 1, with bits 4 to 6 of that address exclusive-ored with bits 7 to 9, as many as W has.
struct Descriptor {
    std::uint64_t bits;

    /// The matrix that lies `bytes` further on, a multiple of 16.
    __device__ __forceinline__ Descriptor operator+(unsigned bytes) const {
        const std::uint32_t low = std::uint32_t(bits) + bytes / 16;  // of 32 bits: the address is in the lowest 14
        return {bits >> 32 << 32 | low};
    }
};

// PTX ISA, "Asynchronous warpgroup level matrix instructions: matrix descriptor"; sm_90.
// Any thread; all of a warpgroup need the same.
// An address and two distances in bytes, multiples of 16 below 2^18.
__device__ __forceinline__ Descriptor matrix_descriptor(const void* start, unsigned leading, unsigned stride,
                                                        Swizzle swizzle, Where where = Where::current()) {
    constexpr std::uint64_t modes[] = {0, 3, 2, 1};  // none, 32, 64, 128 bytes
#ifndef __CUDACC__
    emulator::check_descriptor(start, leading, stride, where);
#endif
    return {(shared_address(start) & 0x3FFFF) >> 4 | std::uint64_t(leading >> 4) << 16 |
            std::uint64_t(stride >> 4) << 32 | modes[int(swizzle)] << 62};
}

/// Tells nvcc that these registers may have changed.
template <class T, int n>
__device__ __forceinline__ void pin([[maybe_unused]] T (&registers)[n]) {
#ifdef __CUDACC__
#pragma unroll
    for (int i = 0; i < n; ++i)
        if constexpr (std::is_array_v<T>)
            pin(registers[i]);
        else if constexpr (std::is_same_v<T, float>)
            asm volatile("" : "+f"(registers[i]) : : "memory");
        else
            asm volatile("" : "+r"(registers[i]) : : "memory");
#endif
}

// PTX ISA, "Asynchronous warpgroup level matrix instructions: wgmma.fence"; sm_90a.
// All lanes of all four warps, before the first wgmma and whenever registers of D or A were touched since.
// Orders these accesses before the wgmmas that follow. For shared memory written by threads: fence_proxy_async().
__device__ __forceinline__ void wgmma_fence(Where where = Where::current()) {
    note(Moment::product, where);
#ifdef __CUDACC__
    asm volatile(FLASHLADDER_SM90("wgmma.fence.sync.aligned;") : : : "memory");
#else
    emulator::wgmma_fence(where);
#endif
}
template <int n>
__device__ __forceinline__ void wgmma_fence(float (&d)[n], Where where = Where::current()) {
    pin(d);
    wgmma_fence(where);
}

// PTX ISA, "Asynchronous warpgroup level matrix instructions: wgmma.commit_group"; sm_90a.
// All lanes of all four warps.
// Makes a group of the wgmmas since the last commit. Waits for nothing.
__device__ __forceinline__ void wgmma_commit(Where where = Where::current()) {
#ifdef __CUDACC__
    asm volatile(FLASHLADDER_SM90("wgmma.commit_group.sync.aligned;") : : : "memory");
#else
    emulator::wgmma_commit(where);
#endif
}

// PTX ISA, "Asynchronous warpgroup level matrix instructions: wgmma.wait_group"; sm_90a.
// All lanes of all four warps.
// Until all groups but the last `pending` are done: their registers may be used, what they read may be overwritten. d: an
// accumulator of these.
template <int pending>
__device__ __forceinline__ void wgmma_wait(Where where = Where::current()) {
    static_assert(pending >= 0 && pending <= 7, "wgmma_wait: from 0 to 7 groups may pend");
#ifdef __CUDACC__
    asm volatile(FLASHLADDER_SM90("wgmma.wait_group.sync.aligned %0;") : : "n"(pending) : "memory");
#else
    emulator::wgmma_wait(pending, where);
#endif
    note(pending == 0 ? Moment::product_done : Moment::product_done_but_last, where);
}
template <int pending, int n>
__device__ __forceinline__ void wgmma_wait(float (&d)[n], Where where = Where::current()) {
    wgmma_wait<pending>(where);
#ifndef __CUDACC__
    emulator::check_waited(d, sizeof(d), where);
#endif
    pin(d);
}

// clang-format off
#ifdef __CUDACC__
#define FLASHLADDER_D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), \
                          "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define FLASHLADDER_D32(i) FLASHLADDER_D8(i), FLASHLADDER_D8(i + 8), FLASHLADDER_D8(i + 16), FLASHLADDER_D8(i + 24)
#define FLASHLADDER_NAMES_0  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
                             "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define FLASHLADDER_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define FLASHLADDER_NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define FLASHLADDER_NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75" \
                             ", %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87"
#define FLASHLADDER_NAMES_88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define FLASHLADDER_NAMES_96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
                             ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// Both with the numbers of the operands behind D.
#define FLASHLADDER_WGMMA_SS(n, type, D, A, B, ACCUMULATE, A_MAJOR, B_MAJOR, ...)                                     \
    asm volatile(FLASHLADDER_SM90("{\n.reg .pred p;\nsetp.ne.b32 p, " ACCUMULATE ", 0;\n"                             \
                     "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type                                   \
                     " {" D "}, " A ", " B ", p, 1, 1, " A_MAJOR ", " B_MAJOR ";\n}")                                 \
                 : __VA_ARGS__                                                                                        \
                 : "l"(a.bits), "l"(b.bits), "r"(int(accumulate)), "n"(int(a_major)), "n"(int(b_major)))
#define FLASHLADDER_WGMMA_RS(n, type, D, A, B, ACCUMULATE, B_MAJOR, ...)                                              \
    asm volatile(FLASHLADDER_SM90("{\n.reg .pred p;\nsetp.ne.b32 p, " ACCUMULATE ", 0;\n"                             \
                     "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type                                   \
                     " {" D "}, {" A "}, " B ", p, 1, 1, " B_MAJOR ";\n}")                                            \
                 : __VA_ARGS__                                                                                        \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits), "r"(int(accumulate)), "n"(int(b_major)))
#define FLASHLADDER_WGMMA_SS_OF(type)                                                                                 \
    if constexpr (n == 64)                                                                                            \
        FLASHLADDER_WGMMA_SS("64", type, FLASHLADDER_NAMES_0, "%32", "%33", "%34", "%35", "%36", FLASHLADDER_D32(0)); \
    if constexpr (n == 96)                                                                                            \
        FLASHLADDER_WGMMA_SS("96", type, FLASHLADDER_NAMES_0 FLASHLADDER_NAMES_32, "%48", "%49", "%50", "%51", "%52", \
                             FLASHLADDER_D32(0), FLASHLADDER_D8(32), FLASHLADDER_D8(40));                             \
    if constexpr (n == 128)                                                                                           \
        FLASHLADDER_WGMMA_SS("128", type, FLASHLADDER_NAMES_0 FLASHLADDER_NAMES_32 FLASHLADDER_NAMES_48, "%64",       \
                             "%65", "%66", "%67", "%68", FLASHLADDER_D32(0), FLASHLADDER_D32(32));                    \
    if constexpr (n == 176)                                                                                           \
        FLASHLADDER_WGMMA_SS("176", type, FLASHLADDER_NAMES_0 FLASHLADDER_NAMES_32 FLASHLADDER_NAMES_48               \
                             FLASHLADDER_NAMES_64, "%88", "%89", "%90", "%91", "%92", FLASHLADDER_D32(0),             \
                             FLASHLADDER_D32(32), FLASHLADDER_D8(64), FLASHLADDER_D8(72), FLASHLADDER_D8(80));        \
    if constexpr (n == 192)                                                                                           \
        FLASHLADDER_WGMMA_SS("192", type, FLASHLADDER_NAMES_0 FLASHLADDER_NAMES_32 FLASHLADDER_NAMES_48               \
                             FLASHLADDER_NAMES_64 FLASHLADDER_NAMES_88, "%96", "%97", "%98", "%99", "%100",           \
                             FLASHLADDER_D32(0), FLASHLADDER_D32(32), FLASHLADDER_D32(64));                           \
    if constexpr (n == 256)                                                                                           \
        FLASHLADDER_WGMMA_SS("256", type, FLASHLADDER_NAMES_0 FLASHLADDER_NAMES_32 FLASHLADDER_NAMES_48               \
                             FLASHLADDER_NAMES_64 FLASHLADDER_NAMES_88 FLASHLADDER_NAMES_96, "%128", "%129", "%130",  \
                             "%131", "%132", FLASHLADDER_D32(0), FLASHLADDER_D32(32), FLASHLADDER_D32(64),            \
                             FLASHLADDER_D32(96))
#define FLASHLADDER_WGMMA_RS_OF(type)                                                                                 \
    if constexpr (n == 64)                                                                                            \
        FLASHLADDER_WGMMA_RS("64", type, FLASHLADDER_NAMES_0, "%32, %33, %34, %35", "%36", "%37", "%38",              \
                             FLASHLADDER_D32(0));                                                                     \
    if constexpr (n == 96)                                                                                            \
        FLASHLADDER_WGMMA_RS("96", type, FLASHLADDER_NAMES_0 FLASHLADDER_NAMES_32, "%48, %49, %50, %51", "%52",       \
                             "%53", "%54", FLASHLADDER_D32(0), FLASHLADDER_D8(32), FLASHLADDER_D8(40));               \
    if constexpr (n == 128)                                                                                           \
        FLASHLADDER_WGMMA_RS("128", type, FLASHLADDER_NAMES_0 FLASHLADDER_NAMES_32 FLASHLADDER_NAMES_48,              \
                             "%64, %65, %66, %67", "%68", "%69", "%70", FLASHLADDER_D32(0), FLASHLADDER_D32(32));     \
    if constexpr (n == 176)                                                                                           \
        FLASHLADDER_WGMMA_RS("176", type, FLASHLADDER_NAMES_0 FLASHLADDER_NAMES_32 FLASHLADDER_NAMES_48               \
                             FLASHLADDER_NAMES_64, "%88, %89, %90, %91", "%92", "%93", "%94", FLASHLADDER_D32(0),     \
                             FLASHLADDER_D32(32), FLASHLADDER_D8(64), FLASHLADDER_D8(72), FLASHLADDER_D8(80));        \
    if constexpr (n == 192)                                                                                           \
        FLASHLADDER_WGMMA_RS("192", type, FLASHLADDER_NAMES_0 FLASHLADDER_NAMES_32 FLASHLADDER_NAMES_48               \
                             FLASHLADDER_NAMES_64 FLASHLADDER_NAMES_88, "%96, %97, %98, %99", "%100", "%101", "%102", \
                             FLASHLADDER_D32(0), FLASHLADDER_D32(32), FLASHLADDER_D32(64));                           \
    if constexpr (n == 256)                                                                                           \
        FLASHLADDER_WGMMA_RS("256", type, FLASHLADDER_NAMES_0 FLASHLADDER_NAMES_32 FLASHLADDER_NAMES_48               \
                             FLASHLADDER_NAMES_64 FLASHLADDER_NAMES_88 FLASHLADDER_NAMES_96,                          \
                             "%128, %129, %130, %131", "%132", "%133", "%134", FLASHLADDER_D32(0),                    \
                             FLASHLADDER_D32(32), FLASHLADDER_D32(64), FLASHLADDER_D32(96))
#endif
// clang-format on

// PTX ISA, "Asynchronous warpgroup level matrix instructions: wgmma.mma_async", m64nNk16; sm_90a.
// All lanes of all four warps, with the same descriptors. D = A B, or D + A B. T is __nv_bfloat16 or __half.
// Nothing is ordered but wgmmas on the same D, one after another: the others wait for wgmma_commit() and wgmma_wait().
template <class T, Major a_major = Major::k, Major b_major = Major::k, int registers>
__device__ __forceinline__ void wgmma(float (&d)[registers], Descriptor a, Descriptor b, bool accumulate,
                                      Where where = Where::current()) {
    constexpr int n = 2 * registers;
    constexpr bool bf16 = std::is_same_v<T, __nv_bfloat16>;
    static_assert(bf16 || std::is_same_v<T, __half>, "elements are __nv_bfloat16 or __half");
    static_assert(n == 64 || n == 96 || n == 128 || n == 176 || n == 192 || n == 256, "the widths in use");
#ifdef __CUDACC__
    if constexpr (bf16) {
        FLASHLADDER_WGMMA_SS_OF("bf16");
    } else {
        FLASHLADDER_WGMMA_SS_OF("f16");
    }
#else
    emulator::wgmma(d, {n, bf16, accumulate, a_major == Major::mn, b_major == Major::mn, false}, a.bits, b.bits,
                    nullptr, where);
#endif
}

// PTX ISA, "Asynchronous warpgroup level matrix instructions: wgmma.mma_async", m64nNk16, A in registers; sm_90a.
// All lanes of all four warps, with the same descriptor. D = A B, or D + A B. T is __nv_bfloat16 or __half.
// Nothing is ordered but wgmmas on the same D, one after another. Until the wait, A must not change either.
template <class T, Major b_major = Major::k, int registers>
__device__ __forceinline__ void wgmma(float (&d)[registers], const std::uint32_t (&a)[4], Descriptor b, bool accumulate,
                                      Where where = Where::current()) {
    constexpr int n = 2 * registers;
    constexpr bool bf16 = std::is_same_v<T, __nv_bfloat16>;
    static_assert(bf16 || std::is_same_v<T, __half>, "elements are __nv_bfloat16 or __half");
    static_assert(n == 64 || n == 96 || n == 128 || n == 176 || n == 192 || n == 256, "the widths in use");
#ifdef __CUDACC__
    if constexpr (bf16) {
        FLASHLADDER_WGMMA_RS_OF("bf16");
    } else {
        FLASHLADDER_WGMMA_RS_OF("f16");
    }
#else
    emulator::wgmma(d, {n, bf16, accumulate, false, b_major == Major::mn, true}, 0, b.bits, a, where);
#endif
}

#ifdef __CUDACC__
#undef FLASHLADDER_D8
#undef FLASHLADDER_D32
#undef FLASHLADDER_NAMES_0
#undef FLASHLADDER_NAMES_32
#undef FLASHLADDER_NAMES_48
#undef FLASHLADDER_NAMES_64
#undef FLASHLADDER_NAMES_88
#undef FLASHLADDER_NAMES_96
#undef FLASHLADDER_WGMMA_SS
#undef FLASHLADDER_WGMMA_RS
#undef FLASHLADDER_WGMMA_SS_OF
#undef FLASHLADDER_WGMMA_RS_OF
#endif

}  // namespace flashladder::ptx
