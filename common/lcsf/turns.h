// Turns between consumers (rung 12): they begin products one after the other.
#pragma once

#include "ptx/named_barrier.h"

namespace flashladder::lcsf {

/// Consumers of 128 threads each: 0, 1, ..., 0, ... Each has a named barrier, number first + consumer, at which it waits
/// for the one before it. Between open() and close() all take as many turns as each other; between close() and another open()
/// there has to be a barrier of the block. All threads of a consumer. Where `on` is false they take no turns, and nothing
/// of this does anything.
template <int consumers, bool on = true>
struct Turns {
    static_assert(consumers >= 2 || !on, "a single consumer has nobody to take turns with");
    static constexpr int pair = 2 * 128;  // threads: who waits and who passes
    int consumer, first = 1;

    __device__ __forceinline__ void wait() const {
        if (on) ptx::named_barrier_sync(first + consumer, pair);
    }
    __device__ __forceinline__ void pass() const {
        if (on) ptx::named_barrier_arrive(first + (consumer + 1) % consumers, pair);
    }
    /// The last one makes the first one begin; at the end, the first one takes back what the last one has passed.
    __device__ __forceinline__ void open() const {
        if (consumer == consumers - 1) pass();
    }
    __device__ __forceinline__ void close() const {
        if (consumer == 0) wait();
    }
};

}  // namespace flashladder::lcsf
