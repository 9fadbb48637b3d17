// Where threads meet: the block's barrier, and instructions that lanes of a warp take part in together.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>

#include "machine.h"
#include "multiprocessor.h"

namespace emulator {
namespace {

bool same_place(const std::source_location& a, const std::source_location& b) {
    return a.line() == b.line() && a.column() == b.column() &&
           (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}

void synchronize_lanes(Block& block, unsigned warp_index, Lanes lanes) {
    std::array<Thread*, warp_size> threads;
    std::size_t n = 0;
    for (; lanes; lanes &= lanes - 1) threads[n++] = &block.threads[warp_index * warp_size + std::countr_zero(lanes)];
    synchronize(threads.data(), n, false);
}

/// Shuffles, votes and elect.sync hand values over, and promise nothing of memory; nor do ldmatrix, stmatrix and mma.
/// Which lane a wgmma acts for is not said: what any of them knows is taken to be known to it.
bool orders_memory(std::string_view name) { return name == "__syncwarp" || name.starts_with("wgmma"); }

/// Shuffles and votes, which nvcc moves loads past. What common/ptx has is volatile.
bool only_hands_over(std::string_view name) { return name.starts_with("__") && name.ends_with("_sync"); }

}  // namespace

void complete_if_all_arrived(Block& block, unsigned warp_index, std::size_t i) {
    Warp& warp = block.warps[warp_index];
    const Rendezvous& rendezvous = warp.pending[i];
    if (rendezvous.arrived != (rendezvous.mask & warp.live)) return;
    if (counting && rendezvous.arrived == warp.live) trace_convergence(warp, !only_hands_over(rendezvous.name));
    const auto free = std::ranges::find(warp.exchanges, Lanes(0), &Exchange::readers);
    *free = {rendezvous.arrived, rendezvous.values, current->lane(), rendezvous.arrived};
    const auto number = static_cast<std::uint8_t>(free - warp.exchanges.begin());
    const char* name = rendezvous.name;
    warp.pending.erase(warp.pending.begin() + static_cast<std::ptrdiff_t>(i));
    running->idle_yields = 0;
    if (watching && orders_memory(name)) synchronize_lanes(block, warp_index, free->lanes);
    for (Lanes lanes = free->lanes; lanes; lanes &= lanes - 1) {
        const int lane = std::countr_zero(lanes);
        warp.received[lane] = number;
        Thread& thread = block.threads[warp_index * warp_size + lane];
        if (&thread != current) wake(thread);
    }
}

void record_two_barriers(const Block& block) {
    struct Group {
        const Thread* first;
        std::vector<unsigned> threads;
    };
    std::vector<const Thread*> arrived(block.barrier.arrived.begin(), block.barrier.arrived.end());
    std::ranges::sort(arrived, {}, &Thread::rank);
    std::vector<Group> groups;
    for (const Thread* thread : arrived) {
        const auto group = std::ranges::find_if(groups, [&](const Group& g) {
            return std::strcmp(g.first->waiting().what, thread->waiting().what) == 0 &&
                   same_place(g.first->where.line, thread->where.line);
        });
        (group == groups.end() ? groups.emplace_back(thread) : *group).threads.push_back(thread->rank);
    }
    std::string text = "a barrier not reached by all: ";
    for (const Group& group : groups) {
        const std::size_t n = group.threads.size();
        const unsigned first = group.threads.front(), last = group.threads.back();
        if (&group != &groups.front()) text += ", ";
        if (n < last - first + 1) text += fmt::format("{} of ", n);
        text += n == 1 ? fmt::format("thread {}", first) : fmt::format("threads {} to {}", first, last);
        if (&group == &groups.front()) text += n == 1 ? " waits" : " wait";
        text += fmt::format(" in {} at {}", group.first->waiting().what, to_string(group.first->where));
    }
    const Thread& stranger = *block.barrier.stranger;
    record_failure(cudaErrorLaunchFailure, text, block, &stranger, stranger.where);
}

void complete_barrier_if_all_arrived(Block& block) {
    BlockBarrier& barrier = block.barrier;
    if (barrier.arrived.empty() || barrier.arrived.size() < block.live) return;
    if (barrier.stranger) {
        reporting = true;
        record_two_barriers(block);
        abandon();
    }
    const auto exited = std::find_if(block.threads.begin(), block.threads.end(), [](auto& t) { return t.exited; });
    if (settings().strict_barriers && exited != block.threads.end())
        fail(cudaErrorLaunchFailure, barrier.where, [&] {
            return fmt::format("a barrier not reached by all: {} in {} at {}, but thread ({}, {}, {}) has returned",
                               count_waiting(barrier.arrived.size()), barrier.name, to_string(barrier.where),
                               exited->index.x, exited->index.y, exited->index.z);
        });
    barrier.last_sum = barrier.sum;
    running->idle_yields = 0;
    if (counting) {
        trace_barrier(barrier.where);
        for (Warp& warp : block.warps) trace_convergence(warp, true);
    }
    if (watching) synchronize(barrier.arrived.data(), barrier.arrived.size(), true);
    // What one has waited for, all see behind the barrier.
    if (std::ranges::any_of(barrier.arrived, [](const Thread* thread) { return !thread->may_be_early; }))
        for (Thread* thread : barrier.arrived) thread->may_be_early = false;
    for (Thread* thread : barrier.arrived) wake(*thread);
    barrier.arrived.clear();
}

int synchronize_block(const char* name, int predicate, const std::source_location& where) {
    const NotedWait noted(Doing::barrier, where);
    Block& block = *current->block;
    BlockBarrier& barrier = block.barrier;
    if (barrier.arrived.empty()) {
        barrier.where = where;
        barrier.name = name;
        barrier.sum = 0;
    } else if (std::strcmp(barrier.name, name) != 0 ||  // PTX ISA: barrier.red and barrier.sync do not mix
               (settings().strict_barriers && !same_place(barrier.where, where))) {
        if (!barrier.stranger) barrier.stranger = current;  // who else comes where is said when all have come
    }
    barrier.arrived.push_back(current);
    barrier.sum += predicate;
    const Waiting waiting{name};
    current->waits_for = &waiting;
    current->where = where;
    complete_barrier_if_all_arrived(block);  // this thread is woken too: the last need not be the first to go on
    block.home->suspend();
    return barrier.last_sum;
}

const Exchange& exchange(const char* name, Lanes mask, std::uint64_t value, const std::source_location& where) {
    Thread& thread = *current;
    Warp& warp = thread.block->warps[thread.warp()];
    const Lanes self = Lanes(1) << thread.lane();
    if (!(mask & self))
        fail(cudaErrorLaunchFailure, where, [&] {
            return fmt::format("wrong mask: lane {} calls {} with mask {:#010x}, which does not name it", thread.lane(),
                               name, mask);
        });
    warp.exchanges[warp.received[thread.lane()]].readers &= ~self;
    auto& pending = warp.pending;
    // Lanes may be on their way to one instruction while others of its mask are still in another; but not wait for one
    // another.
    auto met = std::find_if(pending.begin(), pending.end(),
                            [&](const Rendezvous& r) { return r.mask == mask || (r.mask & self && r.arrived & mask); });
    if (met == pending.end()) {
        pending.push_back({name, mask});
        met = pending.end() - 1;
    } else if (met->mask != mask || (met->name != name && std::strcmp(met->name, name) != 0)) {
        fail(cudaErrorLaunchFailure, where, [&] {
            return fmt::format(
                "lanes of one warp meet in different instructions: {} with mask {:#010x}, {} with mask {:#010x}",
                met->name, met->mask, name, mask);
        });
    }
    met->arrived |= self;
    met->values[thread.lane()] = value;
    if (met->arrived != (mask & warp.live))
        wait({name}, where);
    else
        complete_if_all_arrived(*thread.block, thread.warp(), static_cast<std::size_t>(met - pending.begin()));
    return warp.exchanges[warp.received[thread.lane()]];
}

Lanes active_lanes() { return current->block->warps[current->warp()].live; }

}  // namespace emulator
