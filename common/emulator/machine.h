// The virtual GPU at work: threads are fibers, and exactly one of all runs at any time. Who runs next is drawn from the
// seed, so a run is reproducible, and every order that the drawing allows is one a GPU may show. A `__shared__`
// variable is a `static thread_local` one, of which each resident block has a copy that is put in place while the block
// runs.
#pragma once

#include <array>
#include <boost/context/detail/fcontext.hpp>
#include <cstdint>
#include <deque>
#include <source_location>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "async.h"
#include "cluster.h"
#include "emulator.h"
#include "memory.h"
#include "merging.h"
#include "races.h"
#include "report.h"
#include "trace.h"
#include "vector_types.h"
#include "warp_access.h"
#include "warp_synchronous.h"
#include "warpgroup_mma.h"

namespace emulator {

struct Block;
struct Thread;
class Multiprocessor;

/// What a thread waits for. Threads that wait for the same at the same place are one line of a report.
struct Waiting {
    const char* what = nullptr;                       // null of a thread that can run
    std::uint64_t id = 0, phase = 0;                  // which barrier, and which phase of it
    std::string (*details)(const Thread&) = nullptr;  // what is missing, in words
    int (*doubt)(const Thread&) = nullptr;            // that nobody is going to bring it: 0 is the least; null the most
    std::string (*name)(const Thread&) = nullptr;     // in a word, for a headline; "" if nobody knows
};

/// One CUDA thread. What each change of threads reads comes first, in one line of the cache.
struct alignas(64) Thread {
    uint3 index{};
    unsigned rank = 0;  // in its block, x fastest
    Block* block = nullptr;
    boost::context::detail::fcontext_t context = nullptr;  // where it goes on when it runs again
    const Waiting* waits_for = nullptr;                    // on its stack; null while it can run
    Place where;                                           // it waits, or where it last let others run
    std::uintptr_t stack_begin = 0, stack_end = 0;
    std::uintptr_t first_frame = 0;  // of the function that has called the kernel
    bool exited = false;
    const void* frame_of_wait = nullptr;  // on its stack, while it waits: what has called that
    bool in_atomic = false;  // between the read and the write of an atomic function
    bool acquires = false;   // by that, and does no more: load_acquire()
    std::uintptr_t polled = 0;  // while work is counted: the word that it has acquired, and nothing since
    ThreadCopies copies;
    CopyGroups bulk_stores;
    std::uint32_t write_mark = 0;  // what its stores leave behind for the async proxy to see, until its next fence
    std::vector<std::uint64_t*> initialised;  // barriers that other proxies do not know of yet
    int registers = 0;
    std::uint64_t cluster_phase = 0;  // that it has arrived for
    bool cluster_arrived = false;     // since its last cluster_wait()
    bool may_be_early = false;        // the kernel before may not have ended
    ThreadOrder order;
    std::vector<LentRegisters> lent;  // while races are looked for

    unsigned lane() const { return rank % warp_size; }
    unsigned warp() const { return rank / warp_size; }
    const Waiting& waiting() const {
        static constexpr Waiting for_nothing;
        return waits_for ? *waits_for : for_nothing;
    }
};

/// A warp instruction that lanes have begun to arrive at.
struct Rendezvous {
    const char* name;
    Lanes mask;
    Lanes arrived = 0;
    std::array<std::uint64_t, warp_size> values{};
};

/// What each lane brought to a completed rendezvous.
struct Exchange {
    Lanes lanes;
    std::array<std::uint64_t, warp_size> values;
    unsigned last_lane;  // that came; the others have not gone on yet when it does
    Lanes readers = 0;   // lanes that have not come to another one since
};

struct Warp {
    Lanes live = 0;
    std::vector<Rendezvous> pending;
    std::array<Exchange, warp_size> exchanges;       // a lane reads one at a time, so there is always one without readers
    std::array<std::uint8_t, warp_size> received{};  // by lane: which of them is the last one it took part in
    WarpTrace trace;
    Merging merging;
};

/// `__syncthreads`: who has arrived.
struct BlockBarrier {
    std::vector<Thread*> arrived;
    std::source_location where;  // of the first to arrive, as is
    const char* name = nullptr;  // the CUDA name
    int sum = 0, last_sum = 0;   // of the predicates, for __syncthreads_count and its kin
    Thread* stranger = nullptr;  // the first that came to another one than those before it, which is an error
};

/// A barrier for some warps of a block.
struct NamedBarrier {
    unsigned expected = 0, arrived = 0;  // threads
    std::vector<Thread*> waiting;
    Gathering arrivals;
    Clock phase_before;   // what those knew who came to it
    Place last_of_phase;  // where the last of them came
};

/// Beside an mbarrier in shared memory.
struct BarrierWatch {
    Place made;                   // by barrier_init
    bool arrived_at = false;      // by anybody, in any phase
    std::uint64_t completed = 0;  // phases
    std::uint64_t seen = 0;       // of them some wait has ended behind so many
    std::vector<Thread*> waiting;
    Gathering arrivals;      // of all phases
    Clock completed_clock;   // what is known behind those that are over
    std::uint32_t slot = 0;  // of the loads that it waits for; 0 if there were none
};

/// A block that is resident, and its threads.
struct Block {
    Multiprocessor* home = nullptr;
    Cluster* cluster = nullptr;
    uint3 index{};
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    std::vector<Thread*> ready;
    unsigned live = 0;
    BlockBarrier barrier;
    SharedWindow dynamic_shared, static_shared;
    VolatileAccesses volatiles;

