// Clusters: blocks that run at the same time, and reach each other's shared memory (sm_90). A kernel is launched so by
// LaunchConfig::cluster. No block may return while another one may still reach into it.
#pragma once

#include "ptx/backend.h"
#include "ptx/mbarrier.h"
#include "ptx/tma.h"

namespace flashladder::ptx {

// PTX ISA, "Special registers: %cluster_ctarank"; sm_90.
// Any thread.
// The number of this block in its cluster.
__device__ __forceinline__ unsigned cluster_rank() {
#ifdef __CUDACC__
    unsigned rank;
    asm volatile(FLASHLADDER_SM90("mov.u32 %0, %%cluster_ctarank;") : "=r"(rank));
    return rank;
#else
    return emulator::cluster_rank();
#endif
}

// PTX ISA, "Special registers: %cluster_nctarank"; sm_90.
// Any thread.
// How many blocks the cluster has.
__device__ __forceinline__ unsigned cluster_size() {
#ifdef __CUDACC__
    unsigned size;
    asm volatile(FLASHLADDER_SM90("mov.u32 %0, %%cluster_nctarank;") : "=r"(size));
    return size;
#else
    return emulator::cluster_size();
#endif
}

// PTX ISA, "Parallel synchronization and communication instructions: barrier.cluster", .arrive; sm_90.
// All threads of all blocks of the cluster that have not returned.
// Release: what this thread wrote before is seen behind cluster_wait(). Waits for nobody.
__device__ __forceinline__ void cluster_arrive(Where where = Where::current()) {
#ifdef __CUDACC__
    asm volatile(FLASHLADDER_SM90("barrier.cluster.arrive.release.aligned;") : : : "memory");
#else
    emulator::cluster_arrive(where);
#endif
}

// PTX ISA, "Parallel synchronization and communication instructions: barrier.cluster", .wait; sm_90.
// All threads of all blocks of the cluster that have not returned, after their cluster_arrive().
// Acquire: until all have arrived, and with all that they had written before.
__device__ __forceinline__ void cluster_wait(Where where = Where::current()) {
#ifdef __CUDACC__
    asm volatile(FLASHLADDER_SM90("barrier.cluster.wait.acquire.aligned;") : : : "memory");
#else
    emulator::cluster_wait(where);
#endif
}

/// __syncthreads() of the whole cluster.
__device__ __forceinline__ void cluster_sync(Where where = Where::current()) {
    cluster_arrive(where);
    cluster_wait(where);
}

// PTX ISA, "Data movement and conversion instructions: mapa"; sm_90.
// Any thread. On the emulator, dynamic shared memory alone can be reached.
// Where this place of shared memory is in another block of the cluster, for plain loads and stores.
template <class T>
__device__ __forceinline__ T* map_to_block(T* shared, unsigned rank, Where where = Where::current()) {
#ifdef __CUDACC__
    T* mapped = nullptr;
    asm volatile(FLASHLADDER_SM90("mapa.u64 %0, %1, %2;") : "=l"(mapped) : "l"(shared), "r"(rank));
    return mapped;
#else
    return static_cast<T*>(emulator::map_to_block(shared, rank, where));
#endif
}

// PTX ISA, "Parallel synchronization and communication instructions: mbarrier.arrive", .shared::cluster; sm_90.
// Any thread; one of the arrivals that the phase of the other block's barrier expects. `barrier` is this block's one at
// the same place.
// Release: whoever has waited for the phase with barrier_wait_cluster() sees what this thread wrote before.
__device__ __forceinline__ void barrier_arrive_at(Barrier& barrier, unsigned rank, Where where = Where::current()) {
#ifdef __CUDACC__
    asm volatile(FLASHLADDER_SM90("{\n"
                                  ".reg .b32 remote;\n"
                                  "mapa.shared::cluster.u32 remote, %0, %1;\n"
                                  "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
                                  "}")
                 :
                 : "r"(shared_address(&barrier)), "r"(rank)
                 : "memory");
#else
    emulator::barrier_arrive_at(&barrier.state, rank, where);
#endif
}

// PTX ISA, "Parallel synchronization and communication instructions: mbarrier.try_wait", .acquire.cluster; sm_90.
// Any thread. Asks until the phase with this parity has ended.
// Acquire, of what threads of other blocks wrote too.
__device__ __forceinline__ void barrier_wait_cluster(Barrier& barrier, unsigned parity,
                                                     Where where = Where::current()) {
#ifdef __CUDACC__
    std::uint32_t done = 0;
    while (done == 0)
        asm volatile(FLASHLADDER_SM90("{\n"
                                      ".reg .pred p;\n"
                                      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
                                      "selp.b32 %0, 1, 0, p;\n"
                                      "}")
                     : "=r"(done)
                     : "r"(shared_address(&barrier)), "r"(parity)
                     : "memory");
#else
    barrier_wait(barrier, parity, where);
#endif
}

// PTX ISA, "Data movement and conversion instructions: cp.async.bulk.tensor", .multicast::cluster; sm_90.
// One thread, for all blocks whose bit is set in `blocks`. In each of them the box goes to the same place as here, and
// its bytes are signalled to the barrier at the same place.
// Nothing is ordered: who has waited for the phase of its block's barrier sees the tile.
template <int rank>
__device__ __forceinline__ void tma_load_multicast(void* tile, const CUtensorMap& map, Barrier& barrier,
                                                   const int (&at)[rank], std::uint16_t blocks,
                                                   Where where = Where::current()) {
    static_assert(rank == 2 || rank == 4, "the ranks in use");
#ifdef __CUDACC__
    const std::uint32_t to = shared_address(tile), signal = shared_address(&barrier);
    if constexpr (rank == 2)
        asm volatile(FLASHLADDER_SM90("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                                      ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;")
                     :
                     : "r"(to), "l"(&map), "r"(signal), "r"(at[0]), "r"(at[1]), "h"(blocks)
                     : "memory");
    if constexpr (rank == 4)
        asm volatile(FLASHLADDER_SM90("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
                                      ".multicast::cluster [%0], [%1, {%3, %4, %5, %6}], [%2], %7;")
                     :
                     : "r"(to), "l"(&map), "r"(signal), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "h"(blocks)
                     : "memory");
#else
    emulator::tma_load_multicast(tile, &map, &barrier.state, at, rank, blocks, where);
#endif
}

}  // namespace flashladder::ptx
