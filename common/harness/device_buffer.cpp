#include "harness/device_buffer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "harness/dtype.h"
#include "launch.h"

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#endif

namespace flashladder {

DeviceBuffer::DeviceBuffer(std::size_t bytes, [[maybe_unused]] const char* name) : bytes_(bytes) {
    if (bytes == 0) return;
    check_cuda(cudaMalloc(&data_, bytes), fmt::format("allocating {} bytes", bytes).c_str());
#ifndef FLASHLADDER_GPU
    emulator::name_allocation(data_, name);
#endif
}
DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
DeviceBuffer::~DeviceBuffer() { cudaFree(data_); }

void DeviceBuffer::fill(int byte) {
    if (bytes_ > 0) check_cuda(cudaMemset(data_, byte, bytes_), "filling a buffer");
}

void DeviceBuffer::upload(const std::vector<float>& values, DType dtype) {
    const void* from = values.data();
    std::vector<std::uint16_t> narrow;
    std::vector<std::int32_t> whole;
    if (dtype == DType::i32) {
        whole.assign(values.begin(), values.end());
        from = whole.data();
    } else if (dtype != DType::f32) {
        for (float x : values) narrow.push_back(to_bits(dtype, round_to(dtype, x)));
        from = narrow.data();
    }
    check_cuda(cudaMemcpy(data_, from, values.size() * bytes_per_element(dtype), cudaMemcpyHostToDevice), "upload");
}

std::vector<float> DeviceBuffer::download(std::size_t elements, DType dtype) const {
    std::vector<float> values(elements);
    if (dtype == DType::f32) {
        check_cuda(cudaMemcpy(values.data(), data_, elements * sizeof(float), cudaMemcpyDeviceToHost), "download");
        return values;
    }
    std::vector<std::uint16_t> narrow(elements);
    check_cuda(cudaMemcpy(narrow.data(), data_, elements * sizeof(std::uint16_t), cudaMemcpyDeviceToHost), "download");
    for (std::size_t i = 0; i < elements; ++i) values[i] = from_bits(dtype, narrow[i]);
    return values;
}

void DeviceBuffer::repeat_start(std::size_t bytes) {
    const auto start = static_cast<char*>(data_);
    for (std::size_t done = bytes; done < bytes_; done *= 2)  // what is there already, behind itself
        check_cuda(cudaMemcpy(start + done, start, std::min(done, bytes_ - done), cudaMemcpyDeviceToDevice),
                   "repeating what a buffer begins with");
}

}  // namespace flashladder
