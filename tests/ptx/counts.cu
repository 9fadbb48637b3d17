// Counted work of what warps, warpgroups and copy engines do, where the answer is known.
#include "emulator/counters.h"

#include <doctest/doctest.h>

#include <functional>
#include <vector>

#include "../emulator/device_array.h"
#include "../test_seed.h"
#include "launch.h"
#include "ptx/cp_async.h"
#include "ptx/ex2.h"
#include "ptx/fence.h"
#include "ptx/ldmatrix.h"
#include "ptx/mbarrier.h"
#include "ptx/mma.h"
#include "ptx/named_barrier.h"
#include "ptx/tensor_map.h"
#include "ptx/tma.h"
#include "ptx/wgmma.h"

namespace flashladder {
namespace {

using emulator::Access, emulator::LaunchWork, emulator::SharedWork, emulator::GlobalWork;
using T = __nv_bfloat16;

constexpr std::size_t shared_bytes = 65536;

LaunchWork count(const std::function<void()>& run) {
    const auto counted = emulator::count_work(run);
    REQUIRE(counted.launches.size() == 1);
    return counted.launches.front();
}

// ---- ldmatrix, stmatrix, mma

/// Rows of 16 bytes, `stride` apart.
__global__ void move_matrices(int stride, float* y) {
    auto* tile = dynamic_shared<unsigned char>();
    for (int i = threadIdx.x * 4; i < 32 * stride + 16; i += 128) reinterpret_cast<int&>(tile[i]) = 0;
    __syncwarp();
    std::uint32_t matrices[4];
    ptx::ldmatrix(matrices, tile + threadIdx.x * stride);
    __syncwarp();
    ptx::stmatrix(tile + threadIdx.x * stride, matrices);
    float d[4] = {};
    const std::uint32_t b[2] = {matrices[0], matrices[1]};
    ptx::mma_m16n8k16<T>(d, matrices, b);
    y[threadIdx.x] = ptx::ex2_approx(d[0]);
}

TEST_CASE("counts: ldmatrix and stmatrix take the rows of a matrix at once, if they lie in different banks") {
    const DeviceArray<float> y(32);
    for (const auto& [stride, conflicts] : {std::pair(16, 0u), {32, 1u}, {64, 3u}, {128, 7u}, {256, 7u}, {144, 0u}}) {
        CAPTURE(stride);
        const LaunchWork work = count([&] { launch_kernel(move_matrices, {1, 32, shared_bytes}, stride, y.data()); });
        const SharedWork& loads = work.total.shared_of(Access::read);
        CHECK(loads.accesses == 4);
        CHECK(loads.requested_bytes == 4 * 128);
        CHECK(loads.wavefronts == 4 * (1 + conflicts));
        CHECK(loads.conflicts == 4 * conflicts);
        const SharedWork& stores = work.total.shared_of(Access::write);  // and those of the loop, without conflicts
        CHECK(stores.conflicts == 4 * conflicts);
        CHECK(work.total.matrix_instructions == 1);
        CHECK(work.total.matrix_flops == 2 * 16 * 8 * 16);
        CHECK(work.total.exponentials == 32);
    }
}

// ---- cp.async

template <int bytes>
__global__ void copy(const float* x, int n, float* y) {
    auto* tile = dynamic_shared<float>();
    const int i = threadIdx.x * (bytes / 4), left = n - i;
    ptx::cp_async<bytes>(&tile[i], left > 0 ? &x[i] : x, left <= 0 ? 0 : left * 4 < bytes ? left * 4 : bytes);
    ptx::cp_async_commit();
    ptx::cp_async_wait<0>();
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x];
}

TEST_CASE("counts: cp.async") {
    const DeviceArray<float> x(std::vector<float>(1024)), y(64);
    LaunchWork work = count([&] { launch_kernel(copy<16>, {1, 64, shared_bytes}, x.data(), 1024, y.data()); });
    CHECK(work.total.global_of(Access::cp_async) == GlobalWork{2, 1024, 1024, 32});
    CHECK(work.total.shared_of(Access::cp_async) == SharedWork{2, 1024, 8, 0});
    CHECK(work.total.global_of(Access::read).accesses == 0);
    CHECK(work.distinct_read_bytes == 1024);
    CHECK(work.most_bytes_in_flight <= 1024);
    CHECK(work.most_bytes_in_flight >= 16);
    // 101 floats: 25 lanes copy 16 bytes, one copies 4, the others fill.
    work = count([&] { launch_kernel(copy<16>, {1, 64, shared_bytes}, x.data(), 101, y.data()); });
    CHECK(work.total.global_of(Access::cp_async).requested_bytes == 404);
    CHECK(work.total.shared_of(Access::cp_async).requested_bytes == 1024);
    work = count([&] { launch_kernel(copy<4>, {1, 64, shared_bytes}, x.data(), 1024, y.data()); });
    CHECK(work.total.global_of(Access::cp_async) == GlobalWork{2, 256, 256, 8});
}

// ---- TMA and wgmma

constexpr int rows = 64, columns = 64;
constexpr unsigned tile_bytes = rows * columns * sizeof(T);

__global__ void load_and_store(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to,
                               int row, const float* run, float* sums) {
    auto* tile = dynamic_shared<unsigned char>();
    auto* floats = reinterpret_cast<float*>(tile + tile_bytes);
    __shared__ ptx::Barrier loaded;
    if (threadIdx.x != 0) return;
    ptx::barrier_init(loaded, 1);
    ptx::fence_barrier_init();
    ptx::fence_proxy_async();
    ptx::barrier_arrive_expect_tx(loaded, tile_bytes + 256);
    ptx::tma_load(tile, from, loaded, {0, row});
    ptx::bulk_load(floats, run, 256, loaded);
    ptx::barrier_wait(loaded, 0);
    ptx::tma_store(to, tile, {0, 0});
    ptx::bulk_reduce_add(sums, floats, 256);
    ptx::bulk_commit();
    ptx::bulk_wait<0>();
}

TEST_CASE("counts: bulk copies, of which what lies outside the tensor is not moved") {
    const DeviceArray<std::uint16_t> x(std::vector<std::uint16_t>(100 * 64)), y(100 * 64);
    const DeviceArray<float> run(std::vector<float>(64, 1)), sums(std::vector<float>(64));
    const auto map = [](const DeviceArray<std::uint16_t>& tensor) {
        return ptx::make_tensor_map<T, 2>(reinterpret_cast<const T*>(tensor.data()), {64, 100}, {128}, {columns, rows},
                                          ptx::Swizzle::bytes_128);
    };
    for (const auto& [row, inside] : {std::pair(0, 64u), {36, 64u}, {60, 40u}, {-10, 54u}, {200, 0u}}) {
        CAPTURE(row);
        const LaunchWork work = count([&] {
            launch_kernel(load_and_store, {1, 32, shared_bytes}, map(x), map(y), row, run.data(), sums.data());
        });
        CHECK(work.total.global_of(Access::tma_load) ==
              GlobalWork{inside + 1, inside * 128 + 256, inside * 128 + 256, inside * 4 + 8});
        CHECK(work.total.global_of(Access::tma_store) == GlobalWork{64, 64 * 128, 64 * 128, 64 * 4});
        CHECK(work.total.global_of(Access::tma_reduce) == GlobalWork{1, 256, 256, 8});
        CHECK(work.most_bytes_in_flight <= tile_bytes + 256);
        CHECK(work.most_bytes_in_flight >= 16);
        CHECK(work.distinct_read_bytes == inside * 128 + 256);
        CHECK(work.distinct_written_bytes == 64 * 128 + 256);
    }
}

TEST_CASE("counts: a copy from behind the end of memory is an error, and no more") {
    const DeviceArray<std::uint16_t> x(std::vector<std::uint16_t>(100 * 64)), y(100 * 64);
    const DeviceArray<float> run(std::vector<float>(64, 1)), sums(std::vector<float>(64));
    const auto map = ptx::make_tensor_map<T, 2>(reinterpret_cast<const T*>(x.data()), {64, 1 << 20}, {128},
                                                {columns, rows}, ptx::Swizzle::bytes_128);
    for (const int row : {60, 500, 500'000})
        CHECK_THROWS_AS(
            emulator::count_work([&] {
                launch_kernel(load_and_store, {1, 32, shared_bytes}, map, map, row, run.data(), sums.data());
            }),
            CudaError);
}

__global__ void multiply(float* y) {
    auto* tile = dynamic_shared<unsigned char>();
    for (unsigned i = threadIdx.x * 4; i < 2 * tile_bytes; i += 512) reinterpret_cast<int&>(tile[i]) = 0;
    ptx::fence_proxy_async();
    __syncthreads();
    const auto a = ptx::matrix_descriptor(tile, 16, 1024, ptx::Swizzle::bytes_128);
    const auto b = ptx::matrix_descriptor(tile + tile_bytes, 16, 1024, ptx::Swizzle::bytes_128);
    float d[32];
    ptx::wgmma_fence(d);
    ptx::wgmma<T>(d, a, b, false);
    ptx::wgmma<T>(d, a + 32, b + 32, true);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(d);
    y[threadIdx.x] = d[0];
}

TEST_CASE("counts: wgmma and its operands") {
    const DeviceArray<float> y(128);
    const LaunchWork work = count([&] { launch_kernel(multiply, {1, 128, shared_bytes}, y.data()); });
    CHECK(work.total.matrix_instructions == 2);
    CHECK(work.total.matrix_flops == 2 * 2 * 64 * 64 * 16);
    // A and B are 64 x 16 each: 16 matrices of 8 x 8.
    CHECK(work.total.shared_of(Access::wgmma_operand) == SharedWork{2 * 32, 2 * 4096, 2 * 32, 0});
}

// ---- what overlaps

/// Two products, waited for one after the other, and an exponential before, between, after, and behind both waits. Only
/// the first `warpgroups` of two have products.
__global__ void overlap(int warpgroups, float* y) {
    auto* tile = dynamic_shared<unsigned char>();
    for (unsigned i = threadIdx.x * 4; i < 2 * tile_bytes; i += blockDim.x * 4) reinterpret_cast<int&>(tile[i]) = 0;
    ptx::fence_proxy_async();
    __syncthreads();
    const auto a = ptx::matrix_descriptor(tile, 16, 1024, ptx::Swizzle::bytes_128);
    const auto b = ptx::matrix_descriptor(tile + tile_bytes, 16, 1024, ptx::Swizzle::bytes_128);
    float x = ptx::ex2_approx(y[threadIdx.x]);
    if (threadIdx.x / 128 < warpgroups) {
        float c[32], d[32];
        ptx::wgmma_fence(c);
        ptx::wgmma<T>(c, a, b, false);
        ptx::wgmma_commit();
        x += ptx::ex2_approx(x);  // overlaps
        ptx::wgmma_fence(d);
        ptx::wgmma<T>(d, a, b, false);
        ptx::wgmma_commit();
        __nanosleep(1000);        // both may be done by now: the thread does not know
        x += ptx::ex2_approx(x);  // overlaps
        ptx::wgmma_wait<1>(c);
        x += ptx::ex2_approx(x + c[0]);  // overlaps
        ptx::wgmma_wait<0>(d);
        ptx::wgmma_wait<1>(d);  // nothing new
        x += ptx::ex2_approx(x + d[0]);
    }
    y[threadIdx.x] = ptx::ex2_approx(x);
}

TEST_CASE("counts: exponentials of threads that have begun products and not waited for them") {
    const DeviceArray<float> y(std::vector<float>(256));
    for (int times = 0; times < 5; ++times)
        for (const int warpgroups : {0, 1, 2}) {
            const LaunchWork work = count([&] {
                launch_kernel(overlap, {1, 256, shared_bytes}, warpgroups, y.data());
            });
            CAPTURE(warpgroups);
            CHECK(work.total.exponentials == 2 * 256 + 4 * 128 * unsigned(warpgroups));
            CHECK(work.total.overlapped_exponentials == 3 * 128 * unsigned(warpgroups));
        }
    // Products of a warp are done when they are issued; and threads beyond the last whole warpgroup can have none.
    const DeviceArray<float> z(32);
    const LaunchWork work = count([&] { launch_kernel(move_matrices, {1, 32, shared_bytes}, 16, z.data()); });
    CHECK(work.total.exponentials == 32);
    CHECK(work.total.overlapped_exponentials == 0);
}

/// A ring of turns: warp w waits at barrier 1 + w for the one before it.
__global__ void take_turns(int rounds) {
    const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
    if (warp == warps - 1) ptx::named_barrier_arrive(1, 64);
    for (int i = 0; i < rounds; ++i) {
        ptx::named_barrier_sync(1 + warp, 64);
        ptx::named_barrier_arrive(1 + (warp + 1) % warps, 64);
    }
    if (warp == 0) ptx::named_barrier_sync(1, 64);
    __syncthreads();
}

TEST_CASE("counts: named barriers, each time that all have come, apart from those of the block") {
    for (const auto& [warps, rounds] : {std::pair(2u, 1), {2u, 7}, {3u, 5}}) {
        const LaunchWork work = count([&] { launch_kernel(take_turns, {2, 32 * warps}, rounds); });
        CHECK(work.total.named_barriers == 2 * (warps * unsigned(rounds) + 1));
        CHECK(work.total.barriers == 2);
    }
}

}  // namespace
}  // namespace flashladder
