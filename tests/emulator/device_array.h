// Device memory as an array that frees itself.
#pragma once

#include <cstddef>
#include <vector>

#include "launch.h"

namespace flashladder {

template <class T>
class DeviceArray {
public:
    explicit DeviceArray(std::size_t n) : n_(n) {
        check_cuda(cudaMalloc(&data_, n * sizeof(T)), "allocating an array");
    }
    explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) { upload(values); }
    ~DeviceArray() { cudaFree(data_); }
    DeviceArray(const DeviceArray&) = delete;
    DeviceArray& operator=(const DeviceArray&) = delete;

    T* data() const { return data_; }
    void upload(const std::vector<T>& values) const {
        check_cuda(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "upload");
    }
    std::vector<T> download() const {
        std::vector<T> values(n_);
        check_cuda(cudaMemcpy(values.data(), data_, n_ * sizeof(T), cudaMemcpyDeviceToHost), "download");
        return values;
    }

private:
    T* data_ = nullptr;
    std::size_t n_;
};

}  // namespace flashladder
