// TMA and wgmma see shared memory through the async proxy, loads and stores through the generic one. What one of them
// wrote, the other need not see without a fence.
#pragma once

#include "ptx/backend.h"

namespace flashladder::ptx {

// PTX ISA, "Parallel synchronization and communication instructions: membar / fence", fence.mbarrier_init; sm_90.
// The thread that has initialised barriers, before the barrier of the block or cluster that lets others use them.
// Makes its barrier_init() visible to the cluster and to the async proxy; nothing else.
__device__ __forceinline__ void fence_barrier_init(Where where = Where::current()) {
#ifdef __CUDACC__
    asm volatile(FLASHLADDER_SM90("fence.mbarrier_init.release.cluster;") : : : "memory");
#else
    emulator::fence_barrier_init(where);
#endif
}

// PTX ISA, "Parallel synchronization and communication instructions: membar / fence", fence.proxy.async; sm_90.
// Every thread that has written shared memory which TMA or wgmma will read, before the barrier that announces it.
// Orders this thread's loads and stores of shared memory before what the async proxy does behind it; no barrier itself.
__device__ __forceinline__ void fence_proxy_async(Where where = Where::current()) {
#ifdef __CUDACC__
    asm volatile(FLASHLADDER_SM90("fence.proxy.async.shared::cta;") : : : "memory");
#else
    emulator::fence_proxy_async(where);
#endif
}

}  // namespace flashladder::ptx
