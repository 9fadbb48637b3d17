// Asynchronous copies in plain CUDA, by each of the ways to wait for them: cuda::pipeline of a thread and of a block,
// with one role and with two, cuda::barrier, cooperative groups, and the primitives of C. Each kernel turns every tile
// of x round. An argument names a mistake.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda_pipeline.h>

#include <cassert>
#include <cstdio>
#include <cstring>
#include <cuda/barrier>
#include <cuda/pipeline>

#pragma nv_diag_suppress static_var_with_dynamic_init

namespace cg = cooperative_groups;

enum Mistake { none, no_wait, no_barrier, other_tile, early_release, no_release };
constexpr int threads = 64, tiles = 5, stages = 2;

/// Two tiles under way, each thread with a pipeline of its own.
__global__ void by_each_thread(const float* x, float* y, Mistake mistake) {
    __shared__ float tile[stages][threads];
    cuda::pipeline<cuda::thread_scope_thread> pipe = cuda::make_pipeline();
    const int i = threadIdx.x;
    for (int next = 0, now = 0; now < tiles; ++now) {
        for (; next < tiles && next < now + stages; ++next) {
            pipe.producer_acquire();
            cuda::memcpy_async(&tile[next % stages][i], &x[next * threads + i], sizeof(float), pipe);
            pipe.producer_commit();
        }
        if (mistake != no_wait) pipe.consumer_wait();
        if (mistake != no_barrier) __syncthreads();
        y[now * threads + i] = tile[now % stages][threads - 1 - i];
        pipe.consumer_release();
        __syncthreads();
    }
}

/// The same by the number of commits: one a round, also where there is nothing more to copy.
__global__ void by_prior(const float* x, float* y, Mistake mistake) {
    __shared__ float tile[stages][threads];
    auto pipe = cuda::make_pipeline();
    const int i = threadIdx.x;
    const auto copy = [&](int next) {
        if (next < tiles) cuda::memcpy_async(&tile[next % stages][i], &x[next * threads + i], sizeof(float), pipe);
        pipe.producer_commit();
    };
    copy(0);
    for (int now = 0; now < tiles; ++now) {
        copy(now + 1);
        if (mistake == no_wait)
            cuda::pipeline_consumer_wait_prior<2>(pipe);  // one stage too few
        else
            cuda::pipeline_consumer_wait_prior<1>(pipe);
        __syncthreads();
        y[now * threads + i] = tile[now % stages][threads - 1 - i];
        __syncthreads();
    }
}

/// The block's threads copy, and use what they have copied.
__global__ void by_the_block(const float* x, float* y, Mistake mistake) {
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, stages> state;
    extern __shared__ float4 storage[];
    float* tile = (float*)storage;
    const auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    const auto bytes = cuda::aligned_size_t<16>(threads * sizeof(float));
    for (int next = 0, now = 0; now < tiles; ++now) {
        for (; next < tiles && next < now + stages; ++next) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, tile + next % stages * threads, x + next * threads, bytes, pipe);
            pipe.producer_commit();
        }
        if (mistake != no_wait) pipe.consumer_wait();
        const int stage = (now + (mistake == other_tile)) % stages;
        y[now * threads + threadIdx.x] = tile[stage * threads + threads - 1 - threadIdx.x];
        if (mistake != no_release) pipe.consumer_release();
    }
    assert(__syncthreads_count(pipe.quit()) == 1);
}

/// One warp copies, the others use: each thread says what it does, or how many copy is said.
__global__ void by_roles(const float* x, float* y, Mistake mistake, bool counted) {
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, stages> state;
    __shared__ float tile[stages][threads];
    const auto block = cg::this_thread_block();
    const bool produces = threadIdx.x < 32;
    const auto role = produces ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
    auto pipe = counted ? cuda::make_pipeline(block, &state, 32) : cuda::make_pipeline(block, &state, role);
    for (int now = 0; now < tiles; ++now) {
        if (produces) {
            pipe.producer_acquire();
            cuda::memcpy_async(cg::tiled_partition<32>(block), tile[now % stages], x + now * threads, sizeof tile[0],
                               pipe);
            pipe.producer_commit();
        } else {
            if (mistake != no_wait) pipe.consumer_wait();
            if (mistake == early_release) pipe.consumer_release();
            const int i = threadIdx.x - 32;
            y[now * threads + i] = tile[now % stages][threads - 1 - i];
            if (mistake != early_release) pipe.consumer_release();
        }
    }
}

/// Half of the block's threads copy, and a barrier waits for them.
__global__ void by_barrier(const float* x, float* y, Mistake mistake) {
    __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
    __shared__ float tile[threads];
    const auto block = cg::this_thread_block();
    if (threadIdx.x == 0) init(&barrier, blockDim.x);
    block.sync();
    for (int now = 0; now < tiles; ++now) {
        cuda::memcpy_async(block, tile, x + now * threads, sizeof tile, barrier);
        auto token = barrier.arrive();
        if (mistake != no_wait) barrier.wait(std::move(token));
        y[now * threads + threadIdx.x] = tile[threads - 1 - threadIdx.x];
        block.sync();
    }
}

