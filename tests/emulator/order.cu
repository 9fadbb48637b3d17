// The order in which blocks and threads run: drawn from the seed, and from nothing else.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "../test_seed.h"
#include "device_array.h"
#include "failure.h"
#include "launch.h"
#include "ptx/memory_order.h"

namespace flashladder {
namespace {

constexpr int blocks = 6, threads = 40, passes = 3, events = blocks * threads * passes;

/// Notes who came when: before, between and behind barriers of both kinds.
__global__ void note_order(int* next, int* log) {
    const int self = blockIdx.x * blockDim.x + threadIdx.x;
    log[atomicAdd(next, 1)] = self;
    __syncthreads();
    log[atomicAdd(next, 1)] = self;
    __syncwarp();
    log[atomicAdd(next, 1)] = self;
}

std::vector<int> order_of_a_launch() {
    const DeviceArray<int> next(std::vector<int>{0}), log(events);
    launch_kernel(note_order, {blocks, threads}, next.data(), log.data());
    return log.download();
}

TEST_CASE("order: the same seed gives the same") {
    emulator::reseed(test_seed());
    const std::vector<int> first = order_of_a_launch();
    const std::vector<int> second = order_of_a_launch();
    emulator::reseed(test_seed());
    CHECK(order_of_a_launch() == first);
    CHECK(order_of_a_launch() == second);
    CHECK(first != second);  // a later launch runs in another order
    CHECK(emulator::settings().seed == test_seed());
}

TEST_CASE("order: each seed gives another") {
    std::set<std::vector<int>> orders;
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        emulator::reseed(test_seed() + seed);
        orders.insert(order_of_a_launch());
    }
    CHECK(orders.size() == 10);
}

TEST_CASE("order: any thread may be the first, any block, and the other way round") {
    std::set<int> first_threads, first_warps;
    std::set<bool> in_block_order, in_thread_order;
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        emulator::reseed(test_seed() + seed);
        const std::vector<int> order = order_of_a_launch();
        std::vector<int> when(blocks * threads, -1);
        for (int i = 0; i < events; ++i)
            if (when[order[i]] < 0) when[order[i]] = i;
        first_threads.insert(order[0] % threads);
        first_warps.insert(order[0] % threads / 32);
        in_block_order.insert(when[0] < when[threads]);
        in_thread_order.insert(when[1] < when[2]);
    }
    CHECK(first_threads.size() > 20);  // of 40, in 100 draws
    CHECK(first_warps.size() == 2);
    CHECK(in_block_order.size() == 2);
    CHECK(in_thread_order.size() == 2);
}

TEST_CASE("order: blocks come in between each other") {
    int switches = 0, others_before_end = 0;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        emulator::reseed(test_seed() + seed);
        const std::vector<int> order = order_of_a_launch();
        for (int i = 1; i < events; ++i) switches += order[i] / threads != order[i - 1] / threads;
        std::vector<int> seen(blocks);
        for (const int self : order) {
            ++seen[self / threads];
            for (int b = 0; b < blocks; ++b)
                others_before_end += b != self / threads && seen[b] > 0 && seen[b] < threads * passes;
        }
    }
    CHECK(switches > 20 * blocks);  // with one block after the other: blocks - 1 a launch
    CHECK(others_before_end > 0);
}

/// One event a step: the log itself lets nobody else run.
__global__ void note_steps(int steps, int* next, int* log) {
    for (int i = 0; i < steps; ++i) {
        log[(*next)++] = blockIdx.x;
        __nanosleep(1);
    }
}

TEST_CASE("order: a block's slices differ in length") {
    constexpr unsigned block_threads = 8;
    constexpr int steps = 400, n = 2 * block_threads * steps;
    const DeviceArray<int> next(std::vector<int>{0}), log(n);
    launch_kernel(note_steps, {2, block_threads}, steps, next.data(), log.data());
    const std::vector<int> order = log.download();
    int longest = 0, part_rounds = 0;
    for (int begin = 0, end = 0; begin < n; begin = end) {
        while (end < n && order[end] == order[begin]) ++end;
        longest = std::max(longest, end - begin);
        part_rounds += end < n / 2 && (end - begin) % block_threads != 0;  // later, threads end
    }
    CHECK(longest > 6 * int(block_threads));
    CHECK(part_rounds > 4);
}

