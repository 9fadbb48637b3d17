// Who has called the function that an instruction stands in: reports name the kernel's own line, of what is
// asynchronous too, whose stack is gone when it happens.
#include <doctest/doctest.h>

#include <exception>
#include <string>
#include <vector>

#include "../emulator/device_array.h"
#include "../test_seed.h"
#include "emulator/emulator.h"
#include "launch.h"
#include "noting.h"
#include "ptx/cp_async.h"
#include "ptx/fence.h"
#include "ptx/ldmatrix.h"
#include "ptx/mbarrier.h"
#include "ptx/tma.h"
#include "ptx/wgmma.h"

namespace flashladder {
namespace {

constexpr int threads = 128, orders = 10;

// What kernels call: inlined or not, and one through another. The last store keeps a function on the stack.
__device__ __attribute__((noinline)) void copy(float* to, const float* from, int* lines) {
    ptx::cp_async<16>(to, from);
    lines[7] = 0;
}
__device__ __forceinline__ void load(float* to, const float* from, ptx::Barrier& barrier) {
    ptx::barrier_arrive_expect_tx(barrier, threads * sizeof(float));
    ptx::bulk_load(to, from, threads * sizeof(float), barrier);
}
__device__ __attribute__((noinline)) void load_for_me(float* to, const float* from, ptx::Barrier& barrier, int* lines) {
    load(to, from, barrier);
    lines[7] = 0;
}
__device__ __attribute__((noinline)) void put(float* to, const float* tile, int* lines) {
    ptx::bulk_store(to, tile, threads * sizeof(float));
    ptx::bulk_commit();
    lines[7] = 0;
}
__device__ __attribute__((noinline)) float first_of_matrix(const float* tile, int* lines) {
    std::uint32_t matrix[1];
    ptx::ldmatrix(matrix, tile + threadIdx.x % 8 * 4);
    lines[7] = 0;
    return float(matrix[0]);
}
__device__ __forceinline__ void store(float* to, float value) { *to = value; }
__device__ __forceinline__ void multiply(float (&d)[32], const std::uint32_t (&a)[4], const float* tile) {
    const auto b = ptx::matrix_descriptor(tile, 16, 1024, ptx::Swizzle::bytes_128);
    ptx::wgmma<__nv_bfloat16>(d, a, b, true);
}
__device__ __attribute__((noinline)) void arrive(ptx::Barrier& barrier, int* lines) {
    ptx::barrier_arrive(barrier);
    lines[7] = 0;
}

// ---- races: lines[0] and lines[1] are those of the two calls

__global__ void copy_and_store(const float* x, float*, int* lines) {
    float* const tile = dynamic_shared<float>() + 4 * threadIdx.x;
    NOTE(0);
    copy(tile, x + 4 * threadIdx.x, lines);
    NOTE(1);
    store(tile, 1);
}

__global__ void load_and_store(const float* x, float*, int* lines) {
    auto* const tile = dynamic_shared<float>();
    __shared__ ptx::Barrier barrier;
    if (threadIdx.x > 0) return;
    ptx::barrier_init(barrier, 1);
    ptx::fence_barrier_init();
    NOTE(0);
    load_for_me(tile, x, barrier, lines);
    NOTE(1);
    store(tile, 1);
    while (!ptx::barrier_try_wait(barrier, 0)) {
    }
}

__global__ void put_and_store(const float*, float* y, int* lines) {
    auto* const tile = dynamic_shared<float>();
    tile[threadIdx.x] = 0;
    ptx::fence_proxy_async();
    __syncthreads();
    if (threadIdx.x > 0) return;
    NOTE(0);
    put(y, tile, lines);
    NOTE(1);
    store(tile, 1);
    ptx::bulk_wait<0>();
}

__global__ void store_and_load_matrix(const float*, float* y, int* lines) {
    auto* const tile = dynamic_shared<float>();
    tile[threadIdx.x] = 0;
    __syncthreads();
    if (threadIdx.x < 32) {
        NOTE(0);
        y[threadIdx.x] = first_of_matrix(tile, lines);
    }
    if (threadIdx.x >= 32 && threadIdx.x < 64) {
        NOTE(1);
        store(tile + threadIdx.x - 32, 1);
    }
}

__global__ void multiply_and_store(const float*, float* y, int* lines) {
    auto* const tile = dynamic_shared<float>();
    for (int i = threadIdx.x; i < 4096; i += threads) tile[i] = 0;
    ptx::fence_proxy_async();
    __syncthreads();
    float d[32] = {};
    const std::uint32_t a[4] = {};  // until the wait they must stay
    ptx::wgmma_fence(d);
    NOTE(0);
    multiply(d, a, tile);
    NOTE(1);
    store(tile + threadIdx.x, 1);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(d);
    y[threadIdx.x] = d[0];
}

// ---- other mistakes: lines[0] is that of the call, lines[1] that of another one, if there is one

__global__ void load_matrix_before_store(const float*, float* y, int* lines) {
    auto* const tile = dynamic_shared<float>();
    if (threadIdx.x < 32) {
        NOTE(0);
        y[threadIdx.x] = first_of_matrix(tile, lines);
    } else {
        for (int i = 0; i < 100; ++i) __nanosleep(20);
        NOTE(1);
        store(tile + threadIdx.x - 32, 1);
    }
}

__global__ void load_matrix_before_copy(const float* x, float* y, int* lines) {
    auto* const tile = dynamic_shared<float>();
    if (threadIdx.x >= 32) return;
    NOTE(1);
    copy(tile + 4 * threadIdx.x, x + 4 * threadIdx.x, lines);
    NOTE(0);
    y[threadIdx.x] = first_of_matrix(tile, lines);
}

__global__ void multiply_what_nobody_wrote(const float*, float* y, int* lines) {
    float d[32] = {};
    const std::uint32_t a[4] = {};  // until the wait they must stay
    ptx::wgmma_fence(d);
    NOTE(0);
    multiply(d, a, dynamic_shared<float>());
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(d);
    y[threadIdx.x] = d[0];
}

__global__ void put_without_fence(const float*, float* y, int* lines) {
    auto* const tile = dynamic_shared<float>();
    tile[threadIdx.x] = 0;
    __syncthreads();
    if (threadIdx.x > 0) return;
    NOTE(0);
    put(y, tile, lines);
    ptx::bulk_wait<0>();
}

__global__ void arrive_too_often(const float*, float*, int* lines) {
    __shared__ ptx::Barrier barrier;
    if (threadIdx.x > 0) return;
    ptx::barrier_init(barrier, 1);
    ptx::fence_barrier_init();
    ptx::barrier_arrive_expect_tx(barrier, 16);  // which never come
    NOTE(0);
    arrive(barrier, lines);
}

using Kernel = void (*)(const float*, float*, int*);

struct Outcome {
    std::string report;
    std::vector<int> lines;
    /// That this call is named, as one of the access that has come earlier (further to the right) or not.
    bool names(int i, const char* indentation) const {
        const std::string line = std::string("\n") + indentation + "called at  tests/races/calls.cu:" +
                                 std::to_string(lines[std::size_t(i)]) + "\n";
        return report.find(line) != report.npos;
    }
};

template <class Launch>
std::string report_of(Launch launch) {
    emulator::clear_report();
    try {
        launch();
    } catch (const std::exception&) {
    }
    return emulator::last_report();
}

Outcome run(Kernel kernel, bool races, int i) {
    emulator::reseed(test_seed() + std::uint64_t(i));
    const DeviceArray<float> x(std::vector<float>(4 * threads, 0)), y(4 * threads);
    const DeviceArray<int> lines(std::vector<int>(8, 0));
    const auto launch = [&] { launch_kernel(kernel, {1, threads, 16384}, x.data(), y.data(), lines.data()); };
    Outcome outcome;
    if (races)
        outcome.report = emulator::find_race(launch);
    else
        outcome.report = report_of(launch);
    outcome.lines = lines.download();
    return outcome;
}

TEST_CASE("calls: of both accesses of a race the kernel's own line, whichever has come first") {
    for (const Kernel kernel :
         {copy_and_store, load_and_store, put_and_store, store_and_load_matrix, multiply_and_store})
        for (int i = 0; i < orders; ++i) {
            const Outcome outcome = run(kernel, true, i);
            CAPTURE(outcome.report);
            CHECK(outcome.report.starts_with("race: "));
            const bool first_is_later = outcome.names(0, "  ");
            CHECK(outcome.names(first_is_later ? 1 : 0, "    "));
            CHECK(outcome.names(first_is_later ? 0 : 1, "  "));
        }
}

TEST_CASE("calls: of other mistakes the kernel's own line, whether or not races are looked for") {
    struct Mistake {
        Kernel kernel;
        const char* begin;
        bool other;
    };
    for (const auto& [kernel, begin, other] :
         {Mistake{load_matrix_before_store, "uninitialised shared memory: ldmatrix", true},
          {load_matrix_before_copy, "uninitialised shared memory: ldmatrix", true},
          {multiply_what_nobody_wrote, "uninitialised shared memory: wgmma", false},
          {put_without_fence, "missing fence: bulk_store", false},
          {arrive_too_often, "too many arrivals: barrier_arrive", false}})
        for (const bool races : {false, true})
            for (int i = 0; i < orders; ++i) {
                const Outcome outcome = run(kernel, races, i);
                CAPTURE(outcome.report);
                // A copy may have come before it is read.
                if (!races && outcome.report.empty() && kernel == load_matrix_before_copy) continue;
                if (outcome.report.starts_with("race: ") && other) continue;
                CHECK(outcome.report.starts_with(begin));
                CHECK(outcome.names(0, "  "));
                if (other) CHECK(outcome.names(1, "    "));
            }
}

}  // namespace
}  // namespace flashladder
