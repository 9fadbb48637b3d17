#include "lcsf/tasks.h"

#include "../emulator/device_array.h"
#include "launch.h"
#include "operations/attention/task_order.h"
#include "ptx/fence.h"
#include "task_cases.h"

namespace flashladder {
namespace {

constexpr int warp_size = 32;

template <bool last_block_first>
__global__ void places_kernel(lcsf::TaskOrder order, int* blocks, int* heads, int* batches) {
    for (int n = threadIdx.x; n < order.tasks(); n += blockDim.x) {
        const auto place = order.place<last_block_first>(n);
        blocks[n] = place.block, heads[n] = place.head, batches[n] = place.batch;
    }
}

/// Warp 0 produces, the others consume. Tasks take different times, and so do warps.
__global__ void take_kernel(int tasks, unsigned* taken, int* done, int* order) {
    __shared__ lcsf::TaskSlots slots;
    const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
    if (threadIdx.x == 0) {
        slots.init(task_warps);
        ptx::fence_barrier_init();
    }
    __syncthreads();

    if (warp == 0) {
        if (lane > 0) return;
        for (lcsf::TaskProducer next; next.task < tasks; next.advance(slots)) next.ask(taken);
        return;
    }
    int* mine = order + (blockIdx.x * task_warps + warp - 1) * tasks;
    for (lcsf::TaskConsumer next; next.task < tasks; next.advance(slots)) {
        if ((next.task + warp) % 5 == 0) __nanosleep(2000);
        atomicAdd(done + next.task * task_warps + warp - 1, 1);
        if (lane == 0) *mine++ = next.task;
    }
}

}  // namespace

Places places(int T_r, int heads, int batches, int section, bool last_block_first, int late) {
    const int tasks = T_r * heads * batches;
    const DeviceArray<int> blocks(tasks), found_heads(tasks), found_batches(tasks);
    launch_kernel(last_block_first ? places_kernel<true> : places_kernel<false>, {1, warp_size},
                  lcsf::TaskOrder{T_r, heads, batches, section, late}, blocks.data(), found_heads.data(),
                  found_batches.data());
    return {blocks.download(), found_heads.download(), found_batches.download()};
}

Order order_of(const attention::AttentionShape& shape, int B_r) {
    const lcsf::TaskOrder order = attention::task_order(shape, B_r);
    return {order.T_r, order.heads, order.batches, order.section};
}

Taken take_tasks(int tasks, int blocks) {
    const DeviceArray<unsigned> taken(std::vector<unsigned>{0});
    const DeviceArray<int> done(std::vector<int>(tasks * task_warps, 0)),
        order(std::vector<int>(blocks * task_warps * tasks, -1));
    launch_kernel(take_kernel, {unsigned(blocks), warp_size * (1 + task_warps)}, tasks, taken.data(), done.data(),
                  order.data());
    check_cuda(cudaDeviceSynchronize(), "taking tasks");
    return {done.download(), order.download()};
}

}  // namespace flashladder
