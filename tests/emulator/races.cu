// The race detector, for threads: what it must report, with both sides, and what it must not.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "../race_report.h"
#include "../test_seed.h"
#include "device_array.h"
#include "launch.h"
#include "ptx/memory_order.h"
#include "ptx/named_barrier.h"

namespace flashladder {
namespace {

constexpr unsigned all_lanes = 0xFFFFFFFFu;
constexpr unsigned threads = 64;

enum class Mutant {
    none,
    first_barrier,
    second_barrier,
    too_few,
    flag_without_release,
    flag_without_acquire,
    plain_flag,
    plain_add
};

/// Notes where the two accesses are that must be reported. By an atomic, lest this is a race itself.
#define NOTE(i) atomicExch(&lines[i], __LINE__ + 1)

// ---- shared memory

template <Mutant m>
__global__ void rotate(int* result, int* lines) {
    __shared__ int values[threads];
    values[threadIdx.x] = 0;
    __syncthreads();
    for (int i = 0; i < 4; ++i) {
        NOTE(0);
        values[threadIdx.x] = i;
        if constexpr (m != Mutant::first_barrier) __syncthreads();
        NOTE(1);
        result[threadIdx.x] = values[(threadIdx.x + 40) % threads];
        if constexpr (m != Mutant::second_barrier) __syncthreads();
    }
}

template <Mutant m>
__global__ void rotate_in_warps(int* result, int* lines) {
    int* values = dynamic_shared<int>();
    values[threadIdx.x] = 0;
    __syncthreads();
    for (int i = 0; i < 4; ++i) {
        NOTE(0);
        values[threadIdx.x] = i;
        if constexpr (m != Mutant::first_barrier) __syncwarp();
        NOTE(1);
        result[threadIdx.x] = values[threadIdx.x ^ 5];
        if constexpr (m != Mutant::second_barrier) __syncwarp();
    }
}

/// Two neighbours share a word, but no byte.
template <Mutant m>
__global__ void narrow(int* result, int* lines) {
    __shared__ unsigned short values[threads];
    values[threadIdx.x] = 0;
    __syncthreads();
    NOTE(0);
    values[threadIdx.x] = 1;
    if constexpr (m != Mutant::first_barrier) __syncthreads();
    NOTE(1);
    result[threadIdx.x] = values[threadIdx.x ^ 1];
}

/// One warp produces, the other one consumes.
template <Mutant m>
__global__ void hand_over(int* result, int* lines) {
    __shared__ int values[32];
    const int lane = threadIdx.x % 32;
    if (threadIdx.x < 32) values[lane] = 0;
    __syncthreads();
    for (int i = 0; i < 4; ++i) {
        if (threadIdx.x < 32) {
            if constexpr (m != Mutant::second_barrier) ptx::named_barrier_sync(2, threads);
            NOTE(0);
            values[lane] = i;
            if constexpr (m != Mutant::first_barrier) ptx::named_barrier_arrive(1, threads);
        } else {
            if constexpr (m != Mutant::second_barrier) ptx::named_barrier_arrive(2, threads);
            if constexpr (m != Mutant::first_barrier) ptx::named_barrier_sync(1, threads);
            NOTE(1);
            result[lane] = values[31 - lane];
        }
    }
}

/// Two pairs of warps, each with a barrier of its own, unless they share one.
template <Mutant m>
__global__ void two_roles(int* result, int* lines) {
    __shared__ int values[2][threads];
    const int role = threadIdx.x / threads, self = threadIdx.x % threads;
    const int id = m == Mutant::too_few ? 1 : 1 + role;
    values[role][self] = 0;
    __syncthreads();
    for (int i = 0; i < 4; ++i) {
        NOTE(0);
        values[role][self] = i;
        ptx::named_barrier_sync(id, threads);
        NOTE(1);
        result[threadIdx.x] = values[role][self ^ 32];
        ptx::named_barrier_sync(id, threads);
    }
}

// ---- device memory

/// Block 0 writes for block 1.
template <Mutant m>
__global__ void pass_on(int* value, unsigned* flag, int* result, int* lines) {
    if (blockIdx.x == 0) {
        NOTE(0);
        value[0] = 5;
        if constexpr (m == Mutant::plain_flag)
            *flag = 1;
        else if constexpr (m == Mutant::flag_without_release)
            atomicExch(flag, 1u);
        else
            ptx::store_release(flag, 1);
    } else {
        if constexpr (m == Mutant::flag_without_acquire)
            while (*(volatile unsigned*)flag == 0) {
            }
        else
            while (ptx::load_acquire(flag) == 0) {
            }
        NOTE(1);
        *result = value[0];
    }
}

/// The same by fences.
template <Mutant m>
__global__ void pass_on_by_fences(int* value, unsigned* flag, int* result, int* lines) {
    if (blockIdx.x == 0) {
        NOTE(0);
        value[0] = 5;
        if constexpr (m != Mutant::flag_without_release) __threadfence();
        *(volatile unsigned*)flag = 1;
    } else {
        while (*(volatile unsigned*)flag == 0) {
        }
        if constexpr (m != Mutant::flag_without_acquire) __threadfence();
        NOTE(1);
        *result = value[0];
    }
}

/// All blocks add to one number.
template <Mutant m>
__global__ void add_up(int* sum, unsigned*, int*, int* lines) {
    NOTE(0);
    NOTE(1);
    if constexpr (m == Mutant::plain_add)
        *sum += 1;
    else
        atomicAdd(sum, 1);
}

template <class Kernel>
auto in_shared_memory(Kernel kernel, unsigned n = threads) {
    return [=](int* lines) {
        const DeviceArray<int> result(n);
        launch_kernel(kernel, {1, n, n * sizeof(int)}, result.data(), lines);
    };
}
template <class Kernel>
auto between_blocks(Kernel kernel) {
    return [=](int* lines) {
        const DeviceArray<int> value(std::vector<int>{0}), result(1);
        const DeviceArray<unsigned> flag(std::vector<unsigned>{0});
        launch_kernel(kernel, {2, 1}, value.data(), flag.data(), result.data(), lines);
    };
}

void check_silent(int seeds) {
    using enum Mutant;
    check_no_race(in_shared_memory(rotate<none>), seeds);
    check_no_race(in_shared_memory(rotate_in_warps<none>), seeds);
    check_no_race(in_shared_memory(narrow<none>), seeds);
    check_no_race(in_shared_memory(hand_over<none>), seeds);
    check_no_race(in_shared_memory(two_roles<none>, 2 * threads), seeds);
    check_no_race(between_blocks(pass_on<none>), seeds);
    check_no_race(between_blocks(pass_on_by_fences<none>), seeds);
    check_no_race(between_blocks(add_up<none>), seeds);
}

TEST_CASE("races: correct kernels have none") { check_silent(20); }
TEST_CASE("races: correct kernels have none, by 200 seeds" * doctest::skip()) { check_silent(200); }

TEST_CASE("races: a barrier is missing") {
    using enum Mutant;
    const RaceWords barrier{__FILE__, "__syncthreads()"};
    const RaceWords warp{__FILE__, "__syncwarp() or __syncthreads()"};
    check_race(in_shared_memory(rotate<first_barrier>), {0, 1}, barrier);
    check_race(in_shared_memory(rotate<second_barrier>), {0, 1}, barrier);
    check_race(in_shared_memory(rotate_in_warps<first_barrier>), {0, 1}, warp);
    check_race(in_shared_memory(rotate_in_warps<second_barrier>), {0, 1}, warp);
    check_race(in_shared_memory(narrow<first_barrier>), {0, 1}, warp);
    check_race(in_shared_memory(hand_over<first_barrier>), {0, 1}, barrier);
    check_race(in_shared_memory(hand_over<second_barrier>), {0, 1}, barrier);
    check_race(in_shared_memory(two_roles<too_few>, 2 * threads), {0, 1}, barrier);
}

TEST_CASE("races: between blocks") {
    using enum Mutant;
    const RaceWords release{__FILE__, "store_release, load_acquire"};
    check_race(between_blocks(pass_on<flag_without_release>), {0, 1}, release);
    check_race(between_blocks(pass_on<flag_without_acquire>), {0, 1}, release);
    check_race(between_blocks(pass_on_by_fences<flag_without_release>), {0, 1}, release);
    check_race(between_blocks(pass_on_by_fences<flag_without_acquire>), {0, 1}, release);
    check_race(between_blocks(pass_on<plain_flag>), {}, release);
    check_race(between_blocks(add_up<plain_add>), {}, release);
}

}  // namespace
}  // namespace flashladder
