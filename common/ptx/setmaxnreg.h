// Registers from a warpgroup that needs few to one that needs many. A block owns what its launch gave it: threads times
// the registers that the kernel was compiled for, so these need both bounds of __launch_bounds__.
#pragma once

#include "ptx/backend.h"

namespace flashladder::ptx {

// PTX ISA, "Miscellaneous instructions: setmaxnreg", .dec; sm_90a.
// All warps of a warpgroup, all lanes together; a multiple of 8 from 24 to 256, no more than the thread has now.
// Gives registers back to the block. Orders no memory.
template <int registers>
__device__ __forceinline__ void registers_decrease(Where where = Where::current()) {
    static_assert(registers % 8 == 0 && registers >= 24 && registers <= 256, "a multiple of 8 from 24 to 256");
#ifdef __CUDACC__
    asm volatile(FLASHLADDER_SM90("setmaxnreg.dec.sync.aligned.u32 %0;") : : "n"(registers));
#else
    emulator::set_max_registers(registers, false, where);
#endif
}

// PTX ISA, "Miscellaneous instructions: setmaxnreg", .inc; sm_90a.
// All warps of a warpgroup, all lanes together; a multiple of 8 from 24 to 256, no fewer than the thread has now.
// Waits until the block has that many to give: for ever, if the sum does not fit. Orders no memory.
template <int registers>
__device__ __forceinline__ void registers_increase(Where where = Where::current()) {
    static_assert(registers % 8 == 0 && registers >= 24 && registers <= 256, "a multiple of 8 from 24 to 256");
#ifdef __CUDACC__
    asm volatile(FLASHLADDER_SM90("setmaxnreg.inc.sync.aligned.u32 %0;") : : "n"(registers));
#else
    emulator::set_max_registers(registers, true, where);
#endif
}

}  // namespace flashladder::ptx
