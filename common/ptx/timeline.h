// Who does what when. Where a kernel is compiled with FLASHLADDER_TIMELINE, for tools/timeline, its synchronising
// instructions note the clock of the multiprocessor; elsewhere nothing of this is left. On the emulator there is an
// order, but no time.
#pragma once

#include "ptx/backend.h"

namespace flashladder::ptx {

/// What an instruction is about to do, or has done. product_done_but_last: a wait for products left the last group, or
/// more, pending.
enum class Moment : int {
    load,
    wait,
    waited,
    arrive,
    product,
    product_done,
    product_done_but_last,
    barrier,
    barrier_passed,
    store
};

#if defined(FLASHLADDER_TIMELINE) && defined(__CUDACC__)

constexpr int timeline_warps = 4;  // of which the first is noted: a warpgroup
constexpr int timeline_warpgroups = 8, timeline_length = 32768, timeline_clocks = 16;

struct TimelineEvent {
    long long clock;        // of the multiprocessor; 0: nothing
    long long nanoseconds;  // of the GPU's timer, which is too coarse for a moment; 0 where it was not asked
    const char* file;       // of the caller
    Moment moment;
    int line;
};
/// The block that is noted, x fastest.
static __constant__ unsigned timeline_block;
/// Of each warpgroup the moments, one for every 16 clocks: where a moment goes follows from when it is, so that nobody
/// counts, and noting is a few stores.
static __device__ TimelineEvent timeline[timeline_warpgroups][timeline_length];

/// By the first warp of each warpgroup, its first lane, or the lane that does this alone.
__device__ __forceinline__ void note(Moment moment, Where where) {
    const bool alone = __popc(__activemask()) == 1;
    if (blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z) != timeline_block) return;
    if (threadIdx.x / 32 % timeline_warps > 0 || (!alone && threadIdx.x % 32 > 0)) return;
    const long long clock = clock64();
    long long nanoseconds = 0;
    if (moment == Moment::load) asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
    timeline[threadIdx.x / (32 * timeline_warps)][clock / timeline_clocks % timeline_length] = {
        clock, nanoseconds, where.file, moment, where.line};
}

#else

__device__ __forceinline__ void note(Moment, Where) {}

#endif

}  // namespace flashladder::ptx
