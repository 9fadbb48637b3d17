#include "ptx/wgmma.h"

#include "../emulator/device_array.h"
#include "kernels.h"
#include "launch.h"
#include "ptx/fence.h"

namespace flashladder {
namespace {

constexpr int warpgroup = 128;

template <class T, int n, ptx::Major a_major, ptx::Major b_major, bool a_in_registers>
__global__ void __launch_bounds__(warpgroup)
    multiply_kernel(const std::uint16_t* memory, const std::uint16_t* a_registers, DescriptorFields a,
                    DescriptorFields b, unsigned a_step, unsigned b_step, float* D) {
    auto* window = dynamic_shared<std::uint16_t>();
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4, column = lane % 4 * 2;
    for (int i = threadIdx.x; i < wgmma_window; i += warpgroup) window[i] = memory[i];
    ptx::fence_proxy_async();
    __syncthreads();

    const auto descriptor = [&](const DescriptorFields& x) {
        return ptx::matrix_descriptor(window + x.start / 2, x.leading, x.stride, static_cast<ptx::Swizzle>(x.swizzle));
    };
    const ptx::Descriptor b0 = descriptor(b), b1 = b0 + b_step;
    float d[n / 2];
    for (int i = 0; i < n / 2; ++i) d[i] = 7;  // the first product does not add to this
    if constexpr (a_in_registers) {
        std::uint32_t fragments[2][4];
        for (int step = 0; step < 2; ++step)
            for (int i = 0; i < 4; ++i) {
                const std::uint16_t* from = &a_registers[(row + i % 2 * 8) * 32 + step * 16 + column + i / 2 * 8];
                fragments[step][i] = from[0] | std::uint32_t(from[1]) << 16;
            }
        ptx::wgmma_fence(d);
        ptx::wgmma<T, b_major>(d, fragments[0], b0, false);
        ptx::wgmma<T, b_major>(d, fragments[1], b1, true);
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>(d);
    } else {
        const ptx::Descriptor a0 = descriptor(a), a1 = a0 + a_step;
        ptx::wgmma_fence(d);
        ptx::wgmma<T, a_major, b_major>(d, a0, b0, false);
        ptx::wgmma<T, a_major, b_major>(d, a1, b1, true);
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>(d);
    }
    for (int i = 0; i < n / 2; ++i) D[(row + i / 2 % 2 * 8) * n + i / 4 * 8 + column + i % 2] = d[i];
}

using Kernel = void (*)(const std::uint16_t*, const std::uint16_t*, DescriptorFields, DescriptorFields, unsigned,
                        unsigned, float*);

template <class T, int n>
Kernel kernel_of(const WgmmaCase& c) {
    constexpr auto k = ptx::Major::k, mn = ptx::Major::mn;
    if (c.a_in_registers) return c.b_mn_major ? multiply_kernel<T, n, k, mn, true> : multiply_kernel<T, n, k, k, true>;
    if (c.a_mn_major) return c.b_mn_major ? multiply_kernel<T, n, mn, mn, false> : multiply_kernel<T, n, mn, k, false>;
    return c.b_mn_major ? multiply_kernel<T, n, k, mn, false> : multiply_kernel<T, n, k, k, false>;
}

template <class T>
Kernel kernel_for(const WgmmaCase& c) {
    switch (c.n) {
        case 64:
            return kernel_of<T, 64>(c);
        case 96:
            return kernel_of<T, 96>(c);
        case 128:
            return kernel_of<T, 128>(c);
        case 176:
            return kernel_of<T, 176>(c);
        case 192:
            return kernel_of<T, 192>(c);
        default:
            return kernel_of<T, 256>(c);
    }
}

__global__ void move_descriptor_kernel(std::uint64_t bits, unsigned bytes, std::uint64_t* moved) {
    *moved = (ptx::Descriptor{bits} + bytes).bits;
}

}  // namespace

std::uint64_t move_descriptor(std::uint64_t bits, unsigned bytes) {
    const DeviceArray<std::uint64_t> moved(1);
    launch_kernel(move_descriptor_kernel, {1, 1}, bits, bytes, moved.data());
    return moved.download()[0];
}

Floats multiply_in_warpgroup(const WgmmaCase& c, const Bits16& memory, const Bits16& a_registers) {
    const DeviceArray<std::uint16_t> memory_device(memory), a_device(a_registers);
    const DeviceArray<float> D(std::size_t(64 * c.n));
    launch_kernel(c.element == Element::bf16 ? kernel_for<__nv_bfloat16>(c) : kernel_for<__half>(c),
                  {1, warpgroup, wgmma_window * 2}, memory_device.data(), a_device.data(), c.a, c.b, c.a_step, c.b_step,
                  D.data());
    return D.download();
}

}  // namespace flashladder
