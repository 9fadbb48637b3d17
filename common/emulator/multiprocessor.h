// What the files of the machine share: the launch in progress, the multiprocessors that run its blocks, how it fails.
// machine.cpp runs threads, rendezvous.cpp lets them meet, grid.cpp hands out blocks, failure.cpp says what went wrong.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cuda_runtime.h"
#include "emulator.h"
#include "machine.h"

namespace emulator {

/// splitmix64: small, and good enough to shuffle with.
class Random {
public:
    explicit constexpr Random(std::uint64_t seed) : state_(seed) {}
    std::uint64_t operator()() {
        std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        return z ^ z >> 31;
    }
    std::size_t below(std::size_t n) { return (*this)() % n; }

private:
    std::uint64_t state_;
};
extern Random random_order;

/// The launch in progress; there is never more than one.
struct Launch {
    const Kernel* kernel;
    dim3 grid, block, cluster;
    std::size_t dynamic_shared_bytes;
    std::uint64_t next_cluster = 0;
    int code = 0;  // the failure, if any
    std::uint64_t idle_yields = 0;
    std::vector<std::uint8_t> static_flags;  // SharedWindow::written of static shared memory, before anything is

    Launch(const Kernel& kernel, dim3 grid, dim3 block, dim3 cluster, std::size_t dynamic_shared_bytes)
        : kernel(&kernel), grid(grid), block(block), cluster(cluster), dynamic_shared_bytes(dynamic_shared_bytes) {}

    dim3 clusters() const { return {grid.x / cluster.x, grid.y / cluster.y, grid.z / cluster.z}; }
    unsigned blocks_per_cluster() const { return cluster.x * cluster.y * cluster.z; }
    unsigned threads() const { return block.x * block.y * block.z; }
};
extern Launch* running;

inline uint3 unflatten(std::uint64_t i, dim3 extent) {
    return {unsigned(i % extent.x), unsigned(i / extent.x % extent.y), unsigned(i / extent.x / extent.y)};
}

/// Memory that is kept from launch to launch: mapping it anew each time would cost more than a small kernel.
struct Workspace {
    char* stacks = nullptr;  // each with a guard page at its lower end
    std::size_t stack_count = 0;
    char* shared;
    std::vector<char> static_shared;  // what the block's static __shared__ variables hold while another block runs
    std::vector<std::uint8_t> dynamic_written, static_written;
    std::vector<std::uint32_t> dynamic_writers, static_writers;
    Shadow dynamic_shadow, static_shadow;

    Workspace();
    ~Workspace();
    Workspace(const Workspace&) = delete;

    void reserve_stacks(std::size_t n);
};

/// Runs one block after another, the threads of each in an order drawn from the seed.
class Multiprocessor {
public:
    Multiprocessor(Launch& launch, Workspace& workspace, SharedWindow static_shared)
        : launch_(launch), workspace_(workspace) {
        block_.static_shared = static_shared;
    }

    /// Makes a block resident, whose threads have slots from `first_slot` on.
    void begin(uint3 index, Cluster& cluster, unsigned first_slot);
    Block& block() { return block_; }
    /// Runs the resident block for a while: to its end, to a failure, or until it is another one's turn.
    void run_slice();
    bool finished() const { return block_.live == 0; }

    /// Called in a fiber: goes back to the scheduler of this multiprocessor.
    void suspend() {
        if (watching) check_suspects();
        scheduler_ = boost::context::detail::jump_fcontext(scheduler_, nullptr).fctx;
    }
    void exit_fiber() { boost::context::detail::jump_fcontext(scheduler_, nullptr); }

private:
    static void fiber_main(boost::context::detail::transfer_t from);

    Launch& launch_;
    Workspace& workspace_;
    boost::context::detail::fcontext_t scheduler_ = nullptr;
    Block block_;
};

// ---- meetings of threads: rendezvous.cpp
/// Hands every lane what all have brought, once the last one that must take part is there.
void complete_if_all_arrived(Block& block, unsigned warp_index, std::size_t i);
/// The block's barrier is complete when all have come that have not returned: since Volta it counts threads, at
/// whatever line they come to it.
void complete_barrier_if_all_arrived(Block& block);
/// Threads have come to two barriers that are not one, and no others are to come: says who waits where.
void record_two_barriers(const Block& block);

// ---- failures: failure.cpp
/// Ends an asynchronous operation that fails. Unlike a fiber, the scheduler's stack must be unwound.
struct OperationFailed {};
extern bool operation_in_progress;

/// `thread` is null where no single one is to blame.
void record_failure(int code, std::string_view what, const Block& block, const Thread* thread, const Place& where);
void record_unwritten_read();
void forget_unwritten_reads();
/// Leaves the fiber for good. Its stack is not unwound: nothing on it owns anything.
[[noreturn]] void abandon();
/// Lines of a report: "called at", once for each.
std::string called_at(const std::vector<std::string>& calls, const char* indentation);
/// "3 threads wait".
std::string count_waiting(std::size_t n);
std::string who_waits_where(const Block& block);
/// ", and 3 of 4 blocks have no room to begin": who waits for one of them waits for ever. "" if all have begun.
std::string blocks_without_room();

}  // namespace emulator
