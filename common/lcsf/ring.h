// A ring of slots between a producer and consumers (rung 10): for each slot a barrier that says it is full, and one
// that says it is empty again.
#pragma once

#include "ptx/cluster.h"
#include "ptx/mbarrier.h"

namespace flashladder::lcsf {

/// Where somebody is in a ring: a slot, and the parity of the round. All begin at slot 0, round 0, and go on alike.
template <int slots>
struct RingPosition {
    int slot = 0;
    unsigned parity = 0;

    __device__ __forceinline__ void advance() {
        if (++slot == slots) slot = 0, parity ^= 1;
    }
};

/// The barriers of a ring; lives in shared memory.
template <int slots>
struct Ring {
    ptx::Barrier full[slots], empty[slots];

    /// By one thread; then fence_barrier_init() and a barrier of the block. `producers` arrive when they have asked for
    /// what fills a slot, `consumers` when they have read it.
    __device__ __forceinline__ void init(unsigned producers, unsigned consumers) {
        for (int slot = 0; slot < slots; ++slot) {
            ptx::barrier_init(full[slot], producers);
            ptx::barrier_init(empty[slot], consumers);
        }
    }
    /// By a consumer: until what it wants to read has come.
    __device__ __forceinline__ void wait_full(const RingPosition<slots>& at,
                                              ptx::Where where = ptx::Where::current()) {
        ptx::barrier_wait(full[at.slot], at.parity, where);
    }
    /// By a producer: until all consumers have read what was here a round ago. In round 0 nobody waits.
    __device__ __forceinline__ void wait_empty(const RingPosition<slots>& at,
                                               ptx::Where where = ptx::Where::current()) {
        ptx::barrier_wait(empty[at.slot], at.parity ^ 1, where);
    }
    /// The same for a ring that both blocks of a cluster fill: consumers of both have read it.
    __device__ __forceinline__ void wait_empty_in_both(const RingPosition<slots>& at,
                                                       ptx::Where where = ptx::Where::current()) {
        ptx::barrier_wait(empty[at.slot], at.parity ^ 1, where);  // .acquire.cluster costs much
    }
    __device__ __forceinline__ void release_in_both(const RingPosition<slots>& at,
                                                    ptx::Where where = ptx::Where::current()) {
        for (unsigned rank = 0; rank < 2; ++rank) ptx::barrier_arrive_at(empty[at.slot], rank, where);
    }
    /// By a consumer that has read, one arrival.
    __device__ __forceinline__ void release(const RingPosition<slots>& at, ptx::Where where = ptx::Where::current()) {
        ptx::barrier_arrive(empty[at.slot], where);
    }
};

}  // namespace flashladder::lcsf
