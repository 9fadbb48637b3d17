// What the emulator's parts cost: nanoseconds each, the best of several runs. Build the target emulator-benchmark.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "device_array.h"
#include "launch.h"

namespace flashladder {
namespace {

constexpr int threads = 128, rounds = 500;
constexpr unsigned all_lanes = 0xFFFFFFFFu;

__global__ void do_nothing() {}

__global__ void count_up(int* result) {
    int sum = 0;
    for (int i = 0; i < rounds; ++i) asm volatile("" : "+r"(sum));
    result[threadIdx.x] = sum;
}
__global__ void barriers(int* result) {
    for (int i = 0; i < rounds; ++i) __syncthreads();
    result[threadIdx.x] = 0;
}
__global__ void shuffles(int* result) {
    int x = threadIdx.x;
    for (int i = 0; i < rounds; ++i) x = __shfl_xor_sync(all_lanes, x, 1);
    result[threadIdx.x] = x;
}
__global__ void polls(int* result) {
    const volatile int* p = &result[threadIdx.x];
    int sum = 0;
    for (int i = 0; i < rounds; ++i) sum += *p;
    result[threadIdx.x] = sum;
}
__global__ void atomics(int* result) {
    for (int i = 0; i < rounds; ++i) atomicAdd(&result[threadIdx.x], 1);
}

/// Each element read anew: the compiler may keep nothing in a register from one round to the next.
__device__ int read_all(const int* x) {
    int sum = 0;
    for (int i = 0; i < rounds; ++i) {
        sum += x[i % 64];
        asm volatile("" : "+r"(sum) : : "memory");
    }
    return sum;
}
__global__ void global_reads(int* result) { result[threadIdx.x] = read_all(result); }
__global__ void static_shared_reads(int* result) {
    __shared__ int x[threads];
    x[threadIdx.x] = 0;
    __syncthreads();
    result[threadIdx.x] = read_all(x);
}
__global__ void dynamic_shared_reads(int* result) {
    int* x = dynamic_shared<int>();
    x[threadIdx.x] = 0;
    __syncthreads();
    result[threadIdx.x] = read_all(x);
}
__constant__ const int constants[64] = {1, 2, 3};
__global__ void constant_reads(int* result) { result[threadIdx.x] = read_all(constants); }
__global__ void indices(int* result) {
    int sum = 0;
    for (int i = 0; i < rounds; ++i) {
        sum += threadIdx.x;
        asm volatile("" : "+r"(sum) : : "memory");
    }
    result[threadIdx.x] = sum;
}

double best_nanoseconds(const auto& launch) {
    double best = 1e30;
    for (int run = 0; run < 7; ++run) {
        const auto start = std::chrono::steady_clock::now();
        launch();
        best =
            std::min(best, std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count());
    }
    return best;
}

void print(const char* what, double nanoseconds) { std::printf("%-58s %10.1f ns\n", what, nanoseconds); }

void print_all() {
    const DeviceArray<int> result(threads);
    const auto launch = [&](void (*kernel)(int*), unsigned blocks = 1) {
        return best_nanoseconds([&] {
            launch_kernel(kernel, {blocks, threads, threads * sizeof(int)}, result.data());
        });
    };
    const double loop = launch(count_up);
    // Each thread does it `rounds` times.
    const auto each = [&](void (*kernel)(int*)) { return (launch(kernel) - loop) / (rounds * threads); };

    print("launch of 1 block of 1 thread", best_nanoseconds([] { launch_kernel(do_nothing, {1, 1}); }));
    print("launch of 1 block of 1024 threads", best_nanoseconds([] { launch_kernel(do_nothing, {1, 1024}); }));
    constexpr int blocks = 1000;
    print("a block of 128 threads, in a launch of 1000", best_nanoseconds([] {
                                                             launch_kernel(do_nothing, {blocks, threads});
                                                         }) / blocks);
    print("fiber switch (__syncthreads of 128 threads, per thread)", each(barriers));
    print("fiber switch (volatile read)", each(polls));
    print("warp shuffle, per lane", each(shuffles));
    print("warp shuffle, per warp", 32 * each(shuffles));
    print("atomicAdd", each(atomics));
    print("read of device memory", each(global_reads));
    print("read of static shared memory", each(static_shared_reads));
    print("read of dynamic shared memory", each(dynamic_shared_reads));
    print("read of a constant", each(constant_reads));
    print("threadIdx", each(indices));
}

}  // namespace
}  // namespace flashladder

int main() { flashladder::print_all(); }
