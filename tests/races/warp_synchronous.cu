// Warp-synchronous code: the lanes of a warp hand values on through volatile shared memory, as if they ran in step.
// They do not since Volta. Flags that are waited for are volatile too, and are no race.
#include <doctest/doctest.h>

#include <numeric>
#include <string>
#include <vector>

#include "../emulator/device_array.h"
#include "../test_seed.h"
#include "emulator/emulator.h"
#include "launch.h"

namespace flashladder {
namespace {

constexpr unsigned threads = 64;

/// Whether a kernel has its __syncwarp().
enum class Lanes { in_step, synchronized };

template <Lanes lanes>
__device__ void sync() {
    if (lanes == Lanes::synchronized) __syncwarp();
}

// ---- reductions

/// As in CUDA's slides on reductions, or with what they need since Volta.
template <Lanes lanes, class T, int stride>
__device__ void add_from(volatile T* s, int t) {
    const T sum = s[t] + s[t + stride];
    sync<lanes>();
    s[t] = sum;
    sync<lanes>();
}

template <Lanes lanes, class T>
__device__ void warp_reduce(volatile T* s, int t) {
    if (lanes == Lanes::in_step) {
        s[t] += s[t + 32];
        s[t] += s[t + 16];
        s[t] += s[t + 8];
        s[t] += s[t + 4];
        s[t] += s[t + 2];
        s[t] += s[t + 1];
        return;
    }
    add_from<lanes, T, 32>(s, t);
    add_from<lanes, T, 16>(s, t);
    add_from<lanes, T, 8>(s, t);
    add_from<lanes, T, 4>(s, t);
    add_from<lanes, T, 2>(s, t);
    add_from<lanes, T, 1>(s, t);
}

template <Lanes lanes, class T>
__global__ void reduce(T* result) {
    __shared__ T s[threads + 32];  // lanes that are not needed read on behind the 64
    const int t = threadIdx.x;
    s[t] = 1;
    if (t < 32) s[threads + t] = 0;
    __syncthreads();
    if (t < 32) warp_reduce<lanes, T>(s, t);
    if (t == 0) result[blockIdx.x] = s[0];
}

template <Lanes lanes, class T, unsigned blockSize>
__device__ void warp_reduce_of(volatile T* s, unsigned t) {
    if constexpr (blockSize >= 64) add_from<lanes, T, 32>(s, t);
    if constexpr (blockSize >= 32) add_from<lanes, T, 16>(s, t);
    if constexpr (blockSize >= 16) add_from<lanes, T, 8>(s, t);
    if constexpr (blockSize >= 8) add_from<lanes, T, 4>(s, t);
    if constexpr (blockSize >= 4) add_from<lanes, T, 2>(s, t);
    if constexpr (blockSize >= 2) add_from<lanes, T, 1>(s, t);
}

/// In dynamic shared memory, and with a template for each size of a block.
template <Lanes lanes, class T, unsigned blockSize>
__global__ void reduce_of(T* result) {
    T* s = dynamic_shared<T>();
    const unsigned t = threadIdx.x;
    s[t] = 1;
    if (t < 32) s[blockSize + t] = 0;
    __syncthreads();
    if (t < 32) warp_reduce_of<lanes, T, blockSize>(s, t);
    if (t == 0) result[blockIdx.x] = s[0];
}

/// The array itself is volatile, the steps are a loop, and lanes that are not needed do nothing.
template <Lanes lanes, class T>
__global__ void reduce_in_loop(T* result) {
    __shared__ volatile T s[threads];
    const int t = threadIdx.x;
    s[t] = 1;
    __syncthreads();
    for (int stride = 32; stride > 0; stride /= 2) {
        if (t < stride) s[t] = s[t] + s[t + stride];
        sync<lanes>();
    }
    if (t == 0) result[blockIdx.x] = s[0];
}

/// Every lane finds the largest, comparing and storing only what is larger: a word is read twice in a row.
template <Lanes lanes, class T>
__global__ void largest(T* result) {
    __shared__ volatile T s[threads];
    const int t = threadIdx.x;
    s[t] = 1 + t * 37 % threads;
    __syncthreads();
    if (t < 32) {
        for (int stride = 32; stride > 0; stride /= 2) {
            if (t < stride && s[t] < s[t + stride]) s[t] = s[t + stride];
            sync<lanes>();
        }
    }
    if (t == 0) result[blockIdx.x] = s[0];
}

/// One step of one lane lacks its __syncwarp(), the others are as they should be.
template <Lanes lanes, class T>
__global__ void last_step(T* result) {
    __shared__ volatile T s[threads];
    const int t = threadIdx.x;
    s[t] = 1;
    __syncthreads();
    for (int stride = 32; stride > 0; stride /= 2) {
        if (t < stride) s[t] = s[t] + s[t + stride];
        if (stride > 2) __syncwarp();
        if (stride == 2) sync<lanes>();
    }
    if (t == 0) result[blockIdx.x] = s[0];
}

// ---- scans, exchanges

template <Lanes lanes, class T>
__global__ void scan(T* result) {
    __shared__ T memory[threads];
    volatile T* s = memory;
    const int t = threadIdx.x, lane = t % 32;
    s[t] = 1;
    __syncthreads();
    for (int by = 1; by < 32; by *= 2) {
        const T before = lane >= by ? s[t - by] : T(0);
        sync<lanes>();
        if (lane >= by) s[t] += before;
        sync<lanes>();
    }
    if (t == 31) result[blockIdx.x] = s[t] + s[t];
}

/// The same as it was written.
template <Lanes lanes, class T>
__global__ void scan_in_step(T* result) {
    __shared__ volatile T s[threads];
    const int t = threadIdx.x, lane = t % 32;
    s[t] = 1;
    __syncthreads();
    if (lanes == Lanes::in_step) {
        if (lane >= 1) s[t] += s[t - 1];
        if (lane >= 2) s[t] += s[t - 2];
        if (lane >= 4) s[t] += s[t - 4];
        if (lane >= 8) s[t] += s[t - 8];
        if (lane >= 16) s[t] += s[t - 16];
    } else {
        s[t] = 1 + lane;
    }
    if (t == 31) result[blockIdx.x] = s[t] + s[t];
}

/// Two arrays by turns, so that only the one wait is needed.
template <Lanes lanes, class T>
__global__ void scan_by_turns(T* result) {
    __shared__ volatile T s[2][threads];
    const int t = threadIdx.x, lane = t % 32;
    int now = 0;
    s[0][t] = s[1][t] = 1;
    __syncthreads();
    for (int by = 1; by < 32; by *= 2, now ^= 1) {
        s[now ^ 1][t] = s[now][t] + (lane >= by ? s[now][t - by] : T(0));
        sync<lanes>();
    }
    if (t == 31) result[blockIdx.x] = s[now][t] + s[now][t];
}

/// What a shuffle would do: the value is not stored again.
template <Lanes lanes, class T>
__global__ void exchange(T* result) {
    __shared__ volatile T s[threads];
    const int t = threadIdx.x;
    s[t] = 0;
    __syncthreads();
    s[t] = threads + t - t % 32;
    sync<lanes>();
    const T other = s[t ^ 5];
    if (t == 0) result[blockIdx.x] = other;
}

// ---- flags

/// A warp waits for another one, without fences: nothing but the flag is handed on.
__global__ void wait_for_warp(int* result) {
    __shared__ volatile int flag;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x == 0) flag = threads;
    while (flag == 0) {
    }
    if (threadIdx.x == 32) result[blockIdx.x] = flag;
}

/// Each lane waits for the one before it, and what is handed on is counted in shared memory.
__global__ void wait_in_turn(int* result) {
    __shared__ volatile int baton, count;
    const int t = threadIdx.x;
    if (t == 0) baton = count = 0;
    __syncthreads();
    while (baton != t) __nanosleep(20);
    __threadfence_block();
    count = count + 1;
    __threadfence_block();
    baton = t + 1;
    if (t + 1 == int(threads)) result[blockIdx.x] = count;
}

/// Two lanes by turns, each with a flag of its own, and no fence: nothing else is handed on.
__global__ void wait_for_each_other(int* result) {
    __shared__ volatile int ping, pong;
    const int t = threadIdx.x;
    if (t == 0) ping = pong = 0;
    __syncthreads();
    for (int i = 1; i <= int(threads); ++i) {
        if (t == 0) {
            ping = i;
            while (pong != i) {
            }
        } else if (t == 1) {
            while (ping != i) {
            }
            pong = i;
        }
    }
    if (t == 0) result[blockIdx.x] = pong;
}

/// Each lane sets a flag by the same store and waits for its neighbour's.
__global__ void wait_for_neighbour(int* result) {
    __shared__ volatile int ready[threads];
    const int t = threadIdx.x;
    ready[t] = 0;
    __syncthreads();
    for (int i = 1; i <= int(threads); ++i) {
        ready[t] = i;
        while (ready[t ^ 1] < i) __nanosleep(20);
    }
    if (t == 0) result[blockIdx.x] = ready[0];
}

/// The same once, and for a few lanes: often none has to wait.
__global__ void wait_for_neighbour_once(int* result) {
    __shared__ volatile int ready[threads];
    const int t = threadIdx.x;
    ready[t] = 0;
    __syncthreads();
    if (t < 2) {
        for (int i = 1; i <= 2; ++i) {
            ready[t] = i;
            while (ready[t ^ 1] < i) __nanosleep(20);
        }
    }
    if (t == 0) result[blockIdx.x] = threads;
}

/// Lane 0 waits for all of its warp, and lets them go.
__global__ void gather(int* result) {
    __shared__ volatile int ready[threads], go;
    const int t = threadIdx.x;
    ready[t] = go = 0;
    __syncthreads();
    if (t < 32) {
        ready[t] = 1;
        if (t == 0) {
            for (int i = 1; i < 32; ++i)
                while (!ready[i]) {
                }
            go = 1;
        }
        while (!go) {
        }
    }
    if (t == 0) result[blockIdx.x] = threads;
}

/// Each lane waits for the one before it. Nothing but the flag is handed on.
__global__ void wait_for_lane_before(int* result) {
    __shared__ volatile int ready[threads];
    const int t = threadIdx.x;
    ready[t] = 0;
    __syncthreads();
    if (t < 2) {
        if (t > 0)
            while (ready[t - 1] == 0) {
            }
        ready[t] = 1;
    }
    if (t == 0) result[blockIdx.x] = threads;
}

/// The sums go from lane to lane, each with a flag.
__global__ void look_back(int* result) {
    __shared__ volatile int sums[threads], ready[threads];
    const int t = threadIdx.x;
    ready[t] = 0;
    __syncthreads();
    if (t > 0) {
        while (ready[t - 1] == 0) {
        }
        __threadfence_block();
    }
    sums[t] = 1 + (t > 0 ? sums[t - 1] : 0);
    __threadfence_block();
    ready[t] = 1;
    if (t + 1 == int(threads)) result[blockIdx.x] = sums[t];
}

/// Two buffers go round between a producer and a consumer, lanes of one warp or of two.
template <int consumer>
__global__ void produce_and_consume(int* result) {
    __shared__ volatile int buffer[2], full[2];
    const int t = threadIdx.x;
    if (t < 2) full[t] = 0;
    __syncthreads();
    int sum = 0;
    for (int i = 0; i < int(threads); ++i) {
        const int b = i % 2;
        if (t == 0) {
            while (full[b]) {
            }
            __threadfence_block();
            buffer[b] = 1;
            __threadfence_block();
            full[b] = 1;
        } else if (t == consumer) {
            while (!full[b]) {
            }
            __threadfence_block();
            sum += buffer[b];
            __threadfence_block();
            full[b] = 0;
        }
    }
    if (t == consumer) result[blockIdx.x] = sum;
}

/// Threads look whether one of them has found something, and go on for a while if not.
__global__ void search(int* result) {
    __shared__ volatile int found;
    const int t = threadIdx.x;
    if (t == 0) found = 0;
    __syncthreads();
    for (int i = 0; i < int(threads) && found == 0; ++i)
        if (i * int(threads) + t == 333) found = threads;
    __syncthreads();
    if (t == 0) result[blockIdx.x] = found;
}

/// The same, but each looks only once.
__global__ void say_once(int* result) {
    __shared__ volatile int found;
    const int t = threadIdx.x;
    if (t == 0) found = 0;
    __syncthreads();
    if (!found) found = threads;
    __syncthreads();
    if (t == 0) result[blockIdx.x] = found;
}

/// From one lane to another, through one slot: 0 is an empty one. It needs no fence, for nothing else is handed on.
__global__ void send(int* result) {
    __shared__ volatile int slot;
    const int t = threadIdx.x;
    if (t == 0) slot = 0;
    __syncthreads();
    int value = 0;
    for (int i = 1; i <= int(threads); ++i) {
        if (t == 0) {
            while (slot != 0) {
            }
            slot = i;
        } else if (t == 1) {
            while ((value = slot) == 0) {
            }
            slot = 0;
        }
    }
    if (t == 1) result[blockIdx.x] = value;
}

/// Peterson's lock, of two lanes: each says by the same store that it wants to go in, and waits only if both do. They
/// seldom do, for one is late.
__global__ void lock(int* result) {
    __shared__ volatile int wanted[2], turn, count;
    const int t = threadIdx.x;
    if (t < 2) wanted[t] = turn = count = 0;
    __syncthreads();
    if (t < 2) {
        for (int i = 0; i < 20 * t; ++i) __nanosleep(20);
        wanted[t] = 1;
        turn = 1 - t;
        __threadfence_block();
        while (wanted[1 - t] && turn == 1 - t) {
        }
        __threadfence_block();
        count = count + int(threads) / 2;
        __threadfence_block();
        wanted[t] = 0;
    }
    __syncthreads();
    if (t == 0) result[blockIdx.x] = count;
}

/// Values that only grow, until all are the largest: what one round has missed, the next one finds.
__global__ void spread(int* result) {
    __shared__ volatile int largest[threads];
    const int t = threadIdx.x;
    largest[t] = t + 1;
    bool changed;
    do {
        __syncthreads();
        const int other = largest[(t + 1) % threads];
        changed = other > largest[t];
        if (changed) largest[t] = other;
    } while (__syncthreads_or(changed));
    if (t == 0) result[blockIdx.x] = largest[0];
}

/// Values between warps, by volatile reads and writes that nothing orders: what is stored is looked at by nobody.
__global__ void between_warps(int* result) {
    __shared__ volatile int s[threads];
    const int t = threadIdx.x;
    s[t] = 0;
    __syncthreads();
    s[t] = threads;
    s[t] = s[t ^ 32];
    if (t == 0) result[blockIdx.x] = threads;
}

/// Decoupled look-back between blocks.
__global__ void look_back_between_blocks(volatile int* sums, volatile int* ready, int* result) {
    const int t = blockIdx.x;
    if (threadIdx.x == 0) {
        int before = 0;
        if (t > 0) {
            while (ready[t - 1] == 0) {
            }
            __threadfence();
            before = sums[t - 1];
        }
        sums[t] = before + int(threads);
        __threadfence();
        ready[t] = 1;
    }
    if (threadIdx.x == 1) result[t] = threads;
}

constexpr unsigned blocks = 3;
constexpr int orders = 20;

/// By one seed: the report, or "". The result is `threads`, if there is no report.
template <class T>
std::string look_for_race(void (*kernel)(T*), std::uint64_t seed) {
    emulator::reseed(seed);
    const DeviceArray<T> result(std::vector<T>(blocks, 0));
    const std::string report = emulator::find_race([&] {
        launch_kernel(kernel, {blocks, threads, (threads + 32) * sizeof(double)}, result.data());
    });
    if (report.empty()) CHECK(result.download() == std::vector<T>(blocks, T(threads)));
    return report;
}

void check_report(const std::string& report) {
    CAPTURE(report);
    CHECK(report.starts_with("race: warp-synchronous code: volatile write by thread ("));
    CHECK(report.find("\n  not ordered behind volatile read by thread (") != report.npos);
    CHECK(report.find("\n  missing    __syncwarp() between the steps: ") != report.npos);
    CHECK(report.find("since Volta") != report.npos);
    const std::string file = "warp_synchronous.cu:";
    const std::size_t first = report.find(file), second = report.find(file, first + 1);
    CHECK(first < report.find('\n'));
    CHECK(second < report.find("\n  missing"));
}

template <class T>
void check_reported(void (*kernel)(T*), const std::string& name) {
    CAPTURE(name);
    for (int i = 0; i < orders; ++i) check_report(look_for_race(kernel, test_seed() + std::uint64_t(i)));
}

/// Of two lanes alone, and where only what is larger is stored, it depends on the order whether one reads before the other one
/// has stored.
template <class T>
void check_reported_by_some(void (*kernel)(T*), const std::string& name) {
    CAPTURE(name);
    int reported = 0;
    for (int i = 0; i < 2 * orders; ++i) {
        const std::string report = look_for_race(kernel, test_seed() + std::uint64_t(i));
        if (report.empty()) continue;
        ++reported;
        check_report(report);
    }
    CHECK(reported > 0);
}

template <class T>
void check_silent(void (*kernel)(T*), const std::string& name) {
    CAPTURE(name);
    for (int i = 0; i < orders; ++i) CHECK(look_for_race(kernel, test_seed() + std::uint64_t(i)) == "");
}

TEST_CASE("warp-synchronous code is a race") {
#define REPORTED(...) check_reported(__VA_ARGS__, #__VA_ARGS__)
    REPORTED(reduce<Lanes::in_step, float>);
    REPORTED(reduce<Lanes::in_step, int>);
    REPORTED(reduce<Lanes::in_step, double>);
    REPORTED(reduce_of<Lanes::in_step, float, 64>);
    REPORTED(reduce_of<Lanes::in_step, int, 64>);
    REPORTED(reduce_in_loop<Lanes::in_step, float>);
    REPORTED(reduce_in_loop<Lanes::in_step, int>);
    check_reported_by_some(largest<Lanes::in_step, float>, "largest");
    check_reported_by_some(last_step<Lanes::in_step, int>, "last_step");
    REPORTED(scan<Lanes::in_step, float>);
    REPORTED(scan_in_step<Lanes::in_step, float>);
    REPORTED(scan_in_step<Lanes::in_step, int>);
    REPORTED(scan_by_turns<Lanes::in_step, int>);
    REPORTED(exchange<Lanes::in_step, float>);
    REPORTED(exchange<Lanes::in_step, int>);
}

TEST_CASE("warp-synchronous code: with __syncwarp() it is no race") {
#define SILENT(...) check_silent(__VA_ARGS__, #__VA_ARGS__)
    SILENT(reduce<Lanes::synchronized, float>);
    SILENT(reduce<Lanes::synchronized, int>);
    SILENT(reduce<Lanes::synchronized, double>);
    SILENT(reduce_of<Lanes::synchronized, float, 64>);
    SILENT(reduce_in_loop<Lanes::synchronized, float>);
    SILENT(largest<Lanes::synchronized, float>);
    SILENT(last_step<Lanes::synchronized, float>);
    SILENT(scan<Lanes::synchronized, float>);
    SILENT(scan_in_step<Lanes::synchronized, float>);
    SILENT(scan_by_turns<Lanes::synchronized, int>);
    SILENT(exchange<Lanes::synchronized, float>);
}

TEST_CASE("warp-synchronous code: volatile flags are none") {
    SILENT(wait_for_warp);
    SILENT(wait_in_turn);
    SILENT(wait_for_each_other);
    SILENT(wait_for_neighbour);
    SILENT(wait_for_neighbour_once);
    SILENT(gather);
    SILENT(wait_for_lane_before);
    SILENT(look_back);
    SILENT(produce_and_consume<1>);
    SILENT(produce_and_consume<32>);
    SILENT(search);
    SILENT(say_once);
    SILENT(send);
    SILENT(lock);
    SILENT(spread);
    SILENT(between_warps);
}

TEST_CASE("warp-synchronous code: nor are flags of blocks in global memory") {
    for (int i = 0; i < orders; ++i) {
        emulator::reseed(test_seed() + std::uint64_t(i));
        const DeviceArray<int> sums(std::vector<int>(blocks, 0)), ready(std::vector<int>(blocks, 0)), result(blocks);
        CHECK(emulator::find_race([&] {
                  launch_kernel(look_back_between_blocks, {blocks, threads}, sums.data(), ready.data(), result.data());
              }) == "");
        CHECK(sums.download().back() == int(blocks * threads));
    }
}

}  // namespace
}  // namespace flashladder
