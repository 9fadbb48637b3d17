// Each block adds up its numbers. Plain CUDA, as nvcc takes it; without a GPU:
//   ./ladder check docs/example/block_sums.cu              no race
//   ./ladder check docs/example/block_sums.cu -- broken    the report of a kernel that lacks a barrier
#include <cstdio>
#include <vector>

constexpr int blocks = 3, threads = 128;

template <bool broken>
__global__ void block_sums(const float* x, float* sums) {
    extern __shared__ float partial[];
    partial[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (threadIdx.x < stride) partial[threadIdx.x] += partial[threadIdx.x + stride];
        if (!broken) __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = partial[0];
}

int main(int argc, char**) {
    const std::vector<float> ones(blocks * threads, 1);
    std::vector<float> found(blocks);
    float *x, *sums;
    cudaMalloc(&x, ones.size() * sizeof(float));
    cudaMalloc(&sums, blocks * sizeof(float));
    cudaMemcpy(x, ones.data(), ones.size() * sizeof(float), cudaMemcpyHostToDevice);
    if (argc > 1)
        block_sums<true><<<blocks, threads, threads * sizeof(float)>>>(x, sums);
    else
        block_sums<false><<<blocks, threads, threads * sizeof(float)>>>(x, sums);
    cudaMemcpy(found.data(), sums, blocks * sizeof(float), cudaMemcpyDeviceToHost);
    std::printf("the first sum is %g\n", found[0]);
    return found == std::vector<float>(blocks, threads) ? 0 : 1;
}
