// Cooperative groups and cuda::barrier, in plain CUDA.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include <cassert>
#include <cuda/barrier>

namespace cg = cooperative_groups;

__global__ void tiles() {
    const cg::thread_block block = cg::this_thread_block();
    assert(block.size() == 96 && block.thread_rank() == threadIdx.y * 16 + threadIdx.x &&
           block.group_index().x == blockIdx.x);
    const auto tile = cg::tiled_partition<8>(block);
    const int rank = tile.thread_rank();
    assert(tile.size() == 8 && tile.meta_group_size() == 12 && tile.meta_group_rank() == block.thread_rank() / 8);
    assert(tile.shfl(rank, 3) == 3 && tile.shfl_xor(rank, 1) == (rank ^ 1) &&
           tile.shfl_down(rank, 1) == min(rank + 1, 7));
    assert(tile.ballot(rank < 3) == 7 && tile.any(rank == 5) && !tile.all(rank == 5) &&
           tile.match_any(rank / 4) == (rank < 4 ? 0xF : 0xF0));
    assert(cg::reduce(tile, rank, cg::plus<int>()) == 28 && cg::reduce(tile, rank, cg::greater<int>()) == 7);
    assert(cg::reduce(tile, rank + 3, cg::less<int>()) == 3 && cg::reduce(tile, 1 << rank, cg::bit_or<int>()) == 255);
    assert(cg::inclusive_scan(tile, rank) == rank * (rank + 1) / 2 && cg::exclusive_scan(tile, 1) == rank);
    const auto inner = cg::tiled_partition<4>(tile);
    assert(inner.meta_group_size() == 2 && inner.meta_group_rank() == rank / 4);
    const cg::thread_group group = cg::tiled_partition(block, 16);
    assert(group.size() == 16 && group.thread_rank() == threadIdx.x);
    group.sync();
    const auto half = cg::binary_partition(tile, rank % 2 == 1);
    assert(half.size() == 4 && half.thread_rank() == rank / 2 && half.shfl(rank, 1) == rank % 2 + 2);
}

__global__ void coalesced(int* total) {
    if (threadIdx.x % 3 == 0) {
        const cg::coalesced_group active = cg::coalesced_threads();
        const int sum = cg::reduce(active, 1, cg::plus<int>());
        assert(sum == active.size() && active.ballot(1) == (1ull << sum) - 1);
        if (active.thread_rank() == 0) atomicAdd(total, sum);  // once for a group
        assert(active.shfl(threadIdx.x, 0) <= threadIdx.x);
    }
}

__global__ void copies(const int* x, int* y) {
    extern __shared__ int tile[];
    const auto block = cg::this_thread_block();
    cg::memcpy_async(block, tile, x, 256 * sizeof(int));
    cg::wait(block);
    for (int i = block.thread_rank(); i < 256; i += block.size()) y[i] = tile[255 - i];
}

__global__ void passed_on(int* y) {
    __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
    __shared__ int x[64];
    if (threadIdx.x == 0) init(&barrier, blockDim.x);
    __syncthreads();
    for (int i = 0; i < 4; ++i) {
        x[threadIdx.x] = threadIdx.x * i;
        auto token = barrier.arrive();
        barrier.wait(std::move(token));
        y[threadIdx.x] = x[63 - threadIdx.x];
        barrier.arrive_and_wait();
    }
}

__global__ void whole_grid(int* x) {
    const cg::grid_group grid = cg::this_grid();
    const int n = grid.size();
    for (int i = 1; i <= 3; ++i) {
        const int next = x[(grid.thread_rank() + 40) % n];
        grid.sync();
        x[grid.thread_rank()] = next;
        grid.sync();
    }
}

int main() {
    int *x, y[256];
    cudaMalloc(&x, sizeof y);
    for (int i = 0; i < 256; ++i) y[i] = i;
    tiles<<<2, dim3(16, 6)>>>();
    cudaMemset(x, 0, sizeof y);
    coalesced<<<2, 128>>>(x);
    int total;
    cudaMemcpy(&total, x, sizeof total, cudaMemcpyDeviceToHost);
    assert(total == 86);
    int* z;
    cudaMalloc(&z, sizeof y);
    cudaMemcpy(x, y, sizeof y, cudaMemcpyHostToDevice);
    copies<<<1, 96, sizeof y>>>(x, z);
    cudaMemcpy(y, z, sizeof y, cudaMemcpyDeviceToHost);
    assert(y[0] == 255 && y[255] == 0);
    passed_on<<<1, 64>>>(z);
    cudaMemcpy(y, z, sizeof y, cudaMemcpyDeviceToHost);
    assert(y[0] == 63 * 3);
    void* arguments[] = {&x};
    assert(cudaLaunchCooperativeKernel((void*)whole_grid, dim3(8), dim3(32), arguments, 0, 0) == cudaSuccess);
    cudaMemcpy(y, x, sizeof y, cudaMemcpyDeviceToHost);
    assert(y[0] == 120 && y[200] == (200 + 120) % 256);
}
