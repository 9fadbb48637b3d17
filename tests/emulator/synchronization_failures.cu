// Barriers that not all reach, warp instructions with lanes missing, threads that wait for ever.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "device_array.h"
#include "failure.h"
#include "launch.h"

namespace flashladder {
namespace {

constexpr unsigned all_lanes = 0xFFFFFFFFu;
const std::string here = "tests/emulator/synchronization_failures.cu:";

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Launches `kernel(parameter, line)` with 2 blocks of `threads`, of which block 1 fails.
template <class T>
Report check(void (*kernel)(T, int*), T parameter, unsigned threads, const Expected& expected) {
    return check_failure(expected, __FILE__,
                         [&](int* line) { launch_kernel(kernel, {2, threads}, parameter, line); });
}

Expected barrier(const char* kernel, const char* thread = "") {
    return {cudaErrorLaunchFailure, "a barrier not reached by all", kernel, "(1, 0, 0) of (2, 1, 1)", thread};
}

// ---- barriers

__global__ void return_early(unsigned first_gone, int* line) {
    if (blockIdx.x == 1 && threadIdx.x >= first_gone) return;
    if (blockIdx.x == 1) *line = __LINE__ + 1;
    __syncthreads();
}

TEST_CASE("failure: some have returned before the barrier") {
    Report report = check(return_early, 63u, 64, barrier("return_early"));
    CHECK(contains(report.words, "63 threads wait in __syncthreads at " + report.source));
    CHECK(contains(report.words, "thread (63, 0, 0) has returned"));
    report = check(return_early, 1u, 64, barrier("return_early"));
    CHECK(contains(report.words, "1 thread waits in __syncthreads"));
}

__global__ void two_barriers(unsigned first_else, int* lines) {
    if (blockIdx.x == 1 && threadIdx.x >= first_else) {
        lines[1] = __LINE__ + 1;
        __syncthreads();
    } else {
        lines[2] = __LINE__ + 1;
        __syncthreads();
    }
}

TEST_CASE("failure: a barrier in each branch") {
    // Which of the two the report calls the wrong one depends on the order.
    const DeviceArray<int> lines(3);
    const Report report = check_failure(barrier("two_barriers"), __FILE__,
                                        [&](int*) { launch_kernel(two_barriers, {2, 64}, 20, lines.data()); });
    const std::vector<int> found = lines.download();
    for (const int line : {found[1], found[2]}) CHECK(contains(report.words, "__syncthreads at " + here + std::to_string(line)));
    CHECK((report.source == here + std::to_string(found[1]) || report.source == here + std::to_string(found[2])));
}

__global__ void barriers_of_two_kinds(int parity, int* line) {
    if (blockIdx.x == 0) return;
    // clang-format off
    *line = __LINE__ + 1;
    if (int(threadIdx.x % 2) == parity) __syncthreads(); else __syncthreads_count(1);
    // clang-format on
}

TEST_CASE("failure: a barrier of another kind in each branch") {
    const Report report = check(barriers_of_two_kinds, 1, 64, barrier("barriers_of_two_kinds"));
    CHECK(contains(report.words, "__syncthreads at"));
    CHECK(contains(report.words, "__syncthreads_count at"));
}

__global__ void half_never_arrive(int* never_set, int* line) {
    if (blockIdx.x == 0) return;
    if (threadIdx.x % 2 == 0) {
        never_set[1] = __LINE__ + 1;
        __syncthreads();
    } else {
        never_set[2] = __LINE__ + 1;
        __shfl_xor_sync(all_lanes, threadIdx.x, 1);
    }
}

TEST_CASE("failure: deadlock, half wait at the barrier and half for them") {
    const DeviceArray<int> lines(3);
    const Expected expected{cudaErrorLaunchTimeout, "deadlock", "half_never_arrive", "(1, 0, 0) of (2, 1, 1)", ""};
    const Report report = check(half_never_arrive, lines.data(), 64, expected);
    const std::vector<int> found = lines.download();
    CHECK(contains(report.words, "32 threads wait for __syncthreads at " + here + std::to_string(found[1]) + ", first (0, 0, 0)"));
    CHECK(contains(report.words, "32 threads wait for __shfl_xor_sync at " + here + std::to_string(found[2]) + ", first (1, 0, 0)"));
    CHECK(contains(report.words, "0 of 64 threads have returned"));
}

// ---- warp instructions

__global__ void sync_with_lanes_elsewhere(unsigned mask, int* line) {
    if (blockIdx.x == 0) return;
    if (threadIdx.x < 5) {
        __syncthreads();
    } else {
        *line = __LINE__ + 1;
        __syncwarp(mask);
    }
    __syncthreads();
}

TEST_CASE("failure: __syncwarp, and a lane of the mask is elsewhere") {
    const Expected expected{cudaErrorLaunchTimeout, "deadlock", "sync_with_lanes_elsewhere", "(1, 0, 0) of (2, 1, 1)", ""};
    const DeviceArray<int> line(1);
    try {
        launch_kernel(sync_with_lanes_elsewhere, {2, 40}, 0xFFFFFFF0u, line.data());
        CHECK(false);
    } catch (const CudaError& error) {
        CHECK(error.code == expected.code);
    }
    const Report report = last_report();
    INFO(emulator::last_report());
    CHECK(report.kind == "deadlock");
    CHECK(report.block == expected.block);
    CHECK(contains(report.words, "27 threads wait for __syncwarp at " + here + std::to_string(line.download()[0]) +
                                     ", first (5, 0, 0)"));
    check_gpu_works();
}

}  // namespace
}  // namespace flashladder
