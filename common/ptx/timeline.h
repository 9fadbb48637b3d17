// Who does what when. Where a kernel is compiled with FLASHLADDER_TIMELINE, for tools/timeline, its synchronising
// instructions note the clock of the multiprocessor; elsewhere nothing of this is left. On the emulator there is an
// order, but no time.
#pragma once

#include "ptx/backend.h"

namespace flashladder::ptx {

/// What an instruction is about to do (load, wait, arrive, product, store), or has done (waited, product_done).
enum class Moment : int { load, wait, waited, arrive, product, product_done, store };

#if defined(FLASHLADDER_TIMELINE) && defined(__CUDACC__)

constexpr int timeline_warps = 32, timeline_length = 8192, timeline_clocks = 64;

struct TimelineEvent {
    long long clock;  // 0: nothing
    Moment moment;
    int line;  // of the caller
};
/// Of each warp of block 0 the moments, one for every 64 clocks: where a moment goes follows from when it is, so that
/// nobody counts, and noting is one store.
static __device__ TimelineEvent timeline[timeline_warps][timeline_length];

/// By the first warp of each warpgroup, its first lane, or the lane that does this alone.
__device__ __forceinline__ void note(Moment moment, Where where) {
    const bool alone = __popc(__activemask()) == 1;
    if (blockIdx.x + blockIdx.y + blockIdx.z > 0 || threadIdx.x / 32 % 4 > 0 || (!alone && threadIdx.x % 32 > 0)) return;
    const long long clock = clock64();
    timeline[threadIdx.x / 32][clock / timeline_clocks % timeline_length] = {clock, moment, where.line};
}

#else

__device__ __forceinline__ void note(Moment, Where) {}

#endif

}  // namespace flashladder::ptx
