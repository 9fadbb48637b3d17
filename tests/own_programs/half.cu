// Half precision and bfloat16 in plain CUDA: a dot product of pairs, a softmax, atomics, shuffles, conversions.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cassert>
#include <cmath>
#include <cstdio>
#include <cstring>

/// One block: the sum of x[i] y[i] in half precision, two elements at a time. With "broken" nobody waits for the sums
/// of the warps.
__global__ void dot(const __half2* x, const __half2* y, int pairs, float* result, bool broken) {
    __shared__ half sums[32];
    half2 sum = __float2half2_rn(0.f);
    for (int i = threadIdx.x; i < pairs; i += blockDim.x) sum = __hfma2(x[i], y[i], sum);
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffff, sum, lanes);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = __low2half(sum) + __high2half(sum);
    if (!broken) __syncthreads();
    if (threadIdx.x == 0) {
        half all = 0;
        for (int warp = 0; warp < blockDim.x / 32; ++warp) all += sums[warp];
        *result = __half2float(all);
    }
}

/// A row of 32 numbers by one warp.
template <class T>
__global__ void softmax(T* row) {
    const T x = row[threadIdx.x];
    T largest = x;
    for (int lanes = 1; lanes < 32; lanes *= 2) largest = __hmax(largest, __shfl_xor_sync(0xffffffff, largest, lanes));
    const T weight = hexp(x - largest);
    T sum = weight;
    for (int lanes = 1; lanes < 32; lanes *= 2) sum += __shfl_xor_sync(0xffffffff, sum, lanes);
    row[threadIdx.x] = weight * hrcp(sum);
}

__global__ void add_up(half* x, half2* pairs, __nv_bfloat16* y, __nv_bfloat162* y_pairs) {
    atomicAdd(&x[threadIdx.x % 2], half(1));
    atomicAdd(pairs, __floats2half2_rn(1, 2));
    const half before = atomicAdd(&x[2], half(2));
    assert(__half2int_rn(before) % 2 == 0);
    atomicAdd(y, __float2bfloat16(1));
    atomicAdd(y_pairs, __floats2bfloat162_rn(1, -1));
}

__global__ void values() {
    const half h = 1.5f, third = __float2half(1.f / 3);
    assert(__half_as_ushort(h) == 0x3E00 && __half_as_ushort(third) == 0x3555 && __ushort_as_half(0x3E00) == h);
    assert(h * third == half(0.5f) && h + h == half(3) && -h < h && h / h == half(1) && h != third);
    assert(__half2int_rn(half(2.5f)) == 2 && __half2int_rz(half(-2.5f)) == -2 && __half2int_ru(half(2.5f)) == 3 &&
           __half2int_rd(half(-2.5f)) == -3);
    assert(__half2uint_rz(half(-1)) == 0 && __half2short_rz(half(65504)) == 32767);
    assert(__int2half_rn(2049) == half(2048) && __int2half_ru(2049) == half(2050) &&
           __int2half_rz(70000) == half(65504));
    assert(__float2half_rd(1.0001f) == half(1) && __half_as_ushort(__float2half_ru(1.0001f)) == 0x3C01);
    assert(__hfma(h, h, third) == half(2.584f) && __hadd_sat(h, h) == half(1) && __habs(-h) == h);
    assert(__hmax(h, __ushort_as_half(0x7FFF)) == h && __hisnan(__hmax_nan(h, __ushort_as_half(0x7FFF))));
    assert(__hisinf(half(65504) + half(65504)) == 1 && !__heq(h, third) && __hlt(third, h) && __hgtu(h, third));
    assert(hsqrt(half(9)) == half(3) && hrsqrt(half(4)) == half(0.5f) && hrcp(half(8)) == half(0.125f));
    assert(hexp2(half(3)) == half(8) && hlog2(half(8)) == half(3) && hfloor(h) == half(1) &&
           hrint(half(2.5f)) == half(2));
    assert(fabsf(float(hexp(half(1))) - 2.71828f) < 2e-3f && fabsf(__half2float(hlog(half(10))) - 2.30259f) < 2e-3f);

    const half2 p = __halves2half2(h, third), q = make_half2(2, 4);
    assert(__low2float(p * q) == 3 && __high2half(p) == third && __low2half2(q) == half2(2, 2));
    assert(__half22float2(__lowhigh2highlow(q)).x == 4 && __hbeq2(q, q) && __hlt2_mask(p, q) == 0xffffffffu);
    assert(__low2float(__hmax2(p, q)) == 2 && __high2float(h2sqrt(q)) == 2 && __low2float(__hneg2(q)) == -2);

    const __nv_bfloat16 b = 1.5f;
    assert(__bfloat16_as_ushort(b) == 0x3FC0 && b + b == __nv_bfloat16(3) && __bfloat162float(b * b) == 2.25f);
    assert(__bfloat162int_rz(__nv_bfloat16(-2.5f)) == -2 && __int2bfloat16_rn(257) == __nv_bfloat16(256));
    assert(__float2bfloat16_rz(1.0078f) == __nv_bfloat16(1) && __hfma(b, b, b) == __nv_bfloat16(3.75f));
    const __nv_bfloat162 d = __halves2bfloat162(b, b), e = __bfloat162bfloat162(b);
    assert(d == e && __bfloat1622float2(__hmul2(d, e)).y == 2.25f &&
           __low2bfloat16(h2exp2(__hsub2(d, e))) == __nv_bfloat16(1));
}

