// In which order do the tensor cores serve warpgroups that have begun products one after the other?
// nvcc -std=c++20 -O3 -arch=sm_90a -DFLASHLADDER_GPU -Icommon order.cu
#include <cstdio>
#include <cuda_bf16.h>
#include "ptx/fence.h"
#include "ptx/named_barrier.h"
#include "ptx/wgmma.h"
#include "ptx/ex2.h"
using namespace flashladder;
template <int n, bool in_registers, int groups, bool turns>
__global__ void __launch_bounds__(512) order(long long* out, float* sink) {
    extern __shared__ __align__(1024) char raw[];
    char* A = raw + (1024 - (unsigned long long)raw % 1024) % 1024;
    char* B = A + 4 * 64 * 128;
    for (unsigned i = threadIdx.x; i < 4 * 64 * 128 + n * 128; i += blockDim.x) A[i] = 0;
    ptx::fence_proxy_async();
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    const auto a = ptx::matrix_descriptor(A + group * 64 * 128, 16, 1024, ptx::Swizzle::bytes_128),
               b = ptx::matrix_descriptor(B, 16, 1024, ptx::Swizzle::bytes_128);
    std::uint32_t fragment[4] = {threadIdx.x >> 9, threadIdx.x >> 10, threadIdx.x >> 11, threadIdx.x >> 12};
    float d[n / 2] = {};
    long long begun[8], done[8], start[8];
    for (int round = 0; round < 8; ++round) {
        __syncthreads();
        if (turns && group > 0) ptx::named_barrier_sync(group, 256);
        start[round] = clock64();
        ptx::wgmma_fence(d);
#pragma unroll
        for (int i = 0; i < 16; ++i)
            if constexpr (in_registers) ptx::wgmma<__nv_bfloat16>(d, fragment, b, true);
            else ptx::wgmma<__nv_bfloat16>(d, a, b, true);
        ptx::wgmma_commit();
        begun[round] = clock64();
        if (turns && group + 1 < int(blockDim.x) / 128) ptx::named_barrier_arrive(group + 1, 256);
        ptx::wgmma_wait<0>(d);
        done[round] = clock64();
    }
    if (threadIdx.x % 128 == 0)
        for (int round = 0; round < 8; ++round) {
            long long* o = out + (group * 8 + round) * 3;
            o[0] = start[round], o[1] = begun[round], o[2] = done[round];
        }
    float sum = 0;
    for (float x : d) sum += x;
    if (sum == 12345) *sink = sum;
}
template <int n, bool in_registers, int groups, bool turns>
void run(const char* name) {
    long long *out, host[4 * 8 * 3];
    float* sink;
    cudaMalloc(&out, sizeof host), cudaMalloc(&sink, 4);
    auto k = order<n, in_registers, groups, turns>;
    cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, 100000);
    k<<<1, groups * 128, 100000>>>(out, sink);
    cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost);
    printf("%-40s %s: alone %d clocks;", name, cudaGetErrorString(cudaGetLastError()), 16 * n / 2);
    for (int g = 0; g < groups; ++g) {
        const long long zero = host[7 * 3], *o = host + (g * 8 + 7) * 3;
        printf("  [%lld begun %lld done %lld]", o[0] - zero, o[1] - zero, o[2] - zero);
    }
    printf("\n");
}
// Exponentials of warps that begin at the same time: when are they done?
int main() {
    run<64, false, 1, false>("n 64 SS, 1"); run<64, true, 1, false>("n 64 RS, 1");
    run<64, false, 2, false>("n 64 SS, 2"); run<64, true, 2, false>("n 64 RS, 2");
    run<64, false, 2, true>("n 64 SS, 2, turns"); run<64, true, 2, true>("n 64 RS, 2, turns");
    run<64, false, 4, true>("n 64 SS, 4, turns"); run<64, true, 4, true>("n 64 RS, 4, turns");
    run<128, false, 2, true>("n 128 SS, 2, turns"); run<128, true, 2, true>("n 128 RS, 2, turns");
    run<128, false, 3, true>("n 128 SS, 3, turns"); run<128, true, 3, true>("n 128 RS, 3, turns");
}
