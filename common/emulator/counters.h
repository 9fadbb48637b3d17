// Counted work: what kernels ask of memory and of the arithmetic units, by launch and by source line. No times.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "merging.h"
#include "vector_types.h"
#include "warp_access.h"

namespace emulator {

/// Of one kind of access to device memory.
struct GlobalWork {
    std::uint64_t accesses = 0;         // by warps
    std::uint64_t requested_bytes = 0;  // what the lanes ask for, each for itself
    std::uint64_t used_bytes = 0;       // the same, what several lanes of a warp ask for at once counted once
    std::uint64_t sectors = 0;          // of 32 bytes, that the accesses touch

    /// The part of the moved bytes that is used: 1 for neighbouring lanes and words, 1/8 for single floats.
    double coalescing() const { return sectors == 0 ? 1 : double(used_bytes) / double(sectors * sector_bytes); }
    GlobalWork& operator+=(const GlobalWork& other);
    bool operator==(const GlobalWork&) const = default;
};

/// The same of shared memory.
struct SharedWork {
    std::uint64_t accesses = 0;
    std::uint64_t requested_bytes = 0;
    std::uint64_t wavefronts = 0;  // how often the banks had to answer
    std::uint64_t conflicts = 0;   // those among them that bank conflicts cost
    SharedWork& operator+=(const SharedWork& other);
    bool operator==(const SharedWork&) const = default;
};

struct Work {
    std::array<GlobalWork, access_kinds> global{};  // by Access
    std::array<SharedWork, access_kinds> shared{};
    std::uint64_t exponentials = 0;             // calls of exp, expf, exp2f and their kin
    std::uint64_t overlapped_exponentials = 0;  // those of threads that have begun wgmmas and not yet waited for them
    std::uint64_t divisions = 0;                // float and double
    std::uint64_t barriers = 0;                 // __syncthreads and its kin, once a block
    std::uint64_t named_barriers = 0;           // once for each time that all have come
    std::uint64_t matrix_instructions = 0;      // mma once a warp, wgmma once a warpgroup
    std::uint64_t matrix_flops = 0;

    GlobalWork& global_of(Access a) { return global[static_cast<std::size_t>(a)]; }
    SharedWork& shared_of(Access a) { return shared[static_cast<std::size_t>(a)]; }
    const GlobalWork& global_of(Access a) const { return global[static_cast<std::size_t>(a)]; }
    const SharedWork& shared_of(Access a) const { return shared[static_cast<std::size_t>(a)]; }
    GlobalWork all_global() const;
    SharedWork all_shared() const;
    Work& operator+=(const Work& other);
    bool operator==(const Work&) const = default;
};

struct LineWork {
    std::string line;  // "solutions/01-minimal-flash/attention.cu:63"
    Work work;
};

/// Accesses of threads to neighbouring addresses of shared memory, between which nothing stands that forbids nvcc to
/// make one of them; of a loop all are by one line. The work of the lines is that of the accesses as they are written.
struct MergeableWork {
    std::string first_line, last_line;
    Access kind;            // read or write
    std::size_t bytes = 0;  // of a lane's access, as it is written
    // Wavefronts fewer, by level of merged_widths, with accesses of up to that width; and the widest there can be.
    std::array<std::int64_t, merged_widths.size()> saved{};
    std::size_t widest = 0;
};

/// What a launch did to one allocation of device memory.
struct AllocationWork {
    const void* begin = nullptr;
    std::array<GlobalWork, access_kinds> work{};  // by Access
};

struct LaunchWork {
    std::string kernel;
    dim3 grid, block;
    std::size_t dynamic_shared_bytes = 0;
    Work total;
    // Bytes of device memory that the launch read or wrote at all: what a perfect cache would let through.
    std::uint64_t distinct_read_bytes = 0, distinct_written_bytes = 0;
    std::uint64_t most_bytes_in_flight =
        0;  // to a block's shared memory at a time, by copies that threads do not wait for
    std::uint64_t most_copies_under_products =
        0;  // by cp.async, that a warp has asked for and not waited for while it multiplies by mma.sync
    std::vector<LineWork> lines;              // by their name
    std::vector<AllocationWork> allocations;  // by address
    std::vector<MergeableWork> mergeable;     // by their lines
};

struct CountedWork {
    std::vector<LaunchWork> launches;   // in their order
    std::size_t peak_memory_bytes = 0;  // most device memory in use at a time

    Work total() const;
};

/// Calls `run` and counts what the kernels do that it launches. Slower than running them: the addresses of a warp's
/// lanes are collected until all have come. Lanes are matched by instruction and by how often each has come to it since
/// the last barrier; where lanes skip an instruction in some rounds of a loop, that may match them differently than a
/// GPU would. A thread that asks a word by load_acquire() until another one has written it counts as one that has asked
/// once.
CountedWork count_work(const std::function<void()>& run);

/// As JSON, with or without the lines; without overlapped_exponentials and named_barriers. If LADDER_COUNTS names a
/// file, this of all that a program launches is written there when it ends.
nlohmann::json to_json(const CountedWork& work, bool with_lines = true);
nlohmann::json to_json(const GlobalWork& work);
nlohmann::json to_json(const Work& work);

}  // namespace emulator
