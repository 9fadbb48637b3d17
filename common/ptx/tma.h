// TMA: one thread asks for a box of a tensor, and the hardware copies it (sm_90). A load signals a barrier with the
// bytes of the box, those outside the tensor included; stores form groups, as cp.async does, but those of one thread.
//
// In shared memory a tile has its rows one after another. With a swizzle, chunk c of row r lies where chunk
// c ^ (r % 8) would (128 bytes wide; c ^ (r / 2 % 4) for 64, c ^ (r / 4 % 2) for 32), and a row takes the whole width
// even where the box is narrower. A tile begins at a multiple of eight such widths, or of 128 bytes without swizzle.
#pragma once

#include <cuda.h>

#include "ptx/backend.h"
#include "ptx/mbarrier.h"

namespace flashladder::ptx {

// PTX ISA, "Data movement and conversion instructions: cp.async.bulk.tensor", global to shared; sm_90.
// One thread. Coordinates are those of the box's first element, the innermost first, which is a multiple of 16 bytes; they
// may be negative. What lies outside the tensor is filled with 0.
// Nothing is ordered: who has waited for the phase of `barrier` sees the tile.
template <int rank>
__device__ __forceinline__ void tma_load(void* tile, const CUtensorMap& map, Barrier& barrier, const int (&at)[rank],
                                         Where where = Where::current()) {
    static_assert(rank >= 1 && rank <= 5, "1 to 5 dimensions");
    note(Moment::load, where);
#ifdef __CUDACC__
    const std::uint32_t to = shared_address(tile), signal = shared_address(&barrier);
#define FLASHLADDER_TMA_LOAD(dimensions, coordinates, ...)                                                          \
    asm volatile(                                                                                                   \
        FLASHLADDER_SM90("cp.async.bulk.tensor." dimensions                                                         \
                         ".shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, " coordinates "], [%2];") \
        :                                                                                                           \
        : "r"(to), "l"(&map), "r"(signal), __VA_ARGS__                                                              \
        : "memory")
    if constexpr (rank == 1) FLASHLADDER_TMA_LOAD("1d", "{%3}", "r"(at[0]));
    if constexpr (rank == 2) FLASHLADDER_TMA_LOAD("2d", "{%3, %4}", "r"(at[0]), "r"(at[1]));
    if constexpr (rank == 3) FLASHLADDER_TMA_LOAD("3d", "{%3, %4, %5}", "r"(at[0]), "r"(at[1]), "r"(at[2]));
    if constexpr (rank == 4)
        FLASHLADDER_TMA_LOAD("4d", "{%3, %4, %5, %6}", "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]));
    if constexpr (rank == 5)
        FLASHLADDER_TMA_LOAD("5d", "{%3, %4, %5, %6, %7}", "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]));
#undef FLASHLADDER_TMA_LOAD
#else
    emulator::tma_load(tile, &map, &barrier.state, at, rank, where);
#endif
}

#ifdef __CUDACC__
#define FLASHLADDER_TMA_STORE(operation, modifiers, dimensions, coordinates, ...)          \
    asm volatile(FLASHLADDER_SM90(operation "." dimensions ".global.shared::cta" modifiers \
                                            ".bulk_group [%0, " coordinates "], [%1];")    \
                 :                                                                         \
                 : "l"(&map), "r"(from), __VA_ARGS__                                       \
                 : "memory")
#define FLASHLADDER_TMA_STORE_OF_RANK(operation, modifiers)                                                         \
    if constexpr (rank == 1) FLASHLADDER_TMA_STORE(operation, modifiers, "1d", "{%2}", "r"(at[0]));                 \
    if constexpr (rank == 2) FLASHLADDER_TMA_STORE(operation, modifiers, "2d", "{%2, %3}", "r"(at[0]), "r"(at[1])); \
    if constexpr (rank == 3)                                                                                        \
        FLASHLADDER_TMA_STORE(operation, modifiers, "3d", "{%2, %3, %4}", "r"(at[0]), "r"(at[1]), "r"(at[2]));      \
    if constexpr (rank == 4)                                                                                        \
        FLASHLADDER_TMA_STORE(operation, modifiers, "4d", "{%2, %3, %4, %5}", "r"(at[0]), "r"(at[1]), "r"(at[2]),   \
                              "r"(at[3]));                                                                          \
    if constexpr (rank == 5)                                                                                        \
    FLASHLADDER_TMA_STORE(operation, modifiers, "5d", "{%2, %3, %4, %5, %6}", "r"(at[0]), "r"(at[1]), "r"(at[2]),   \
                          "r"(at[3]), "r"(at[4]))
#endif

// PTX ISA, "Data movement and conversion instructions: cp.async.bulk.tensor", shared to global; sm_90.
// One thread, after fence_proxy_async() by those who wrote the tile, and a barrier.
// Joins the thread's open group. What lies outside the tensor is not written, but no coordinate may be
// negative, and the first one is a multiple of 16 bytes.
template <int rank>
__device__ __forceinline__ void tma_store(const CUtensorMap& map, const void* tile, const int (&at)[rank],
                                          Where where = Where::current()) {
    static_assert(rank >= 1 && rank <= 5, "1 to 5 dimensions");
    note(Moment::store, where);
#ifdef __CUDACC__
    const std::uint32_t from = shared_address(tile);
    FLASHLADDER_TMA_STORE_OF_RANK("cp.async.bulk.tensor", "");
#else
    emulator::tma_store(&map, tile, at, rank, emulator::Reduction::none, where);
#endif
}

// PTX ISA, "Data movement and conversion instructions: cp.reduce.async.bulk.tensor", .add; sm_90. For maps of floats.
// One thread, after fence_proxy_async() by those who wrote the tile, and a barrier.
// Joins the thread's open group. Each element is added atomically; the order among several adders is not defined.
template <int rank>
__device__ __forceinline__ void tma_reduce_add(const CUtensorMap& map, const void* tile, const int (&at)[rank],
                                               Where where = Where::current()) {
    static_assert(rank >= 1 && rank <= 5, "1 to 5 dimensions");
#ifdef __CUDACC__
    const std::uint32_t from = shared_address(tile);
    FLASHLADDER_TMA_STORE_OF_RANK("cp.reduce.async.bulk.tensor", ".add.tile");
#else
    emulator::tma_store(&map, tile, at, rank, emulator::Reduction::add, where);
#endif
}
#undef FLASHLADDER_TMA_STORE_OF_RANK
#undef FLASHLADDER_TMA_STORE

// PTX ISA, "Data movement and conversion instructions: cp.async.bulk", global to shared; sm_90.
// One thread. Addresses and size are multiples of 16.
// Nothing is ordered: who has waited for the phase of `barrier` sees the bytes.
__device__ __forceinline__ void bulk_load(void* shared, const void* global, unsigned bytes, Barrier& barrier,
                                          Where where = Where::current()) {
#ifdef __CUDACC__
    asm volatile(
        FLASHLADDER_SM90("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];")
        :
        : "r"(shared_address(shared)), "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(shared_address(&barrier))
        : "memory");
#else
    emulator::bulk_load(shared, global, bytes, &barrier.state, where);
#endif
}

// PTX ISA, "Data movement and conversion instructions: cp.async.bulk", shared to global; sm_90.
// One thread, after fence_proxy_async() by those who wrote the bytes, and a barrier. Multiples of 16.
// Joins the thread's open group.
__device__ __forceinline__ void bulk_store(void* global, const void* shared, unsigned bytes,
                                           Where where = Where::current()) {
#ifdef __CUDACC__
    asm volatile(FLASHLADDER_SM90("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;")
                 :
                 : "l"(__cvta_generic_to_global(global)), "r"(shared_address(shared)), "r"(bytes)
                 : "memory");
#else
    emulator::bulk_store(global, shared, bytes, emulator::Reduction::none, where);
#endif
}

// PTX ISA, "Data movement and conversion instructions: cp.reduce.async.bulk", .add.f32; sm_90.
// One thread, after fence_proxy_async() by those who wrote the floats, and a barrier. Multiples of 16 bytes.
// Joins the thread's open group. Each float is added atomically; the order among several adders is not defined.
__device__ __forceinline__ void bulk_reduce_add(float* global, const float* shared, unsigned bytes,
                                                Where where = Where::current()) {
#ifdef __CUDACC__
    asm volatile(FLASHLADDER_SM90("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;")
                 :
                 : "l"(__cvta_generic_to_global(global)), "r"(shared_address(shared)), "r"(bytes)
                 : "memory");
#else
    emulator::bulk_store(global, shared, bytes, emulator::Reduction::add, where);
#endif
}

// PTX ISA, "Data movement and conversion instructions: cp.async.bulk.commit_group"; sm_90.
// The thread that issued the stores.
// Makes a group of its stores since the last commit. Waits for nothing.
__device__ __forceinline__ void bulk_commit(Where where = Where::current()) {
#ifdef __CUDACC__
    asm volatile(FLASHLADDER_SM90("cp.async.bulk.commit_group;") : : : "memory");
#else
    emulator::bulk_commit(where);
#endif
}

// PTX ISA, "Data movement and conversion instructions: cp.async.bulk.wait_group"; sm_90.
// The thread that committed the groups.
// Until all of them but the last `pending` are written, and visible to this thread.
template <int pending>
__device__ __forceinline__ void bulk_wait(Where where = Where::current()) {
    static_assert(pending >= 0, "bulk_wait: groups that may pend are counted from 0");
#ifdef __CUDACC__
    asm volatile(FLASHLADDER_SM90("cp.async.bulk.wait_group %0;") : : "n"(pending) : "memory");
#else
    emulator::bulk_wait(pending, false, where);
#endif
}

// PTX ISA, "Data movement and conversion instructions: cp.async.bulk.wait_group", .read; sm_90.
// The thread that committed the groups, at the latest before it returns.
// Until all of them but the last `pending` have read: shared memory may be overwritten, nothing need be written yet.
template <int pending>
__device__ __forceinline__ void bulk_wait_read(Where where = Where::current()) {
    static_assert(pending >= 0, "bulk_wait_read: groups that may pend are counted from 0");
#ifdef __CUDACC__
    asm volatile(FLASHLADDER_SM90("cp.async.bulk.wait_group.read %0;") : : "n"(pending) : "memory");
#else
    emulator::bulk_wait(pending, true, where);
#endif
}

// PTX ISA, "Data movement and conversion instructions: prefetch", .tensormap; sm_90.
// One thread.
// A hint: the first load through the map need not wait for the map. Orders nothing.
__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap& map, Where where = Where::current()) {
#ifdef __CUDACC__
    asm volatile(FLASHLADDER_SM90("prefetch.tensormap [%0];") : : "l"(&map) : "memory");
#else
    emulator::prefetch_tensor_map(&map, where);
#endif
}

}  // namespace flashladder::ptx
