// What the emulator's parts cost: nanoseconds each, the best of several runs; as they are, while work is counted, and
// while races are looked for, which should take at most three times as long as counting. Build the target
// emulator-benchmark.
//   emulator-benchmark [WORDS]        all, or those in whose name the words are
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <string>

#include "../ptx/kernels.h"
#include "device_array.h"
#include "emulator/counters.h"
#include "emulator/emulator.h"
#include "harness/run.h"
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

/// Of the processor, so that what else runs on it counts for little.
double nanoseconds() {
    timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return double(time.tv_sec) * 1e9 + double(time.tv_nsec);
}

double best_nanoseconds(const auto& launch, int runs = 7) {
    double best = 1e30;
    for (int run = 0; run < runs; ++run) {
        const double start = nanoseconds();
        launch();
        best = std::min(best, nanoseconds() - start);
    }
    return best;
}

/// Of the same launches: nothing asked for, their work counted, races looked for.
struct Costs {
    double plain, counted, races;
};
Costs costs(const auto& launch, int runs = 7) {
    Costs c;
    c.plain = best_nanoseconds(launch, runs);
    emulator::count_work([&] { c.counted = best_nanoseconds(launch, runs); });
    const std::string report = emulator::find_race([&] { c.races = best_nanoseconds(launch, runs); });
    if (!report.empty()) std::printf("%s\n", report.c_str());
    return c;
}

std::string wanted;  // words of what is to be measured

/// `times` is how often one launch does what is measured.
void print(const std::string& what, const auto& launch, double times = 1, int runs = 7) {
    if (what.find(wanted) == std::string::npos) return;
    const Costs c = costs(launch, runs);
    std::printf("%-58s %12.1f %12.1f %12.1f %12.2f\n", what.c_str(), c.plain / times, c.counted / times,
                c.races / times, c.races / c.counted);
}

/// Batch 1, 2 heads, head dimension 128, by TMA and wgmma.
void run_attention(int N) {
    const Bits16 x(std::size_t(2 * N) * attention_head_dim, 0x3F80);  // ones
    attend(x, x, x, 1, 2, N, 0.1f);
}

void print_rungs() {
    for (const Stage& stage : stages()) {
        const Problem asked = stage.operation().problem({{"heads", 2}}, stage.dtypes().front());
        const DeviceProblem problem(stage, asked.operation->inputs(asked, 1));
        print(
            stage.name() + ", " + to_string(asked), [&] { stage.launch(problem.data()); }, 1, 3);
    }
}

void print_all() {
    const DeviceArray<int> result(2 * threads);
    std::printf("%-58s %12s %12s %12s %12s\n", "nanoseconds", "plain", "counted", "races", "races/counted");
    // Each thread does it `rounds` times; `together` do it once.
    const auto each = [&](const char* what, void (*kernel)(int*), double together = 1) {
        print(
            what,
            [&] {
                launch_kernel(kernel, {1, threads, wgmma_bytes}, result.data());
            },
            rounds * threads / together);
    };
    constexpr unsigned blocks = 1000;
    print("launch of 1 block of 1 thread", [] { launch_kernel(do_nothing, {1, 1}); });
    print("launch of 1 block of 1024 threads", [] { launch_kernel(do_nothing, {1, 1024}); });
    print(
        "a block of 128 threads, in a launch of 1000",
        [] {
            launch_kernel(do_nothing, {blocks, threads});
        },
        blocks);
    each("an empty loop", count_up);
    each("fiber switch (__syncthreads of 128 threads, per thread)", barriers);
    each("fiber switch (volatile read)", polls);
    each("warp shuffle, per warp", shuffles, 32);
    each("named barrier of 128 threads", named_barriers, threads);
    each("ldmatrix x4, per warp", matrix_loads, 32);
    each("mma m16n8k16, per warp", matrix_products, 32);
    // With a fence, a commit and a wait for each four.
    each("wgmma m64n64k16, per warpgroup", warpgroup_products<64, false>, threads);
    each("wgmma m64n128k16, per warpgroup", warpgroup_products<128, false>, threads);
    each("wgmma m64n128k16, A in registers, per warpgroup", warpgroup_products<128, true>, threads);
    each("atomicAdd", atomics);
    each("read of device memory", global_reads);
    each("read of static shared memory", static_shared_reads);
    each("read of dynamic shared memory", dynamic_shared_reads);
    each("read of a constant", constant_reads);
    each("threadIdx", indices);
    for (const int N : {256, 512, 1024})
        print(
            "attention, 2 heads, d 128, N " + std::to_string(N), [N] { run_attention(N); }, 1, 3);
    print_rungs();
}

}  // namespace
}  // namespace flashladder

int main(int argc, char** argv) {
    if (argc > 1) flashladder::wanted = argv[1];
    flashladder::print_all();
}
