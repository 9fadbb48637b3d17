// For the kernels of this folder.
#pragma once

#include "ptx/backend.h"

/// Notes where an access is that a report must name. By an atomic, lest this is a race itself.
#ifdef __CUDACC__
#define NOTE(i)
#else
#define NOTE(i) atomicExch(&lines[i], __LINE__ + 1)
#endif

namespace flashladder {

/// Waits until ready() is true. On a GPU for a tenth of a second at most, and then never again: some mutants would wait
/// for ever, which the emulator reports.
template <class Ready>
__device__ void wait_until(Ready ready, [[maybe_unused]] int* lines) {
#ifdef __CUDACC__
    const auto now = [] {
        std::uint64_t nanoseconds;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
        return nanoseconds;
    };
    const std::uint64_t start = now();
    while (!ready()) {
        if (*(volatile int*)lines == 0 && now() - start < 100'000'000) continue;
        *(volatile int*)lines = 1;
        return;
    }
#else
    while (!ready()) {
    }
#endif
}

/// Until all that is under way has happened, as a rule. It orders nothing.
__device__ inline void pass_time() {
    for (int i = 0; i < 1500; ++i) __nanosleep(20);
}

}  // namespace flashladder
