#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstring>

#include "../emulator/device_array.h"
#include "kernels.h"
#include "launch.h"
#include "ptx/convert.h"

namespace flashladder {
namespace {

constexpr unsigned threads = 128;

__global__ void convert_kernel(const float* x, int n, __nv_bfloat16* bf16, __half* f16, __nv_bfloat162* bf16_pairs,
                               __half2* f16_pairs, std::uint32_t* bf16_packed, std::uint32_t* f16_packed, float* from_bf16,
                               float* from_f16) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float next = x[(i + 1) % n];
    bf16[i] = __float2bfloat16_rn(x[i]);
    f16[i] = __float2half_rn(x[i]);
    bf16_pairs[i] = __floats2bfloat162_rn(x[i], next);
    f16_pairs[i] = __floats2half2_rn(x[i], next);
    bf16_packed[i] = ptx::pack<__nv_bfloat16>(x[i], next);
    f16_packed[i] = ptx::pack<__half>(x[i], next);
    from_bf16[i] = __bfloat1622float2(bf16_pairs[i]).x;
    from_f16[i] = __half22float2(f16_pairs[i]).x;
}

template <class Bits, class T>
std::vector<Bits> download_bits(const DeviceArray<T>& array) {
    const std::vector<T> values = array.download();
    std::vector<Bits> bits(values.size());
    std::memcpy(bits.data(), values.data(), values.size() * sizeof(T));
    return bits;
}

}  // namespace

int device_architecture() {
    cudaDeviceProp properties;
    check_cuda(cudaGetDeviceProperties(&properties, 0), "asking for the device");
    return properties.major * 10 + properties.minor;
}

Conversions convert(const Floats& x) {
    const std::size_t n = x.size();
    const DeviceArray<float> x_device(x), from_bf16(n), from_f16(n);
    const DeviceArray<__nv_bfloat16> bf16(n);
    const DeviceArray<__half> f16(n);
    const DeviceArray<__nv_bfloat162> bf16_pairs(n);
    const DeviceArray<__half2> f16_pairs(n);
    const DeviceArray<std::uint32_t> bf16_packed(n), f16_packed(n);
    launch_kernel(convert_kernel, {unsigned(n / threads + 1), threads}, x_device.data(), int(n), bf16.data(),
                  f16.data(), bf16_pairs.data(), f16_pairs.data(), bf16_packed.data(), f16_packed.data(), from_bf16.data(),
                  from_f16.data());
    return {download_bits<std::uint16_t>(bf16),
            download_bits<std::uint16_t>(f16),
            download_bits<std::uint32_t>(bf16_pairs),
            download_bits<std::uint32_t>(f16_pairs),
            bf16_packed.download(),
            f16_packed.download(),
            from_bf16.download(),
            from_f16.download()};
}

}  // namespace flashladder
