// What is asynchronous: bulk copies through a ring of mbarriers, cp.async, bulk stores, wgmma; and clusters.
#include <vector>

#include "../emulator/device_array.h"
#ifndef FLASHLADDER_GPU
#include "../emulator/failure.h"
#endif
#include "launch.h"
#include "mutants.h"
#include "noting.h"
#include "ptx/cluster.h"
#include "ptx/cp_async.h"
#include "ptx/fence.h"
#include "ptx/mbarrier.h"
#include "ptx/memory_order.h"
#include "ptx/named_barrier.h"
#include "ptx/tma.h"
#include "ptx/wgmma.h"

namespace flashladder {
namespace {

using T = __nv_bfloat16;

constexpr int rounds = 8, stages = 2, consumers = 64;  // the ring is passed through four times
constexpr unsigned tile_bytes = consumers * sizeof(float);

std::vector<float> numbers(int n) {
    std::vector<float> x;
    for (int i = 0; i < n; ++i) x.push_back(float(i + 1));
    return x;
}

__device__ void wait(ptx::Barrier& barrier, unsigned parity, int* lines, ptx::Where where = ptx::Where::current()) {
    wait_until([&] { return ptx::barrier_try_wait(barrier, parity, where); }, lines);
}

// ---- a ring

enum class Ring {
    correct,
    no_wait_for_full,
    no_wait_for_empty,
    full_of_wrong_phase,
    empty_of_wrong_phase,
    full_of_other_stage,
    released_early,
    released_by_a_lane,
    too_few_bytes,
    too_many_bytes,
    too_few_arrivals,
    too_many_arrivals,
    no_barrier_fence,
    no_barrier_after_init,
    flag_after_init
};

/// Two warps consume what the first lane of a third one loads.
template <Ring m>
__global__ void ring_kernel(const float* x, float* y, int* lines) {
    struct Shared {
        float tile[stages][consumers];
        ptx::Barrier full[stages], empty[stages];
        int initialised;
    };
    auto& smem = *dynamic_shared<Shared>();
    const int self = threadIdx.x;
    if (self < consumers)
        for (auto& tile : smem.tile) {
            NOTE(6);
            tile[self] = 0;
        }
    if (m == Ring::flag_after_init) {
        if (self == 0) smem.initialised = 0;
        __syncthreads();
    }
    if (self == consumers) {
        constexpr unsigned releases = m == Ring::too_few_arrivals ? 1 : m == Ring::too_many_arrivals ? 3 : 2;
        for (int stage = 0; stage < stages; ++stage) {
            NOTE(7);
            ptx::barrier_init(smem.full[stage], 1);
            ptx::barrier_init(smem.empty[stage], releases);
        }
        if (m != Ring::no_barrier_fence) ptx::fence_barrier_init();
    }
    if (m == Ring::flag_after_init) {  // which orders nothing
        if (self == consumers) atomicExch(&smem.initialised, 1);
        wait_until([&] { return atomicAdd(&smem.initialised, 0) == 1; }, lines);
    } else if (m != Ring::no_barrier_after_init) {
        __syncthreads();
    }
    if (self == consumers)
        for (int j = 0; j < rounds; ++j) {
            const int stage = j % stages, parity = j / stages % 2;
            const int waited_parity = parity ^ (m != Ring::empty_of_wrong_phase);
            NOTE(2);
            if (m != Ring::no_wait_for_empty) wait(smem.empty[stage], waited_parity, lines);
            constexpr unsigned expected = m == Ring::too_few_bytes    ? tile_bytes / 2
                                          : m == Ring::too_many_bytes ? tile_bytes * 2
                                                                      : tile_bytes;
            NOTE(3);
            ptx::barrier_arrive_expect_tx(smem.full[stage], expected);
            NOTE(0);
            ptx::bulk_load(smem.tile[stage], x + j * consumers, tile_bytes, smem.full[stage]);
        }
    if (self < consumers)
        for (int j = 0; j < rounds; ++j) {
            const int stage = j % stages, parity = j / stages % 2;
            const bool other = m == Ring::full_of_other_stage;  // and then the tile before this one
            const int waited_parity =
                other ? (j > 0 ? (j - 1) / stages % 2 : 1) : parity ^ (m == Ring::full_of_wrong_phase);
            NOTE(4);
            if (m != Ring::no_wait_for_full) wait(smem.full[stage ^ other], waited_parity, lines);
            if (m == Ring::released_early && self % 32 == 0) ptx::barrier_arrive(smem.empty[stage]);
            NOTE(1);
            y[j * consumers + self] = smem.tile[stage][self];
            if (m != Ring::released_by_a_lane) __syncwarp();
            NOTE(5);
            if (m != Ring::released_early && self % 32 == 0) ptx::barrier_arrive(smem.empty[stage]);
        }
}

template <Ring m>
bool run_ring(int* lines) {
    const DeviceArray<float> x(numbers(rounds * consumers)), y(rounds * consumers);
    launch_kernel(ring_kernel<m>, {1, consumers + 32, 1024}, x.data(), y.data(), lines);
    return y.download() == x.download();
}

// ---- cp.async

enum class DoubleBuffer {
    correct,
    no_wait,
    wait_for_too_few,
    no_barrier_after_wait,
    no_barrier_before_overwriting,
    third_buffer_for_second_barrier
};

/// Two buffers; who reads is not who has copied.
template <DoubleBuffer m>
__global__ void double_buffer_kernel(const float* x, float* y, [[maybe_unused]] int* lines) {
    constexpr bool third = m == DoubleBuffer::third_buffer_for_second_barrier;
    constexpr int buffers = third ? 3 : 2;
    __shared__ float tile[buffers][consumers];
    const int self = threadIdx.x;
    for (auto& t : tile) t[self] = 0;
    __syncthreads();
    const auto load = [&](int j) {
        if (j < rounds) {
            NOTE(0);
            ptx::cp_async<4>(&tile[j % buffers][self], &x[j * consumers + self]);
        }
        ptx::cp_async_commit();
    };
    load(0);
    for (int j = 0; j < rounds; ++j) {
        load(j + 1);
        if (m == DoubleBuffer::wait_for_too_few)
            ptx::cp_async_wait<2>();
        else if (m != DoubleBuffer::no_wait)
            ptx::cp_async_wait<1>();
        if (m != DoubleBuffer::no_barrier_after_wait) __syncthreads();
        NOTE(1);
        y[j * consumers + self] = tile[j % buffers][self ^ 33];
        if (m != DoubleBuffer::no_barrier_before_overwriting && !third) __syncthreads();
    }
}

template <DoubleBuffer m>
bool run_double_buffer(int* lines) {
    const DeviceArray<float> x(numbers(rounds * consumers)), y(rounds * consumers);
    launch_kernel(double_buffer_kernel<m>, {1, consumers}, x.data(), y.data(), lines);
    std::vector<float> expected;
    for (int i = 0; i < rounds * consumers; ++i) expected.push_back(float((i ^ 33) + 1));
    return y.download() == expected;
}

// ---- stores

enum class CopyTwice { correct, no_wait };

/// A thread copies to where it has written, and then once more.
template <CopyTwice m>
__global__ void copy_twice_kernel(const float* x, float* y, [[maybe_unused]] int* lines) {
    __shared__ float tile[consumers];
    const int self = threadIdx.x;
    tile[self] = 0;
    NOTE(0);
    ptx::cp_async<4>(&tile[self], &x[self]);
    ptx::cp_async_commit();
    if (m == CopyTwice::correct) ptx::cp_async_wait<0>();
    NOTE(1);
    ptx::cp_async<4>(&tile[self], &x[consumers + self]);
    ptx::cp_async_commit();
    ptx::cp_async_wait<0>();
    y[self] = tile[self];
}

template <CopyTwice m>
bool run_copy_twice(int* lines) {
    const DeviceArray<float> x(numbers(2 * consumers)), y(consumers);
    launch_kernel(copy_twice_kernel<m>, {1, consumers}, x.data(), y.data(), lines);
    return y.download()[1] == consumers + 2;
}

enum class Late { correct, not_waited_for };

/// Each of these waits for what it has asked for first, and uses what it has asked for second long after that has
/// happened too.
template <Late m>
__global__ void late_copy_kernel(const float* x, float* y, [[maybe_unused]] int* lines) {
    __shared__ float tile[2][32];
    const int self = threadIdx.x;
    tile[1][self] = 0;
    ptx::cp_async<4>(&tile[0][self], &x[self]);
    ptx::cp_async_commit();
    NOTE(0);
    ptx::cp_async<4>(&tile[1][self], &x[32 + self]);
    ptx::cp_async_commit();
    ptx::cp_async_wait<m == Late::correct ? 0 : 1>();
    pass_time();
    NOTE(1);
    y[self] = tile[1][self];
}

template <Late m>
__global__ void late_load_kernel(const float* x, float* y, int* lines) {
    __shared__ __align__(16) float tile[2][32];
    __shared__ ptx::Barrier full;
    const int self = threadIdx.x;
    if (self == 0) {
        ptx::barrier_init(full, 1);
        ptx::fence_barrier_init();
    }
    __syncthreads();
    if (self == 0) {
        ptx::barrier_arrive_expect_tx(full, sizeof tile[0]);
        ptx::bulk_load(tile[0], x, sizeof tile[0], full);
    }
    wait(full, 0, lines);
    __syncwarp();
    if (self == 0) {
        ptx::barrier_arrive_expect_tx(full, sizeof tile[1]);
        NOTE(0);
        ptx::bulk_load(tile[1], x + 32, sizeof tile[1], full);
    }
    pass_time();
    if (m == Late::correct) wait(full, 1, lines);
    NOTE(1);
    y[self] = tile[1][self];
}

template <auto kernel>
bool run_late(int* lines) {
    const DeviceArray<float> x(numbers(64)), y(32);
    launch_kernel(kernel, {1, 32}, x.data(), y.data(), lines);
    return y.download()[1] == 34;
}

enum class Store {
    correct,
    no_barrier_before_store,
    no_wait,
    waited_for_too_few,
    no_barrier_after_wait,
    no_proxy_fence,
    read_back_early
};

template <Store m>
__global__ void store_kernel(float* y, float* copy, [[maybe_unused]] int* lines) {
    auto* tile = dynamic_shared<float>();
    const int self = threadIdx.x;
    for (int j = 0; j < rounds; ++j) {
        NOTE(1);
        tile[self] = j;
        if (m != Store::no_proxy_fence) ptx::fence_proxy_async();
        if (m != Store::no_barrier_before_store) __syncthreads();
        if (self == 0) {
            NOTE(0);
            ptx::bulk_store(y + j * consumers, tile, tile_bytes);
            ptx::bulk_commit();
            if (m == Store::waited_for_too_few)
                ptx::bulk_wait_read<1>();
            else if (m != Store::no_wait)
                ptx::bulk_wait_read<0>();
        }
        if (m != Store::no_barrier_after_wait) __syncthreads();
    }
    if (self == 0) {
        if (m == Store::read_back_early)
            ptx::bulk_wait_read<0>();
        else
            ptx::bulk_wait<0>();
        NOTE(2);
        copy[0] = y[(rounds - 1) * consumers];
    }
}

template <Store m>
bool run_store(int* lines) {
    const DeviceArray<float> y(rounds * consumers), copy(1);
    launch_kernel(store_kernel<m>, {1, consumers, tile_bytes}, y.data(), copy.data(), lines);
    std::vector<float> expected;
    for (int i = 0; i < rounds * consumers; ++i) expected.push_back(float(i / consumers));
    return y.download() == expected && copy.download() == std::vector<float>{rounds - 1};
}

enum class Delivery { correct, not_complete, no_acquire };

/// Block 0 stores in bulk for block 1.
template <Delivery m>
__global__ void delivery_kernel(float* y, unsigned* flag, float* copy, int* lines) {
    auto* tile = dynamic_shared<float>();
    if (blockIdx.x == 0) {
        tile[threadIdx.x] = 7;
        ptx::fence_proxy_async();
        __syncthreads();
        if (threadIdx.x != 0) return;
        NOTE(0);
        ptx::bulk_store(y, tile, tile_bytes);
        ptx::bulk_commit();
        if (m == Delivery::not_complete)
            ptx::bulk_wait_read<0>();
        else
            ptx::bulk_wait<0>();
        ptx::store_release(flag, 1);
    } else if (threadIdx.x == 0) {
        const bool acquires = m != Delivery::no_acquire;
        wait_until([&] { return (acquires ? ptx::load_acquire(flag) : *(volatile unsigned*)flag) != 0; }, lines);
        NOTE(1);
        copy[0] = y[1];
    }
}

template <Delivery m>
bool run_delivery(int* lines) {
    const DeviceArray<float> y(consumers), copy(1);
    const DeviceArray<unsigned> flag(std::vector<unsigned>{0});
    launch_kernel(delivery_kernel<m>, {2, consumers, tile_bytes}, y.data(), flag.data(), copy.data(), lines);
    return copy.download() == std::vector<float>{7};
}

enum class Add { in_turn, not_complete, no_acquire, in_whatever_order };

/// Both blocks add in bulk, block 1 behind block 0.
template <Add m>
__global__ void add_kernel(float* sums, unsigned* flag, int* lines) {
    auto* tile = dynamic_shared<float>();
    tile[threadIdx.x] = float(blockIdx.x + 1);
    ptx::fence_proxy_async();
    __syncthreads();
    if (threadIdx.x != 0) return;
    if (blockIdx.x == 1 && m != Add::in_whatever_order) {
        const bool acquires = m != Add::no_acquire;
        wait_until([&] { return (acquires ? ptx::load_acquire(flag) : *(volatile unsigned*)flag) != 0; }, lines);
    }
    NOTE(blockIdx.x);
    ptx::bulk_reduce_add(sums, tile, tile_bytes);
    ptx::bulk_commit();
    if (m == Add::not_complete)
        ptx::bulk_wait_read<0>();
    else
        ptx::bulk_wait<0>();
    if (blockIdx.x == 0) ptx::store_release(flag, 1);
}

/// `ordered`: an order that nothing decides is an error.
template <Add m, bool ordered>
bool run_add(int* lines) {
    const DeviceArray<float> sums(std::vector<float>(consumers, 0.0f));
    const DeviceArray<unsigned> flag(std::vector<unsigned>{0});
#ifndef FLASHLADDER_GPU
    const WithOrderedAdds adds(ordered);
#endif
    launch_kernel(add_kernel<m>, {2, consumers, tile_bytes}, sums.data(), flag.data(), lines);
    return sums.download() == std::vector<float>(consumers, 3);
}

// ---- wgmma

enum class Multiply {
    correct,
    overwritten_before_wait,
    overwritten_long_before_wait,
    wait_for_too_few,
    no_barrier_before,
    barrier_for_one_warp,
    no_barrier_after,
    no_proxy_fence,
    accumulators_read_early,
    accumulators_written_early,
    A_overwritten_early,
    accumulators_waited_for_early,
    accumulators_read_behind_too_short_a_wait
};

constexpr unsigned two_ones = 0x3F803F80;  // of bf16

/// Four warps write B anew for each product, and add up all of them.
template <Multiply m>
__global__ void multiply_kernel(float* y, float* early, [[maybe_unused]] int* lines) {
    auto* tile = dynamic_shared<uint4>();
    struct {
        float d[32] = {}, behind = 0;
    } sums;
    auto& d = sums.d;
    std::uint32_t a[4] = {two_ones, two_ones, two_ones, two_ones};
    const auto b = ptx::matrix_descriptor(tile, 16, 1024, ptx::Swizzle::bytes_128);
    __shared__ int first_warp_has_issued;
    if (threadIdx.x == 0) first_warp_has_issued = 0;
    __syncthreads();
    for (int j = 0; j < rounds; ++j) {
        for (unsigned i = threadIdx.x; i < 512; i += blockDim.x) {
            const unsigned two = j % 2 * two_ones;
            NOTE(1);
            tile[i] = {two, two, two, two};
        }
        if (m != Multiply::no_proxy_fence) ptx::fence_proxy_async();
        if (m == Multiply::barrier_for_one_warp && threadIdx.x >= 32)
            ptx::named_barrier_arrive(1, 128);
        else if (m == Multiply::barrier_for_one_warp)
            ptx::named_barrier_sync(1, 128);
        else if (m != Multiply::no_barrier_before)
            __syncthreads();
        if (m == Multiply::barrier_for_one_warp && threadIdx.x >= 32)
            wait_until([&] { return atomicAdd(&first_warp_has_issued, 0) > 32 * j; }, lines);
        ptx::wgmma_fence(d);
        NOTE(0);
        ptx::wgmma<T>(d, a, b, true);
        if (m == Multiply::barrier_for_one_warp && threadIdx.x < 32) atomicAdd(&first_warp_has_issued, 1);
        ptx::wgmma_commit();
        if (m == Multiply::correct) early[threadIdx.x] = a[0] + sums.behind;  // A may be read
        if (m == Multiply::accumulators_read_early) {
            NOTE(2);
            early[threadIdx.x] = d[0];
        }
        if (m == Multiply::accumulators_written_early) {
            NOTE(2);
            d[0] = 0;
        }
        if (m == Multiply::A_overwritten_early) {
            NOTE(2);
            a[0] = 0;
        }
        if (m == Multiply::accumulators_waited_for_early) {
            NOTE(2);
            ptx::wgmma_wait<1>(d);
        }
        if (m == Multiply::accumulators_read_behind_too_short_a_wait) {
            ptx::wgmma_wait<1>();
            NOTE(2);
            early[threadIdx.x] = d[0];
        }
        if (m == Multiply::wait_for_too_few)
            ptx::wgmma_wait<1>();
        else if (m == Multiply::overwritten_long_before_wait && j > 0)
            ptx::wgmma_wait<1>(), pass_time();
        else if (m != Multiply::overwritten_before_wait)
            ptx::wgmma_wait<0>(d);
        if (m != Multiply::no_barrier_after) __syncthreads();
    }
    ptx::wgmma_wait<0>(d);
    y[threadIdx.x] = d[0];
}

template <Multiply m>
bool run_multiply(int* lines) {
    const DeviceArray<float> y(128), early(128);
    launch_kernel(multiply_kernel<m>, {1, 128, 16384}, y.data(), early.data(), lines);
    return y.download() == std::vector<float>(128, 16 * rounds / 2);
}

// ---- clusters

enum class Exchange { correct, no_sync_before_reading, no_sync_after_reading, arrived_early };

/// Two blocks read each other's values.
template <Exchange m>
__global__ void exchange_kernel(float* y, [[maybe_unused]] int* lines) {
    auto* values = dynamic_shared<float>();
    const unsigned rank = ptx::cluster_rank(), self = threadIdx.x;
    values[self] = 0;
    ptx::cluster_sync();
    const float* other = ptx::map_to_block(values, rank ^ 1);
    for (int j = 0; j < 4; ++j) {
        NOTE(0);
        values[self] = j;
        if (m != Exchange::no_sync_before_reading) ptx::cluster_sync();
        if (m == Exchange::arrived_early) ptx::cluster_arrive();
        NOTE(1);
        y[rank * consumers + self] = other[self];
        if (m == Exchange::arrived_early)
            ptx::cluster_wait();
        else if (m != Exchange::no_sync_after_reading || j == 3)
            ptx::cluster_sync();
    }
}

enum class Announce { correct, arrived_early, no_wait };

/// Block 0 writes to block 1, which waits for it at a barrier.
template <Announce m>
__global__ void announce_kernel(float* y, [[maybe_unused]] int* lines) {
    auto* values = dynamic_shared<float>();
    auto& ready = *reinterpret_cast<ptx::Barrier*>(values + consumers);
    const unsigned self = threadIdx.x;
    values[self] = 0;
    if (self == 0) {
        ptx::barrier_init(ready, consumers);
        ptx::fence_barrier_init();
    }
    ptx::cluster_sync();
    if (ptx::cluster_rank() == 0) {
        float* other = ptx::map_to_block(values, 1);
        if (m == Announce::arrived_early) ptx::barrier_arrive_at(ready, 1);
        NOTE(0);
        other[self] = 3;
        if (m != Announce::arrived_early) ptx::barrier_arrive_at(ready, 1);
    } else {
        if (m != Announce::no_wait) ptx::barrier_wait_cluster(ready, 0);
        NOTE(1);
        y[consumers + self] = y[self] = values[self ^ 1];
    }
    ptx::cluster_sync();
}

template <auto kernel>
bool run_cluster(int* lines) {
    const DeviceArray<float> y(2 * consumers);
    launch_kernel(kernel, {2, consumers, 1024, nullptr, 2}, y.data(), lines);
    return y.download() == std::vector<float>(2 * consumers, 3);
}

Verdict race(const char* missing, std::vector<int> lines = {0, 1}) {
    return {"race", {std::string("missing    ") + missing}, std::move(lines)};
}

Verdict rarely(Verdict verdict) {
    verdict.rare = true;
    return verdict;
}

}  // namespace

std::vector<SyncKernel> async_kernels() {
    const char* load = "barrier_wait() on the barrier of the load, for its phase";
    const char* store = "bulk_wait_read() by the thread that has issued it";
    const char* stored = "bulk_wait(), and a release by the thread that has waited, and an acquire by the other block";
    const char* copy = "cp_async_wait() by the thread that has issued it";
    const char* product = "wgmma_wait(), and a barrier where another warpgroup goes on";
    const auto deadlock = [](const char* missing, std::vector<int> lines = {2, 4}) {
        // The first sentence quotes the line that made the barrier.
        return Verdict{"deadlock", {"for a barrier of \"ptx::barrier_init(smem.", "barrier_try_wait", missing}, lines};
    };
    const Verdict too_many_arrivals{"too many arrivals", {"barrier_arrive_expect_tx"}, {3}};
    std::vector<SyncKernel> all = {
#define RING(m) "ring", #m, run_ring<Ring::m>
        {"ring", "", run_ring<Ring::correct>, {}},
        {RING(no_wait_for_full), {race(load), too_many_arrivals, rarely(deadlock("", {2}))}},  // only loads wait
        {RING(no_wait_for_empty), {race(load, {0}), too_many_arrivals}},
        {RING(full_of_wrong_phase), {race(load), too_many_arrivals, rarely(deadlock(""))}},
        {RING(empty_of_wrong_phase), {deadlock("1 of 1 arrivals and 0 bytes are missing")}},
        {RING(full_of_other_stage), {race(load), too_many_arrivals, rarely(deadlock(""))}},
        {RING(released_early), {race(load)}},
        {RING(released_by_a_lane), {race(load)}},
        {RING(too_few_bytes),
         {race(load), race(load, {0}), deadlock(""), rarely({"unfinished", {"before bulk_load has"}, {0}})}},
        {RING(too_many_bytes), {deadlock("0 of 1 arrivals and 256 bytes are missing")}},
        {RING(too_few_arrivals), {race(load), too_many_arrivals, deadlock("")}},
        {RING(too_many_arrivals), {deadlock("1 of 3 arrivals")}},
        {RING(no_barrier_fence), {{"missing fence", {"no fence_barrier_init() since"}, {0}}}},
        {RING(no_barrier_after_init), {{"no barrier", {"it was not initialised"}, {4}}, race(load, {0, 6})}},
        {RING(flag_after_init), {race("__syncthreads(), a named barrier or an mbarrier", {4, 7})}},
#define DOUBLE_BUFFER(m) "double_buffer", #m, run_double_buffer<DoubleBuffer::m>
        {"double_buffer", "", run_double_buffer<DoubleBuffer::correct>, {}},
        {DOUBLE_BUFFER(no_wait), {race(copy), rarely(race(copy, {0}))}},
        {DOUBLE_BUFFER(wait_for_too_few), {race(copy), rarely(race(copy, {0}))}},
        {DOUBLE_BUFFER(no_barrier_after_wait), {race(copy)}},
        {DOUBLE_BUFFER(no_barrier_before_overwriting), {race(copy)}},
        {DOUBLE_BUFFER(third_buffer_for_second_barrier),
         {},
         "between a read and the copy that overwrites it lies the barrier of the round in between"},
        {"copy_twice", "", run_copy_twice<CopyTwice::correct>, {}},
        {"copy_twice", "no_wait", run_copy_twice<CopyTwice::no_wait>, {race(copy)}},
        {"late_copy", "", run_late<late_copy_kernel<Late::correct>>, {}},
        {"late_copy", "not_waited_for", run_late<late_copy_kernel<Late::not_waited_for>>, {race(copy)}},
        {"late_load", "", run_late<late_load_kernel<Late::correct>>, {}},
        {"late_load", "not_waited_for", run_late<late_load_kernel<Late::not_waited_for>>, {race(load)}},
#define STORE(m) "store", #m, run_store<Store::m>
        {"store", "", run_store<Store::correct>, {}},
        {STORE(no_barrier_before_store), {race(store), {"uninitialised shared memory", {"bulk_store"}, {0}}}},
        {STORE(no_wait), {race(store)}},
        {STORE(waited_for_too_few), {race(store)}},
        {STORE(no_barrier_after_wait), {race(store)}},
        {STORE(no_proxy_fence), {{"missing fence", {"no fence_proxy_async() since"}, {0}}}},
        {STORE(read_back_early), {race("bulk_wait(), and a release by the thread that has waited", {0, 2})}},
#define DELIVERY(m) "delivery", #m, run_delivery<Delivery::m>
        {"delivery", "", run_delivery<Delivery::correct>, {}},
        {DELIVERY(not_complete), {race(stored)}},
        {DELIVERY(no_acquire), {race(stored)}},
#define ADD(m) "add", #m, run_add<Add::m, true>
        {"add", "", run_add<Add::in_turn, true>, {}},
        {ADD(not_complete), {race(stored)}},
        {ADD(no_acquire), {race(stored)}},
        {ADD(in_whatever_order), {race(stored)}},
        {"add_in_whatever_order", "", run_add<Add::in_whatever_order, false>, {}},
#define MULTIPLY(m) "multiply", #m, run_multiply<Multiply::m>
        {"multiply", "", run_multiply<Multiply::correct>, {}},
        {MULTIPLY(overwritten_before_wait), {race(product)}},
        {MULTIPLY(overwritten_long_before_wait), {race(product)}},
        {MULTIPLY(wait_for_too_few), {race(product)}},
        {MULTIPLY(no_barrier_before), {race(product)}},
        {MULTIPLY(barrier_for_one_warp), {race(product)}},
        {MULTIPLY(no_barrier_after),
         {},
         "wgmma_wait() waits for the products of the whole warpgroup, so nobody reads B any more"},
        {MULTIPLY(no_proxy_fence), {{"missing fence", {"no fence_proxy_async() since"}, {0}}}},
        {MULTIPLY(accumulators_read_early), {{"register in use", {"read of an accumulator"}, {0, 2}}}},
        {MULTIPLY(accumulators_written_early), {{"register in use", {"write of an accumulator"}, {0, 2}}}},
        {MULTIPLY(A_overwritten_early), {{"register in use", {"write of A"}, {0, 2}}}},
        {MULTIPLY(accumulators_waited_for_early),
         {{"register in use", {"wgmma_wait<1>() names an accumulator", "that one may still be under way"}, {0, 2}}}},
        {MULTIPLY(accumulators_read_behind_too_short_a_wait),
         {{"register in use", {"read of an accumulator", "in the last group before wgmma_wait<1>()"}, {0, 2}}}},
#define IN_CLUSTER(kernel, Enum, m) #kernel, #m, run_cluster<kernel##_kernel<Enum::m>>
        {"exchange", "", run_cluster<exchange_kernel<Exchange::correct>>, {}},
        {IN_CLUSTER(exchange, Exchange, no_sync_before_reading), {race("cluster_sync()")}},
        {IN_CLUSTER(exchange, Exchange, no_sync_after_reading), {race("cluster_sync()")}},
        {IN_CLUSTER(exchange, Exchange, arrived_early), {race("cluster_sync()")}},
        {"announce", "", run_cluster<announce_kernel<Announce::correct>>, {}},
        {IN_CLUSTER(announce, Announce, arrived_early), {race("cluster_sync(), or barrier_arrive_at() and a wait")}},
        {IN_CLUSTER(announce, Announce, no_wait), {race("cluster_sync(), or barrier_arrive_at() and a wait")}},
    };
    for (SyncKernel& kernel : all)
        kernel.hopper = kernel.kernel.find("copy") == std::string::npos && kernel.kernel != "double_buffer";
    return all;
}

}  // namespace flashladder
