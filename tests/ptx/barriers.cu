#include "../emulator/device_array.h"
#include "kernels.h"
#include "launch.h"
#include "ptx/elect.h"
#include "ptx/fence.h"
#include "ptx/mbarrier.h"
#include "ptx/named_barrier.h"
#include "ptx/setmaxnreg.h"

namespace flashladder {
namespace {

constexpr int warp = 32;

__global__ void exchange_kernel(const std::uint32_t* x, int rounds, std::uint32_t* y) {
    __shared__ std::uint32_t values[pairs_threads];
    const int self = threadIdx.x, partner = self ^ warp, barrier = 1 + self / (2 * warp);
    std::uint32_t value = x[self];
    for (int round = 0; round < rounds + self / (2 * warp); ++round) {  // later pairs meet more often
        values[self] = value;
        ptx::named_barrier_sync(barrier, 2 * warp);
        value += values[partner];
        ptx::named_barrier_sync(barrier, 2 * warp);
    }
    y[self] = value;
}

enum NamedBarrier { full = 1, empty = 3 };  // and the next one, for the second stage

__global__ void named_ring_kernel(const std::uint32_t* x, int tiles, std::uint32_t* y) {
    __shared__ std::uint32_t ring[2][ring_threads];
    const int self = threadIdx.x % ring_threads;
    const bool producer = threadIdx.x < ring_threads;
    for (int tile = 0; tile < tiles; ++tile) {
        const int stage = tile % 2;
        if (producer) {
            if (tile >= 2) ptx::named_barrier_sync(empty + stage, 2 * ring_threads);
            ring[stage][self] = x[tile * ring_threads + self];
            ptx::named_barrier_arrive(full + stage, 2 * ring_threads);
        } else {
            ptx::named_barrier_sync(full + stage, 2 * ring_threads);
            y[tile * ring_threads + self] = ring[stage][ring_threads - 1 - self];
            if (tile + 2 < tiles) ptx::named_barrier_arrive(empty + stage, 2 * ring_threads);
        }
    }
}

/// As named_ring_kernel, with mbarriers: one arrival for each producer thread, one for each consumer warp.
__global__ void ring_kernel(const std::uint32_t* x, int tiles, std::uint32_t* y) {
    __shared__ std::uint32_t ring[2][ring_threads];
    __shared__ ptx::Barrier full[2], empty[2];
    const int self = threadIdx.x % ring_threads;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < 2; ++stage) {
            ptx::barrier_init(full[stage], ring_threads);
            ptx::barrier_init(empty[stage], ring_threads / warp);
        }
        ptx::fence_barrier_init();
    }
    __syncthreads();
    for (int tile = 0; tile < tiles; ++tile) {
        const int stage = tile % 2, parity = tile / 2 % 2;
        if (threadIdx.x < ring_threads) {
            ptx::barrier_wait(empty[stage], parity ^ 1);
            ring[stage][self] = x[tile * ring_threads + self];
            ptx::barrier_arrive(full[stage]);
        } else {
            ptx::barrier_wait(full[stage], parity);
            y[tile * ring_threads + self] = ring[stage][ring_threads - 1 - self];
            __syncwarp();
            if (ptx::elect_one()) ptx::barrier_arrive(empty[stage]);
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {  // the memory of a barrier becomes memory again
        ptx::barrier_invalidate(full[0]);
        full[0].state = tiles;
        y[tiles * ring_threads] = std::uint32_t(full[0].state);
    }
}

__global__ void elect_kernel(std::uint32_t* elected) {
    if (ptx::elect_one()) atomicAdd(&elected[threadIdx.x / warp], 1u + (threadIdx.x % warp << 8));
}

/// The first warpgroup gives registers away, the others take them.
__global__ void __launch_bounds__(384, 1) registers_kernel(std::uint32_t* y) {
    if (threadIdx.x < 128) {
        ptx::registers_decrease<24>();
        if (blockIdx.x == 0) y[threadIdx.x] = threadIdx.x;
    } else {
        ptx::registers_increase<240>();
        if (blockIdx.x == 0) y[threadIdx.x] = 2 * threadIdx.x;
    }
}

}  // namespace

Bits32 exchange_between_pairs(const Bits32& x, int rounds) {
    const DeviceArray<std::uint32_t> x_device(x), y(x.size());
    launch_kernel(exchange_kernel, {1, pairs_threads}, x_device.data(), rounds, y.data());
    return y.download();
}

Bits32 pass_through_ring(const Bits32& x, Signal signal) {
    const int tiles = int(x.size() / ring_threads);
    const DeviceArray<std::uint32_t> x_device(x), y(Bits32(x.size() + 1, 0));
    launch_kernel(signal == Signal::named_barrier ? named_ring_kernel : ring_kernel, {1, 2 * ring_threads},
                  x_device.data(), tiles, y.data());
    return y.download();
}

Bits32 elect_in_warps(int warps) {
    const DeviceArray<std::uint32_t> elected(Bits32(std::size_t(warps), 0));
    launch_kernel(elect_kernel, {1, unsigned(warps * warp)}, elected.data());
    return elected.download();
}

Bits32 move_registers() {
    const DeviceArray<std::uint32_t> y(384);
    launch_kernel(registers_kernel, {3, 384}, y.data());
    return y.download();
}

}  // namespace flashladder
