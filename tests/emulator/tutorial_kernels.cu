// Kernels of the kind that every CUDA tutorial begins with, in plain CUDA C++: whoever knows them must find that they
// run on the emulator just so.
#include "tutorial_kernels.h"

#include <cmath>

#include "device_array.h"
#include "launch.h"

namespace flashladder {
namespace {

constexpr int warp = 32;
constexpr unsigned all_lanes = 0xFFFFFFFFu;

unsigned blocks_for(int n, int per_block) { return unsigned((n + per_block - 1) / per_block); }

// ---- matrix product, tile by tile through shared memory

constexpr int tile = 16;

__global__ void matmul_kernel(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ float A_smem[tile][tile];
    __shared__ float B_smem[tile][tile];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int row = blockIdx.y * tile + ty, column = blockIdx.x * tile + tx;
    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += tile) {
        A_smem[ty][tx] = row < M && k0 + tx < K ? A[row * K + k0 + tx] : 0;
        B_smem[ty][tx] = k0 + ty < K && column < N ? B[(k0 + ty) * N + column] : 0;
        __syncthreads();
        for (int k = 0; k < tile; ++k) sum += A_smem[ty][k] * B_smem[k][tx];
        __syncthreads();
    }
    if (row < M && column < N) C[row * N + column] = sum;
}

// ---- sum: a grid-stride loop, shuffles in each warp, shared memory between warps, atomics between blocks

constexpr int sum_threads = 128;

__device__ float warp_sum(float x) {
    for (int delta = warp / 2; delta > 0; delta /= 2) x += __shfl_down_sync(all_lanes, x, delta);
    return x;  // in lane 0
}

__global__ void sum_kernel(const float* x, int n, float* result) {
    __shared__ float of_warp[sum_threads / warp];
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
    sum = warp_sum(sum);
    if (threadIdx.x % warp == 0) of_warp[threadIdx.x / warp] = sum;
    __syncthreads();
    if (threadIdx.x < warp) {
        sum = warp_sum(threadIdx.x < sum_threads / warp ? of_warp[threadIdx.x] : 0);
        if (threadIdx.x == 0) atomicAdd(result, sum);
    }
}

// ---- histogram: counted in shared memory by each block, then added to the whole

constexpr int bins = 256, histogram_threads = 96;  // so that the bins are no multiple of the threads

__global__ void histogram_kernel(const unsigned char* bytes, int n, unsigned* counts) {
    __shared__ unsigned counts_smem[bins];
    for (int bin = threadIdx.x; bin < bins; bin += blockDim.x) counts_smem[bin] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&counts_smem[bytes[i]], 1u);
    __syncthreads();
    for (int bin = threadIdx.x; bin < bins; bin += blockDim.x)
        if (counts_smem[bin] > 0) atomicAdd(&counts[bin], counts_smem[bin]);
}

// ---- transpose: whole rows in and whole rows out; one column of padding, so that a column's elements lie in many
// banks

constexpr int side = 32, rows_at_once = 8;

__global__ void transpose_kernel(const float* x, float* y, int rows, int columns) {
    __shared__ float x_smem[side][side + 1];
    const int column = blockIdx.x * side + threadIdx.x, row = blockIdx.y * side + threadIdx.y;
    for (int i = 0; i < side; i += rows_at_once)
        if (row + i < rows && column < columns) x_smem[threadIdx.y + i][threadIdx.x] = x[(row + i) * columns + column];
    __syncthreads();
    const int y_column = blockIdx.y * side + threadIdx.x, y_row = blockIdx.x * side + threadIdx.y;
    for (int i = 0; i < side; i += rows_at_once)
        if (y_row + i < columns && y_column < rows)
            y[(y_row + i) * rows + y_column] = x_smem[threadIdx.x][threadIdx.y + i];
}

// ---- softmax: one block a row

constexpr int softmax_threads = 64;

/// Combines one value of each thread of the block; every thread gets the result.
template <class Combine>
__device__ float block_reduce(float x, Combine combine) {
    __shared__ float of_warp[softmax_threads / warp];
    for (int lanes = warp / 2; lanes > 0; lanes /= 2) x = combine(x, __shfl_xor_sync(all_lanes, x, lanes));
    if (threadIdx.x % warp == 0) of_warp[threadIdx.x / warp] = x;
    __syncthreads();
    x = of_warp[0];
    for (int i = 1; i < softmax_threads / warp; ++i) x = combine(x, of_warp[i]);
    __syncthreads();  // of_warp may be used again
    return x;
}

struct Maximum {
    __device__ float operator()(float x, float y) const { return fmaxf(x, y); }
};
struct Sum {
    __device__ float operator()(float x, float y) const { return x + y; }
};

__global__ void softmax_kernel(const float* x, float* y, int columns, float scale) {
    x += std::size_t(blockIdx.x) * columns;
    y += std::size_t(blockIdx.x) * columns;
    float m = -INFINITY;
    for (int j = threadIdx.x; j < columns; j += softmax_threads) m = fmaxf(m, x[j]);
    m = block_reduce(m, Maximum());
    float l = 0;
    for (int j = threadIdx.x; j < columns; j += softmax_threads) l += y[j] = exp2f(scale * (x[j] - m));
    l = block_reduce(l, Sum());
    for (int j = threadIdx.x; j < columns; j += softmax_threads) y[j] /= l;
}

}  // namespace

std::vector<float> matmul(const std::vector<float>& A, const std::vector<float>& B, int M, int N, int K) {
    const DeviceArray<float> A_device(A), B_device(B), C_device(std::size_t(M) * N);
    launch_kernel(matmul_kernel, {{blocks_for(N, tile), blocks_for(M, tile)}, {tile, tile}}, A_device.data(),
                  B_device.data(), C_device.data(), M, N, K);
    return C_device.download();
}

float sum(const std::vector<float>& x) {
    const DeviceArray<float> x_device(x), result(std::vector<float>{0});
    launch_kernel(sum_kernel, {5, sum_threads}, x_device.data(), int(x.size()), result.data());
    return result.download()[0];
}

std::vector<unsigned> histogram(const std::vector<unsigned char>& bytes) {
    const DeviceArray<unsigned char> bytes_device(bytes);
    const DeviceArray<unsigned> counts(std::vector<unsigned>(bins, 0));
    launch_kernel(histogram_kernel, {7, histogram_threads}, bytes_device.data(), int(bytes.size()), counts.data());
    return counts.download();
}

std::vector<float> transpose(const std::vector<float>& x, int rows, int columns) {
    const DeviceArray<float> x_device(x), y_device(x.size());
    launch_kernel(transpose_kernel, {{blocks_for(columns, side), blocks_for(rows, side)}, {side, rows_at_once}},
                  x_device.data(), y_device.data(), rows, columns);
    return y_device.download();
}

std::vector<float> softmax(const std::vector<float>& x, int rows, int columns, float scale) {
    const DeviceArray<float> x_device(x), y_device(x.size());
    launch_kernel(softmax_kernel, {unsigned(rows), softmax_threads}, x_device.data(), y_device.data(), columns, scale);
    return y_device.download();
}

}  // namespace flashladder
