// Words in global memory through which blocks tell each other how far they are: tickets of a scheduler, flags of a
// result that others go on from. volatile and __threadfence() say the same in more instructions.
#pragma once

#include "ptx/backend.h"

namespace flashladder::ptx {

// PTX ISA, "Data movement and conversion instructions: ld", ld.acquire.gpu; sm_70.
// Any thread.
// Acquire: once it reads what a release wrote, this thread sees all that the releasing thread had written before.
__device__ __forceinline__ std::uint32_t load_acquire(const std::uint32_t* global, Where where = Where::current()) {
#ifdef __CUDACC__
    std::uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                 : "=r"(value)
                 : "l"(__cvta_generic_to_global(global))
                 : "memory");
    return value;
#else
    return emulator::atomic_update(
        const_cast<std::uint32_t*>(global), [](std::uint32_t old) { return old; }, where, emulator::Order::acquire);
#endif
}

// PTX ISA, "Data movement and conversion instructions: st", st.release.gpu; sm_70.
// Any thread; for what other threads of its block wrote, behind a barrier.
// Release: what was written before is seen by whoever acquires the value.
__device__ __forceinline__ void store_release(std::uint32_t* global, std::uint32_t value,
                                              Where where = Where::current()) {
#ifdef __CUDACC__
    asm volatile("st.release.gpu.global.u32 [%0], %1;"
                 :
                 : "l"(__cvta_generic_to_global(global)), "r"(value)
                 : "memory");
#else
    emulator::atomic_update(
        global, [value](std::uint32_t) { return value; }, where, emulator::Order::release);
#endif
}

// PTX ISA, "Parallel synchronization and communication instructions: red", red.release.gpu.add; sm_70.
// Any thread; for what other threads of its block wrote, behind a barrier.
// Release, as store_release(); several threads may add.
__device__ __forceinline__ void add_release(std::uint32_t* global, std::uint32_t value,
                                            Where where = Where::current()) {
#ifdef __CUDACC__
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;"
                 :
                 : "l"(__cvta_generic_to_global(global)), "r"(value)
                 : "memory");
#else
    emulator::atomic_update(
        global, [value](std::uint32_t old) { return old + value; }, where, emulator::Order::release);
#endif
}

// PTX ISA, "Parallel synchronization and communication instructions: atom", atom.acq_rel.gpu.add; sm_70.
// Any thread. The value before.
// Acquire and release at once: the last one to arrive sees what all others wrote.
__device__ __forceinline__ std::uint32_t fetch_add_acquire_release(std::uint32_t* global, std::uint32_t value,
                                                                   Where where = Where::current()) {
#ifdef __CUDACC__
    std::uint32_t old;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(old)
                 : "l"(__cvta_generic_to_global(global)), "r"(value)
                 : "memory");
    return old;
#else
    return emulator::atomic_update(
        global, [value](std::uint32_t old) { return old + value; }, where, emulator::Order::acquire_release);
#endif
}

}  // namespace flashladder::ptx