/// Counts the rounds in which the last to arrive at the barrier was the first to leave it.
__global__ void count_last_first(int rounds, int* last, int* left, int* last_first) {
    for (int round = 0; round < rounds; ++round) {
        *last = threadIdx.x;
        *left = 0;
        __syncthreads();
        if ((*left)++ == 0) *last_first += *last == int(threadIdx.x);
        __syncthreads();
    }
}

TEST_CASE("order: the last one at a barrier need not be the first to go on") {
    constexpr int rounds = 50;
    const DeviceArray<int> last(1), left(1), last_first(std::vector<int>{0});
    launch_kernel(count_last_first, {1, 4}, rounds, last.data(), left.data(), last_first.data());
    CHECK(last_first.download()[0] > 0);
    CHECK(last_first.download()[0] < rounds);
}

TEST_CASE("order: the number of multiprocessors decides how many blocks are mixed") {
    const WithMultiprocessors restore(1);
    const std::vector<int> order = order_of_a_launch();
    int switches = 0;
    for (int i = 1; i < events; ++i) switches += order[i] / threads != order[i - 1] / threads;
    CHECK(switches == blocks - 1);
}

/// Block i notes that it was the n-th to begin.
__global__ void note_beginning(int* next, int* begun) {
    if (threadIdx.x == 0) begun[blockIdx.x] = atomicAdd(next, 1);
}

TEST_CASE("order: blocks begin from the first to the last, or from the last to the first") {
    const WithMultiprocessors restore(1);
    const auto beginnings = [] {
        const DeviceArray<int> next(std::vector<int>{0}), begun(blocks);
        launch_kernel(note_beginning, {blocks, threads}, next.data(), begun.data());
        return begun.download();
    };
    CHECK(beginnings() == std::vector<int>{0, 1, 2, 3, 4, 5});
    {
        const WithLastBlockFirst last_first;
        CHECK(beginnings() == std::vector<int>{5, 4, 3, 2, 1, 0});
    }
    CHECK(beginnings() == std::vector<int>{0, 1, 2, 3, 4, 5});
}

/// Blocks that follow one another on a multiprocessor have the same shared memory, one after the other.
__global__ void note_in_shared_memory(int* notes) {
    __shared__ int noted[threads];
    noted[threadIdx.x] = blockIdx.x;
    notes[blockIdx.x * threads + threadIdx.x] = noted[threadIdx.x];
}

TEST_CASE("order: blocks that begin from the last to the first do not race for their shared memory") {
    const WithMultiprocessors restore(2);
    const WithLastBlockFirst last_first;
    const DeviceArray<int> notes(blocks * threads);
    CHECK(emulator::find_race([&] { launch_kernel(note_in_shared_memory, {blocks, threads}, notes.data()); }) == "");
}

/// Each block waits for the one before it.
__global__ void wait_for_the_block_before(std::uint32_t* done) {
    if (blockIdx.x > 0)
        while (ptx::load_acquire(&done[blockIdx.x - 1]) == 0) {
        }
    ptx::store_release(&done[blockIdx.x], 1);
}

TEST_CASE("order: a block that waits for one before it may wait for one that has no room") {
    const WithMultiprocessors restore(2);
    const WithPatience patience(10'000);
    const std::vector<std::uint32_t> nobody(blocks);
    const DeviceArray<std::uint32_t> done(nobody), again(nobody);
    CHECK_NOTHROW(launch_kernel(wait_for_the_block_before, {blocks, 1}, done.data()));
    const WithLastBlockFirst last_first;
    CHECK_THROWS_AS(launch_kernel(wait_for_the_block_before, {blocks, 1}, again.data()), CudaError);
    CHECK(emulator::last_report().starts_with(
        "livelock: threads only wait for one another, and 4 of 6 blocks have no room to begin\n"));
}

/// The sum of random-looking floats: its last digits tell the order of the additions.
__global__ void add_up(float* sum) { atomicAdd(sum, 1.0f / (1 + threadIdx.x + blockIdx.x * blockDim.x)); }

TEST_CASE("order: so results that depend on it can be repeated") {
    std::set<float> sums;
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        float results[2];
        for (float& result : results) {
            emulator::reseed(test_seed() + seed);
            const DeviceArray<float> sum(std::vector<float>{0});
            launch_kernel(add_up, {8, 64}, sum.data());
            result = sum.download()[0];
        }
        CHECK(results[0] == results[1]);
        sums.insert(results[0]);
    }
    CHECK(sums.size() > 1);
}

}  // namespace
}  // namespace flashladder
