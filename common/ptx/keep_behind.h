// An order that nvcc keeps: what is computed before a wait stays before it.
#pragma once

#include "ptx/backend.h"

namespace flashladder::ptx {

/// A wait for products that is written behind it comes when `value`, which is not negative, has been computed: what `value` is
/// made of runs under these products, where nvcc would begin with the wait. By any thread. It does nothing. In the machine
/// code it is an arrival at a barrier, which no wait for products is moved in front of, for the case that the value is
/// -2^-149; nvcc does not know that it never is.
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
