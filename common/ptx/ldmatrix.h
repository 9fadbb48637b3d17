// 8x8 matrices of 16-bit elements between shared memory and the registers of a warp. Of each matrix, lane l holds the
// elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4: in one register, the first one low. That is how mma.sync wants
// them. With `trans`, it holds these two of column l / 4 instead.
//
// Lanes 8 i to 8 i + 7 pass the addresses of the eight rows (16 bytes each) of matrix i.
#pragma once

#include "ptx/backend.h"

namespace flashladder::ptx {

// PTX ISA, "Warp-level matrix load instruction: ldmatrix"; sm_75.
// All 32 lanes of a warp, together; lanes beyond the last row may pass any row of the tile.
// A plain read of shared memory: ordered by nothing but the program and barriers.
template <int n>
__device__ __forceinline__ void ldmatrix(std::uint32_t (&matrices)[n], const void* row,
                                         Where where = Where::current()) {
    static_assert(n == 1 || n == 2 || n == 4, "1, 2 or 4 matrices");
#ifdef __CUDACC__
    const std::uint32_t address = shared_address(row);
    if constexpr (n == 1)
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                     : "=r"(matrices[0])
                     : "r"(address)
                     : "memory");
    else if constexpr (n == 2)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(matrices[0]), "=r"(matrices[1])
                     : "r"(address)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
                     : "r"(address)
                     : "memory");
#else
    emulator::ldmatrix(matrices, n, false, row, where);
#endif
}

// PTX ISA, "Warp-level matrix load instruction: ldmatrix", with .trans; sm_75.
// All 32 lanes of a warp, together; lanes beyond the last row may pass any row of the tile.
// A plain read of shared memory: ordered by nothing but the program and barriers.
template <int n>
__device__ __forceinline__ void ldmatrix_trans(std::uint32_t (&matrices)[n], const void* row,
                                               Where where = Where::current()) {
    static_assert(n == 1 || n == 2 || n == 4, "1, 2 or 4 matrices");
#ifdef __CUDACC__
    const std::uint32_t address = shared_address(row);
    if constexpr (n == 1)
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                     : "=r"(matrices[0])
                     : "r"(address)
                     : "memory");
    else if constexpr (n == 2)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(matrices[0]), "=r"(matrices[1])
                     : "r"(address)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
                     : "r"(address)
                     : "memory");
#else
    emulator::ldmatrix(matrices, n, true, row, where);
#endif
}

// PTX ISA, "Warp-level matrix store instruction: stmatrix"; sm_90.
// All 32 lanes of a warp, together; lanes beyond the last row may pass any row of the tile.
// A plain write of shared memory: before TMA or wgmma reads it, fence_proxy_async() and a barrier.
template <int n>
__device__ __forceinline__ void stmatrix(void* row, const std::uint32_t (&matrices)[n],
                                         Where where = Where::current()) {
    static_assert(n == 1 || n == 2 || n == 4, "1, 2 or 4 matrices");
#ifdef __CUDACC__
    const std::uint32_t address = shared_address(row);
    if constexpr (n == 1)
        asm volatile(FLASHLADDER_SM90("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};")
                     :
                     : "r"(address), "r"(matrices[0])
                     : "memory");
    else if constexpr (n == 2)
        asm volatile(FLASHLADDER_SM90("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};")
                     :
                     : "r"(address), "r"(matrices[0]), "r"(matrices[1])
                     : "memory");
    else
        asm volatile(FLASHLADDER_SM90("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};")
                     :
                     : "r"(address), "r"(matrices[0]), "r"(matrices[1]), "r"(matrices[2]), "r"(matrices[3])
                     : "memory");
#else
    emulator::stmatrix(row, matrices, n, false, where);
#endif
}

// PTX ISA, "Warp-level matrix store instruction: stmatrix", with .trans; sm_90.
// All 32 lanes of a warp, together; lanes beyond the last row may pass any row of the tile.
// A plain write of shared memory: before TMA or wgmma reads it, fence_proxy_async() and a barrier.
template <int n>
__device__ __forceinline__ void stmatrix_trans(void* row, const std::uint32_t (&matrices)[n],
                                               Where where = Where::current()) {
    static_assert(n == 1 || n == 2 || n == 4, "1, 2 or 4 matrices");
#ifdef __CUDACC__
    const std::uint32_t address = shared_address(row);
    if constexpr (n == 1)
        asm volatile(FLASHLADDER_SM90("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};")
                     :
                     : "r"(address), "r"(matrices[0])
                     : "memory");
    else if constexpr (n == 2)
        asm volatile(FLASHLADDER_SM90("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};")
                     :
                     : "r"(address), "r"(matrices[0]), "r"(matrices[1])
                     : "memory");
    else
        asm volatile(FLASHLADDER_SM90("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};")
                     :
                     : "r"(address), "r"(matrices[0]), "r"(matrices[1]), "r"(matrices[2]), "r"(matrices[3])
                     : "memory");
#else
    emulator::stmatrix(row, matrices, n, true, where);
#endif
}

}  // namespace flashladder::ptx
