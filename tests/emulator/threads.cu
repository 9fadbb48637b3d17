// Threads, blocks and grids: who exists, who is resident together, whose shared memory is whose.
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "device_array.h"
#include "failure.h"
#include "launch.h"

namespace flashladder {
namespace {

bool same(uint3 a, uint3 b) { return a.x == b.x && a.y == b.y && a.z == b.z; }
uint3 position(std::size_t i, dim3 extent) {
    return {unsigned(i % extent.x), unsigned(i / extent.x % extent.y), unsigned(i / extent.x / extent.y)};
}

struct Identity {
    uint3 thread, block, block_extent, grid_extent;
};

__global__ void identify(Identity* identities, int* visits) {
    const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const unsigned i = block * (blockDim.x * blockDim.y * blockDim.z) + thread;
    identities[i] = {threadIdx, blockIdx, {blockDim.x, blockDim.y, blockDim.z}, {gridDim.x, gridDim.y, gridDim.z}};
    atomicAdd(&visits[i], 1);
}

TEST_CASE("threads: each of the grid runs once and knows its place") {
    struct Extents {
        dim3 grid, block;
    };
    for (const auto& [grid, block] : std::vector<Extents>{{1, 1},
                                                          {7, 33},
                                                          {1, 1024},
                                                          {{3, 2}, {8, 5}},
                                                          {{2, 3, 4}, {5, 3, 2}},
                                                          {{1, 1, 9}, {1, 1, 64}},
                                                          {{1, 5}, {1, 1024}},
                                                          {100, 2}}) {
        CAPTURE(grid.x);
        CAPTURE(block.x);
        const std::size_t per_block = block.x * block.y * block.z, blocks = grid.x * grid.y * grid.z;
        const DeviceArray<Identity> identities(per_block * blocks);
        const DeviceArray<int> visits(std::vector<int>(per_block * blocks, 0));
        launch_kernel(identify, {grid, block}, identities.data(), visits.data());
        CHECK(visits.download() == std::vector<int>(per_block * blocks, 1));
        const std::vector<Identity> found = identities.download();
        int wrong = 0;
        for (std::size_t i = 0; i < found.size(); ++i)
            wrong += !same(found[i].thread, position(i % per_block, block)) ||
                     !same(found[i].block, position(i / per_block, grid)) ||
                     !same(found[i].block_extent, {block.x, block.y, block.z}) ||
                     !same(found[i].grid_extent, {grid.x, grid.y, grid.z});
        CHECK(wrong == 0);
    }
}

__global__ void note_warp_size(int* result) { *result = warpSize; }

TEST_CASE("threads: a warp has 32 lanes") {
    const DeviceArray<int> result(1);
    launch_kernel(note_warp_size, {1, 1}, result.data());
    CHECK(result.download()[0] == 32);
}

// ---- residency

/// Each block says that it is there, and waits until all are: no block can end before all have begun.
__global__ void wait_for_all_blocks(int* arrived) {
    if (threadIdx.x == 0) atomicAdd(arrived, 1);
    const volatile int* seen = arrived;
    while (*seen < int(gridDim.x)) {
    }
}

TEST_CASE("blocks: as many are resident as there are multiprocessors, and run interleaved") {
    const WithMultiprocessors restore(4);
    for (const int multiprocessors : {1, 2, 4, 7}) {
        CAPTURE(multiprocessors);
        emulator::settings().multiprocessors = multiprocessors;
        const DeviceArray<int> arrived(std::vector<int>{0});
        launch_kernel(wait_for_all_blocks, {unsigned(multiprocessors), 3}, arrived.data());
        CHECK(arrived.download()[0] == multiprocessors);
    }
}

TEST_CASE("blocks: one more is not resident") {
    const WithMultiprocessors restore(2);
    const DeviceArray<int> arrived(std::vector<int>{0});
    CHECK_THROWS_AS(launch_kernel(wait_for_all_blocks, {3, 128}, arrived.data()), CudaError);
    CHECK(arrived.download()[0] == 2);
}

/// Two blocks take turns: block b may only add the numbers that leave b when divided by 2.
__global__ void take_turns(int rounds, int* next, int* owner_of_turn) {
    for (int turn = blockIdx.x; turn < 2 * rounds; turn += 2) {
        while (atomicAdd(next, 0) != turn) {
        }
        owner_of_turn[turn] = blockIdx.x;
        atomicAdd(next, 1);
    }
}

TEST_CASE("blocks: two shake hands through atomics") {
    constexpr int rounds = 20;
    const DeviceArray<int> next(std::vector<int>{0}), owner(2 * rounds);
    launch_kernel(take_turns, {2, 1}, rounds, next.data(), owner.data());
    const std::vector<int> owners = owner.download();
    for (int turn = 0; turn < 2 * rounds; ++turn) CHECK(owners[turn] == turn % 2);
}

// ---- shared memory

/// All blocks have written their shared memory before any of them reads its own again.
template <class T>
__device__ void fill_and_read_back(T* shared, int n, int* arrived, int* wrong) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) shared[i] = T(blockIdx.x * 1000 + i);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(arrived, 1);
    while (atomicAdd(arrived, 0) < int(gridDim.x)) {
    }
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        if (shared[i] != T(blockIdx.x * 1000 + i)) atomicAdd(wrong, 1);
}

