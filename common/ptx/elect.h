#pragma once

#include "ptx/backend.h"

namespace flashladder::ptx {

// PTX ISA, "Parallel synchronization and communication instructions: elect.sync"; sm_90.
// All 32 lanes of a warp, together.
// True in one lane, the same each time. The compiler knows that one lane alone goes on, which `lane == 0` does not say.
__device__ __forceinline__ bool elect_one(Where where = Where::current()) {
#ifdef __CUDACC__
    std::uint32_t elected;
    asm volatile(FLASHLADDER_SM90("{\n"
                                  ".reg .pred p;\n"
                                  "elect.sync _|p, 0xFFFFFFFF;\n"
                                  "selp.b32 %0, 1, 0, p;\n"
                                  "}")
                 : "=r"(elected));
    return elected != 0;
#else
    return emulator::elect_one(where);
#endif
}

}  // namespace flashladder::ptx
