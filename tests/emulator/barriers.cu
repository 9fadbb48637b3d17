// __syncthreads and its kin, __syncwarp: nobody goes on before all are there, and all see what was written before.
#include <doctest/doctest.h>

#include <vector>

#include "device_array.h"
#include "launch.h"

namespace flashladder {
namespace {

/// Each round every thread reads what the one beside it wrote in the round before.
__global__ void pass_around(int rounds, int* result) {
    __shared__ int now[2][1024];
    const int n = blockDim.x, self = threadIdx.x;
    now[0][self] = self;
    __syncthreads();
    for (int round = 0; round < rounds; ++round) {
        now[(round + 1) % 2][self] = now[round % 2][(self + 1) % n];
        __syncthreads();
    }
    result[blockIdx.x * n + self] = now[rounds % 2][self];
}

TEST_CASE("__syncthreads: what was written before it is seen behind it") {
    for (const int n : {1, 32, 33, 100, 1024}) {
        CAPTURE(n);
        const DeviceArray<int> result(2 * n);
        constexpr int rounds = 10;
        launch_kernel(pass_around, {2, unsigned(n)}, rounds, result.data());
        const std::vector<int> values = result.download();
        for (int i = 0; i < 2 * n; ++i) REQUIRE(values[i] == (i + rounds) % n);
    }
}

/// Counts the threads that have reached the barrier; behind it, all must have.
__global__ void count_arrivals(int rounds, int* arrived, int* too_early) {
    for (int round = 1; round <= rounds; ++round) {
        atomicAdd(arrived, 1);
        __syncthreads();
        if (atomicAdd(arrived, 0) != round * int(blockDim.x)) atomicAdd(too_early, 1);
        __syncthreads();
    }
}

TEST_CASE("__syncthreads: the first one waits for the last one") {
    const DeviceArray<int> arrived(std::vector<int>{0}), too_early(std::vector<int>{0});
    launch_kernel(count_arrivals, {1, 77}, 20, arrived.data(), too_early.data());
    CHECK(arrived.download()[0] == 20 * 77);
    CHECK(too_early.download()[0] == 0);
}

/// Three barriers in a row, so that a slow thread could see the next one's result.
__global__ void judge(const int* predicates, int* count, int* all, int* any) {
    const int i = threadIdx.x, predicate = predicates[i];
    count[i] = __syncthreads_count(predicate);
    all[i] = __syncthreads_and(predicate);
    any[i] = __syncthreads_or(predicate);
}

TEST_CASE("__syncthreads_count, _and, _or") {
    constexpr int n = 70;
    std::vector<std::vector<int>> patterns(6, std::vector<int>(n, 0));
    patterns[1].assign(n, 1);
    patterns[2][69] = 1;
    patterns[3].assign(n, 256);  // true, though no bit of its lowest byte is set
    patterns[3][0] = 0;
    patterns[4][40] = -5;
    for (int i = 0; i < n; i += 3) patterns[5][i] = i - 1;
    for (const auto& predicates : patterns) {
        CAPTURE(&predicates - &patterns[0]);
        const DeviceArray<int> predicates_device(predicates), count(n), all(n), any(n);
        launch_kernel(judge, {1, n}, predicates_device.data(), count.data(), all.data(), any.data());
        int expected = 0;
        for (const int p : predicates) expected += p != 0;
        const auto counts = count.download(), alls = all.download(), anys = any.download();
        for (int i = 0; i < n; ++i) {
            REQUIRE(counts[i] == expected);
            REQUIRE((alls[i] != 0) == (expected == n));
            REQUIRE((anys[i] != 0) == (expected > 0));
        }
    }
}

/// Of each warp, half of the threads come to one line and half to another; and every round one thread less takes part.
__global__ void sum_of_those_who_are_left(int* sums) {
    __shared__ int sum;
    for (int round = 0; round < int(blockDim.x); ++round) {
        if (threadIdx.x == 0) sum = 0;
        if (threadIdx.x % 2 == 0)
            __syncthreads();
        else
            __syncthreads();
        atomicAdd(&sum, 1);
        const int predicates = __syncthreads_count(threadIdx.x % 2);
        if (threadIdx.x == 0) sums[round] = 1000 * predicates + sum;
        if (threadIdx.x == blockDim.x - 1 - round) return;
        __syncthreads();
    }
}

TEST_CASE("__syncthreads: for all that have not returned, at whatever line") {
    constexpr int n = 70;
    const DeviceArray<int> sums(n);
    launch_kernel(sum_of_those_who_are_left, {1, n}, sums.data());
    const std::vector<int> found = sums.download();
    for (int i = 0; i < n; ++i) CHECK(found[i] == 1000 * ((n - i) / 2) + (n - i));
}

/// Lanes pass values around within groups of `width` lanes; each group meets three times more often than the one
/// before.
__global__ void pass_around_groups(int width, int* result) {
    __shared__ int now[2][96];
    const int self = threadIdx.x, lane = self % 32, group = self / width, first = group * width;
    const unsigned mask = width == 32 ? 0xFFFFFFFFu : ((1u << width) - 1) << (lane / width * width);
    const int rounds = 5 + 3 * group;
    now[0][self] = self - first;
    __syncwarp(mask);
    for (int round = 0; round < rounds; ++round) {
        now[(round + 1) % 2][self] = now[round % 2][first + (self - first + 1) % width];
        __syncwarp(mask);
    }
    result[self] = now[rounds % 2][self];
}

TEST_CASE("__syncwarp: lanes of a mask wait for each other, and for no other lanes or warps") {
    for (const int width : {1, 2, 8, 16, 32}) {
        CAPTURE(width);
        const DeviceArray<int> result(96);
        launch_kernel(pass_around_groups, {1, 96}, width, result.data());
        const std::vector<int> values = result.download();
        for (int i = 0; i < 96; ++i) REQUIRE(values[i] == (i % width + 5 + 3 * (i / width)) % width);
    }
}

__global__ void sync_last_warp(int* result) {
    __shared__ int values[40];
    values[threadIdx.x] = threadIdx.x;
    __syncwarp();  // names 32 lanes, of which the last warp has 8
    result[threadIdx.x] = values[threadIdx.x / 32 * 32 + (threadIdx.x + 1) % 8];
}

TEST_CASE("__syncwarp: a warp that the block does not fill") {
    const DeviceArray<int> result(40);
    launch_kernel(sync_last_warp, {1, 40}, result.data());
    const std::vector<int> values = result.download();
    for (int i = 0; i < 40; ++i) CHECK(values[i] == i / 32 * 32 + (i + 1) % 8);
}

}  // namespace
}  // namespace flashladder
