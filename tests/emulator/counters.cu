// Counted work, where the answer is known.
#include "emulator/counters.h"

#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "device_array.h"
#include "launch.h"
#include "ptx/memory_order.h"
#include "test_seed.h"

namespace flashladder {
namespace {

using emulator::Access, emulator::CountedWork, emulator::GlobalWork, emulator::LaunchWork, emulator::SharedWork,
    emulator::Work;

/// What one launch does that `run` makes.
LaunchWork count_launch(const std::function<void()>& run) {
    const CountedWork counted = emulator::count_work(run);
    REQUIRE(counted.launches.size() == 1);
    return counted.launches.front();
}

void check_global(const GlobalWork& w, std::uint64_t accesses, std::uint64_t requested, std::uint64_t used,
                  std::uint64_t sectors) {
    CHECK(w.accesses == accesses);
    CHECK(w.requested_bytes == requested);
    CHECK(w.used_bytes == used);
    CHECK(w.sectors == sectors);
}

void check_shared(const SharedWork& w, std::uint64_t accesses, std::uint64_t wavefronts, std::uint64_t conflicts) {
    CHECK(w.accesses == accesses);
    CHECK(w.wavefronts == wavefronts);
    CHECK(w.conflicts == conflicts);
}

// ---- device memory

/// Thread i loads element first + i * stride of x; one store of 4 bytes a thread.
template <class T>
__global__ void load_strided(const T* x, int first, int stride, float* sum) {
    const T value = x[first + threadIdx.x * stride];
    sum[threadIdx.x] = reinterpret_cast<const float&>(value);
}

template <class T>
GlobalWork loads(int first, int stride) {
    const DeviceArray<T> x(std::vector<T>(2000));
    const DeviceArray<float> sum(32);
    const LaunchWork work = count_launch([&] {
        launch_kernel(load_strided<T>, {1, 32}, x.data(), first, stride, sum.data());
    });
    check_global(work.total.global_of(Access::write), 1, 128, 128, 4);
    CHECK(work.total.all_shared().accesses == 0);
    return work.total.global_of(Access::read);
}

TEST_CASE("counts: sectors of device memory") {
    check_global(loads<float>(0, 1), 1, 128, 128, 4);
    check_global(loads<float>(0, 2), 1, 128, 128, 8);
    check_global(loads<float>(0, 8), 1, 128, 128, 32);
    check_global(loads<float>(0, 32), 1, 128, 128, 32);
    check_global(loads<float>(0, 0), 1, 128, 4, 1);    // a broadcast
    check_global(loads<float>(1, 1), 1, 128, 128, 5);  // over the edge of a sector
    check_global(loads<float>(8, 1), 1, 128, 128, 4);
    check_global(loads<float4>(0, 1), 1, 512, 512, 16);
    check_global(loads<float4>(0, 2), 1, 512, 512, 32);
    check_global(loads<float4>(1, 1), 1, 512, 512, 17);
    check_global(loads<double>(0, 1), 1, 256, 256, 8);
    check_global(loads<int>(0, 1), 1, 128, 128, 4);
    CHECK(loads<float>(0, 1).coalescing() == 1);
    CHECK(loads<float>(0, 8).coalescing() == 0.125);
    CHECK(loads<float>(0, 0).coalescing() == 0.125);
}

__global__ void load_twice(const float* x, float* y, int n) {
    for (int round = 0; round < 2; ++round)
        for (int i = threadIdx.x; i < n; i += blockDim.x) y[i / 2] = x[i] + float(round);
}

TEST_CASE("counts: distinct bytes of a launch, each once however often it is touched") {
    const DeviceArray<float> x(std::vector<float>(1000)), y(1000);
    const LaunchWork work = count_launch([&] { launch_kernel(load_twice, {3, 96}, x.data(), y.data(), 777); });
    CHECK(work.distinct_read_bytes == 777 * 4);
    CHECK(work.distinct_written_bytes == 389 * 4);
    CHECK(work.total.global_of(Access::read).requested_bytes == 3 * 2 * 777 * 4);
    CHECK(work.kernel == "load_twice");
    CHECK(work.grid.x == 3);
    CHECK(work.block.x == 96);
}

/// The first `of_x` threads load from x, the others from y, by the same instruction.
__global__ void load_either(const float* x, const float* y, unsigned of_x, float* sum) {
    const float* from = threadIdx.x < of_x ? x : y;
    sum[threadIdx.x] = from[threadIdx.x];
}

TEST_CASE("counts: by allocation, also where the lanes of an access have several") {
    const DeviceArray<float> x(std::vector<float>(32)), y(std::vector<float>(32)), sum(32);
    const LaunchWork work =
        count_launch([&] { launch_kernel(load_either, {1, 32}, x.data(), y.data(), 12u, sum.data()); });
    check_global(work.total.global_of(Access::read), 1, 128, 128, 5);
    REQUIRE(work.allocations.size() == 3);
    for (const auto& [begin, of] : work.allocations) {
        const GlobalWork& read = of[static_cast<std::size_t>(Access::read)];
        if (begin == x.data()) check_global(read, 1, 48, 48, 2);
        if (begin == y.data()) check_global(read, 1, 80, 80, 3);
        if (begin == sum.data()) check_global(read, 0, 0, 0, 0);
    }
}

TEST_CASE("counts: memory in use at most, of what the launches find and of what is allocated meanwhile") {
    const DeviceArray<char> before(1000);
    const std::size_t in_use = emulator::count_work([] {}).peak_memory_bytes;
    const CountedWork work = emulator::count_work([] {
        { const DeviceArray<char> large(50'000); }
        const DeviceArray<char> small(20'000);
    });
    CHECK(work.peak_memory_bytes == in_use + 50'000);
    CHECK(emulator::count_work([] {}).peak_memory_bytes == in_use);
}

// ---- shared memory

/// Every thread stores to its element of shared memory and loads it again.
template <class T>
__global__ void touch_shared(int stride, float* sum) {
    T* tile = dynamic_shared<T>();
    T value{};
    reinterpret_cast<float&>(value) = float(threadIdx.x);
    tile[threadIdx.x * stride] = value;
    __syncthreads();
    value = tile[threadIdx.x * stride];
    sum[threadIdx.x] = reinterpret_cast<const float&>(value);
}

template <class T>
void check_strided(int stride, std::uint64_t written, std::uint64_t read, std::uint64_t conflicts) {
    CAPTURE(stride);
    const DeviceArray<float> sum(32);
    const LaunchWork work = count_launch([&] { launch_kernel(touch_shared<T>, {1, 32, 40'000}, stride, sum.data()); });
    check_shared(work.total.shared_of(Access::write), 1, written, conflicts);
    check_shared(work.total.shared_of(Access::read), 1, read, conflicts);
    CHECK(work.total.shared_of(Access::read).requested_bytes == 32 * sizeof(T));
    CHECK(work.dynamic_shared_bytes == 40'000);
}

TEST_CASE("counts: wavefronts of strided shared memory") {
    check_strided<float>(1, 1, 1, 0);
    check_strided<float>(2, 2, 2, 1);
    check_strided<float>(3, 1, 1, 0);
    check_strided<float>(8, 8, 8, 7);
    check_strided<float>(32, 32, 32, 31);
    check_strided<float>(33, 1, 1, 0);  // padded
    check_strided<float>(0, 1, 1, 0);   // everybody's
    check_strided<float4>(1, 4, 4, 0);
    check_strided<float4>(2, 8, 8, 4);
    check_strided<float4>(8, 32, 32, 28);
    check_strided<float4>(17, 4, 4, 0);
    check_strided<float4>(0, 4, 2, 0);  // a load of the same address by neighbours may take half a warp at once
    check_strided<double>(1, 2, 2, 0);
}

__global__ void static_tile(float* sum) {
    __shared__ float before[3];
    __shared__ float tile[32][32];
    before[threadIdx.x % 3] = 1;
    tile[threadIdx.x][5] = 2;
    __syncwarp();
    sum[threadIdx.x] = tile[5][threadIdx.x % 5 == 5 ? 1 : 5] + before[threadIdx.x % 3];
}

TEST_CASE("counts: static shared memory, wherever it lies") {
    const DeviceArray<float> sum(32);
    const LaunchWork work = count_launch([&] { launch_kernel(static_tile, {1, 32}, sum.data()); });
    check_shared(work.total.shared_of(Access::write), 2, 33, 31);
    check_shared(work.total.shared_of(Access::read), 2, 2, 0);
}

// ---- which lanes' accesses are one

/// Lane i walks over i + 1 elements.
__global__ void triangle(const float* x, float* y) {
    float sum = 0;
    for (int k = 0; k <= int(threadIdx.x % 32); ++k) sum += x[k * 32 + threadIdx.x % 32];
    y[threadIdx.x] = sum;
}

TEST_CASE("counts: a loop that lanes leave one after the other") {
    const DeviceArray<float> x(std::vector<float>(1024)), y(64);
    const LaunchWork work = count_launch([&] { launch_kernel(triangle, {1, 64}, x.data(), y.data()); });
    std::uint64_t sectors = 0;  // in round k lanes k to 31 load
    for (unsigned k = 0; k < 32; ++k) sectors += 4 - k / 8;
    check_global(work.total.global_of(Access::read), 2 * 32, 2 * 4 * 528, 2 * 4 * 528, 2 * sectors);
}

/// Some lanes do more in between than others.
__global__ void parting_ways(const float* x, float* y, float* extra) {
    for (int k = 0; k < 100; ++k) {
        const float value = x[k * 32 + threadIdx.x];
        if (threadIdx.x % 16 == 0) extra[k * 2 + threadIdx.x / 16] = value;
        y[k * 32 + threadIdx.x] = value;
    }
}

TEST_CASE("counts: lanes whose ways part between two barriers") {
    const DeviceArray<float> x(std::vector<float>(3200)), y(3200), extra(200);
    const LaunchWork work = count_launch([&] {
        launch_kernel(parting_ways, {1, 32}, x.data(), y.data(), extra.data());
    });
    check_global(work.total.global_of(Access::read), 100, 12800, 12800, 400);
    check_global(work.total.global_of(Access::write), 200, 12800 + 800, 12800 + 800, 400 + 100);
}

__global__ void two_branches(const float* x, float* y) {
    if (threadIdx.x % 2 == 0)
        y[threadIdx.x] = x[threadIdx.x] + 1;
    else
        y[threadIdx.x] = x[threadIdx.x + 64] * 2;
}

TEST_CASE("counts: the two sides of a branch") {
    const DeviceArray<float> x(std::vector<float>(128)), y(32);
    const LaunchWork work = count_launch([&] { launch_kernel(two_branches, {1, 32}, x.data(), y.data()); });
    // The compiler may make one store of the two; it cannot do so with the loads.
    check_global(work.total.global_of(Access::read), 2, 128, 128, 8);
    CHECK(work.total.global_of(Access::write).requested_bytes == 128);
}

/// Long, and without a barrier: lanes run far ahead of each other.
__global__ void long_way(const float* x, float* y, int n) {
    float sum = 0;
    for (int k = 0; k < n; ++k) sum += x[k % 64 * 32 + threadIdx.x % 32];
    y[threadIdx.x] = sum;
}

TEST_CASE("counts: lanes that run far ahead of their warp are still matched") {
    const int n = 5000 + int(test_seed() % 100);
    const DeviceArray<float> x(std::vector<float>(2048)), y(96);
    const LaunchWork work = count_launch([&] { launch_kernel(long_way, {1, 96}, x.data(), y.data(), n); });
    check_global(work.total.global_of(Access::read), 3 * std::uint64_t(n), 3 * 128 * std::uint64_t(n),
                 3 * 128 * std::uint64_t(n), 3 * 4 * std::uint64_t(n));
}

__global__ void some_return(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = x[i];
}

TEST_CASE("counts: a warp of which some lanes have returned") {
    const DeviceArray<float> x(std::vector<float>(200)), y(200);
    const LaunchWork work = count_launch([&] { launch_kernel(some_return, {2, 96}, x.data(), y.data(), 100); });
    check_global(work.total.global_of(Access::read), 4, 400, 400, 13);
    check_global(work.total.global_of(Access::write), 4, 400, 400, 13);
}

/// In each round a third of the lanes loads. What they do in different rounds is never one access.
template <bool whole_block>
__global__ void take_turns(const float* x, float* y, int rounds) {
    float sum = 0;
    for (int k = 0; k < rounds; ++k) {
        if ((k + threadIdx.x) % 3 == 0) sum += x[k * 64 + threadIdx.x];
        if constexpr (whole_block)
            __syncthreads();
        else
            __syncwarp();
    }
    y[threadIdx.x] = sum;
}

TEST_CASE("counts: at a barrier, of the block or of the warp, lanes whose ways have parted are together again") {
    const int rounds = 4 + int(test_seed() % 7);
    const DeviceArray<float> x(std::vector<float>(64 * 10)), y(64);
    for (const auto kernel : {take_turns<true>, take_turns<false>}) {
        const LaunchWork work = count_launch([&] { launch_kernel(kernel, {1, 64}, x.data(), y.data(), rounds); });
        std::uint64_t loads = 0;
        for (int k = 0; k < rounds; ++k)
            for (int i = 0; i < 64; ++i) loads += (k + i) % 3 == 0;
        check_global(work.total.global_of(Access::read), 2 * unsigned(rounds), 4 * loads, 4 * loads, 8 * unsigned(rounds));
    }
}

// ---- what nvcc may merge

enum class Between { nothing, barrier, warp_barrier, shuffle, store, atomic, is_volatile };

/// Each thread adds up `n` elements from first + thread * stride on.
template <Between between>
__global__ void add_neighbours(int n, int first, int stride, float* sum) {
    float* tile = dynamic_shared<float>();
    for (int i = threadIdx.x; i < 4096; i += blockDim.x) tile[i] = 1;
    __syncthreads();
    float x = 0;
    for (int k = 0; k < n; ++k) {
        const float* element = &tile[first + threadIdx.x * stride + k];
        if constexpr (between == Between::is_volatile)
            x += *const_cast<const volatile float*>(element);
        else
            x += *element;
        if constexpr (between == Between::barrier) __syncthreads();
        if constexpr (between == Between::warp_barrier) __syncwarp();
        if constexpr (between == Between::shuffle) x = __shfl_xor_sync(0xFFFFFFFFu, x, 1);
        if constexpr (between == Between::store) tile[3072 + threadIdx.x] = x;
        if constexpr (between == Between::atomic) atomicAdd(&tile[3072 + threadIdx.x], 1.0f);
    }
    sum[threadIdx.x] = x;
}

/// Of the launch, which must be of one kind of accesses.
emulator::MergeableWork only_mergeable(const LaunchWork& launch) {
    REQUIRE(launch.mergeable.size() == 1);
    return launch.mergeable.front();
}

template <Between between = Between::nothing>
LaunchWork neighbours(int n, int first, int stride) {
    const DeviceArray<float> sum(64);
    return count_launch([&] {
        launch_kernel(add_neighbours<between>, {1, 64, 4096 * sizeof(float)}, n, first, stride, sum.data());
    });
}

using Saved = std::array<std::int64_t, 3>;  // by accesses of up to 4, 8, 16 bytes

TEST_CASE("mergeable: neighbouring loads of a loop") {
    // 32 lanes at a distance of 8 words meet in 8 banks: 8 wavefronts, and as many for 8 and for 16 bytes each.
    const LaunchWork launch = neighbours(8, 0, 8);
    check_shared(launch.total.shared_of(Access::read), 16, 16 * 8, 16 * 7);
    const emulator::MergeableWork work = only_mergeable(launch);
    CHECK(work.kind == Access::read);
    CHECK(work.bytes == 4);
    CHECK(work.widest == 16);
    CHECK(work.saved == Saved{0, 64, 96});
    CHECK(work.first_line.starts_with("tests/emulator/counters.cu:"));
    CHECK(work.first_line == work.last_line);
    CHECK(only_mergeable(neighbours(8, 4, 8)).saved == Saved{0, 64, 96});
    CHECK(only_mergeable(neighbours(8, 0, 4)).saved == Saved{0, 2 * 4 * (4 + 4 - 4), 2 * 2 * (16 - 4)});
    CHECK(only_mergeable(neighbours(8, 0, 0)).saved == Saved{0, 8, 8});    // LDS.128 of one address: two wavefronts
    CHECK(only_mergeable(neighbours(7, 0, 8)).saved == Saved{0, 48, 64});  // the last three: one pair
}

TEST_CASE("mergeable: as far as addresses are aligned") {
    CHECK(only_mergeable(neighbours(8, 2, 8)).saved == Saved{0, 64, 80});  // 2 + 4 + 2
    CHECK(only_mergeable(neighbours(8, 2, 8)).widest == 16);
    CHECK(only_mergeable(neighbours(2, 2, 8)).widest == 8);
    CHECK(only_mergeable(neighbours(8, 1, 8)).saved == Saved{0, 48, 64});  // 1 + 2 + 4 + 1 is the best there is
    CHECK(neighbours(2, 1, 8).mergeable.empty());
    CHECK(neighbours(8, 0, 9).mergeable.empty());  // every lane otherwise
    CHECK(only_mergeable(neighbours(8, 0, 2)).widest == 8);
    CHECK(only_mergeable(neighbours(8, 0, 2)).saved == Saved{0, 2 * 4 * (2 + 2 - 2), 2 * 4 * (2 + 2 - 2)});
    CHECK(only_mergeable(neighbours(8, 0, 6)).widest == 8);
    CHECK(neighbours(1, 0, 1).mergeable.empty());  // neighbours of other lanes
}

TEST_CASE("mergeable: not with something in between that orders memory") {
    CHECK(neighbours<Between::barrier>(8, 0, 8).mergeable.empty());
    CHECK(neighbours<Between::warp_barrier>(8, 0, 8).mergeable.empty());
    CHECK(neighbours<Between::store>(8, 0, 8).mergeable.empty());
    CHECK(neighbours<Between::atomic>(8, 0, 8).mergeable.empty());
    CHECK(neighbours<Between::is_volatile>(8, 0, 8).mergeable.empty());
    CHECK(only_mergeable(neighbours<Between::shuffle>(8, 0, 8)).saved == Saved{0, 64, 96});
}

int line_before_loads = 0;

__global__ void unrolled(const float* row, float* sum) {
    __shared__ float tile[32][36];
    for (int i = 0; i < 32; ++i) tile[i][threadIdx.x] = row[i];
    __syncthreads();
    const float* mine = tile[threadIdx.x];
    line_before_loads = __LINE__;
    const float a = mine[0];
    const float b = mine[1];
    const float c = mine[2];
    const float d = mine[3];
    sum[threadIdx.x] = a + b + c + d;
}

TEST_CASE("mergeable: loads of several lines") {
    const DeviceArray<float> row(std::vector<float>(32)), sum(32);
    const LaunchWork launch = count_launch([&] { launch_kernel(unrolled, {1, 32}, row.data(), sum.data()); });
    std::int64_t by_8 = 0, by_16 = 0;
    for (const emulator::MergeableWork& work : launch.mergeable) {
        CHECK(work.first_line == "tests/emulator/counters.cu:" + std::to_string(line_before_loads + 1));
        CHECK(work.last_line ==
              "tests/emulator/counters.cu:" + std::to_string(line_before_loads + (work.widest == 16 ? 4 : 2)));
        by_8 += work.saved[1];
        by_16 += work.saved[2];
    }
    // A distance of 36 words: 4 wavefronts for each of the loads, for the pairs and for all.
    CHECK(by_8 == 8);
    CHECK(by_16 == 12);
}

template <class T>
__global__ void store_neighbours(int stride, bool loads_between, T* result) {
    T* tile = dynamic_shared<T>();
    for (int k = 0; k < 4; ++k) tile[2000 + threadIdx.x + k] = T(1);
    __syncthreads();
    T x = T(threadIdx.x);
    for (int k = 0; k < 4; ++k) {
        tile[threadIdx.x * stride + k] = x;
        if (loads_between) x = tile[2000 + threadIdx.x];
    }
    __syncthreads();
    result[threadIdx.x] = tile[threadIdx.x * stride];
}

template <class T>
LaunchWork stores(int stride, bool loads_between = false) {
    const DeviceArray<T> result(32);
    return count_launch([&] {
        launch_kernel(store_neighbours<T>, {1, 32, 2048 * sizeof(T)}, stride, loads_between, result.data());
    });
}

TEST_CASE("mergeable: stores, of elements of any size") {
    CHECK(only_mergeable(stores<float>(4)).kind == Access::write);
    CHECK(only_mergeable(stores<float>(4)).saved == Saved{0, 8, 12});
    CHECK(stores<float>(5).mergeable.empty());
    CHECK(stores<float>(4, true).mergeable.empty());
    CHECK(only_mergeable(stores<double>(4)).saved == Saved{0, 0, 16});
    CHECK(only_mergeable(stores<short>(4)).widest == 8);
    CHECK(only_mergeable(stores<short>(4)).saved == Saved{4, 6, 6});
}

/// Half of the lanes in one round, the other half in the next.
__global__ void parted(const float* x, float* sum) {
    float* tile = dynamic_shared<float>();
    for (int i = 0; i < 32; ++i) tile[i * 32 + threadIdx.x] = x[i];
    __syncwarp();
    float s = 0;
    for (int k = 0; k < 4; ++k)
        if ((threadIdx.x + k) % 2 == 0) s += tile[threadIdx.x * 32 + k];
    sum[threadIdx.x] = s;
}

TEST_CASE("mergeable: not where lanes go different ways") {
    const DeviceArray<float> x(std::vector<float>(32)), sum(32);
    CHECK(count_launch([&] { launch_kernel(parted, {1, 32, 4096}, x.data(), sum.data()); }).mergeable.empty());
}

// ---- atomics, arithmetic, barriers

__global__ void add_up(float* one, int* many) {
    __shared__ int bins[4];
    if (threadIdx.x < 4) bins[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(one, 1.0f);
    atomicMax(&many[threadIdx.x], 3);
    atomicAdd(&bins[threadIdx.x % 4], 1);
}

TEST_CASE("counts: an atomic is neither a load nor a store") {
    const DeviceArray<float> one(std::vector<float>{0});
    const DeviceArray<int> many(std::vector<int>(64));
    const LaunchWork work = count_launch([&] { launch_kernel(add_up, {1, 64}, one.data(), many.data()); });
    CHECK(work.total.global_of(Access::read).accesses == 0);
    CHECK(work.total.global_of(Access::write).accesses == 0);
    check_global(work.total.global_of(Access::atomic), 4, 512, 8 + 256, 2 + 8);
    CHECK(work.total.shared_of(Access::atomic).accesses == 2);
    CHECK(work.total.shared_of(Access::write).accesses == 1);
    CHECK(one.download()[0] == 64);
}

/// Block 1 waits for block 0, three times for one word: at once, behind a store, behind a wait for another word.
__global__ void wait_for_block_0(std::uint32_t* words, int* sum) {
    if (blockIdx.x == 0) {
        for (int i = 0; i < 50; ++i) __nanosleep(20);
        ptx::store_release(&words[1], 1);
        ptx::store_release(&words[0], 1);
        return;
    }
    while (ptx::load_acquire(&words[0]) != 1) {
    }
    *sum = 1;
    while (ptx::load_acquire(&words[0]) != 1) {
    }
    while (ptx::load_acquire(&words[1]) != 1) {
    }
    while (ptx::load_acquire(&words[0]) != 1) {
    }
}

TEST_CASE("counts: who asks one word until it is written has asked once, in whatever order") {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        emulator::reseed(test_seed() + seed);
        const DeviceArray<std::uint32_t> words(std::vector<std::uint32_t>(2));
        const DeviceArray<int> sum(1);
        const LaunchWork work = count_launch([&] { launch_kernel(wait_for_block_0, {2, 1}, words.data(), sum.data()); });
        check_global(work.total.global_of(Access::atomic), 2 + 4, 6 * 4, 6 * 4, 6);
    }
    emulator::reseed(test_seed());
}

__global__ void arithmetic(float* x, double* y, int n) {
    const int i = threadIdx.x;
    if (i >= n) return;
    x[i] = expf(x[i]);
    x[i] = exp2f(x[i]) + __expf(x[i] + 1);
    x[i] = std::exp(-x[i]);
    x[i] = 1 / (x[i] + 1);
    x[i] = __fdividef(x[i], x[i] + 2);
#if !defined(__clang__) || defined(__OPTIMIZE__)
    x[i] /= 4;  // a multiplication
#endif
    y[i] = y[i] / (x[i] + 5);
    y[i] = exp(y[i]);
}

TEST_CASE("counts: exponentials and divisions") {
    const int n = 1 + int(test_seed() % 64);
    const DeviceArray<float> x(std::vector<float>(64, 1));
    const DeviceArray<double> y(std::vector<double>(64, 1));
    const LaunchWork work = count_launch([&] { launch_kernel(arithmetic, {1, 64}, x.data(), y.data(), n); });
    CHECK(work.total.exponentials == 5 * std::uint64_t(n));
    CHECK(work.total.divisions == 3 * std::uint64_t(n));
    volatile float host = 3;  // outside a kernel nothing counts
    const Work none = emulator::count_work([&] { host = expf(host) / host; }).total();
    CHECK(none.exponentials == 0);
    CHECK(none.divisions == 0);
}

__global__ void three_barriers(int* x) {
    __syncthreads();
    x[threadIdx.x] = __syncthreads_count(threadIdx.x < 5);
    __syncthreads();
}

TEST_CASE("counts: barriers, once a block") {
    const DeviceArray<int> x(100);
    CHECK(count_launch([&] { launch_kernel(three_barriers, {7, 100}, x.data()); }).total.barriers == 21);
}

// ---- lines

int line_of_load = 0, line_of_store = 0, line_of_barrier = 0, line_of_exp = 0;

__global__ void known_lines(const float* x, float* y) {
    const float value = x[threadIdx.x * 2];
    line_of_load = __LINE__ - 1;
    __syncthreads();
    line_of_barrier = __LINE__ - 1;
    const float e = expf(value);
    line_of_exp = __LINE__ - 1;
    y[threadIdx.x] = e / 3;
    line_of_store = __LINE__ - 1;
}

TEST_CASE("counts: by source line, and the lines add up to the whole") {
    const DeviceArray<float> x(std::vector<float>(128)), y(64);
    const LaunchWork launch = count_launch([&] { launch_kernel(known_lines, {1, 64}, x.data(), y.data()); });
    const auto at = [&](int line) {
        for (const auto& [name, work] : launch.lines)
            if (name == "tests/emulator/counters.cu:" + std::to_string(line)) return work;
        FAIL("line ", line, " is not there");
        return Work();
    };
    check_global(at(line_of_load).global_of(Access::read), 2, 256, 256, 16);
    check_global(at(line_of_store).global_of(Access::write), 2, 256, 256, 8);
    CHECK(at(line_of_store).divisions == 64);
    CHECK(at(line_of_exp).exponentials == 64);
    CHECK(at(line_of_barrier).barriers == 1);
    Work sum;
    for (const auto& line : launch.lines) sum += line.work;
    CHECK(sum == launch.total);
}

// ---- when it is counted

__global__ void fails(float* x) { x[threadIdx.x == 40 ? 1000 : threadIdx.x] = 1; }

TEST_CASE("counts: neither launches that failed nor those outside, and nothing is left over from them") {
    const DeviceArray<float> x(std::vector<float>(64)), y(32);
    const auto load = [&] { launch_kernel(load_strided<float>, {1, 32}, x.data(), 0, 1, y.data()); };
    load();
    const CountedWork work = emulator::count_work([&] {
        CHECK_THROWS_AS(launch_kernel(fails, {2, 64}, x.data()), CudaError);
        load();
        const CountedWork inner = emulator::count_work([&] {
            load();
            load();
        });
        CHECK(inner.launches.size() == 2);
    });
    REQUIRE(work.launches.size() == 3);  // what is counted inside belongs to the outer count too
    for (const LaunchWork& launch : work.launches) check_global(launch.total.global_of(Access::read), 1, 128, 128, 4);
    load();
    CHECK(emulator::count_work([] {}).launches.empty());
}

}  // namespace
}  // namespace flashladder
