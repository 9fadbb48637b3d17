// Atomics: the old value that each one returns, what they leave behind, and what threads may build from them.
#include <doctest/doctest.h>

#include <algorithm>
#include <climits>
#include <numeric>
#include <random>
#include <vector>

#include "../test_seed.h"
#include "device_array.h"
#include "launch.h"

namespace flashladder {
namespace {

enum class Operation { add, sub, exchange, min, max, bit_and, bit_or, bit_xor };

template <class T>
__device__ T apply(Operation operation, T* target, T operand) {
    using enum Operation;
    if (operation == add) return atomicAdd(target, operand);
    if (operation == exchange) return atomicExch(target, operand);
    if constexpr (std::is_integral_v<T>) {
        if (operation == min) return atomicMin(target, operand);
        if (operation == max) return atomicMax(target, operand);
        if (operation == bit_and) return atomicAnd(target, operand);
        if (operation == bit_or) return atomicOr(target, operand);
        if (operation == bit_xor) return atomicXor(target, operand);
        if constexpr (sizeof(T) == 4) return atomicSub(target, operand);
    }
    return T();
}

template <class T>
T expected(Operation operation, T old, T operand) {
    using enum Operation;
    if constexpr (std::is_integral_v<T>) {
        if (operation == sub) return old - operand;
        if (operation == min) return std::min(old, operand);
        if (operation == max) return std::max(old, operand);
        if (operation == bit_and) return old & operand;
        if (operation == bit_or) return old | operand;
        if (operation == bit_xor) return old ^ operand;
    }
    return operation == add ? old + operand : operand;
}

/// One thread, on device memory and on shared memory.
template <class T>
__global__ void apply_to_both(Operation operation, const T* operands, int n, T* target, T* olds) {
    __shared__ T target_smem;
    target_smem = *target;
    for (int i = 0; i < n; ++i) {
        olds[2 * i] = apply(operation, target, operands[i]);
        olds[2 * i + 1] = apply(operation, &target_smem, operands[i]);
    }
    target[1] = target_smem;
}

template <class T>
void check_operation(Operation operation, const std::vector<T>& operands, T start) {
    CAPTURE(int(operation));
    const int n = int(operands.size());
    const DeviceArray<T> operands_device(operands), target(std::vector<T>{start, 0}), olds(2 * operands.size());
    launch_kernel(apply_to_both<T>, {1, 1}, operation, operands_device.data(), n, target.data(), olds.data());
    const std::vector<T> old = olds.download();
    T value = start;
    for (int i = 0; i < n; ++i) {
        CAPTURE(i);
        REQUIRE(old[2 * i] == value);
        REQUIRE(old[2 * i + 1] == value);
        value = expected(operation, value, operands[i]);
    }
    CHECK(target.download() == std::vector<T>(2, value));
}

TEST_CASE_TEMPLATE("atomics: whole numbers", T, int, unsigned, unsigned long long) {
    std::mt19937_64 random(test_seed());
    std::vector<T> operands = {T(5), T(-7), T(0), T(INT_MAX), T(INT_MIN), T(3)};  // unsigned: -7 is a large number
    for (int i = 0; i < 20; ++i) operands.push_back(T(random()) >> random() % 32);
    if (sizeof(T) == 4 && T(-1) < T(0))  // nothing here is about overflow of int
        for (T& x : operands) x %= 1000000;
    using enum Operation;
    for (const Operation operation : {add, sub, exchange, min, max, bit_and, bit_or, bit_xor})
        if (operation != sub || sizeof(T) == 4) check_operation(operation, operands, T(12345));
}

TEST_CASE_TEMPLATE("atomics: floating point", T, float, double) {
    const std::vector<T> operands = {T(0.5), T(-3), T(1e10), T(0.1)};
    check_operation(Operation::add, operands, T(7));
    check_operation(Operation::exchange, operands, T(7));
}

__global__ void add_vectors(float2* two, float4* four, float4* old) {
    atomicAdd(two, make_float2(1, 2));
    const float4 before = atomicAdd(four, make_float4(1, 2, 3, 4));
    if (before.x == 0) *old = before;
}

TEST_CASE("atomics: vectors, part by part") {
    const DeviceArray<float2> two(std::vector<float2>{{0, 5}});
    const DeviceArray<float4> four(std::vector<float4>{{0, 0, 7, 8}}), old(1);
    launch_kernel(add_vectors, {3, 40}, two.data(), four.data(), old.data());
    const float2 b = two.download()[0];
    const float4 f = four.download()[0], first = old.download()[0];
    CHECK(std::vector{b.x, b.y} == std::vector{120.0f, 245.0f});
    CHECK(std::vector{f.x, f.y, f.z, f.w} == std::vector{120.0f, 240.0f, 367.0f, 488.0f});
    CHECK(std::vector{first.x, first.y, first.z, first.w} == std::vector{0.0f, 0.0f, 7.0f, 8.0f});
}

__global__ void compare_and_swap(unsigned long long* target, unsigned* wrapped, unsigned long long* olds) {
    olds[0] = atomicCAS(target, 1ull, 2ull);  // is 1, becomes 2
    olds[1] = atomicCAS(target, 1ull, 3ull);  // is 2, stays
    olds[2] = atomicCAS(target, 2ull, ~0ull);
    for (int i = 0; i < 7; ++i) olds[3 + i] = atomicInc(wrapped, 4);
    olds[10] = atomicInc(wrapped + 1, 4);  // is over the limit already
}

TEST_CASE("atomics: compare-and-swap, and the counter that wraps") {
    const DeviceArray<unsigned long long> target(std::vector<unsigned long long>{1}), olds(11);
    const DeviceArray<unsigned> wrapped(std::vector<unsigned>{2, 9});
    launch_kernel(compare_and_swap, {1, 1}, target.data(), wrapped.data(), olds.data());
    CHECK(olds.download() == std::vector<unsigned long long>{1, 2, 2, 2, 3, 4, 0, 1, 2, 3, 9});
    CHECK(target.download()[0] == ~0ull);
    CHECK(wrapped.download() == std::vector<unsigned>{4, 0});
}

// ---- many threads

__global__ void take_tickets(int* counter, int* tickets) {
    for (int i = 0; i < 3; ++i) tickets[(blockIdx.x * blockDim.x + threadIdx.x) * 3 + i] = atomicAdd(counter, 1);
}

TEST_CASE("atomics: no two threads draw the same ticket") {
    constexpr int blocks = 7, threads = 50, n = 3 * blocks * threads;
    const DeviceArray<int> counter(std::vector<int>{0}), tickets(n);
    launch_kernel(take_tickets, {blocks, threads}, counter.data(), tickets.data());
    std::vector<int> found = tickets.download();
    CHECK(
        !std::is_sorted(found.begin(), found.end()));  // or the threads ran one after the other, and this shows nothing
    std::sort(found.begin(), found.end());
    std::vector<int> all(n);
    std::iota(all.begin(), all.end(), 0);
    CHECK(found == all);
}

/// Each value that was put in comes out again, of one exchange or of the last look.
__global__ void exchange(int* slot, int* received) {
    const int self = blockIdx.x * blockDim.x + threadIdx.x;
    received[self] = atomicExch(slot, self);
}

TEST_CASE("atomics: exchange loses nothing") {
    constexpr int blocks = 5, threads = 40, n = blocks * threads;
    const DeviceArray<int> slot(std::vector<int>{n}), received(n);
    launch_kernel(exchange, {blocks, threads}, slot.data(), received.data());
    std::vector<int> found = received.download();
    found.push_back(slot.download()[0]);
    std::sort(found.begin(), found.end());
    std::vector<int> all(n + 1);
    std::iota(all.begin(), all.end(), 0);
    CHECK(found == all);
}

/// A lock made of compare-and-swap guards an addition that is no atomic.
__global__ void add_under_lock(int* lock, volatile int* sum) {
    while (atomicCAS(lock, 0, 1) != 0) {
    }
    __threadfence();
    *sum = *sum + threadIdx.x;
    __threadfence();
    atomicExch(lock, 0);
}

TEST_CASE("atomics: a spin lock") {
    const DeviceArray<int> lock(std::vector<int>{0}), sum(std::vector<int>{0});
    launch_kernel(add_under_lock, {4, 30}, lock.data(), sum.data());
    CHECK(sum.download()[0] == 4 * 435);
}

__global__ void add_without_lock(volatile int* sum) { *sum = *sum + 1; }

TEST_CASE("atomics: without them, additions are lost") {
    // So the test above is not green because nobody ever comes in between.
    const DeviceArray<int> sum(std::vector<int>{0});
    launch_kernel(add_without_lock, {4, 30}, sum.data());
    CHECK(sum.download()[0] < 120);
}

// ---- volatile

/// Warps hand a number on through volatile shared memory: each waits for the one before it.
__global__ void relay(int* result) {
    __shared__ volatile int baton;
    if (threadIdx.x == 0) baton = 0;
    __syncthreads();
    const int self = threadIdx.x;
    while (baton != self) {
    }
    baton = self + 1;
    if (self + 1 == int(blockDim.x)) *result = baton;
}

TEST_CASE("volatile: a loop that waits lets others run") {
    const DeviceArray<int> result(1);
    launch_kernel(relay, {1, 100}, result.data());
    CHECK(result.download()[0] == 100);
}

/// Block 1 sends numbers to block 0 through one slot: 0 is an empty one.
__global__ void send(int n, volatile int* slot, int* received) {
    for (int i = 1; i <= n; ++i) {
        if (blockIdx.x == 1) {
            while (*slot != 0) {
            }
            *slot = i;
        } else {
            int value;
            while ((value = *slot) == 0) {
            }
            received[i - 1] = value;
            *slot = 0;
        }
    }
}

TEST_CASE("volatile: a block waits for what another one writes") {
    const DeviceArray<int> slot(std::vector<int>{0}), received(30);
    launch_kernel(send, {2, 1}, 30, slot.data(), received.data());
    std::vector<int> all(30);
    std::iota(all.begin(), all.end(), 1);
    CHECK(received.download() == all);
}

__global__ void sleep_until_set(volatile int* flag, int* result) {
    if (threadIdx.x == 0) {
        *result = 7;
        __threadfence();
        *flag = 1;
    } else {
        while (*flag == 0) __nanosleep(20);
        const long long start = clock64();
        while (clock64() - start < 1) {
        }
        atomicAdd(result, 1);
    }
}

TEST_CASE("volatile: __nanosleep and clock64 let others run too") {
    const DeviceArray<int> flag(std::vector<int>{0}), result(1);
    launch_kernel(sleep_until_set, {1, 64}, flag.data(), result.data());
    CHECK(result.download()[0] == 7 + 63);
}

/// Thread 0 sets a flag that is no volatile one: only the call in the loop can let it run.
__global__ void wait_asleep(int* flag, int* seen) {
    if (threadIdx.x == 0) *flag = 1;
    for (int i = 0; i < 100000 && *flag == 0; ++i) __nanosleep(20);
    seen[threadIdx.x] = *flag;
}
__global__ void wait_by_the_clock(int* flag, int* seen) {
    if (threadIdx.x == 0) *flag = 1;
    for (int i = 0; i < 100000 && *flag == 0; ++i) clock64();
    seen[threadIdx.x] = *flag;
}
__global__ void note_time(long long* times) {
    for (int i = 0; i < 1000; ++i) times[i] = clock64();
}

TEST_CASE("time: __nanosleep alone lets others run, and so does clock64") {
    for (const auto kernel : {wait_asleep, wait_by_the_clock}) {
        const DeviceArray<int> flag(std::vector<int>{0}), seen(64);
        launch_kernel(kernel, {1, 64}, flag.data(), seen.data());
        CHECK(seen.download() == std::vector<int>(64, 1));
    }
}

TEST_CASE("time: clock64 goes forward") {
    const DeviceArray<long long> times(1000);
    launch_kernel(note_time, {1, 1}, times.data());
    const std::vector<long long> found = times.download();
    CHECK(std::is_sorted(found.begin(), found.end()));
    CHECK(found.front() < found.back());
}

}  // namespace
}  // namespace flashladder
