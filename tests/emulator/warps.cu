// Shuffles and votes, against what the PTX manual says of shfl.sync and vote.sync.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "../test_seed.h"
#include "device_array.h"
#include "launch.h"

namespace flashladder {
namespace {

constexpr unsigned all_lanes = 0xFFFFFFFFu;

enum class Kind { indexed, up, down, exclusive_or };

template <class T>
__device__ T shuffle(Kind kind, unsigned mask, T value, int operand, int width) {
    if (kind == Kind::indexed) return __shfl_sync(mask, value, operand, width);
    if (kind == Kind::up) return __shfl_up_sync(mask, value, operand, width);
    if (kind == Kind::down) return __shfl_down_sync(mask, value, operand, width);
    return __shfl_xor_sync(mask, value, operand, width);
}

/// The lane that is read, as the PTX manual computes it from the lowest five bits of the operand.
int source_lane(Kind kind, int lane, int operand, int width) {
    const int b = operand & 31, in_group = width - 1;
    const int first = lane & ~in_group, last = first + in_group;
    const int source = kind == Kind::indexed ? first | (b & in_group)
                       : kind == Kind::up    ? lane - b
                       : kind == Kind::down  ? lane + b
                                             : lane ^ b;
    const bool valid = kind == Kind::up ? source >= first : source <= last;
    return valid ? source : lane;
}

constexpr int first_operand = -3, operands = 40, widths = 6;

template <class T>
__global__ void shuffle_in_all_ways(Kind kind, const T* values, T* results) {
    const T value = values[threadIdx.x];
    results += threadIdx.x;
    for (int width = 32; width > 0; width /= 2)
        for (int i = 0; i < operands; ++i, results += blockDim.x)
            *results = shuffle(kind, all_lanes, value, first_operand + i, width);
}

TEST_CASE_TEMPLATE("shuffles: every width, lane and operand", T, int, unsigned, float, double, long long,
                   unsigned long long) {
    constexpr int n = 64;
    std::mt19937_64 random(test_seed());
    std::vector<T> values(n);
    for (T& value : values) {
        value = T(std::int64_t(random()));
        if constexpr (std::is_floating_point_v<T>) value = std::ldexp(value, -70);  // with many digits
    }
    const DeviceArray<T> values_device(values);
    for (const Kind kind : {Kind::indexed, Kind::up, Kind::down, Kind::exclusive_or}) {
        const DeviceArray<T> results(widths * operands * n);
        launch_kernel(shuffle_in_all_ways<T>, {1, n}, kind, values_device.data(), results.data());
        const std::vector<T> found = results.download();
        auto result = found.begin();
        for (int width = 32; width > 0; width /= 2)
            for (int operand = first_operand; operand < first_operand + operands; ++operand)
                for (int thread = 0; thread < n; ++thread) {
                    const int lane = thread % 32, source = source_lane(kind, lane, operand, width);
                    INFO("kind ", int(kind), ", width ", width, ", operand ", operand, ", lane ", lane);
                    REQUIRE(*result++ == values[thread - lane + source]);
                }
    }
}

__global__ void shuffle_by_lane(int* results) {
    const int lane = threadIdx.x % 32;
    results[threadIdx.x] = __shfl_sync(all_lanes, int(threadIdx.x), lane * 7 + 3);
}

TEST_CASE("shuffles: each lane may name another lane") {
    const DeviceArray<int> results(96);
    launch_kernel(shuffle_by_lane, {1, 96}, results.data());
    const std::vector<int> found = results.download();
    for (int i = 0; i < 96; ++i) CHECK(found[i] == i / 32 * 32 + (i % 32 * 7 + 3) % 32);
}

/// Even lanes exchange among themselves, odd lanes too and more often: neither waits for the other.
__global__ void shuffle_in_two_groups(int* results) {
    int value = threadIdx.x;
    if (value % 2 == 0) {
        value = __shfl_xor_sync(0x55555555u, value, 2);
    } else {
        for (int i = 0; i < 5; ++i) value = __shfl_xor_sync(0xAAAAAAAAu, value, 4);
    }
    results[threadIdx.x] = value;
}

TEST_CASE("shuffles: the lanes of a mask alone") {
    const DeviceArray<int> results(32);
    launch_kernel(shuffle_in_two_groups, {1, 32}, results.data());
    const std::vector<int> found = results.download();
    for (int i = 0; i < 32; ++i) CHECK(found[i] == (i ^ (i % 2 == 0 ? 2 : 4)));
}

/// The last warp has 20 threads: five groups of four.
__global__ void shuffle_in_ragged_block(int* results) {
    const int n = blockDim.x, self = threadIdx.x;
    results[self] = __shfl_xor_sync(all_lanes, self, 3, 4);
    results[n + self] = __shfl_sync(all_lanes, self, 1, 4);
    results[2 * n + self] = __shfl_down_sync(all_lanes, self, 1, 4);
    results[3 * n + self] = __shfl_up_sync(all_lanes, self, 1, 4);
}

TEST_CASE("shuffles: a warp that the block does not fill") {
    constexpr int n = 52;
    const DeviceArray<int> results(4 * n);
    launch_kernel(shuffle_in_ragged_block, {1, n}, results.data());
    const std::vector<int> found = results.download();
    for (int i = 0; i < n; ++i) {
        CHECK(found[i] == (i ^ 3));
        CHECK(found[n + i] == i / 4 * 4 + 1);
        CHECK(found[2 * n + i] == (i % 4 == 3 ? i : i + 1));
        CHECK(found[3 * n + i] == (i % 4 == 0 ? i : i - 1));
    }
}

/// Lanes from `first_gone` on return at once; the others go on without them, though the mask names them.
__global__ void shuffle_without_the_gone(int first_gone, int* results) {
    const int lane = threadIdx.x;
    if (lane >= first_gone) return;
    results[lane] = __shfl_xor_sync(all_lanes, lane, 1);
}

TEST_CASE("shuffles: nobody waits for lanes that have returned") {
    const DeviceArray<int> results(10);
    launch_kernel(shuffle_without_the_gone, {1, 32}, 10, results.data());
    const std::vector<int> found = results.download();
    for (int i = 0; i < 10; ++i) CHECK(found[i] == (i ^ 1));
}

// ---- votes

struct Votes {
    unsigned ballot;
    int any, all;
};

__global__ void vote(unsigned mask, unsigned yes, Votes* results) {
    const unsigned lane = threadIdx.x % 32;
    if (!(mask >> lane & 1)) return;
    const int predicate = yes >> lane & 1 ? -256 : 0;
    results[threadIdx.x] = {__ballot_sync(mask, predicate), __any_sync(mask, predicate), __all_sync(mask, predicate)};
}

void check_votes(int threads, unsigned mask, unsigned yes) {
    INFO("threads ", threads, ", mask ", mask, ", yes ", yes);
    const DeviceArray<Votes> results(threads);
    launch_kernel(vote, {1, unsigned(threads)}, mask, yes, results.data());
    const std::vector<Votes> found = results.download();
    for (int i = 0; i < threads; ++i) {
        if (!(mask >> i % 32 & 1)) continue;
        const int lanes_here = std::min(32, threads - i / 32 * 32);
        const unsigned voters = lanes_here == 32 ? mask : mask & ((1u << lanes_here) - 1);
        REQUIRE(found[i].ballot == (yes & voters));
        REQUIRE((found[i].any != 0) == ((yes & voters) != 0));
        REQUIRE((found[i].all != 0) == ((yes & voters) == voters));
    }
}

TEST_CASE("votes: ballot, any, all") {
    std::mt19937_64 random(test_seed());
    for (const unsigned yes : {0u, 1u, 0x80000000u, 0xFFFFFFFEu, all_lanes, unsigned(random())}) {
        check_votes(64, all_lanes, yes);
        check_votes(43, all_lanes, yes);  // the second warp has 11 lanes
        const auto mask = unsigned(random()) | 1;
        check_votes(64, mask, yes);
        check_votes(64, mask, yes | mask);
        check_votes(64, mask, yes & ~mask);
    }
}

__global__ void note_active_lanes(unsigned* results) {
    results[threadIdx.x] = __activemask();
    __syncthreads();  // until here all are there
}

TEST_CASE("votes: __activemask") {
    const DeviceArray<unsigned> results(43);
    launch_kernel(note_active_lanes, {1, 43}, results.data());
    const std::vector<unsigned> found = results.download();
    for (int i = 0; i < 43; ++i) CHECK(found[i] == (i < 32 ? all_lanes : 0x7FFu));
}

}  // namespace
}  // namespace flashladder
