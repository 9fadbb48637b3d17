// Functions of the runtime API, in plain CUDA.
#include <cuda_profiler_api.h>
#include <device_launch_parameters.h>

#include <cassert>
#include <cstring>

__global__ void twice(float* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2;
}
__global__ void rows(float* x, size_t pitch) { ((float*)((char*)x + blockIdx.x * pitch))[threadIdx.x] += threadIdx.x; }

int main() {
    float *managed, *pinned, *mapped, *device;
    assert(cudaMallocManaged(&managed, 100 * sizeof(float)) == cudaSuccess);
    for (int i = 0; i < 100; ++i) managed[i] = i;
    assert(cudaMallocHost(&pinned, 100 * sizeof(float)) == cudaSuccess);
    assert(cudaHostAlloc(&mapped, 100 * sizeof(float), cudaHostAllocMapped) == cudaSuccess);
    twice<<<4, 32>>>(managed, 100);
    assert(cudaDeviceSynchronize() == cudaSuccess && managed[99] == 198);
    memset(mapped, 0, 100 * sizeof(float));
    cudaHostGetDevicePointer(&device, mapped, 0);
    twice<<<4, 32>>>(device, 100);
    assert(cudaMemcpy(pinned, managed, 400, cudaMemcpyDeviceToHost) == cudaSuccess && pinned[50] == 100);
    assert(cudaMemcpy(managed, mapped, 400, cudaMemcpyHostToDevice) == cudaSuccess && managed[50] == 0);
    assert(cudaFreeHost(pinned) == cudaSuccess && cudaFreeHost(mapped) == cudaSuccess &&
           cudaFree(managed) == cudaSuccess);

    float host[3][5] = {}, *pitched;
    size_t pitch;
    assert(cudaMallocPitch(&pitched, &pitch, 5 * sizeof(float), 3) == cudaSuccess && pitch >= 20 && pitch % 256 == 0);
    assert(cudaMemcpy2D(pitched, pitch, host, 20, 20, 3, cudaMemcpyHostToDevice) == cudaSuccess);
    rows<<<3, 5>>>(pitched, pitch);
    assert(cudaMemcpy2D(host, 20, pitched, pitch, 20, 3, cudaMemcpyDeviceToHost) == cudaSuccess && host[2][4] == 4);
    assert(cudaMemset2D(pitched, pitch, 0, 20, 3) == cudaSuccess && cudaFree(pitched) == cudaSuccess);

    cudaStream_t stream;
    cudaEvent_t event;
    assert(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
           cudaStreamQuery(stream) == cudaSuccess);
    assert(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess &&
           cudaEventQuery(event) == cudaSuccess);
    assert(cudaMallocAsync(&device, 400, stream) == cudaSuccess);
    cudaMemsetAsync(device, 0, 400, stream);
    int n = 100;
    void* arguments[] = {&device, &n};
    assert(cudaLaunchKernel((const void*)twice, dim3(4), dim3(32), arguments, 0, stream) == cudaSuccess);
    assert(cudaFreeAsync(device, stream) == cudaSuccess);

    int blocks, grid, block;
    assert(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, twice, 256, 0) == cudaSuccess && blocks == 8);
    assert(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, twice, 64, 0) == cudaSuccess && blocks == 32);
    assert(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, twice, 64, 48 << 10) == cudaSuccess && blocks == 4);
    assert(cudaOccupancyMaxPotentialBlockSize(&grid, &block, twice, 0, 512) == cudaSuccess && block <= 512 &&
           grid >= 4);
    cudaFuncAttributes attributes;
    assert(cudaFuncGetAttributes(&attributes, twice) == cudaSuccess && attributes.maxThreadsPerBlock == 1024);
    cudaDeviceProp properties;
    assert(cudaGetDeviceProperties(&properties, 0) == cudaSuccess && properties.maxThreadsPerMultiProcessor == 2048);
    cudaFuncSetCacheConfig(twice, cudaFuncCachePreferL1);
    cudaDeviceSetCacheConfig(cudaFuncCachePreferShared);
    cudaProfilerStart();
    cudaProfilerStop();
    enum cudaError error = cudaGetLastError();
    return error != cudaSuccess;
}
