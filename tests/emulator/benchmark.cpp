// What the emulator's parts cost: nanoseconds each, the best of several runs. Build the target emulator-benchmark.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include "../ptx/kernels.h"
#include "device_array.h"
#include "emulator/counters.h"
#include "launch.h"
#include "ptx/fence.h"
#include "ptx/ldmatrix.h"
#include "ptx/mma.h"
#include "ptx/named_barrier.h"
#include "ptx/wgmma.h"

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

__global__ void named_barriers(int* result) {
    for (int i = 0; i < rounds; ++i) ptx::named_barrier_sync(1, threads);
    result[threadIdx.x] = 0;
}
__global__ void matrix_loads(int* result) {
    auto* tile = dynamic_shared<uint4>();
    if (threadIdx.x < 32) tile[threadIdx.x] = {1, 2, 3, 4};
    __syncthreads();
    std::uint32_t x[4];
    for (int i = 0; i < rounds; ++i) ptx::ldmatrix(x, &tile[threadIdx.x % 32]);
    result[threadIdx.x] = int(x[0]);
}
__global__ void matrix_products(int* result) {
    float d[4] = {};
    const std::uint32_t a[4] = {}, b[2] = {};
    for (int i = 0; i < rounds; ++i) ptx::mma_m16n8k16<__nv_bfloat16>(d, a, b);
    result[threadIdx.x] = int(d[0]);
}

constexpr unsigned wgmma_bytes = 32768;

template <int n, bool a_in_registers>
__global__ void warpgroup_products(int* result) {
    auto* tile = dynamic_shared<uint4>();
    for (unsigned i = threadIdx.x; i < wgmma_bytes / sizeof(uint4); i += threads) tile[i] = {};
    ptx::fence_proxy_async();
    __syncthreads();
    const ptx::Descriptor b = ptx::matrix_descriptor(tile, 16, 1024, ptx::Swizzle::bytes_128);
    const std::uint32_t a[4] = {};
    float d[n / 2] = {};
    for (int i = 0; i < rounds; i += 4) {
        ptx::wgmma_fence(d);
        for (int k = 0; k < 4; ++k)
            if constexpr (a_in_registers)
                ptx::wgmma<__nv_bfloat16>(d, a, b, true);
            else
                ptx::wgmma<__nv_bfloat16>(d, b, b, true);
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>(d);
    }
    result[threadIdx.x] = int(d[0]);
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
__global__ void global_reads(int* result) { result[threads + threadIdx.x] = read_all(result); }
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

/// Batch 1, 2 heads, head dimension 128, by TMA and wgmma.
void run_attention(int N) {
    const Bits16 x(std::size_t(2 * N) * attention_head_dim, 0x3F80);  // ones
    attend(x, x, x, 1, 2, N, 0.1f);
}

void print(const char* what, double nanoseconds) { std::printf("%-58s %10.1f ns\n", what, nanoseconds); }

void print_all() {
    const DeviceArray<int> result(2 * threads);
    const auto launch = [&](void (*kernel)(int*), unsigned blocks = 1) {
        return best_nanoseconds([&] { launch_kernel(kernel, {blocks, threads, wgmma_bytes}, result.data()); });
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
    print("named barrier of 128 threads", threads * each(named_barriers));
    print("ldmatrix x4, per warp", 32 * each(matrix_loads));
    print("mma m16n8k16, per warp", 32 * each(matrix_products));
    // With a fence, a commit and a wait for each four.
    print("wgmma m64n64k16, per warpgroup", threads * each(warpgroup_products<64, false>));
    print("wgmma m64n128k16, per warpgroup", threads * each(warpgroup_products<128, false>));
    print("wgmma m64n128k16, A in registers, per warpgroup", threads * each(warpgroup_products<128, true>));
    for (const int N : {256, 512, 1024}) {
        const std::string name = "attention, 2 heads, d 128, N " + std::to_string(N);
        print(name.c_str(), best_nanoseconds([N] { run_attention(N); }));
        print((name + ", counted").c_str(), best_nanoseconds([N] { emulator::count_work([N] { run_attention(N); }); }));
    }
    print("atomicAdd", each(atomics));
    print("read of device memory", each(global_reads));
    print("read of static shared memory", each(static_shared_reads));
    print("read of dynamic shared memory", each(dynamic_shared_reads));
    double counted_reads = 0;
    emulator::count_work([&] { counted_reads = each(dynamic_shared_reads); });
    print("read of dynamic shared memory, counted", counted_reads);
    print("read of a constant", each(constant_reads));
    print("threadIdx", each(indices));
}

}  // namespace
}  // namespace flashladder

int main() { flashladder::print_all(); }
