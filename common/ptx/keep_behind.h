// An order that nvcc keeps: what is computed before a wait stays before it.
#pragma once

#include "ptx/backend.h"

namespace flashladder::ptx {

/// What is written behind it waits for `value`, which is no negative number. For a wait for products behind arithmetic that
/// is to run under them: nvcc would begin with the wait. Nothing is done: if the value had the bits of one that there is
/// not, which nvcc does not know, this would be an arrival, and waits for products are not moved in front of these.
__device__ __forceinline__ void keep_behind([[maybe_unused]] float value) {
#ifdef __CUDACC__
    asm volatile(FLASHLADDER_SM90("{\n"
                                  ".reg .pred p;\n"
                                  ".reg .b32 bits, nowhere;\n"
                                  "mov.b32 bits, %0;\n"
                                  "mov.b32 nowhere, 0;\n"
                                  "setp.eq.u32 p, bits, 0x80000001;\n"
                                  "@p mbarrier.arrive.shared::cta.b64 _, [nowhere];\n"
                                  "}")
                 :
                 : "f"(value)
                 : "memory");
#endif
}

}  // namespace flashladder::ptx