int main(int argc, char** argv) {
    const bool broken = argc > 1 && !strcmp(argv[1], "broken");
    const int pairs = 500;
    half2 host[pairs], *x;
    float *result, sum;
    for (int i = 0; i < pairs; ++i) host[i] = __floats2half2_rn(i % 4, 1);
    cudaMalloc(&x, sizeof host);
    cudaMalloc(&result, sizeof sum);
    cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
    dot<<<1, 128>>>(x, x, pairs, result, broken);
    cudaMemcpy(&sum, result, sizeof sum, cudaMemcpyDeviceToHost);
    if (broken) return 0;
    printf("%g\n", sum);
    assert(sum == 125 * (0 + 1 + 4 + 9) + 500);  // a half below 2048 would count by ones; 2250 is even

    half row[32], *row_on_device;
    for (int i = 0; i < 32; ++i) row[i] = i % 2 ? -10.f : 0.f;
    cudaMalloc(&row_on_device, sizeof row);
    cudaMemcpy(row_on_device, row, sizeof row, cudaMemcpyHostToDevice);
    softmax<<<1, 32>>>(row_on_device);
    cudaMemcpy(row, row_on_device, sizeof row, cudaMemcpyDeviceToHost);
    assert(fabsf(__half2float(row[0]) - 1.f / 16) < 1e-3f && __half2float(row[1]) < 1e-4f);
    softmax<<<1, 32>>>((__nv_bfloat16*)row_on_device);

    void* sums;
    cudaMalloc(&sums, 64);
    cudaMemset(sums, 0, 64);
    half* h = (half*)sums;
    add_up<<<1, 64>>>(h, (half2*)(h + 4), (__nv_bfloat16*)(h + 8), (__nv_bfloat162*)(h + 10));
    unsigned short bits[32];
    cudaMemcpy(bits, sums, 64, cudaMemcpyDeviceToHost);
    assert(bits[0] == 0x5000 && bits[1] == 0x5000 && bits[2] == 0x5800);    // 32, 32, 128
    assert(bits[4] == 0x5400 && bits[5] == 0x5800);                         // 64, 128
    assert(bits[8] == 0x4280 && bits[10] == 0x4280 && bits[11] == 0xC280);  // 64, 64, -64
    values<<<1, 1>>>();
    return cudaDeviceSynchronize() != cudaSuccess;
}
