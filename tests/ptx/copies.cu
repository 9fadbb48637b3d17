#include "../emulator/device_array.h"
#include "kernels.h"
#include "launch.h"
#include "ptx/cp_async.h"

namespace flashladder {
namespace {

constexpr int stages = 3, threads = 64;

template <int bytes>
__global__ void ring_kernel(const std::uint32_t* x, int n, std::uint32_t* y) {
    __shared__ __align__(16) std::uint32_t ring[stages][ring_tile];
    constexpr int words = bytes / 4;
    const int tiles = (n + ring_tile - 1) / ring_tile;
    const auto load = [&](int tile) {
        if (tile < tiles)
            for (int i = threadIdx.x * words; i < ring_tile; i += threads * words) {
                const int left = n - tile * ring_tile - i;
                ptx::cp_async<bytes>(&ring[tile % stages][i], left > 0 ? &x[tile * ring_tile + i] : nullptr,
                                     left >= words ? bytes
                                     : left > 0    ? left * 4
                                                   : 0);
            }
        ptx::cp_async_commit();  // empty at the end: so that the wait below means the same for every tile
    };
    for (int tile = 0; tile < stages - 1; ++tile) load(tile);
    for (int tile = 0; tile < tiles; ++tile) {
        load(tile + stages - 1);
        ptx::cp_async_wait<stages - 1>();
        __syncthreads();
        for (int i = threadIdx.x; i < ring_tile; i += threads)
            y[tile * ring_tile + i] = ring[tile % stages][ring_tile - 1 - i];  // written by another thread
        __syncthreads();
    }
}

}  // namespace

Bits32 copy_through_ring(const Bits32& x, int bytes) {
    const DeviceArray<std::uint32_t> x_device(x);
    const DeviceArray<std::uint32_t> y((x.size() + ring_tile - 1) / ring_tile * ring_tile);
    launch_kernel(bytes == 4   ? ring_kernel<4>
                  : bytes == 8 ? ring_kernel<8>
                               : ring_kernel<16>,
                  {1, threads}, x_device.data(), int(x.size()), y.data());
    return y.download();
}

}  // namespace flashladder