__global__ void use_static_shared(int* arrived, int* wrong) {
    __shared__ int numbers[100];
    fill_and_read_back(numbers, 100, arrived, wrong);
}

__global__ void use_dynamic_shared(int n, int* arrived, int* wrong) {
    int* numbers = dynamic_shared<int>();
    if (reinterpret_cast<std::uintptr_t>(numbers) % 1024 != 0) atomicAdd(wrong, 1);
    fill_and_read_back(numbers, n, arrived, wrong);
}

TEST_CASE("shared memory: static, each block has its own") {
    const WithMultiprocessors restore(4);
    const DeviceArray<int> arrived(std::vector<int>{0}), wrong(std::vector<int>{0});
    launch_kernel(use_static_shared, {4, 40}, arrived.data(), wrong.data());
    CHECK(wrong.download()[0] == 0);
}

thread_local int host_variable = 42;

TEST_CASE("shared memory: static, what belongs to the host is left alone") {
    // __shared__ is thread_local underneath.
    const DeviceArray<int> arrived(std::vector<int>{0}), wrong(std::vector<int>{0});
    host_variable = 43;
    launch_kernel(use_static_shared, {4, 40}, arrived.data(), wrong.data());
    CHECK(host_variable == 43);
    CHECK_THROWS_AS(launch_kernel(use_static_shared, {1, 40}, arrived.data() + 1, wrong.data()), CudaError);
    CHECK(host_variable == 43);
}

TEST_CASE("shared memory: dynamic, each block has its own, up to all that a block may have") {
    const WithMultiprocessors restore(3);
    for (const int n : {1, 100, 227 * 1024 / 4}) {
        CAPTURE(n);
        const DeviceArray<int> arrived(std::vector<int>{0}), wrong(std::vector<int>{0});
        launch_kernel(use_dynamic_shared, {3, 64, n * sizeof(int)}, n, arrived.data(), wrong.data());
        CHECK(wrong.download()[0] == 0);
    }
}

/// Static arrays of two sizes, one for each instance of the template, and both beside each other.
template <int n>
__device__ int* array_of() {
    __shared__ int array[n];
    return array;
}
template <int m, int n>
__global__ void use_two_sizes(int* result) {
    int *a = array_of<m>(), *b = array_of<n>();
    for (int i = threadIdx.x; i < m; i += blockDim.x) a[i] = i;
    for (int i = threadIdx.x; i < n; i += blockDim.x) b[i] = -i;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int i = 0; i < m; ++i) result[i] = a[i];
    for (int i = 0; i < n; ++i) result[m + i] = b[i];
}

template <int m, int n>
void check_two_sizes() {
    const DeviceArray<int> result(m + n);
    launch_kernel(use_two_sizes<m, n>, {1, 32}, result.data());
    std::vector<int> expected;
    for (int i = 0; i < m; ++i) expected.push_back(i);
    for (int i = 0; i < n; ++i) expected.push_back(-i);
    CHECK(result.download() == expected);
}

TEST_CASE("shared memory: a template's instances have arrays of their own") {
    check_two_sizes<1, 7>();
    check_two_sizes<64, 33>();
    check_two_sizes<7, 500>();
}

}  // namespace
}  // namespace flashladder
