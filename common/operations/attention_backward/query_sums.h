// The sums of dQ in device memory, which all blocks of keys add to (rung 21).
#pragma once

#include <cstddef>
#include <cstdint>

#include "ptx/memory_order.h"
#include "ptx/tma.h"

namespace flashladder::attention_backward {

/// How far the sums of a step's queries are.
enum State : std::uint32_t { untouched, taken, written };

/// Sums of each place, which is a step's queries of one head: nobody has set them. Who comes first writes, all others add.
/// If `in_order`, each has a rank, from 0 on, and comes behind all with lower ones: floats that are added in another order
/// may have other bits. Then a state is how many have come.
struct QuerySums {
    float* sums;
    std::uint32_t *states, *blocks_done;  // of each place, untouched at first; of each head of K, 0 at first
    std::uint32_t* begun;                 // in order: how many blocks of keys have; 0 at first

    /// Whether the caller comes first at a place; else the sums there have been written when this returns. By one thread.
    template <bool in_order>
    __device__ __forceinline__ bool claim(std::size_t place, std::uint32_t rank) const {
        if (in_order ? rank == 0 : atomicCAS(states + place, untouched, taken) == untouched) return true;
        while (ptx::load_acquire(states + place) != (in_order ? rank : written)) {
        }
        return false;
    }
    /// Writes or adds n floats of shared memory to a place that this thread has claimed, and waits until they have been
    /// read. complete() waits for the rest.
    template <bool in_order, int n>
    __device__ __forceinline__ void put(std::size_t place, const float (&from)[n], bool first, std::uint32_t rank) const {
        if (first)
            ptx::bulk_store(sums + place * n, from, sizeof from);
        else
            ptx::bulk_reduce_add(sums + place * n, from, sizeof from);
        ptx::bulk_commit();
        if (first || in_order) {
            ptx::bulk_wait<0>();
            ptx::store_release(states + place, in_order ? rank + 1 : written);
        } else {
            ptx::bulk_wait_read<0>();
        }
    }
    /// Until all is written that this thread has put.
    __device__ __forceinline__ void complete() const { ptx::bulk_wait<0>(); }
    /// By one thread, once the block's sums are complete: whether those of all `blocks` of this head of K are. Then it
    /// sees them.
    __device__ __forceinline__ bool is_last(int head_of_K, int blocks) const {
        return ptx::fetch_add_acquire_release(blocks_done + head_of_K, 1) == unsigned(blocks - 1);
    }
};

}  // namespace flashladder::attention_backward