    AsyncQueue async;
    std::uint64_t bytes_in_flight = 0;  // while work is counted
    std::array<NamedBarrier, 16> named_barriers;
    std::unordered_map<const std::uint64_t*, BarrierWatch> barriers;
    Thread* looks_late = nullptr;  // one that is about to wait for an mbarrier, and is held until no other can go on
    unsigned steps_until_it_looks = 0;  // if others go on for ever, as they do where they wait for a word
    bool its_warp_arrived = false;      // meanwhile, at an mbarrier
    std::deque<Warpgroup> warpgroups;  // whole ones
    unsigned launch_registers = 0;  // of each thread, before the first setmaxnreg
    unsigned free_registers = 0;
    std::vector<Thread*> register_waiters;
};

/// What a thread that may_be_early is told when it touches memory.
inline constexpr const char* why_early = "the kernel before may still run, and this thread has passed no "
                                         "cudaGridDependencySynchronize(), nor a __syncthreads() behind one";

/// The thread that runs now; null on the host side. One alone runs at any time, so this needs no lock.
extern Thread* current;

/// True while a failure is put into words. Of the standard library's functions that this takes, the linker may have
/// kept the copies that were compiled with a kernel, hooks and all: their accesses to the host's memory are no failure.
extern bool reporting;

/// Until the end of the scope, `reporting` is true.
class Reporting {
public:
    ~Reporting() { reporting = before_; }

private:
    const bool before_ = std::exchange(reporting, true);
};

[[noreturn]] void stop_launch(int code, std::string_view what, const Place& where);

/// Stops the launch: "kind: what", which `words()` returns, then kernel, block, thread, source line.
/// `code` is the cudaError_t that a GPU would give.
template <class Words>
[[noreturn]] void fail(int code, const Place& where, Words words) {
    reporting = true;
    stop_launch(code, words(), where);
}

/// True while a thread is held by hold_reader(): stores to shared memory call explain_unwritten_reads().
extern bool awaiting_store;
/// Ends a read of shared memory that nobody has written, but not yet the launch: the others of the block go on as far
/// as they can without this thread, for one that writes there says what is missing. `words` begin the report.
[[noreturn]] void hold_reader(std::uintptr_t address, std::size_t n, const Place& where, std::string words);
/// The current thread, or what it has asked for by `instruction`, stores there.
void explain_unwritten_reads(std::uintptr_t address, std::size_t n, const Place& where,
                             const char* instruction = nullptr);

/// True for an address that a thread may read though it is neither device nor shared memory: its own stack, the
/// kernel's parameters, constants of the program.
bool is_private_or_constant(std::uintptr_t address);

/// True if an argument of the launch points into this variable.
bool is_passed_by_host(const Allocation& variable);

/// Registers of each thread before the first setmaxnreg: as many as a kernel can have that was compiled for so many
/// threads on a multiprocessor.
unsigned launch_registers(unsigned threads);
/// Before a thread returns: it is an error if warps of its warpgroup have other numbers of registers.
void check_registers(const Thread& thread);

/// The index of block `rank` of the n-th cluster to begin.
uint3 block_at(std::uint64_t n, unsigned rank);

/// Runs the whole grid; the cudaError_t of its first failure, or 0.
int run_grid(const Kernel& kernel, dim3 grid, dim3 block, std::size_t dynamic_shared_bytes, dim3 cluster);

/// The thread with this slot of a team, if that is resident.
Thread* find_thread(std::uint32_t team, std::uint32_t slot);

/// A number below n, from the seed.
std::size_t draw(std::size_t n);
/// Others run until wake() is called for the current thread.
void sleep_until_woken();
/// The current thread lets others run until wake() is called for it. Inlined, as each lane comes here at each instruction of a
/// warp: what it waits for is written where it is read, and not copied.
[[gnu::always_inline]] inline void wait(const Waiting& what, const Place& where) {
    current->waits_for = &what;
    current->where = where;
    sleep_until_woken();
}
inline void wake(Thread& thread) {
    thread.waits_for = nullptr;
    thread.block->ready.push_back(&thread);
}
/// Does what was asked for by a thread that has gone on since; failures are reported as that thread's.
void happen(const AsyncOperation& operation);

// What CUDA's built-ins call. `name` is the CUDA name, for reports.
int synchronize_block(const char* name, int predicate, const std::source_location& where);
const Exchange& exchange(const char* name, Lanes mask, std::uint64_t value, const std::source_location& where);
Lanes active_lanes();
/// Lets others run: called where a thread may be waiting for another one. After very many calls with nothing done in
/// between, the launch fails as a livelock.
void yield(const Place& where);
/// Lets others run so that they come in between: called before a thread writes what others may have changed.
void step_aside();

}  // namespace emulator
