// A barrier in shared memory that counts arrivals and bytes. A phase ends when the expected arrivals have come and as
// many bytes were copied as expected; then the next one begins with the same count. Who waits names the phase by its
// parity: 0 for the first one, then 1, 0, ... A wait for the parity of the phase before the present one returns at
// once. So a producer that waits for empty buffers begins with parity 1.
#pragma once

#include <cstdio>

#include "ptx/backend.h"
#include "ptx/timeline.h"

namespace flashladder::ptx {

/// Lives in shared memory. Its state is opaque.
struct alignas(8) Barrier {
    std::uint64_t state;
};

// PTX ISA, "Parallel synchronization and communication instructions: mbarrier.init"; sm_80.
// One thread, before any other uses the barrier.
// To be followed by fence_barrier_init() and a barrier of the block, or of the cluster.
__device__ __forceinline__ void barrier_init(Barrier& barrier, unsigned arrivals, Where where = Where::current()) {
#ifdef __CUDACC__
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(shared_address(&barrier)), "r"(arrivals) : "memory");
#else
    emulator::barrier_init(&barrier.state, arrivals, where);
#endif
}

// PTX ISA, "Parallel synchronization and communication instructions: mbarrier.inval"; sm_80.
// One thread, when no other uses the barrier any more.
// Needed only where its memory is put to another use.
__device__ __forceinline__ void barrier_invalidate(Barrier& barrier, Where where = Where::current()) {
#ifdef __CUDACC__
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" : : "r"(shared_address(&barrier)) : "memory");
#else
    emulator::barrier_invalidate(&barrier.state, where);
#endif
}

// PTX ISA, "Parallel synchronization and communication instructions: mbarrier.arrive"; sm_90 in this form.
// Any thread; one of the arrivals that the phase expects.
// Release: whoever has waited for the phase sees what this thread wrote before.
__device__ __forceinline__ void barrier_arrive(Barrier& barrier, Where where = Where::current()) {
    note(Moment::arrive, where);
#ifdef __CUDACC__
    asm volatile(FLASHLADDER_SM90("mbarrier.arrive.shared::cta.b64 _, [%0];")
                 :
                 : "r"(shared_address(&barrier))
                 : "memory");
#else
    emulator::barrier_arrive(&barrier.state, where);
#endif
}

// PTX ISA, "Parallel synchronization and communication instructions: mbarrier.arrive", .expect_tx; sm_90.
// Any thread; one of the arrivals that the phase expects.
// The phase now ends only after `bytes` more have arrived. To be called before or after the copies are issued.
__device__ __forceinline__ void barrier_arrive_expect_tx(Barrier& barrier, unsigned bytes,
                                                         Where where = Where::current()) {
#ifdef __CUDACC__
    asm volatile(FLASHLADDER_SM90("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;")
                 :
                 : "r"(shared_address(&barrier)), "r"(bytes)
                 : "memory");
#else
    emulator::barrier_arrive_expect_tx(&barrier.state, bytes, where);
#endif
}

// PTX ISA, "Parallel synchronization and communication instructions: mbarrier.try_wait", .parity; sm_90.
// Any thread. Waits for a while; false means: ask again.
// Acquire: once true, this thread sees what those who arrived wrote before, and the bytes that the phase waited for.
__device__ __forceinline__ bool barrier_try_wait(Barrier& barrier, unsigned parity, Where where = Where::current()) {
#ifdef __CUDACC__
    std::uint32_t done;
    asm volatile(FLASHLADDER_SM90("{\n"
                                  ".reg .pred p;\n"
                                  "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                                  "selp.b32 %0, 1, 0, p;\n"
                                  "}")
                 : "=r"(done)
                 : "r"(shared_address(&barrier)), "r"(parity)
                 : "memory");
    return done != 0;
#else
    return emulator::barrier_try_wait(&barrier.state, parity, where);
#endif
}

/// Asks until the phase with this parity has ended. In a learner's file it gives up after some seconds, says so, and stops
/// the kernel: what nobody ends would hang the GPU. (The emulator sees that at once.)
__device__ __forceinline__ void barrier_wait(Barrier& barrier, unsigned parity, Where where = Where::current()) {
    note(Moment::wait, where);
#if defined(__CUDACC__) && defined(FLASHLADDER_UNFINISHED)
    const long long start = clock64();
    while (!barrier_try_wait(barrier, parity, where))
        if (clock64() - start > 4'000'000'000) {
            printf("%s:%d: block (%d, %d, %d), thread %d: waits for parity %u of the barrier at byte %u of shared memory, "
                   "and that phase does not end\n",
                   where.file, where.line, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, parity,
                   shared_address(&barrier));
            __trap();
        }
#else
    while (!barrier_try_wait(barrier, parity, where)) {
    }
#endif
    note(Moment::waited, where);
}

}  // namespace flashladder::ptx
