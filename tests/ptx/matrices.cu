#include <cstring>

#include "../emulator/device_array.h"
#include "kernels.h"
#include "launch.h"
#include "ptx/ex2.h"
#include "ptx/ldmatrix.h"
#include "ptx/mma.h"

namespace flashladder {
namespace {

constexpr int warp = 32, rows_of_matrix = 8;

template <int n, bool transposed>
__global__ void load_kernel(const std::uint16_t* memory, std::uint32_t* registers) {
    __shared__ __align__(16) std::uint16_t tile[n * rows_of_matrix * matrix_pitch / 2];
    for (int i = threadIdx.x; i < n * rows_of_matrix * matrix_pitch / 2; i += warp) tile[i] = memory[i];
    __syncwarp();
    const int row = threadIdx.x % (n * rows_of_matrix);
    std::uint32_t matrices[n];
    if constexpr (transposed)
        ptx::ldmatrix_trans(matrices, &tile[row * matrix_pitch / 2]);
    else
        ptx::ldmatrix(matrices, &tile[row * matrix_pitch / 2]);
    for (int m = 0; m < n; ++m) registers[threadIdx.x * n + m] = matrices[m];
}

template <int n, bool transposed>
__global__ void store_kernel(const std::uint32_t* registers, std::uint16_t* memory) {
    auto* tile = dynamic_shared<std::uint16_t>();
    for (int i = threadIdx.x; i < n * rows_of_matrix * matrix_pitch / 2; i += warp) tile[i] = 0;
    __syncwarp();
    const int row = threadIdx.x % (n * rows_of_matrix);
    std::uint32_t matrices[n];
    for (int m = 0; m < n; ++m) matrices[m] = registers[threadIdx.x * n + m];
    if constexpr (transposed)
        ptx::stmatrix_trans(&tile[row * matrix_pitch / 2], matrices);
    else
        ptx::stmatrix(&tile[row * matrix_pitch / 2], matrices);
    __syncwarp();
    for (int i = threadIdx.x; i < n * rows_of_matrix * matrix_pitch / 2; i += warp) memory[i] = tile[i];
}

template <class T>
__global__ void multiply_kernel(const std::uint16_t* A, const std::uint16_t* B, const float* C, float* D) {
    __shared__ __align__(16) std::uint16_t A_smem[16][16], B_smem[16][8];
    const int lane = threadIdx.x;
    for (int i = lane; i < 256; i += warp) A_smem[i / 16][i % 16] = A[i];
    for (int i = lane; i < 128; i += warp) B_smem[i / 8][i % 8] = B[i];
    __syncwarp();
    std::uint32_t a[4], b[2];
    ptx::ldmatrix(a, &A_smem[lane % 16][lane / 16 * 8]);
    ptx::ldmatrix_trans(b, &B_smem[lane % 16][0]);
    float d[4];
    const int row = lane / 4, column = lane % 4 * 2;
    for (int i = 0; i < 4; ++i) d[i] = C[(row + i / 2 * 8) * 8 + column + i % 2];
    ptx::mma_m16n8k16<T>(d, a, b);
    for (int i = 0; i < 4; ++i) D[(row + i / 2 * 8) * 8 + column + i % 2] = d[i];
}

__global__ void ex2_kernel(const float* x, int n, float* y) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = ptx::ex2_approx(x[i]);
}

template <bool transposed>
auto load_kernel_for(int n) {
    return n == 1 ? load_kernel<1, transposed> : n == 2 ? load_kernel<2, transposed> : load_kernel<4, transposed>;
}
template <bool transposed>
auto store_kernel_for(int n) {
    return n == 1 ? store_kernel<1, transposed> : n == 2 ? store_kernel<2, transposed> : store_kernel<4, transposed>;
}

}  // namespace

Bits32 load_matrices(const Bits16& memory, int n, bool transposed) {
    const DeviceArray<std::uint16_t> memory_device(memory);
    const DeviceArray<std::uint32_t> registers(std::size_t(n) * warp);
    launch_kernel(transposed ? load_kernel_for<true>(n) : load_kernel_for<false>(n), {1, warp}, memory_device.data(),
                  registers.data());
    return registers.download();
}

Bits16 store_matrices(const Bits32& registers, int n, bool transposed) {
    const DeviceArray<std::uint32_t> registers_device(registers);
    const std::size_t bytes = std::size_t(n) * rows_of_matrix * matrix_pitch;
    const DeviceArray<std::uint16_t> memory(bytes / 2);
    launch_kernel(transposed ? store_kernel_for<true>(n) : store_kernel_for<false>(n), {1, warp, bytes},
                  registers_device.data(), memory.data());
    return memory.download();
}

Floats multiply_in_warp(Element element, const Bits16& A, const Bits16& B, const Floats& C) {
    const DeviceArray<std::uint16_t> A_device(A), B_device(B);
    const DeviceArray<float> C_device(C), D(C.size());
    launch_kernel(element == Element::bf16 ? multiply_kernel<__nv_bfloat16> : multiply_kernel<__half>, {1, warp},
                  A_device.data(), B_device.data(), C_device.data(), D.data());
    return D.download();
}

Floats powers_of_two(const Floats& x) {
    const DeviceArray<float> x_device(x), y(x.size());
    launch_kernel(ex2_kernel, {1, 128}, x_device.data(), int(x.size()), y.data());
    return y.download();
}

}  // namespace flashladder
