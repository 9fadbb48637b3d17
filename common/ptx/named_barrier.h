// Barriers for some warps of a block. A block has 16; number 0 is the one of __syncthreads().
#pragma once

#include "ptx/backend.h"
#include "ptx/timeline.h"

namespace flashladder::ptx {

// PTX ISA, "Parallel synchronization and communication instructions: bar", bar.sync; sm_20.
// All lanes of each warp that takes part. `threads` counts all who sync or arrive, a multiple of 32.
// Waits for them; what they wrote before it is seen behind it.
__device__ __forceinline__ void named_barrier_sync(int id, int threads, Where where = Where::current()) {
    note(Moment::barrier, where);
#ifdef __CUDACC__
    asm volatile("bar.sync %0, %1;" : : "r"(id), "r"(threads) : "memory");
#else
    emulator::named_barrier(id, threads, true, where);
#endif
    note(Moment::barrier_passed, where);
}

// PTX ISA, "Parallel synchronization and communication instructions: bar", bar.arrive; sm_20.
// All lanes of each warp that takes part. `threads` counts all who sync or arrive, a multiple of 32.
// Waits for nobody: those who sync see what this thread wrote before, not the other way round.
__device__ __forceinline__ void named_barrier_arrive(int id, int threads, Where where = Where::current()) {
    note(Moment::arrive, where);
#ifdef __CUDACC__
    asm volatile("bar.arrive %0, %1;" : : "r"(id), "r"(threads) : "memory");
#else
    emulator::named_barrier(id, threads, false, where);
#endif
}

}  // namespace flashladder::ptx
