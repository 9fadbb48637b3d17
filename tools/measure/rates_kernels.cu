#include "rates_kernels.h"

#include <cuda_bf16.h>
#include <algorithm>

#include "harness/run.h"
#include "launch.h"
#include "ptx/ex2.h"
#include "ptx/fence.h"
#include "ptx/mma.h"
#include "ptx/tma.h"
#include "ptx/wgmma.h"

namespace flashladder {

namespace {

// ---- instructions

/// Takes the clocks of `work`, of all threads of a block.
template <class Work>
__device__ __forceinline__ void clock_it(long long* clocks, const Work& work) {
    __syncthreads();
    const long long begin = clock64();
    work();
    __syncthreads();
    if (threadIdx.x == 0) clocks[blockIdx.x] = clock64() - begin;
}
/// A sum that nobody needs, and nvcc cannot know it.
template <int n>
__device__ __forceinline__ void keep(const float (&values)[n], float* out) {
    float sum = 0;
    for (const float x : values) sum += x;
    if (sum == 12345) *out = sum;
}

constexpr int mma_threads = 512, mma_iterations = 1024, mma_chains = 8;
__global__ void __launch_bounds__(mma_threads) mma_kernel(long long* clocks, float* out) {
    float d[mma_chains][4] = {};
    const std::uint32_t a[4] = {threadIdx.x >> 9, threadIdx.x >> 10, threadIdx.x >> 11, threadIdx.x >> 12};  // 0
    const std::uint32_t b[2] = {threadIdx.x >> 9, threadIdx.x >> 10};
    clock_it(clocks, [&] {
#pragma unroll 4
        for (int i = 0; i < mma_iterations; ++i)
#pragma unroll
            for (int chain = 0; chain < mma_chains; ++chain) ptx::mma_m16n8k16<__nv_bfloat16>(d[chain], a, b);
    });
    for (int chain = 0; chain < mma_chains; ++chain) keep(d[chain], out);
}

constexpr int ex2_threads = 512, ex2_iterations = 1024, ex2_chains = 4;
__global__ void __launch_bounds__(ex2_threads) ex2_kernel(long long* clocks, float* out) {
    float x[ex2_chains];
    for (int chain = 0; chain < ex2_chains; ++chain) x[chain] = float(threadIdx.x) / 1024;
    clock_it(clocks, [&] {
#pragma unroll 8
        for (int i = 0; i < ex2_iterations; ++i)
#pragma unroll
            for (int chain = 0; chain < ex2_chains; ++chain) x[chain] = ptx::ex2_approx(x[chain]);
    });
    keep(x, out);
}

constexpr int wgmma_iterations = 256, wgmma_steps = 4;  // of 16 columns each
/// Every warpgroup multiplies (64, 64) by (64, n). The tiles are zeros, in whose place it does not matter.
template <int n, bool a_in_registers>
__global__ void __launch_bounds__(256) wgmma_kernel(long long* clocks, float* out) {
    __shared__ alignas(1024) char A[64 * 128];
    __shared__ alignas(1024) char B[n * 128];
    for (unsigned i = threadIdx.x; i < sizeof A; i += blockDim.x) A[i] = 0;
    for (unsigned i = threadIdx.x; i < sizeof B; i += blockDim.x) B[i] = 0;
    ptx::fence_proxy_async();
    __syncthreads();
    const auto a = ptx::matrix_descriptor(A, 16, 1024, ptx::Swizzle::bytes_128),
               b = ptx::matrix_descriptor(B, 16, 1024, ptx::Swizzle::bytes_128);
    const std::uint32_t fragment[4] = {threadIdx.x >> 9, threadIdx.x >> 10, threadIdx.x >> 11, threadIdx.x >> 12};
    float d[n / 2] = {};
    clock_it(clocks, [&] {
        ptx::wgmma_fence(d);
#pragma unroll 1
        for (int i = 0; i < wgmma_iterations; ++i) {
#pragma unroll
            for (int step = 0; step < wgmma_steps; ++step)
                if constexpr (a_in_registers)
                    ptx::wgmma<__nv_bfloat16>(d, fragment, b + step * 32, true);
                else
                    ptx::wgmma<__nv_bfloat16>(d, a + step * 32, b + step * 32, true);
            ptx::wgmma_commit();
        }
        ptx::wgmma_wait<0>(d);
    });
    keep(d, out);
}

/// What a multiprocessor does in a clock, if each block does `work`; the median of the blocks, of the second launch.
double in_a_clock(void (*kernel)(long long*, float*), int threads, double work) {
    const int blocks = device_attribute(cudaDevAttrMultiProcessorCount);
    DeviceBuffer clocks(sizeof(long long) * std::size_t(blocks)), out(sizeof(float));
    for (int i = 0; i < 2; ++i)
        kernel<<<blocks, threads>>>(static_cast<long long*>(clocks.data()), static_cast<float*>(out.data()));
    check_cuda(cudaDeviceSynchronize(), "measuring a rate");
    std::vector<long long> taken(static_cast<std::size_t>(blocks));
    check_cuda(cudaMemcpy(taken.data(), clocks.data(), sizeof(long long) * taken.size(), cudaMemcpyDeviceToHost),
               "reading clocks");
    std::ranges::sort(taken);
    return work / double(taken[taken.size() / 2]);
}

template <int n>
void add_wgmma(std::vector<Rate>& rates) {
    for (const int warpgroups : {1, 2}) {
        const double work = 2.0 * 64 * n * 16 * wgmma_steps * wgmma_iterations * warpgroups;
        const std::string what = "wgmma.m64n" + std::to_string(n) + "k16";
        const std::string how = warpgroups == 1 ? "1 warpgroup" : "2 warpgroups";
        rates.push_back({what, "A in shared memory, " + how, in_a_clock(wgmma_kernel<n, false>, 128 * warpgroups, work),
                         "operations/clock"});
        rates.push_back({what, "A in registers, " + how, in_a_clock(wgmma_kernel<n, true>, 128 * warpgroups, work),
                         "operations/clock"});
    }
}

// ---- adds

constexpr int add_threads = 128;

/// Each block sends its pieces one after the other, two under way, each block and each time to another place.
template <Way way>
__global__ void __launch_bounds__(add_threads) add_kernel(float* target, int places, int pieces) {
    __shared__ alignas(128) float values[piece / sizeof(float)];
    for (unsigned i = threadIdx.x; i < piece / sizeof(float); i += blockDim.x) values[i] = 0;
    ptx::fence_proxy_async();
    __syncthreads();
    for (int i = 0; i < pieces; ++i) {
        float* to = target + std::size_t(blockIdx.x + i * gridDim.x) % places * (piece / sizeof(float));
        if constexpr (way == Way::atomics) {
            for (unsigned x = threadIdx.x; x < piece / sizeof(float4); x += blockDim.x)
                atomicAdd(reinterpret_cast<float4*>(to) + x, reinterpret_cast<const float4*>(values)[x]);
        } else if (threadIdx.x == 0) {
            if constexpr (way == Way::bulk_add) ptx::bulk_reduce_add(to, values, piece);
            if constexpr (way == Way::bulk_store) ptx::bulk_store(to, values, piece);
            ptx::bulk_commit();
            ptx::bulk_wait_read<1>();
        }
    }
    if (way != Way::atomics && threadIdx.x == 0) ptx::bulk_wait<0>();
}

}  // namespace

std::vector<Rate> instruction_rates() {
    std::vector<Rate> rates;
    rates.push_back(
        {"mma.m16n8k16", "16 warps",
         in_a_clock(mma_kernel, mma_threads, 2.0 * 16 * 8 * 16 * mma_chains * mma_iterations * mma_threads / 32),
         "operations/clock"});
    add_wgmma<64>(rates);
    add_wgmma<128>(rates);
    add_wgmma<256>(rates);
    rates.push_back({"ex2", "16 warps",
                     in_a_clock(ex2_kernel, ex2_threads, double(ex2_chains) * ex2_iterations * ex2_threads),
                     "operations/clock"});
    return rates;
}

void launch_adds(Way way, float* target, int places, int blocks, int pieces, cudaStream_t stream) {
    const auto kernel = way == Way::bulk_add     ? add_kernel<Way::bulk_add>
                        : way == Way::bulk_store ? add_kernel<Way::bulk_store>
                                                 : add_kernel<Way::atomics>;
    kernel<<<blocks, add_threads, 0, stream>>>(target, places, pieces);
    check_cuda(cudaGetLastError(), "adding");
}

}  // namespace flashladder
