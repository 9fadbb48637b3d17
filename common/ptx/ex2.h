#pragma once

#include "ptx/backend.h"

namespace flashladder::ptx {

// PTX ISA, "Floating point instructions: ex2", with .approx.ftz.f32; sm_20.
// Any thread.
// 2^x with a relative error of at most 2^-22; subnormal arguments and results are 0. exp2f() costs three instructions
// more, because it is right for subnormal numbers too.
__device__ __forceinline__ float ex2_approx(float x) {
#ifdef __CUDACC__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return emulator::ex2_approx(x);
#endif
}

__device__ __forceinline__ float ex2_volatile(float x) {
#ifdef __CUDACC__
    float y;
    asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return emulator::ex2_approx(x);
#endif
}

}  // namespace flashladder::ptx
