// The race detector, for asynchronous copies, products and their barriers: each synchronisation that a correct kernel
// has is left out in turn, and must be missed.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "../emulator/device_array.h"
#include "../race_report.h"
#include "../test_seed.h"
#include "launch.h"
#include "ptx/cluster.h"
#include "ptx/cp_async.h"
#include "ptx/fence.h"
#include "ptx/mbarrier.h"
#include "ptx/tma.h"
#include "ptx/wgmma.h"

namespace flashladder {
namespace {

using T = __nv_bfloat16;

constexpr int rounds = 8, stages = 2, consumers = 64;
constexpr unsigned tile_bytes = consumers * sizeof(float);

/// Notes where the two accesses are that must be reported. By an atomic, lest this is a race itself.
#define NOTE(i) atomicExch(&lines[i], __LINE__ + 1)

// ---- a ring

enum class Ring {
    correct,
    no_wait_for_full,
    no_wait_for_empty,
    full_of_wrong_phase,
    empty_of_wrong_phase,
    released_early,
    released_by_a_lane,
    too_few_bytes,
    too_many_bytes,
    too_few_arrivals,
    too_many_arrivals,
    full_of_other_stage,
    no_barrier_fence,
    no_barrier_after_init
};

/// Two warps consume what the first lane of a third one loads.
template <Ring m>
__global__ void ring(const float* x, float* y, int* lines) {
    struct Shared {
        float tile[stages][consumers];
        ptx::Barrier full[stages], empty[stages];
    };
    auto& smem = *dynamic_shared<Shared>();
    const int self = threadIdx.x;
    if (self < consumers)
        for (auto& tile : smem.tile) tile[self] = 0;
    if (self == consumers) {
        for (int stage = 0; stage < stages; ++stage) {
            ptx::barrier_init(smem.full[stage], 1);
            ptx::barrier_init(smem.empty[stage], m == Ring::too_few_arrivals    ? 1
                                                 : m == Ring::too_many_arrivals ? 3
                                                                                : 2);
        }
        if (m != Ring::no_barrier_fence) ptx::fence_barrier_init();
    }
    if (m != Ring::no_barrier_after_init)
        __syncthreads();
    else if (self < consumers)
        __nanosleep(1);
    if (self == consumers)
        for (int j = 0; j < rounds; ++j) {
            const int stage = j % stages, parity = j / stages % 2;
            if (m == Ring::empty_of_wrong_phase)
                ptx::barrier_wait(smem.empty[stage], parity);
            else if (m != Ring::no_wait_for_empty)
                ptx::barrier_wait(smem.empty[stage], parity ^ 1);
            constexpr unsigned expected = m == Ring::too_few_bytes    ? tile_bytes / 2
                                          : m == Ring::too_many_bytes ? tile_bytes * 2
                                                                      : tile_bytes;
            ptx::barrier_arrive_expect_tx(smem.full[stage], expected);
            NOTE(0);
            ptx::bulk_load(smem.tile[stage], x + j * consumers, tile_bytes, smem.full[stage]);
        }
    if (self < consumers)
        for (int j = 0; j < rounds; ++j) {
            const int stage = j % stages, parity = j / stages % 2;
            if (m == Ring::full_of_wrong_phase)
                ptx::barrier_wait(smem.full[stage], parity ^ 1);
            else if (m == Ring::full_of_other_stage)
                ptx::barrier_wait(smem.full[stage ^ 1], j > 0 ? (j - 1) / stages % 2 : 1);
            else if (m != Ring::no_wait_for_full)
                ptx::barrier_wait(smem.full[stage], parity);
            if (m == Ring::released_early && self % 32 == 0) ptx::barrier_arrive(smem.empty[stage]);
            NOTE(1);
            y[j * consumers + self] = smem.tile[stage][self];
            if (m != Ring::released_by_a_lane) __syncwarp();
            if (m != Ring::released_early && self % 32 == 0) ptx::barrier_arrive(smem.empty[stage]);
        }
}

template <Ring m>
void run_ring(int* lines) {
    const DeviceArray<float> x(std::vector<float>(rounds * consumers, 1.0f)), y(rounds * consumers);
    launch_kernel(ring<m>, {1, consumers + 32, 1024}, x.data(), y.data(), lines);
}

// ---- cp.async

enum class Copies { correct, no_wait, wait_for_too_few, no_barrier_after_wait, no_barrier_before_overwriting };

/// Two buffers; who reads is not who has copied.
template <Copies m>
__global__ void double_buffer(const float* x, float* y, int* lines) {
    __shared__ float tile[stages][consumers];
    const int self = threadIdx.x;
    for (auto& t : tile) t[self] = 0;
    __syncthreads();
    const auto load = [&](int j) {
        if (j < rounds) {
            NOTE(0);
            ptx::cp_async<4>(&tile[j % stages][self], &x[j * consumers + self]);
        }
        ptx::cp_async_commit();
    };
    load(0);
    for (int j = 0; j < rounds; ++j) {
        load(j + 1);
        if (m == Copies::wait_for_too_few)
            ptx::cp_async_wait<2>();
        else if (m != Copies::no_wait)
            ptx::cp_async_wait<1>();
        if (m != Copies::no_barrier_after_wait) __syncthreads();
        NOTE(1);
        y[j * consumers + self] = tile[j % stages][self ^ 33];
        if (m != Copies::no_barrier_before_overwriting) __syncthreads();
    }
}

template <Copies m>
void run_copies(int* lines) {
    const DeviceArray<float> x(std::vector<float>(rounds * consumers, 1.0f)), y(rounds * consumers);
    launch_kernel(double_buffer<m>, {1, consumers}, x.data(), y.data(), lines);
}

// ---- stores

enum class Stores {
    correct,
    no_barrier_before_store,
    no_wait,
    waited_for_too_few,
    no_barrier_after_wait,
    no_proxy_fence,
    read_back_early
};

template <Stores m>
__global__ void store(float* y, float* copy, int* lines) {
    auto* tile = dynamic_shared<float>();
    const int self = threadIdx.x;
    for (int j = 0; j < rounds; ++j) {
        NOTE(1);
        tile[self] = j;
        if (m != Stores::no_proxy_fence) ptx::fence_proxy_async();
        if (m != Stores::no_barrier_before_store) __syncthreads();
        if (self == 0) {
            NOTE(0);
            ptx::bulk_store(y + j * consumers, tile, tile_bytes);
            ptx::bulk_commit();
            if (m == Stores::waited_for_too_few)
                ptx::bulk_wait_read<1>();
            else if (m != Stores::no_wait)
                ptx::bulk_wait_read<0>();
        }
        if (m != Stores::no_barrier_after_wait) __syncthreads();
    }
    if (self == 0) {
        if (m == Stores::read_back_early)
            ptx::bulk_wait_read<0>();
        else
            ptx::bulk_wait<0>();
        NOTE(2);
        copy[0] = y[(rounds - 1) * consumers];
    }
}

template <Stores m>
void run_stores(int* lines) {
    const DeviceArray<float> y(rounds * consumers), copy(1);
    launch_kernel(store<m>, {1, consumers, tile_bytes}, y.data(), copy.data(), lines);
}

// ---- wgmma

enum class Products {
    correct,
    overwritten_before_wait,
    wait_for_too_few,
    no_barrier_before,
    no_barrier_after,
    no_fence
};

/// Four warps write B anew for each product.
template <Products m>
__global__ void multiply(float* y, int* lines) {
    auto* tile = dynamic_shared<uint4>();
    float d[32] = {};
    const std::uint32_t a[4] = {};
    const auto b = ptx::matrix_descriptor(tile, 16, 1024, ptx::Swizzle::bytes_128);
    for (int j = 0; j < rounds; ++j) {
        for (unsigned i = threadIdx.x; i < 512; i += blockDim.x) {
            NOTE(1);
            tile[i] = {};
        }
        if (m != Products::no_fence) ptx::fence_proxy_async();
        if (m != Products::no_barrier_before) __syncthreads();
        ptx::wgmma_fence(d);
        NOTE(0);
        ptx::wgmma<T>(d, a, b, true);
        ptx::wgmma_commit();
        if (m == Products::wait_for_too_few)
            ptx::wgmma_wait<1>(d);
        else if (m != Products::overwritten_before_wait)
            ptx::wgmma_wait<0>(d);
    }
    ptx::wgmma_wait<0>(d);
    y[threadIdx.x] = d[0];
}

template <Products m>
void run_products(int* lines) {
    const DeviceArray<float> y(128);
    launch_kernel(multiply<m>, {1, 128, 16384}, y.data(), lines);
}

// ---- clusters

enum class Clusters { correct, no_sync_before_read, no_sync_after_read, arrived_early, no_wait_for_other };

/// Two blocks read each other's values.
template <Clusters m>
__global__ void exchange_values(float* y, int* lines) {
    auto* values = dynamic_shared<float>();
    const unsigned rank = ptx::cluster_rank(), self = threadIdx.x;
    values[self] = 0;
    ptx::cluster_sync();
    const float* other = ptx::map_to_block(values, rank ^ 1);
    for (int j = 0; j < 4; ++j) {
        NOTE(0);
        values[self] = j;
        if (m != Clusters::no_sync_before_read) ptx::cluster_sync();
        if (m == Clusters::arrived_early) ptx::cluster_arrive();
        NOTE(1);
        y[rank * consumers + self] = other[self];
        if (m == Clusters::arrived_early)
            ptx::cluster_wait();
        else if (m != Clusters::no_sync_after_read || j == 3)
            ptx::cluster_sync();
    }
}

/// Block 0 writes to block 1, which waits for it at a barrier.
template <Clusters m>
__global__ void announce(float* y, int* lines) {
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
        if (m == Clusters::arrived_early) ptx::barrier_arrive_at(ready, 1);
        NOTE(0);
        other[self] = 1;
        if (m != Clusters::arrived_early) ptx::barrier_arrive_at(ready, 1);
    } else {
        if (m != Clusters::no_wait_for_other) ptx::barrier_wait_cluster(ready, 0);
        NOTE(1);
        y[self] = values[self ^ 1];
    }
    ptx::cluster_sync();
}

template <class Kernel>
auto in_cluster(Kernel kernel) {
    return [=](int* lines) {
        const DeviceArray<float> y(2 * consumers);
        launch_kernel(kernel, {2, consumers, 1024, nullptr, 2}, y.data(), lines);
    };
}

void check_silent(int seeds) {
    check_no_race(run_ring<Ring::correct>, seeds);
    check_no_race(run_copies<Copies::correct>, seeds);
    check_no_race(run_stores<Stores::correct>, seeds);
    check_no_race(run_products<Products::correct>, seeds);
    check_no_race(in_cluster(exchange_values<Clusters::correct>), seeds);
    check_no_race(in_cluster(announce<Clusters::correct>), seeds);
}

TEST_CASE("races: correct kernels for Hopper have none") { check_silent(20); }
TEST_CASE("races: correct kernels for Hopper have none, by 200 seeds" * doctest::skip()) { check_silent(200); }

TEST_CASE("races: in a ring") {
    using enum Ring;
    const RaceWords words{__FILE__, "barrier"};
    check_race(run_ring<no_wait_for_full>, {0, 1}, words);
    // What the order decides is which of these is seen first.
    check_report(run_ring<no_wait_for_empty>, {"race", "too many arrivals"}, "thread     (");
    check_race(run_ring<full_of_wrong_phase>, {0, 1}, words);
    check_race(run_ring<released_early>, {0, 1}, words);
    check_race(run_ring<released_by_a_lane>, {0, 1}, words);
    check_report(run_ring<too_few_bytes>, {"race", "deadlock"}, "kernel     ring");
    check_race(run_ring<full_of_other_stage>, {0, 1}, words);
    check_report(run_ring<no_barrier_after_init>, {"no barrier"}, "it was not initialised");
    check_report(run_ring<empty_of_wrong_phase>, {"deadlock"}, "64 threads wait for barrier_try_wait");
    check_report(run_ring<too_many_bytes>, {"deadlock"}, "256 bytes are missing");
    check_report(run_ring<too_few_arrivals>, {"race", "deadlock", "too many arrivals"}, "barrier");
    check_report(run_ring<too_many_arrivals>, {"deadlock"}, "1 of 3 arrivals");
    check_report(run_ring<no_barrier_fence>, {"missing fence"}, "no fence_barrier_init() since");
}

TEST_CASE("races: cp.async") {
    using enum Copies;
    const RaceWords words{__FILE__, "barrier"};
    check_race(run_copies<no_wait>, {0, 1}, words);
    check_race(run_copies<wait_for_too_few>, {0, 1}, words);
    check_race(run_copies<no_barrier_after_wait>, {0, 1}, words);
    check_race(run_copies<no_barrier_before_overwriting>, {0, 1}, words);
}

TEST_CASE("races: bulk stores") {
    using enum Stores;
    const RaceWords words{__FILE__, "wait"};
    check_race(run_stores<no_barrier_before_store>, {0, 1}, words);
    check_race(run_stores<no_wait>, {0, 1}, words);
    check_race(run_stores<waited_for_too_few>, {0, 1}, words);
    check_race(run_stores<no_barrier_after_wait>, {0, 1}, words);
    check_race(run_stores<read_back_early>, {0, 2}, words);
    check_report(run_stores<no_proxy_fence>, {"missing fence"}, "no fence_proxy_async() since");
}

TEST_CASE("races: wgmma") {
    using enum Products;
    const RaceWords words{__FILE__, "wait"};
    check_race(run_products<overwritten_before_wait>, {0, 1}, words);
    check_race(run_products<wait_for_too_few>, {0, 1}, words);
    check_race(run_products<no_barrier_before>, {0, 1}, words);
    // A barrier behind wgmma_wait() would be idle: that waits for the products of the whole warpgroup.
    check_report(run_products<no_fence>, {"missing fence"}, "no fence_proxy_async() since");
}

TEST_CASE("races: in a cluster") {
    using enum Clusters;
    check_race(in_cluster(exchange_values<no_sync_before_read>), {0, 1}, {__FILE__, "cluster_sync()"});
    check_race(in_cluster(exchange_values<no_sync_after_read>), {0, 1}, {__FILE__, "cluster_sync()"});
    check_race(in_cluster(exchange_values<arrived_early>), {0, 1}, {__FILE__, "cluster_sync()"});
    check_race(in_cluster(announce<arrived_early>), {0, 1}, {__FILE__, "barrier_arrive_at()"});
    check_race(in_cluster(announce<no_wait_for_other>), {0, 1}, {__FILE__, "barrier_arrive_at()"});
}

}  // namespace
}  // namespace flashladder
