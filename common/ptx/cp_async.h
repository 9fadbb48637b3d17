// Copies from global to shared memory that need no registers and run while the thread goes on (sm_80). A thread's
// copies since its last commit form a group; groups complete in order.
#pragma once

#include "ptx/backend.h"
#include "ptx/timeline.h"

namespace flashladder::ptx {

// PTX ISA, "Data movement and conversion instructions: cp.async"; sm_80.
// One thread, for itself. Copies `valid` of the 4, 8 or 16 bytes and fills the others with 0; where none is valid, the
// global address is not read from and may be any.
// Nothing is ordered: the bytes are there for this thread after the wait, for others after a barrier behind it.
template <int bytes>
__device__ __forceinline__ void cp_async(void* shared, const void* global, int valid = bytes,
                                         Where where = Where::current()) {
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "4, 8 or 16 bytes");
#ifdef __CUDACC__
    if constexpr (bytes == 16)  // past L1: what is copied to shared memory is rarely read by another block at once
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :
                     : "r"(shared_address(shared)), "l"(__cvta_generic_to_global(global)), "r"(valid)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                     :
                     : "r"(shared_address(shared)), "l"(__cvta_generic_to_global(global)), "n"(bytes), "r"(valid)
                     : "memory");
#else
    emulator::cp_async(shared, global, bytes, valid, where);
#endif
}

// PTX ISA, "Data movement and conversion instructions: cp.async.commit_group"; sm_80.
// One thread, for itself.
// Makes a group of its copies since the last commit; none is a group too. Waits for nothing.
__device__ __forceinline__ void cp_async_commit(Where where = Where::current()) {
    note(Moment::load, where);
#ifdef __CUDACC__
    asm volatile("cp.async.commit_group;" : : : "memory");
#else
    emulator::cp_async_commit(where);
#endif
}

// PTX ISA, "Data movement and conversion instructions: cp.async.wait_group"; sm_80.
// One thread, for itself.
// Until all of its groups but the last `pending` have arrived. Other threads see the bytes only behind a barrier.
template <int pending>
__device__ __forceinline__ void cp_async_wait(Where where = Where::current()) {
    static_assert(pending >= 0, "cp_async_wait: groups that may pend are counted from 0");
    note(Moment::wait, where);
#ifdef __CUDACC__
    asm volatile("cp.async.wait_group %0;" : : "n"(pending) : "memory");
#else
    emulator::cp_async_wait(pending, where);
#endif
    note(Moment::waited, where);
}

}  // namespace flashladder::ptx
