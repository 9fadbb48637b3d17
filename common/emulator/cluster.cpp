#include "cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "barrier.h"
#include "cuda_runtime.h"
#include "machine.h"
#include "ptx_functions.h"

namespace emulator {
namespace {

unsigned rank_of(const Block& block) {
    const auto& blocks = block.cluster->blocks;
    return static_cast<unsigned>(std::find(blocks.begin(), blocks.end(), &block) - blocks.begin());
}

std::string who_has_not_arrived(const Thread& thread) {
    const Cluster& cluster = *thread.block->cluster;
    return fmt::format("{} of {} threads of the cluster are missing", cluster.live() - cluster.arrived, cluster.live());
}

}  // namespace

unsigned Cluster::live() const {
    unsigned n = 0;
    for (const Block* block : blocks) n += block->live;
    return n;
}

std::size_t Cluster::threads() const { return blocks.size() * blocks.front()->threads.size(); }

void Cluster::check_barrier() {
    if (arrived == 0 || arrived < live()) return;
    arrived = 0;
    ++phase;
    arrived_clock = std::exchange(arriving, {}).clock();
    made_progress();
    for (Thread* thread : std::exchange(waiting, {})) wake(*thread);
}

Block& other_block(unsigned rank, const char* instruction, const Place& where) {
    const auto& blocks = current->block->cluster->blocks;
    if (rank >= blocks.size())
        fail(cudaErrorLaunchFailure, where, [&] {
            return fmt::format("no such block: {} of block {} of a cluster of {}", instruction, rank, blocks.size());
        });
    Block& block = *blocks[rank];
    if (block.live == 0)
        fail(cudaErrorLaunchFailure, where,
             [&] { return fmt::format("block has returned: {} of block {} of the cluster", instruction, rank); });
    return block;
}

void* corresponding(const void* shared, const Block& other, const Place& where) {
    const Operand place{"a place in another block", where};
    const SharedWindow& window = find_shared(shared, 0, 1, place);
    const auto address = reinterpret_cast<std::uintptr_t>(shared);
    const bool dynamic = &window == &current->block->dynamic_shared;
    return reinterpret_cast<void*>(dynamic ? address - window.begin + other.dynamic_shared.begin : address);
}

bool access_other_block(std::uintptr_t address, std::size_t n, bool write, const Place& where) {
    for (Block* block : current->block->cluster->blocks) {
        const SharedWindow& window = block->dynamic_shared;
        if (block == current->block || !window.covers(address)) continue;
        const std::size_t offset = address - window.begin;
        const auto refuse = [&](int code, const char* kind) {
            fail(code, where, [&] {
                return fmt::format(
                    "{}: {}-byte {} at byte {} of the {} bytes of dynamic shared memory of block {} of the cluster",
                    kind, n, write ? "write" : "read", offset, window.bytes, rank_of(*block));
            });
        };
        if (block->live == 0) refuse(cudaErrorLaunchFailure, "block has returned");
        if (address % n != 0) refuse(cudaErrorMisalignedAddress, "misaligned");
        if (offset + n > window.bytes) refuse(cudaErrorIllegalAddress, "out of bounds");
        if (watching) watch_shared(window, address, n, {write}, where);
        std::uint8_t* written = window.written + offset;
        if (write) {
            std::memset(written, 1, n);
            window.mark(offset, n, 0);
        } else if (std::memchr(written, 0, n)) {
            refuse(cudaErrorLaunchFailure, "uninitialised shared memory");
        }
        return true;
    }
    return false;
}

unsigned cluster_rank() { return rank_of(*current->block); }
unsigned cluster_size() { return static_cast<unsigned>(current->block->cluster->blocks.size()); }

void cluster_arrive(const Where& where) {
    Cluster& cluster = *current->block->cluster;
    if (std::exchange(current->cluster_arrived, true))
        fail(cudaErrorLaunchFailure, where,
             [] { return "too many arrivals: cluster_arrive() twice with no cluster_wait() in between"; });
    if (recording) note(Doing::arrive, where);
    current->cluster_phase = cluster.phase + 1;
    ++cluster.arrived;
    if (watching) cluster.arriving.add(release(*current));
    cluster.check_barrier();
    perturb();
}

void cluster_wait(const Where& where) {
    if (!std::exchange(current->cluster_arrived, false))
        fail(cudaErrorLaunchFailure, where,
             [] { return "no arrival: cluster_wait() with no cluster_arrive() before"; });
    const NotedWait noted(Doing::wait, where);
    Cluster& cluster = *current->block->cluster;
    while (cluster.phase < current->cluster_phase) {
        cluster.waiting.push_back(current);
        wait({"cluster_wait", 0, cluster.phase, who_has_not_arrived}, where);
    }
    if (watching) acquire(*current, cluster.arrived_clock);
}

void* map_to_block(const void* shared, unsigned rank, const Where& where) {
    if (!current->block->dynamic_shared.covers(reinterpret_cast<std::uintptr_t>(shared)))
        fail(cudaErrorIllegalAddress, where,
             [] { return "out of bounds: map_to_block() of what is not in dynamic shared memory"; });
    return corresponding(shared, other_block(rank, "map_to_block", where), where);
}

void barrier_arrive_at(std::uint64_t* barrier, unsigned rank, const Where& where) {
    Block& other = other_block(rank, "barrier_arrive_at", where);
    if (recording) note(Doing::arrive, where);
    auto* remote = static_cast<std::uint64_t*>(corresponding(barrier, other, where));
    // It happens where that block's shared memory is in place. At its end, nobody can wait for it any more.
    other.async.add({"barrier_arrive_at", &other.threads[current->rank], where, false,
                     [remote, where, knowledge = watching ? release(*current) : Knowledge()] {
                         arrive(remote, {"barrier_arrive_at", where}, knowledge);
                     }});
    perturb();
}

}  // namespace emulator
