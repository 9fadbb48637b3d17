// Device memory that frees itself.
#pragma once

#include <cstddef>
#include <vector>

#include "tensor.h"

namespace flashladder {

class DeviceBuffer {
public:
    /// `name`: what the emulator's reports call it. Throws CudaError, as all of these do.
    explicit DeviceBuffer(std::size_t bytes, const char* name = "");
    ~DeviceBuffer();
    DeviceBuffer(const DeviceBuffer&) = delete;
    DeviceBuffer& operator=(const DeviceBuffer&) = delete;
    DeviceBuffer(DeviceBuffer&& other) noexcept;

    void* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }
    /// Fills every byte; 0xFF makes NaN of f32, f16 and bf16.
    void fill(int byte);
    /// Copies `values`, rounded to the dtype, to the start of the buffer, and back.
    void upload(const std::vector<float>& values, DType dtype);
    std::vector<float> download(std::size_t elements, DType dtype) const;
    /// Copies the first `bytes` of the buffer over all the rest of it.
    void repeat_start(std::size_t bytes);

private:
    void* data_ = nullptr;
    std::size_t bytes_;
};

}  // namespace flashladder