__global__ void by_groups(const float* x, float* y, Mistake mistake) {
    __shared__ float tile[stages][threads];
    const auto block = cg::this_thread_block();
    cg::memcpy_async(block, tile[0], x, sizeof tile[0]);
    for (int now = 0; now < tiles; ++now) {
        if (now + 1 < tiles) {
            cg::memcpy_async(block, tile[(now + 1) % stages], x + (now + 1) * threads, sizeof tile[0]);
            if (mistake == no_wait)
                block.sync();
            else
                cg::wait_prior<1>(block);
        } else {
            cg::wait(block);
        }
        y[now * threads + threadIdx.x] = tile[now % stages][threads - 1 - threadIdx.x];
        block.sync();
    }
}

/// 16 bytes at a time; the last ones are 0 instead of what is there.
__global__ void by_primitives(const float* x, float* y, int n, Mistake mistake) {
    __shared__ __align__(16) float tile[stages][threads];
    const int i = 4 * threadIdx.x;
    const auto copy = [&](int next) {
        const int left = n - next * threads - i;
        if (next < tiles && i < threads)
            __pipeline_memcpy_async(&tile[next % stages][i], &x[next * threads + i], 16,
                                    left >= 4   ? 0
                                    : left <= 0 ? 16
                                                : 16 - 4 * left);
        __pipeline_commit();
    };
    copy(0);
    for (int now = 0; now < tiles; ++now) {
        copy(now + 1);
        if (mistake != no_wait) __pipeline_wait_prior(1);
        if (mistake != no_barrier) __syncthreads();
        y[now * threads + threadIdx.x] = tile[now % stages][threads - 1 - threadIdx.x];
        __syncthreads();
    }
}

/// The barrier of C.
__global__ void by_arrival(const float* x, float* y, Mistake mistake) {
    __shared__ __mbarrier_t barrier;
    __shared__ float tile[threads];
    if (threadIdx.x == 0) __mbarrier_init(&barrier, threads);
    __syncthreads();
    for (int now = 0; now < tiles; ++now) {
        __pipeline_memcpy_async(&tile[threadIdx.x], &x[now * threads + threadIdx.x], 4);
        if (mistake != no_wait) __pipeline_arrive_on(&barrier);
        const __mbarrier_token_t token = __mbarrier_arrive(&barrier);
        while (!__mbarrier_test_wait(&barrier, token)) {
        }
        y[now * threads + threadIdx.x] = tile[threads - 1 - threadIdx.x];
        __syncthreads();
    }
}

int main(int argc, char** argv) {
    const char* names[] = {"none", "no_wait", "no_barrier", "other_tile", "early_release", "no_release"};
    int mistake = 0;
    for (int i = 1; argc > 1 && i < 6; ++i)
        if (!strcmp(argv[1], names[i])) mistake = i;
    constexpr int n = tiles * threads, known = n - 3;
    float host[n], *x, *y;
    for (int i = 0; i < n; ++i) host[i] = i + 1;
    cudaMalloc(&x, sizeof host);
    cudaMalloc(&y, sizeof host);
    cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
    const auto check = [&](const char* name, auto launch, int known = tiles * threads) {
        cudaMemset(y, 0, sizeof host);
        launch(Mistake(mistake));
        cudaMemcpy(host, y, sizeof host, cudaMemcpyDeviceToHost);
        for (int i = 0; mistake == none && i < n; ++i) {
            const int from = i / threads * threads + threads - 1 - i % threads;
            assert(host[i] == (from < known ? from + 1 : 0));
        }
        printf("%s\n", name);
    };
    check("by_each_thread", [&](Mistake m) { by_each_thread<<<1, threads>>>(x, y, m); });
    check("by_prior", [&](Mistake m) { by_prior<<<1, threads>>>(x, y, m); });
    check("by_the_block", [&](Mistake m) { by_the_block<<<1, threads, stages * threads * sizeof(float)>>>(x, y, m); });
    check("by_roles", [&](Mistake m) { by_roles<<<1, 32 + threads>>>(x, y, m, false); });
    check("by_roles, counted", [&](Mistake m) { by_roles<<<1, 32 + threads>>>(x, y, m, true); });
    check("by_barrier", [&](Mistake m) { by_barrier<<<1, threads>>>(x, y, m); });
    check("by_groups", [&](Mistake m) { by_groups<<<1, threads>>>(x, y, m); });
    check(
        "by_primitives", [&](Mistake m) { by_primitives<<<1, threads>>>(x, y, known, m); }, known);
    check("by_arrival", [&](Mistake m) { by_arrival<<<1, threads>>>(x, y, m); });
    return cudaDeviceSynchronize() != cudaSuccess;
}
