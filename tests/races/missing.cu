// What a report says is missing: where what stands in the kernel looks right, the words must not send a reader there.
#include <doctest/doctest.h>

#include <exception>
#include <string>
#include <vector>

#include "../emulator/device_array.h"
#include "../test_seed.h"
#include "emulator/emulator.h"
#include "launch.h"
#include "ptx/cp_async.h"
#include "ptx/fence.h"
#include "ptx/tma.h"
#include "ptx/wgmma.h"

namespace flashladder {
namespace {

constexpr int threads = 128, orders = 10;

// ---- no commit: the wait is there, and waits for nothing

__global__ void copy_without_commit(const float* x, float* y) {
    float* const tile = dynamic_shared<float>() + 4 * threadIdx.x;
    ptx::cp_async<16>(tile, x + 4 * threadIdx.x);
    ptx::cp_async_wait<0>();
    y[threadIdx.x] = *tile;
}

__global__ void put_without_commit(const float*, float* y) {
    auto* const tile = dynamic_shared<float>();
    tile[threadIdx.x] = 0;
    ptx::fence_proxy_async();
    __syncthreads();
    if (threadIdx.x > 0) return;
    ptx::bulk_store(y, tile, threads * sizeof(float));
    ptx::bulk_wait_read<0>();
    tile[0] = 1;
    for (int i = 0; i < 1000; ++i) __nanosleep(20);
}

/// Two tasks leave for one place; what leaves before the second is waited for only as far as the tile goes.
__global__ void put_both_in_one_place(const float*, float* y) {
    auto* const tile = dynamic_shared<float>();
    for (int task = 0; task < 2; ++task) {
        tile[threadIdx.x] = task;
        ptx::fence_proxy_async();
        __syncthreads();
        if (threadIdx.x == 0) {
            ptx::bulk_store(y, tile, threads * sizeof(float));
            ptx::bulk_commit();
            ptx::bulk_wait_read<0>();
        }
        __syncthreads();
    }
}

enum class Then { write_the_tile, read_the_sums, return_at_once };

template <Then then>
__global__ void multiply_without_commit(const float*, float* y) {
    auto* const tile = dynamic_shared<float>();
    for (int i = threadIdx.x; i < 4096; i += threads) tile[i] = 0;
    ptx::fence_proxy_async();
    __syncthreads();
    float d[32] = {};
    const std::uint32_t a[4] = {};
    ptx::wgmma_fence(d);
    ptx::wgmma<__nv_bfloat16>(d, a, ptx::matrix_descriptor(tile, 16, 1024, ptx::Swizzle::bytes_128), true);
    ptx::wgmma_wait<0>(d);
    if (then == Then::write_the_tile) tile[threadIdx.x] = 1;
    if (then == Then::read_the_sums) y[threadIdx.x] = d[0];
}

// ---- the right words where there is a commit, and no wait

__global__ void copy_without_wait(const float* x, float* y) {
    float* const tile = dynamic_shared<float>() + 4 * threadIdx.x;
    ptx::cp_async<16>(tile, x + 4 * threadIdx.x);
    ptx::cp_async_commit();
    y[threadIdx.x] = *tile;
}

__global__ void multiply_without_wait(const float*, float*) {
    auto* const tile = dynamic_shared<float>();
    for (int i = threadIdx.x; i < 4096; i += threads) tile[i] = 0;
    ptx::fence_proxy_async();
    __syncthreads();
    float d[32] = {};
    const std::uint32_t a[4] = {};
    ptx::wgmma_fence(d);
    ptx::wgmma<__nv_bfloat16>(d, a, ptx::matrix_descriptor(tile, 16, 1024, ptx::Swizzle::bytes_128), true);
    ptx::wgmma_commit();
}

// ---- threads

/// Each warp's lanes hand values on to one another, in an array that all warps read later.
__global__ void no_barrier_in_a_warp(const float*, float* y) {
    auto* const values = dynamic_shared<float>();
    values[threadIdx.x] = 0;
    __syncthreads();
    values[threadIdx.x] = threadIdx.x;
    y[threadIdx.x] = values[threadIdx.x ^ 1];
}

/// As if lanes t and t + 1 had an element each.
__global__ void write_one_element(const float*, float*) { dynamic_shared<float>()[threadIdx.x / 2] = threadIdx.x; }

/// All threads of all blocks.
enum class By { plus, minus, one_more, one_less_behind, sum, sum_behind, one_more_as_index };
template <By by>
__global__ void add_without_atomic(const float* x, float* y) {
    __shared__ int number;
    number = 0;
    __syncthreads();
    if (by == By::plus) y[0] += threadIdx.x;
    if (by == By::minus)
        for (unsigned i = threadIdx.x; i < 2 * threads; i += threads) number -= i;
    if (by == By::one_more) ++number;
    if (by == By::one_less_behind) y[0]--;
    if (by == By::sum) y[0] = y[0] + x[threadIdx.x];
    if (by == By::sum_behind) number = int(threadIdx.x) + number;
    if (by == By::one_more_as_index) y[1 + number++] = x[threadIdx.x];
}

/// Words are found with the numbers that a loop counts with, but none of them is added to.
__global__ void move_without_barrier(const float*, float* y) {
    auto* const values = dynamic_shared<float>();
    values[threadIdx.x] = threadIdx.x;
    __syncthreads();
    for (unsigned i = threadIdx.x; i + 1 < threads; i += threads) values[i] = values[i + 1];
    y[threadIdx.x] = values[threadIdx.x];
}

/// Halves add to halves: each number is one thread's to write.
template <bool in_short>
__global__ void add_without_barrier(const float*, float* y) {
    auto* const sums = dynamic_shared<float>();
    sums[threadIdx.x] = 1;
    __syncthreads();
    for (unsigned n = threads / 2; n > 0; n /= 2)
        if (in_short) {
            if (threadIdx.x < n) sums[threadIdx.x] += sums[threadIdx.x + n];
        } else {
            if (threadIdx.x < n) sums[threadIdx.x] = sums[threadIdx.x] + sums[threadIdx.x + n];
        }
    y[threadIdx.x] = sums[0];
}

/// A warp goes past what another one puts into a slot, over and over, and one lane gives the slot back for all.
template <bool lanes_meet>
__global__ void give_back_for_all(const float*, float*) {
    __shared__ ptx::Barrier full, empty;
    if (threadIdx.x == 0) {
        ptx::barrier_init(full, 1);
        ptx::barrier_init(empty, 1);
    }
    __syncthreads();
    for (unsigned round = 0; round < 16; ++round) {
        if (threadIdx.x == 32) {
            ptx::barrier_wait(empty, (round + 1) % 2);
            ptx::barrier_arrive(full);
        }
        if (threadIdx.x >= 32) continue;
        ptx::barrier_wait(full, round % 2);
        if (lanes_meet) __syncwarp();
        if (threadIdx.x == 0) ptx::barrier_arrive(empty);
    }
}

using Kernel = void (*)(const float*, float*);

std::string report_of(Kernel kernel, bool races, int order, unsigned blocks = 1) {
    emulator::reseed(test_seed() + std::uint64_t(order));
    const DeviceArray<float> x(std::vector<float>(4 * threads, 0)), y(4 * threads);
    const auto launch = [&] { launch_kernel(kernel, {blocks, threads, 16384}, x.data(), y.data()); };
    if (races) return emulator::find_race(launch);
    emulator::clear_report();
    try {
        launch();
    } catch (const std::exception&) {
    }
    return emulator::last_report();
}

/// Whether races are looked for or not; then it may be lucky.
void check_words(Kernel kernel, const std::string& words, const std::string& not_words) {
    for (const bool races : {true, false})
        for (int order = 0; order < orders; ++order) {
            const std::string report = report_of(kernel, races, order);
            if (!races && report.empty()) continue;
            CAPTURE(report);
            CHECK(report.find(words) != report.npos);
            CHECK(report.find(not_words) == report.npos);
        }
}

TEST_CASE("missing: where nothing has been committed, the commit and not the wait") {
    check_words(copy_without_commit, "cp_async_commit()", "a wait for it");
    for (int order = 0; order < orders; ++order) {
        const std::string report = report_of(put_without_commit, true, order);
        CAPTURE(report);
        const bool is_race = report.starts_with("race: ");  // or else its thread has returned first
        CHECK(report.find(is_race ? "bulk_commit() behind it" : "were not committed") != report.npos);
    }
    const char* commit = "wgmma_commit()";
    check_words(multiply_without_commit<Then::write_the_tile>, commit, "wgmma_wait() is missing");
    check_words(multiply_without_commit<Then::read_the_sums>, commit, "no wgmma_wait()");
    check_words(multiply_without_commit<Then::return_at_once>, commit, "wgmma_wait() is missing");
    check_words(copy_without_wait, "wait", "commit");
    check_words(multiply_without_wait, "wgmma_wait() is missing", "commit");
}

TEST_CASE("missing: between lanes of one warp the block's barrier first, for other warps may use the array too") {
    for (int order = 0; order < orders; ++order) {
        const std::string report = report_of(no_barrier_in_a_warp, true, order);
        CAPTURE(report);
        CHECK(report.find("  missing    __syncthreads(), or __syncwarp() if only lanes of this") != report.npos);
        CHECK(report.find("index") == report.npos);
    }
}

TEST_CASE("missing: where a lane gives back what others of its warp have not seen yet, a barrier of the warp") {
    int told = 0;
    for (int order = 0; order < 4 * orders; ++order) {
        CHECK(report_of(give_back_for_all<true>, true, order) == "");
        const std::string report = report_of(give_back_for_all<false>, true, order);
        CAPTURE(report);
        told += report.starts_with("overtaken: before this thread comes to its barrier_try_wait") &&
                report.find("  missing    __syncwarp() behind the wait") != report.npos;
        CHECK((report.empty() || report.starts_with("overtaken: ") || report.starts_with("deadlock: ")));
    }
    CHECK(told > 2 * orders);
}

TEST_CASE("missing: of two stores by one line, it may be the index that is wrong") {
    for (int order = 0; order < orders; ++order) {
        const std::string report = report_of(write_one_element, true, order);
        CAPTURE(report);
        CHECK(report.find("; or both write the same element: is the index right?\n") != report.npos);
    }
}

TEST_CASE("missing: of what leaves for one place twice, it may be the index that is wrong") {
    int told = 0;
    for (int order = 0; order < 4 * orders; ++order) {
        const std::string report = report_of(put_both_in_one_place, true, order);
        CAPTURE(report);
        told += report.find("; or both write the same element: is the index right?\n") != report.npos;
        CHECK((report.empty() || report.starts_with("race: write by bulk_store")));
    }
    CHECK(told > 0);
}

TEST_CASE("missing: of threads that add by one line, an atomic") {
    const auto check_told = [](Kernel kernel, const std::string& by, int order, unsigned blocks) {
        const std::string report = report_of(kernel, true, order, blocks);
        CAPTURE(report);
        CHECK(report.find("; or, if both add to this number, an atomicAdd(), which is one step: " + by + " is two\n") !=
              report.npos);
    };
    for (int order = 0; order < orders; ++order) {
        for (unsigned blocks : {1u, 3u}) {
            check_told(add_without_atomic<By::plus>, "+=", order, blocks);
            check_told(add_without_atomic<By::one_less_behind>, "--", order, blocks);
            check_told(add_without_atomic<By::sum>, "x = x + y", order, blocks);
        }
        check_told(add_without_atomic<By::minus>, "-=", order, 1);
        check_told(add_without_atomic<By::one_more>, "++", order, 1);
        check_told(add_without_atomic<By::sum_behind>, "x = x + y", order, 1);
        check_told(add_without_atomic<By::one_more_as_index>, "++", order, 1);
        for (const Kernel kernel : {add_without_barrier<true>, add_without_barrier<false>, move_without_barrier}) {
            const std::string report = report_of(kernel, true, order);
            CAPTURE(report);
            CHECK(report.starts_with("race: "));
            CHECK(report.find("atomicAdd") == report.npos);
        }
    }
}

}  // namespace
}  // namespace flashladder
