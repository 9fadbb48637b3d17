// Who does what when: the order in which the warps of one block load, wait, arrive and multiply. An order, no times.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "vector_types.h"

namespace emulator {

enum class Doing {
    load,         // from device memory to registers
    store,        // to device memory: from registers, or, by TMA, from shared memory
    copy,         // from device to shared memory, meanwhile the thread goes on
    wait,         // for an mbarrier, or for what the thread has asked for
    arrive,       // at an mbarrier or a named barrier, without waiting
    barrier,      // in __syncthreads or at a named barrier, until all have come
    product,      // a matrix instruction
    exponential,  // exp and its kin
};
constexpr int kinds_of_doing = 8;

/// One thing that a warp has done. Of each source line the lowest lane that comes to it speaks for its warp. `begin`,
/// `end` and `happened` are moments, which are numbered through all launches; no two are the same.
struct Activity {
    unsigned warp = 0;
    Doing what = Doing::load;
    std::string line;  // "solutions/01-minimal-flash/attention.cu:63"
    std::uint64_t begin = 0, end = 0;
    std::uint64_t happened = 0;  // when what goes on without the thread was done: copies, wgmma; else `end`
    bool counts = true;          // false for a wait that was given up, to be asked for again
    // Of a thread's load or store and of a copy to shared memory: where it begins in device memory, the box of a TMA load
    // too; null where that is outside of the tensor.
    const void* tensor = nullptr;
    const void* barrier = nullptr;  // of a wait for an mbarrier or at a named barrier, and of an arrival at an mbarrier: it
    std::uint64_t pending = 0;     // of a wgmma: how many the warp has begun before it and not waited for
};

/// What the chosen block has done in one launch.
struct LaunchActivity {
    std::string kernel;
    dim3 grid, block;
    std::vector<Activity> activities;  // in the order in which they begin; empty if there is no such block
};

/// Calls `run` and records what block `block` (x fastest) does in each kernel that it launches. Work is counted
/// meanwhile, which is slower than running them. `late`: what goes on without a thread is done when nothing else can go
/// on, not when the seed has it: as late as the kernel's waits allow.
std::vector<LaunchActivity> record_activity(std::uint64_t block, const std::function<void()>& run, bool late = false);

extern bool all_is_late;  // while it records so

}  // namespace emulator
