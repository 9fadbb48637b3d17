// A kernel of your own on the emulator: each block adds up its numbers. `example` looks for races in it and finds none;
// `example broken` runs a version that lacks a barrier.
#include <cstdio>
#include <string>
#include <vector>

#include "emulator/emulator.h"
#include "launch.h"

using namespace flashladder;

constexpr unsigned blocks = 3, threads = 128;

template <bool broken>
__global__ void block_sums(const float* x, float* sums) {
    __shared__ float partial[threads];
    partial[threadIdx.x] = x[blockIdx.x * threads + threadIdx.x];
    __syncthreads();
    for (unsigned stride = threads / 2; stride > 0; stride /= 2) {
        if (threadIdx.x < stride) partial[threadIdx.x] += partial[threadIdx.x + stride];
        if (!broken) __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = partial[0];
}

int main(int argc, char**) {
    const std::vector<float> ones(blocks * threads, 1);
    std::vector<float> found(blocks);
    float *x, *sums;
    check_cuda(cudaMalloc(&x, blocks * threads * sizeof(float)), "x");
    check_cuda(cudaMalloc(&sums, blocks * sizeof(float)), "sums");
    check_cuda(cudaMemcpy(x, ones.data(), blocks * threads * sizeof(float), cudaMemcpyHostToDevice), "x");
    const std::string report = emulator::find_race([&] {
        launch_kernel(argc > 1 ? block_sums<true> : block_sums<false>, {blocks, threads}, x, sums);
    });
    check_cuda(cudaMemcpy(found.data(), sums, blocks * sizeof(float), cudaMemcpyDeviceToHost), "sums");
    const bool right = found == std::vector<float>(blocks, threads);
    std::puts(!report.empty() ? report.c_str() : right ? "no race" : "wrong sums");
    return report.empty() && right ? 0 : 1;
}
