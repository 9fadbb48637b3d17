// Random numbers of cuRAND's Philox generator in plain CUDA: a Monte Carlo sum, dropout that is the same whatever the
// grid, and normal numbers.
#include <curand_kernel.h>

#include <cassert>
#include <cmath>
#include <cstdio>

__global__ void prepare(curandStatePhilox4_32_10_t* states, unsigned long long seed) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    curand_init(seed, i, 0, &states[i]);
}

/// How many of the points lie in the quarter of a circle.
__global__ void quarter(curandStatePhilox4_32_10_t* states, int points, unsigned* inside) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    curandStatePhilox4_32_10_t state = states[i];
    unsigned n = 0;
    for (int j = 0; j < points; ++j) {
        const float x = curand_uniform(&state), y = curand_uniform(&state);
        assert(x > 0 && x <= 1);
        n += x * x + y * y <= 1;
    }
    states[i] = state;
    atomicAdd(inside, n);
}

/// Four elements a thread, by the number of the element alone.
__global__ void dropout(float* x, int n, float rate, unsigned long long seed) {
    for (int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x); i < n; i += 4 * gridDim.x * blockDim.x) {
        curandStatePhilox4_32_10_t state;
        curand_init(seed, 0, i, &state);
        const float4 u = curand_uniform4(&state);
        const float keep[] = {u.x, u.y, u.z, u.w};
        for (int j = 0; j < 4 && i + j < n; ++j) x[i + j] = keep[j] > rate ? x[i + j] / (1 - rate) : 0;
    }
}

__global__ void normal(float* x, int n) {
    curandStatePhilox4_32_10_t state;
    curand_init(1, threadIdx.x, 0, &state);
    for (int i = threadIdx.x * 4; i < n; i += blockDim.x * 4) *(float4*)&x[i] = curand_normal4(&state);
}

__global__ void known() {
    curandStatePhilox4_32_10_t state;
    curand_init(1234, 5, 6, &state);
    assert(curand(&state) == 0x32773955 && curand(&state) == 0x72c26332);
    skipahead(3, &state);
    const uint4 four = curand4(&state);
    assert(four.x == 0xd1e85602 && four.w == 0x52a90f84);
    const double2 two = curand_uniform2_double(&state);
    assert(two.x > 0 && two.x < 1 && curand_uniform_double(&state) <= 1);
}

int main() {
    const int threads = 128, points = 50, n = 4001;
    curandStatePhilox4_32_10_t* states;
    unsigned *inside, count;
    cudaMalloc(&states, threads * sizeof *states);
    cudaMalloc(&inside, sizeof count);
    cudaMemset(inside, 0, sizeof count);
    prepare<<<2, threads / 2>>>(states, 42);
    quarter<<<2, threads / 2>>>(states, points, inside);
    quarter<<<2, threads / 2>>>(states, points, inside);
    cudaMemcpy(&count, inside, sizeof count, cudaMemcpyDeviceToHost);
    const double pi = 4. * count / (2 * threads * points);
    printf("pi is about %.3f\n", pi);
    assert(fabs(pi - 3.14159) < 0.06);

    static float a[n], b[n];
    float* x;
    cudaMalloc(&x, (n + 3) * sizeof *x);
    for (int grid : {1, 3}) {
        for (int i = 0; i < n; ++i) a[i] = 1;
        cudaMemcpy(x, a, sizeof a, cudaMemcpyHostToDevice);
        dropout<<<grid, 64>>>(x, n, 0.25f, 7);
        cudaMemcpy(grid == 1 ? b : a, x, sizeof a, cudaMemcpyDeviceToHost);
    }
    int kept = 0;
    for (int i = 0; i < n; ++i) assert(a[i] == b[i]), kept += a[i] != 0;
    assert(abs(kept - 3 * n / 4) < 100);

    normal<<<1, 64>>>(x, n);
    cudaMemcpy(a, x, sizeof a, cudaMemcpyDeviceToHost);
    double sum = 0, squares = 0;
    for (float value : a) sum += value, squares += double(value) * value;
    assert(fabs(sum / n) < 0.06 && fabs(squares / n - 1) < 0.1);
    known<<<1, 1>>>();
    return cudaDeviceSynchronize() != cudaSuccess;
}
