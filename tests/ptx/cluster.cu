#include "ptx/cluster.h"

#include "../emulator/device_array.h"
#include "kernels.h"
#include "launch.h"
#include "ptx/fence.h"
#include "ptx/memory_order.h"
#include "ptx/tensor_map.h"

namespace flashladder {
namespace {

__global__ void next_block_kernel(const std::uint32_t* x, std::uint32_t* y) {
    auto* values = dynamic_shared<std::uint32_t>();
    const int i = blockIdx.x * cluster_threads + threadIdx.x;
    const unsigned next = (ptx::cluster_rank() + 1) % ptx::cluster_size();
    values[threadIdx.x] = x[i];
    ptx::cluster_sync();
    y[i] = ptx::map_to_block(values, next)[threadIdx.x];
    ptx::cluster_sync();
    ptx::map_to_block(values, next)[threadIdx.x] = 1;
    ptx::cluster_arrive();
    y[i] += 0;  // something else to do
    ptx::cluster_wait();
    y[i] += values[threadIdx.x];
}

constexpr int most_slices = 4;

struct Shared {
    alignas(1024) std::uint16_t tile[most_slices * slice_elements];
    ptx::Barrier full, empty;
};

__global__ void slices_kernel(const __grid_constant__ CUtensorMap x, int tiles, std::uint16_t* y) {
    auto& smem = *dynamic_shared<Shared>();
    const unsigned rank = ptx::cluster_rank(), size = ptx::cluster_size();
    const unsigned tile_elements = size * slice_elements;
    if (threadIdx.x == 0) {
        ptx::barrier_init(smem.full, 1);
        ptx::barrier_init(smem.empty, size);
        ptx::fence_barrier_init();
    }
    ptx::cluster_sync();
    for (int j = 0; j < tiles; ++j) {
        const int parity = j % 2;
        if (threadIdx.x == 0) {
            ptx::barrier_wait_cluster(smem.empty, parity ^ 1);  // of all blocks: this one writes to all
            ptx::barrier_arrive_expect_tx(smem.full, tile_elements * sizeof(std::uint16_t));
            ptx::tma_load_multicast(smem.tile + rank * slice_elements, x, smem.full, {0, int(j * size + rank) * 8},
                                    std::uint16_t((1u << size) - 1));
        }
        ptx::barrier_wait(smem.full, parity);
        for (unsigned i = threadIdx.x; i < tile_elements; i += cluster_threads)
            y[(blockIdx.x * tiles + j) * tile_elements + i] = smem.tile[i];
        __syncthreads();
        if (threadIdx.x < size) ptx::barrier_arrive_at(smem.empty, threadIdx.x);
    }
    ptx::cluster_sync();
}

__global__ void tickets_kernel(std::uint32_t* ticket, std::uint32_t* turn, std::uint32_t* sums, std::uint32_t* seen) {
    __shared__ std::uint32_t own;
    if (threadIdx.x == 0) {
        own = ptx::fetch_add_acquire_release(ticket, 1);
        while (ptx::load_acquire(turn) != own) {
        }
    }
    __syncthreads();
    const std::uint32_t before = own == 0 ? 0 : sums[(own - 1) * cluster_threads + threadIdx.x];
    sums[own * cluster_threads + threadIdx.x] = before + 1;
    __syncthreads();
    if (threadIdx.x == 0) {
        if (own % 2 == 0)
            ptx::add_release(turn, 1);
        else
            ptx::store_release(turn, own + 1);
        seen[own] = before + 1;
    }
}

}  // namespace

Bits32 read_next_block(const Bits32& x, int blocks_per_cluster) {
    const DeviceArray<std::uint32_t> x_device(x), y(x.size());
    launch_kernel(next_block_kernel,
                  {unsigned(x.size() / cluster_threads), cluster_threads, cluster_threads * 4, nullptr,
                   unsigned(blocks_per_cluster)},
                  x_device.data(), y.data());
    return y.download();
}

Bits16 share_slices(const Bits16& x, int blocks_per_cluster) {
    const DeviceArray<std::uint16_t> x_device(x);
    const DeviceArray<std::uint16_t> y(x.size() * blocks_per_cluster);
    const std::uint64_t rows = x.size() / 64;
    const auto map = ptx::make_tensor_map<__nv_bfloat16, 2>(reinterpret_cast<const __nv_bfloat16*>(x_device.data()),
                                                            {64, rows}, {128}, {64, 8}, ptx::Swizzle::bytes_128);
    launch_kernel(
        slices_kernel,
        {unsigned(blocks_per_cluster), cluster_threads, sizeof(Shared), nullptr, unsigned(blocks_per_cluster)}, map,
        int(x.size()) / slice_elements / blocks_per_cluster, y.data());
    return y.download();
}

Bits32 pass_along_blocks(int blocks) {
    const DeviceArray<std::uint32_t> counters(Bits32(2, 0));
    const DeviceArray<std::uint32_t> sums(std::size_t(blocks) * cluster_threads);
    const DeviceArray<std::uint32_t> seen(Bits32(std::size_t(blocks), 0));
    launch_kernel(tickets_kernel, {unsigned(blocks), cluster_threads}, counters.data(), counters.data() + 1,
                  sums.data(), seen.data());
    return seen.download();
}

}  // namespace flashladder
