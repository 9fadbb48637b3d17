// What every header of this folder stands on. Each function here is one PTX instruction: inline assembly where nvcc
// compiles it, a call of the emulator elsewhere.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#ifdef __CUDACC__
// One source is compiled for several architectures. Where the instruction does not exist, reaching it stops the kernel.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define FLASHLADDER_SM90(instruction) instruction
#else
#define FLASHLADDER_SM90(instruction) "trap;"
#endif
#else
#include "emulator/ptx_functions.h"
#endif

namespace flashladder::ptx {

/// The last parameter of the functions here is never passed: it tells reports of the emulator the line of the call, and
/// those of waits that give up on a GPU.
#ifdef __CUDACC__
struct Where {
    const char* file;
    int line;
    __device__ static constexpr Where current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
        return {file, line};
    }
};
#else
using emulator::Where;
#endif

/// Where a pointer into shared memory points, as the 32-bit address that instructions and descriptors take.
__device__ __forceinline__ std::uint32_t shared_address(const void* shared,
                                                        [[maybe_unused]] Where where = Where::current()) {
#ifdef __CUDACC__
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
#else
    return emulator::shared_address(shared, where);
#endif
}

}  // namespace flashladder::ptx
