// How the host side drives the CPU backend: settings of the virtual GPU, kernel launches, reports.
// Kernels never include this; they see cuda_runtime.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "vector_types.h"

struct CUstream_st;

namespace emulator {

/// The virtual GPU. Change it between launches only.
struct Settings {
    std::uint64_t seed = 1;                        // decides the order in which threads and blocks run
    int multiprocessors = 4;  // this many blocks are resident and run interleaved; or LADDER_MULTIPROCESSORS
    /// Blocks begin from the last one to the first; of a cluster all at once, as ever. CUDA promises no order in which
    /// they begin: what waits for a block with a lower number may wait for one that has no room yet.
    bool last_block_first = false;
    std::size_t shared_bytes_per_block = 227 * 1024;  // what a kernel can opt in to, as on sm_90
    std::size_t l2_bytes = 50 << 20;  // what the device says of itself: no cache is simulated
    std::size_t memory_bytes = std::size_t(16) << 30;
    bool races = false;  // they are looked for, and an error; at first, whether the environment has LADDER_RACES=1
    /// __syncthreads() must be one and the same line for all threads, and none may have returned: what GPUs before
    /// Volta wanted, and what a kernel is easier to understand with. At first, whether LADDER_STRICT_BARRIERS=1.
    bool strict_barriers = false;
    /// Of two bulk or TMA adds to one number, one must be ordered behind the other, as of any two writes: else the sum
    /// has other bits in another launch. An error where races are looked for.
    bool ordered_adds = false;
    bool proxy_fences = true;  // without them, what threads store and TMA or wgmma reads is an error
    void (*failed)(const std::string& report) = nullptr;  // told of every launch that fails or is refused
    std::uint64_t patience = std::uint64_t(1) << 24;  // times that threads may yield while nothing gets done
    int longest_launch = 0;  // seconds of the processor; what takes longer never ends, and fails. 0: there is no limit
};
Settings& settings();

/// Starts the seeded order anew: what follows does not depend on which kernels ran before.
void reseed(std::uint64_t seed);

/// A kernel and its arguments: each thread calls run(parameters). `entry` is the kernel's address, for reports.
struct Kernel {
    const void* entry = nullptr;
    void (*run)(void* parameters) = nullptr;
    void* parameters = nullptr;
    std::size_t parameter_bytes = 0;  // threads may read these
    unsigned blocks = 1;  // that share a multiprocessor, and so its registers: the second bound of __launch_bounds__
    const char* name = nullptr;  // where there is no entry
    bool dependent = false;  // may begin before the kernel before it has ended: programmatic dependent launch
    CUstream_st* stream = nullptr;
};

/// Runs every thread of the grid to its end, or up to the first failure: then cudaGetLastError() and its kin return
/// the code that a GPU would give, and last_report() says what happened. The virtual GPU survives.
void launch(const Kernel& kernel, dim3 grid, dim3 block, std::size_t dynamic_shared_bytes, dim3 cluster = {});

/// What went wrong in the last failed launch: kernel, block, thread, address, source line. Empty if nothing did.
const std::string& last_report();
/// Does `launches` and looks for races meanwhile: the report of what goes wrong first, or "" if nothing does.
std::string find_race(const std::function<void()>& launches);

/// How reports call a stream, which else is "stream 3". The default stream keeps its name.
void name_stream(CUstream_st* stream, std::string name);

/// A kernel or a copy that a stream was given.
struct StreamWork {
    std::string name;  // of the kernel, or of the call
    bool is_kernel;
    unsigned stream;  // 0: the default one
    const void *to = nullptr, *from = nullptr;  // of copies
    std::size_t bytes = 0;
    std::uint64_t time, host_waits;  // of its stream; how often the host had waited for all of them
    std::vector<std::pair<unsigned, std::uint64_t>> done_before;
};
/// What streams were given, in the order of the calls.
struct StreamLog {
    std::vector<StreamWork> works;
    int host_waits = 0;  // times that the host has waited for a stream, an event or the device
    /// Whether the one has ended before the other begins, on a GPU too.
    bool ordered(std::size_t earlier, std::size_t later) const;
};
StreamLog log_streams(const std::function<void()>& calls);

void set_report(std::string text);
void clear_report();
/// What reports call the memory that begins there, instead of its number: "K".
void name_allocation(const void* allocation, std::string name);

}  // namespace emulator
