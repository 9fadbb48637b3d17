// Kernels for tools/measure/ncu.py: each does one kind of access to shared memory many times, with and without
// conflicts, so that what the emulator counts can be held against the profiler's counters.
#include <cstdint>
#include <vector>

#include "../emulator/device_array.h"
#include "kernels.h"
#include "launch.h"
#include "ptx/cp_async.h"
#include "ptx/fence.h"
#include "ptx/ldmatrix.h"
#include "ptx/wgmma.h"

namespace flashladder {
namespace {

using T = __nv_bfloat16;

constexpr int rounds = 16, blocks = 4, warp = 32, warpgroup = 128;
constexpr unsigned tile_bytes = 32768;

/// Conflict-free stores of 16 bytes.
__device__ void clear(unsigned char* tile, unsigned bytes) {
    for (unsigned i = threadIdx.x * 16; i < bytes; i += blockDim.x * 16) reinterpret_cast<uint4&>(tile[i]) = {};
    __syncthreads();
}

/// Rows of 16 bytes, `stride` apart.
template <int stride>
__global__ void ldmatrix_rows(std::uint32_t* y) {
    auto* tile = dynamic_shared<unsigned char>();
    clear(tile, warp * stride);
    std::uint32_t sum = 0, matrices[4];
    for (int i = 0; i < rounds; ++i) {
        ptx::ldmatrix(matrices, tile + threadIdx.x * stride);
        __syncthreads();  // else ptxas makes one load of those of all rounds
        sum += matrices[0] + matrices[1] + matrices[2] + matrices[3];
    }
    y[blockIdx.x * warp + threadIdx.x] = sum;
}

template <int stride>
__global__ void stmatrix_rows(std::uint32_t* y) {
    auto* tile = dynamic_shared<unsigned char>();
    const std::uint32_t matrices[4] = {1, 2, 3, threadIdx.x};
    for (int i = 0; i < rounds; ++i) ptx::stmatrix(tile + threadIdx.x * stride, matrices);
    __syncthreads();
    y[blockIdx.x * warp + threadIdx.x] = reinterpret_cast<std::uint32_t&>(tile[threadIdx.x * stride]);
}

/// Copies of `bytes`, to places `stride` apart; the last four lanes have nothing to copy and fill with zeros.
template <int bytes, int stride>
__global__ void cp_async_rows(const std::uint32_t* x, std::uint32_t* y) {
    auto* tile = dynamic_shared<unsigned char>();
    for (int i = 0; i < rounds; ++i) {
        ptx::cp_async<bytes>(tile + threadIdx.x * stride, x + threadIdx.x * bytes / 4, threadIdx.x < 28 ? bytes : 0);
        ptx::cp_async_commit();
        ptx::cp_async_wait<0>();
    }
    __syncthreads();
    y[blockIdx.x * warp + threadIdx.x] = reinterpret_cast<std::uint32_t&>(tile[threadIdx.x * stride]);
}

/// A and B are 64x16 each, at the start of rows as long as the swizzle is wide.
template <ptx::Swizzle swizzle, bool a_in_registers>
__global__ void wgmma_operands(float* y) {
    auto* tile = dynamic_shared<unsigned char>();
    clear(tile, tile_bytes);
    ptx::fence_proxy_async();
    __syncthreads();
    constexpr unsigned group = 8 * (16u << int(swizzle));  // bytes of eight rows
    constexpr unsigned leading = swizzle == ptx::Swizzle::none ? 8 * group : 16;
    const auto a = ptx::matrix_descriptor(tile, leading, group, swizzle);
    const auto b = ptx::matrix_descriptor(tile + tile_bytes / 2, leading, group, swizzle);
    const std::uint32_t fragment[4] = {};
    float d[32] = {};
    ptx::wgmma_fence(d);
    for (int i = 0; i < rounds; ++i)
        if constexpr (a_in_registers)
            ptx::wgmma<T>(d, fragment, b, true);
        else
            ptx::wgmma<T>(d, a, b, true);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(d);
    y[blockIdx.x * warpgroup + threadIdx.x] = d[0];
}

}  // namespace

void run_operand_kernels() {
    const DeviceArray<std::uint32_t> x(std::vector<std::uint32_t>(1024)), y(blocks * warp);
    const auto matrices = [&](auto kernel) { launch_kernel(kernel, {blocks, warp, tile_bytes}, y.data()); };
    const auto copies = [&](auto kernel) { launch_kernel(kernel, {blocks, warp, tile_bytes}, x.data(), y.data()); };
    const DeviceArray<float> sums(blocks * warpgroup);
    const auto products = [&](auto kernel) { launch_kernel(kernel, {blocks, warpgroup, tile_bytes}, sums.data()); };
    matrices(ldmatrix_rows<16>);
    matrices(ldmatrix_rows<128>);
    matrices(ldmatrix_rows<144>);
    matrices(stmatrix_rows<16>);
    matrices(stmatrix_rows<128>);
    matrices(stmatrix_rows<144>);
    copies(cp_async_rows<4, 4>);
    copies(cp_async_rows<8, 8>);
    copies(cp_async_rows<16, 16>);
    copies(cp_async_rows<16, 128>);
    products(wgmma_operands<ptx::Swizzle::none, false>);
    products(wgmma_operands<ptx::Swizzle::bytes_32, false>);
    products(wgmma_operands<ptx::Swizzle::bytes_128, false>);
    products(wgmma_operands<ptx::Swizzle::bytes_128, true>);
    check_cuda(cudaDeviceSynchronize(), "operand kernels");
    constexpr int N = 512;
    const Bits16 ones(std::size_t(N) * attention_head_dim, 0x3F80);
    attend(ones, ones, ones, 1, 1, N, 0.1f);
}

}  // namespace flashladder

int main() { flashladder::run_operand_kernels(); }
