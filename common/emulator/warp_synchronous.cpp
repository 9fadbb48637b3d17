#include "warp_synchronous.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "cuda_runtime.h"
#include "machine.h"

namespace emulator {
namespace {

/// Where a thread of this launch has read a place, and then again with no store in between: there threads wait.
std::set<std::uint64_t> waiting_sites;

const SharedWindow* window_of(const Block& block, std::uintptr_t address) {
    if (block.static_shared.covers(address)) return &block.static_shared;
    return block.dynamic_shared.covers(address) ? &block.dynamic_shared : nullptr;
}

bool knows(const Event& event) { return current->order.actor.clock.knows(event.team, event.slot, event.time); }

/// True if the reader has come by the store of the writer, too, and stored elsewhere.
bool in_step(const Block& block, const VolatileRead& read, const Event& write) {
    const auto reader = static_cast<unsigned>(read.event.slot % block.threads.size());
    const auto stored = block.volatiles.stores.find({reader, std::uint64_t(write.site)});
    return stored != block.volatiles.stores.end() && stored->second != read.address;
}

/// The thread has gone on with what it has read.
void close(Block& block, VolatileRead& read) {
    read.open = false;
    auto& suspects = block.volatiles.suspects;
    if (read.missed.team && std::none_of(suspects.begin(), suspects.end(), [&](const VolatileRead& other) {
            return other.event.site == read.event.site && other.missed.site == read.missed.site;
        }))
        suspects.push_back(read);
}

void close_all(Block& block, Thread& thread) {
    for (VolatileRead* read : thread.order.open_reads) close(block, *read);
    thread.order.open_reads.clear();
}

void note_write(Block& block, VolatilePlace& place, const Event& now, std::uintptr_t address) {
    for (VolatileRead& read : place.reads) {
        if (!read.event.team || read.event.slot == now.slot || read.fresh || knows(read.event)) continue;
        if (!in_step(block, read, now)) continue;
        read.missed = now;
        if (!read.open) close(block, read);
    }
    place.write = now;
    block.volatiles.stores[{current->rank, std::uint64_t(now.site)}] = address;
    close_all(block, *current);
}

void note_read(VolatilePlace& place, const Event& now, std::uintptr_t address) {
    VolatileRead& own = place.reads[current->lane()];
    if (!own.open)
        current->order.open_reads.push_back(&own);
    else if (own.event.site == now.site)
        waiting_sites.insert(now.site);
    const bool fresh = place.write.team && place.write.slot != now.slot && !knows(place.write);
    own = {address, now, {}, fresh, true};
}

}  // namespace

void watch_volatile(const void* address, bool writes, const Place& where) {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    Block& block = *current->block;
    if (!window_of(block, at)) return;
    const Actor& self = current->order.actor;
    Event now;
    now.team = self.team;
    now.slot = self.slot;
    now.time = self.time;
    now.writes = writes;
    now.site = reinterpret_cast<std::uintptr_t>(where.pc);
    VolatilePlace& place = block.volatiles.places[std::uint64_t(at) * warp_size + current->warp()];
    if (writes)
        note_write(block, place, now, at);
    else
        note_read(place, now, at);
}

void watch_volatile_fence() {
    for (VolatileRead* read : current->order.open_reads) *read = {};
    current->order.open_reads.clear();
}

void check_warp_synchronous(Block& block) {
    for (Thread& thread : block.threads) close_all(block, thread);
    for (const VolatileRead& read : block.volatiles.suspects) {
        if (waiting_sites.contains(read.event.site)) continue;
        current = &block.threads[read.missed.slot % block.threads.size()];
        fail(cudaErrorLaunchFailure, Place(reinterpret_cast<const void*>(std::uintptr_t(read.missed.site))), [&] {
            return fmt::format(
                "race: warp-synchronous code: volatile {}\n  at         {:#x}: {}\n  not ordered behind volatile {}\n"
                "  missing    __syncwarp() between the steps: since Volta the lanes of a warp do not run in step",
                describe(read.missed), read.address, describe_shared(*window_of(block, read.address), read.address),
                describe_earlier(read.event));
        });
    }
}

void forget_waiting_sites() { waiting_sites.clear(); }

}  // namespace emulator
