// Cooperative groups: threads that know who belongs to them. Built of the barriers and warp instructions of
// device_functions.h and the copies of async_copies.h, so reports name these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "async_copies.h"
#include "cuda_runtime.h"

namespace cooperative_groups {

using Where = std::source_location;

/// The whole grid, of a cooperative launch.
class grid_group {
public:
    static unsigned long long num_blocks() { return 1ull * gridDim.x * gridDim.y * gridDim.z; }
    static unsigned long long block_rank() {
        return (1ull * blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    }
    static unsigned long long num_threads() { return num_blocks() * blockDim.x * blockDim.y * blockDim.z; }
    static unsigned long long size() { return num_threads(); }
    static unsigned long long thread_rank() {
        return block_rank() * blockDim.x * blockDim.y * blockDim.z +
               (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    }
    static dim3 group_dim() { return gridDim; }
    static dim3 block_index() { return blockIdx; }
    static bool is_valid() { return true; }
    /// One thread of each block tells the others that its block is there, and waits until all are.
    __forceinline__ void sync(Where where = Where::current()) const {
        unsigned* arrived = emulator::grid_barrier(where);
        __syncthreads(where);
        if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
            const auto blocks = static_cast<unsigned>(num_blocks());
            __threadfence();
            const unsigned all = (atomicAdd(arrived, 1u, where) / blocks + 1) * blocks;
            while (*static_cast<volatile unsigned*>(arrived) < all) {
            }
            __threadfence();
        }
        __syncthreads(where);
    }
};
__forceinline__ grid_group this_grid() { return {}; }

class thread_block {
public:
    static unsigned num_threads() { return blockDim.x * blockDim.y * blockDim.z; }
    static unsigned size() { return num_threads(); }
    static unsigned thread_rank() { return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x; }
    static dim3 group_index() { return blockIdx; }
    static dim3 thread_index() { return threadIdx; }
    static dim3 group_dim() { return blockDim; }
    static dim3 dim_threads() { return blockDim; }
    __forceinline__ void sync(Where where = Where::current()) const { __syncthreads(where); }
};
__forceinline__ thread_block this_thread_block() { return {}; }

/// Some lanes of a warp, numbered from 0 in their order.
class coalesced_group {
public:
    explicit coalesced_group(unsigned lanes) : lanes_(lanes) {}
    unsigned num_threads() const { return static_cast<unsigned>(__popc(lanes_)); }
    unsigned size() const { return num_threads(); }
    unsigned thread_rank() const { return rank_of(lane()); }
    unsigned meta_group_rank() const { return thread_block::thread_rank() / 32; }
    unsigned meta_group_size() const { return (thread_block::num_threads() + 31) / 32; }
    void sync(Where where = Where::current()) const { __syncwarp(lanes_, where); }
    template <class T>
    T shfl(T value, int rank, Where where = Where::current()) const {
        return __shfl_sync(lanes_, value, lane_of(static_cast<unsigned>(rank) % size()), 32, where);
    }
    template <class T>
    T shfl_up(T value, unsigned by, Where where = Where::current()) const {
        const unsigned rank = thread_rank();
        return shfl(value, static_cast<int>(rank < by ? rank : rank - by), where);
    }
    template <class T>
    T shfl_down(T value, unsigned by, Where where = Where::current()) const {
        const unsigned rank = thread_rank();
        return shfl(value, static_cast<int>(rank + by < size() ? rank + by : rank), where);
    }
    int any(int predicate, Where where = Where::current()) const { return __any_sync(lanes_, predicate, where); }
    int all(int predicate, Where where = Where::current()) const { return __all_sync(lanes_, predicate, where); }
    unsigned ballot(int predicate, Where where = Where::current()) const {
        return packed(__ballot_sync(lanes_, predicate, where));
    }
    template <class T>
    unsigned match_any(T value, Where where = Where::current()) const {
        return packed(__match_any_sync(lanes_, value, where));
    }
    template <class T>
    unsigned match_all(T value, int& all, Where where = Where::current()) const {
        return packed(__match_all_sync(lanes_, value, &all, where));
    }

protected:
    static unsigned lane() { return thread_block::thread_rank() % 32; }
    unsigned rank_of(unsigned lane) const { return static_cast<unsigned>(__popc(lanes_ & ((1u << lane) - 1))); }
    int lane_of(unsigned rank) const {
        unsigned lanes = lanes_;
        for (; rank > 0; --rank) lanes &= lanes - 1;
        return __ffs(static_cast<int>(lanes)) - 1;
    }
    unsigned packed(unsigned by_lane) const {
        unsigned by_rank = 0, rank = 0;
        for (unsigned lanes = lanes_; lanes != 0; lanes &= lanes - 1, ++rank)
            by_rank |= (by_lane >> (__ffs(static_cast<int>(lanes)) - 1) & 1) << rank;
        return by_rank;
    }
    unsigned lanes_;
};
/// Threads of a warp that come here at about the same time: which ones depends on the seed.
inline coalesced_group coalesced_threads(Where where = Where::current()) {
    return coalesced_group(emulator::coalesced_lanes(where));
}

/// `n` lanes side by side, a power of two.
template <unsigned n, class Parent = thread_block>
class thread_block_tile : public coalesced_group {
    static_assert(n >= 1 && n <= 32 && (n & (n - 1)) == 0, "a tile has 1, 2, 4, 8, 16 or 32 threads");

public:
    explicit thread_block_tile(unsigned threads)  // of the parent, the last tile may have fewer
        : coalesced_group((n == 32 ? 0xFFFFFFFFu : (1u << n) - 1) << lane() / n * n), tiles_((threads + n - 1) / n) {}
    static constexpr unsigned num_threads() { return n; }
    static constexpr unsigned size() { return n; }
    static unsigned thread_rank() { return lane() % n; }
    unsigned meta_group_rank() const { return thread_block::thread_rank() / n % tiles_; }
    unsigned meta_group_size() const { return tiles_; }
    template <class T>
    T shfl(T value, int rank, Where where = Where::current()) const {
        return __shfl_sync(lanes_, value, rank, n, where);
    }
    template <class T>
    T shfl_up(T value, unsigned by, Where where = Where::current()) const {
        return __shfl_up_sync(lanes_, value, by, n, where);
    }
    template <class T>
    T shfl_down(T value, unsigned by, Where where = Where::current()) const {
        return __shfl_down_sync(lanes_, value, by, n, where);
    }
    template <class T>
    T shfl_xor(T value, unsigned ranks, Where where = Where::current()) const {
        return __shfl_xor_sync(lanes_, value, static_cast<int>(ranks), n, where);
    }

private:
    unsigned tiles_;
};
template <unsigned n, class Parent>
thread_block_tile<n, Parent> tiled_partition(const Parent& parent) {
    return thread_block_tile<n, Parent>(parent.size());
}

/// A tile whose size is known when the kernel runs, or a group that was made a base.
class thread_group {
public:
    thread_group(const thread_block&) : whole_block_(true), lanes_(0) {}
    thread_group(const coalesced_group& group) : whole_block_(false), lanes_(group) {}
    unsigned size() const { return whole_block_ ? thread_block::size() : lanes_.size(); }
    unsigned num_threads() const { return size(); }
    unsigned thread_rank() const { return whole_block_ ? thread_block::thread_rank() : lanes_.thread_rank(); }
    void sync(Where where = Where::current()) const {
        if (whole_block_)
            __syncthreads(where);
        else
            lanes_.sync(where);
    }

private:
    bool whole_block_;
    coalesced_group lanes_;
};
inline thread_group tiled_partition(const thread_group&, unsigned n) {
    const unsigned lane = thread_block::thread_rank() % 32;
    return coalesced_group((n >= 32 ? 0xFFFFFFFFu : (1u << n) - 1) << lane / n * n);
}
/// Those of a group who say the same.
template <class Group>
coalesced_group binary_partition(const Group& group, bool predicate, Where where = Where::current()) {
    const unsigned lane = thread_block::thread_rank() % 32;
    const unsigned first = lane - group.thread_rank();  // of a tile
    const unsigned yes = group.ballot(predicate, where), all = group.ballot(1, where);
    return coalesced_group((predicate ? yes : all & ~yes) << first);
}

template <class Group>
__forceinline__ void sync(const Group& group, Where where = Where::current()) {
    group.sync(where);
}

// ---- cooperative_groups/reduce.h, scan.h ---------------------------------------------------------------------------

// clang-format off
template <class T> struct plus    { T operator()(T a, T b) const { return a + b; } };
template <class T> struct less    { T operator()(T a, T b) const { return b < a ? b : a; } };
template <class T> struct greater { T operator()(T a, T b) const { return a < b ? b : a; } };
template <class T> struct bit_and { T operator()(T a, T b) const { return a & b; } };
template <class T> struct bit_or  { T operator()(T a, T b) const { return a | b; } };
template <class T> struct bit_xor { T operator()(T a, T b) const { return a ^ b; } };
// clang-format on

/// The values of all threads put together in a tree; every thread gets the result.
template <class Group, class T, class Op>
T reduce(const Group& group, T value, Op op, Where where = Where::current()) {
    for (unsigned stride = 1; stride < group.size(); stride *= 2) {
        const T other = group.shfl_down(value, stride, where);
        if (group.thread_rank() + stride < group.size()) value = op(value, other);
    }
    return group.shfl(value, 0, where);
}
template <class Group, class T, class Op = plus<T>>
T inclusive_scan(const Group& group, T value, Op op = {}, Where where = Where::current()) {
    for (unsigned stride = 1; stride < group.size(); stride *= 2) {
        const T other = group.shfl_up(value, stride, where);
        if (group.thread_rank() >= stride) value = op(other, value);
    }
    return value;
}
template <class Group, class T, class Op = plus<T>>
T exclusive_scan(const Group& group, T value, Op op = {}, Where where = Where::current()) {
    const T before = group.shfl_up(inclusive_scan(group, value, op, where), 1, where);
    return group.thread_rank() == 0 ? T() : before;
}
template <class Group, class F>
void invoke_one(const Group& group, F f) {
    if (group.thread_rank() == 0) f();
}

// ---- cooperative_groups/memcpy_async.h -----------------------------------------------------------------------------

/// The group's threads share the copy, and end a group of their cp.asyncs. Without a type or a cuda::aligned_size_t that
/// says how wide pieces may be, the addresses do.
template <class Group, class T, class U, class Size>
__forceinline__ void memcpy_async(const Group& group, T* to, const U* from, const Size& bytes,
                                  Where where = Where::current()) {
    constexpr std::size_t piece = emulator::piece_of<T, Size>();
    if constexpr (piece < 4)
        emulator::copy_share(group, to, from, bytes, where);
    else
        emulator::copy_share<piece>(group, to, from, bytes, where);
    emulator::cp_async_commit(where);
}
/// As many elements as both have room for.
template <class Group, class T>
__forceinline__ void memcpy_async(const Group& group, T* to, std::size_t room, const T* from, std::size_t elements,
                                  Where where = Where::current()) {
    memcpy_async(group, to, from, (room < elements ? room : elements) * sizeof(T), where);
}
/// Until the group's copies but for the last `stages` commits of each thread have been made.
template <unsigned stages, class Group>
__forceinline__ void wait_prior(const Group& group, Where where = Where::current()) {
    emulator::cp_async_wait(int(stages), where);
    group.sync(where);
}
template <class Group>
__forceinline__ void wait(const Group& group, Where where = Where::current()) {
    wait_prior<0>(group, where);
}

}  // namespace cooperative_groups
