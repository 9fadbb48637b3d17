// Kernels that do one thing as fast as the card can, and how fast that is.
#pragma once

#include <cuda_runtime.h>

#include <string>
#include <vector>

namespace flashladder {

/// Of one instruction, or one way to move bytes.
struct Rate {
    std::string what;  // "mma.m16n8k16"
    std::string how;   // operands, or what the bytes go to
    double rate = 0;
    std::string
        unit;  // "operations/clock": of one multiprocessor; "TB/s": of the card, or of as many blocks as `how` says
};

/// Products by mma and by wgmma, and exponentials: what a multiprocessor does in a clock, all of them at work.
std::vector<Rate> instruction_rates();

enum class Way { bulk_add, bulk_store, atomics };
constexpr int piece = 16 << 10;  // bytes
/// Each block adds, or stores, `pieces` pieces of zeros from shared memory to device memory: by TMA, two under way, or
/// by atomicAdd() of its threads. Each block and each time to another of so many places, which lie one behind the
/// other.
void launch_adds(Way way, float* target, int places, int blocks, int pieces, cudaStream_t stream);

}  // namespace flashladder
