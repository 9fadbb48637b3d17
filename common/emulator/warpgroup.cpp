// Named barriers, elect.sync and setmaxnreg: instructions that let the warps of a block go different ways.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "barrier.h"
#include "collective.h"
#include "cuda_runtime.h"
#include "ptx_functions.h"

namespace emulator {
namespace {

constexpr Lanes all_lanes = 0xFFFFFFFFu;
constexpr unsigned register_file = 65536, granularity = 8, most_registers = 256;

std::string who_is_missing(const Thread& thread) {
    const NamedBarrier& barrier = thread.block->named_barriers[thread.waiting().id];
    const bool disagree = barrier.arrived % warpgroup_threads != 0 && barrier.expected % warpgroup_threads == 0;
    return fmt::format("barrier {}: {} of {} threads are missing{}", thread.waiting().id,
                       barrier.expected - barrier.arrived, barrier.expected,
                       disagree ? ", some warps of a warpgroup among them, while others of it have come" : "");
}
std::string in_words(const Thread& thread) { return "named " + who_is_missing(thread); }

/// The least where those who are missing are more than wait for anything else: they wait at such barriers themselves.
int doubt(const Thread& thread) {
    const Block& block = *thread.block;
    const NamedBarrier& barrier = block.named_barriers[thread.waiting().id];
    const auto elsewhere = std::ranges::count_if(
        block.threads, [](const Thread& other) { return !other.exited && other.waiting().details != who_is_missing; });
    return barrier.expected - barrier.arrived > static_cast<std::size_t>(elsewhere) ? -1 : std::numeric_limits<int>::max();
}

/// Who comes to a barrier must know that its phase before is over, from all who came to that: else they might come
/// first, and be counted in the place of others.
void check_phase_before(const NamedBarrier& barrier, int id, const char* name, const Where& where) {
    if (current->order.actor.clock.covers(barrier.phase_before)) return;
    fail(cudaErrorLaunchFailure, where, [&] {
        return fmt::format(
            "race: {} of barrier {} at {}\n  not ordered behind the barrier's phase before, which ended at {}\n"
            "  missing    another number, or a barrier between the two: whoever comes first is counted",
            name, id, to_string(where), to_string(barrier.last_of_phase));
    });
}

std::string which_registers(const Thread& thread) {
    return fmt::format("each thread wants {} registers and has {}; the block has {} to give", thread.waiting().id,
                       thread.registers, thread.block->free_registers);
}

}  // namespace

unsigned launch_registers(unsigned threads) {
    return std::min(register_file / threads / granularity * granularity, most_registers);
}

void named_barrier(int id, int threads, bool wait_for_others, const Where& where) {
    const char* name = wait_for_others ? "named_barrier_sync" : "named_barrier_arrive";
    Block& block = *current->block;
    if (id < 1 || id > 15)
        fail(cudaErrorLaunchFailure, where, [&] {
            return fmt::format("wrong barrier: {} with number {}: there are 1 to 15, and 0 is that of __syncthreads()",
                               name, id);
        });
    if (threads <= 0 || threads % warp_size != 0)
        fail(cudaErrorLaunchFailure, where,
             [&] { return fmt::format("wrong count: {} for {} threads, which is no multiple of 32", name, threads); });
    int none = 0;
    perform_together(name, none, where, [](auto&) {});  // the barrier counts warps
    NamedBarrier& barrier = block.named_barriers[static_cast<std::size_t>(id)];
    Note noted = not_noted;
    if (recording)
        noted = wait_for_others ? note_barrier(note_begin(Doing::barrier, where), &barrier) : note(Doing::arrive, where);
    const auto expected = static_cast<unsigned>(threads);
    if (barrier.arrived > 0 && barrier.expected != expected)
        fail(cudaErrorLaunchFailure, where, [&] {
            return fmt::format("wrong count: {} for {} threads, but others came to barrier {} for {}", name, threads,
                               id, barrier.expected);
        });
    if (watching) check_phase_before(barrier, id, name, where);
    barrier.expected = expected;
    if (wait_for_others) barrier.waiting.push_back(current);
    if (watching) barrier.arrivals.add(release(*current));
    const bool complete = ++barrier.arrived == expected;
    if (complete) {
        if (counting) trace_named_barrier(where);
        barrier.arrived = 0;
        made_progress();
        for (Thread* thread : barrier.waiting) {
            if (watching) acquire(*thread, barrier.arrivals.clock());
            if (thread != current) wake(*thread);
        }
        barrier.waiting.clear();
        barrier.phase_before = barrier.arrivals.clock();
        barrier.last_of_phase = where;
        barrier.arrivals = {};
    }
    if (wait_for_others && !complete)
        wait({name, static_cast<std::uint64_t>(id), 0, who_is_missing, doubt, in_words}, where);
    else
        perturb();
    if (recording && wait_for_others) note_end(noted);
}

bool elect_one(const Where& where) {
    const Exchange& all = exchange("elect_one", all_lanes, 0, where);
    return static_cast<int>(current->lane()) == std::countr_zero(all.lanes);
}

void set_max_registers(int registers, bool increase, const Where& where) {
    const char* name = increase ? "registers_increase" : "registers_decrease";
    int none = 0;
    perform_together(name, none, where, [](auto&) {});
    Block& block = *current->block;
    Thread& thread = *current;
    if (thread.registers == 0) thread.registers = static_cast<int>(block.launch_registers);
    const int more = registers - thread.registers;
    if (increase ? more < 0 : more > 0)
        fail(cudaErrorLaunchFailure, where, [&] {
            return fmt::format("wrong direction: {} to {} registers, but the thread has {}", name, registers,
                               thread.registers);
        });
    while (more > static_cast<int>(block.free_registers)) {
        block.register_waiters.push_back(current);
        wait({name, static_cast<std::uint64_t>(registers), 0, which_registers}, where);
    }
    block.free_registers -= static_cast<unsigned>(more);
    thread.registers = registers;
    if (more < 0)
        for (Thread* waiter : std::exchange(block.register_waiters, {})) wake(*waiter);
}

void check_registers(const Thread& thread) {
    if (thread.lane() != 0) return;  // a warp's lanes have all the same number
    const auto& threads = thread.block->threads;
    const std::size_t first = thread.rank / warpgroup_threads * warpgroup_threads;
    for (std::size_t i = first; i < std::min(threads.size(), first + warpgroup_threads); i += warp_size)
        if (threads[i].exited && threads[i].registers != thread.registers)
            fail(cudaErrorLaunchFailure, thread.where,
                 [] { return "missing warps: setmaxnreg takes all four warps of a warpgroup"; });
}

}  // namespace emulator
