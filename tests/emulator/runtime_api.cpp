// The runtime API: values equal to the CUDA toolkit's, results and error codes as its manual says.
#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "device_array.h"
#include "emulator/emulator.h"
#include "failure.h"

namespace flashladder {
namespace {

// As in driver_types.h of CUDA 13.0.
static_assert(cudaSuccess == 0);
static_assert(cudaErrorInvalidValue == 1);
static_assert(cudaErrorMemoryAllocation == 2);
static_assert(cudaErrorInvalidConfiguration == 9);
static_assert(cudaErrorInvalidMemcpyDirection == 21);
static_assert(cudaErrorInvalidDevice == 101);
static_assert(cudaErrorInvalidResourceHandle == 400);
static_assert(cudaErrorIllegalAddress == 700);
static_assert(cudaErrorLaunchOutOfResources == 701);
static_assert(cudaErrorLaunchTimeout == 702);
static_assert(cudaErrorMisalignedAddress == 716);
static_assert(cudaErrorLaunchFailure == 719);
static_assert(cudaDevAttrMaxThreadsPerBlock == 1);
static_assert(cudaDevAttrMaxSharedMemoryPerBlock == 8);
static_assert(cudaDevAttrWarpSize == 10);
static_assert(cudaDevAttrMultiProcessorCount == 16);
static_assert(cudaDevAttrComputeCapabilityMajor == 75);
static_assert(cudaDevAttrComputeCapabilityMinor == 76);
static_assert(cudaDevAttrMaxSharedMemoryPerMultiprocessor == 81);
static_assert(cudaDevAttrMaxSharedMemoryPerBlockOptin == 97);
static_assert(cudaMemcpyHostToHost == 0 && cudaMemcpyHostToDevice == 1 && cudaMemcpyDeviceToHost == 2);
static_assert(cudaMemcpyDeviceToDevice == 3 && cudaMemcpyDefault == 4);
static_assert(cudaFuncAttributeMaxDynamicSharedMemorySize == 8);
static_assert(cudaStreamNonBlocking == 1);
// As in vector_types.h.
static_assert(sizeof(float2) == 8 && alignof(float2) == 8 && sizeof(int2) == 8 && alignof(int2) == 8);
static_assert(sizeof(float3) == 12 && alignof(float3) == 4 && sizeof(uint3) == 12 && alignof(uint3) == 4);
static_assert(sizeof(float4) == 16 && alignof(float4) == 16 && sizeof(uint4) == 16 && alignof(uint4) == 16);
static_assert(sizeof(int4) == 16 && alignof(int4) == 16 && sizeof(uint2) == 8 && alignof(uint2) == 8);
static_assert(sizeof(dim3) == 12 && alignof(dim3) == 4);

/// `error` is returned, is the last error, and is forgotten when asked for.
void check_error(cudaError_t returned, cudaError_t expected) {
    CHECK(returned == expected);
    CHECK(cudaPeekAtLastError() == expected);
    CHECK(cudaPeekAtLastError() == expected);
    CHECK(cudaGetLastError() == expected);
    CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("runtime: names of errors, and what they mean") {
    struct Error {
        cudaError_t code;
        std::string name, words;
    };
    const Error errors[] = {
        {cudaSuccess, "cudaSuccess", "no error"},
        {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
        {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
        {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
        {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
        {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
        {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
        {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
        {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
        {cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
        {cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
        {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    };
    emulator::clear_report();
    for (const Error& error : errors) {
        CHECK(cudaGetErrorName(error.code) == error.name);
        CHECK(cudaGetErrorString(error.code) == error.words);
    }
    CHECK(std::string(cudaGetErrorName(static_cast<cudaError_t>(12345))) == "unrecognized error code");
    CHECK(std::string(cudaGetErrorString(static_cast<cudaError_t>(12345))) == "unrecognized error code");
}

TEST_CASE("runtime: devices") {
    int count = -1, device = -1;
    CHECK(cudaGetDeviceCount(&count) == cudaSuccess);
    CHECK(count == 1);
    CHECK(cudaSetDevice(0) == cudaSuccess);
    CHECK(cudaGetDevice(&device) == cudaSuccess);
    CHECK(device == 0);
    check_error(cudaSetDevice(1), cudaErrorInvalidDevice);
    cudaDeviceProp properties;
    check_error(cudaGetDeviceProperties(&properties, 1), cudaErrorInvalidDevice);
    int version = 0;
    CHECK(cudaRuntimeGetVersion(&version) == cudaSuccess);
    CHECK(version >= 12000);
    CHECK(cudaDriverGetVersion(&version) == cudaSuccess);
    CHECK(version >= 12000);
}

int attribute(cudaDeviceAttr which) {
    int value = -1;
    CHECK(cudaDeviceGetAttribute(&value, which, 0) == cudaSuccess);
    return value;
}

TEST_CASE("runtime: attributes and properties of the device agree, and follow the settings") {
    const emulator::Settings before = emulator::settings();
    emulator::settings().multiprocessors = 6;
    emulator::settings().shared_bytes_per_block = 99 * 1024;  // as on sm_89
    emulator::settings().memory_bytes = std::size_t(3) << 30;
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0) == cudaSuccess);
    CHECK(std::string(properties.name).find("emulator") != std::string::npos);
    CHECK(attribute(cudaDevAttrMultiProcessorCount) == 6);
    CHECK(properties.multiProcessorCount == 6);
    CHECK(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) == 99 * 1024);
    CHECK(properties.sharedMemPerBlockOptin == 99 * 1024);
    CHECK(attribute(cudaDevAttrMaxSharedMemoryPerBlock) == 48 * 1024);
    CHECK(properties.sharedMemPerBlock == 48 * 1024);
    CHECK(attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor) == 100 * 1024);
    CHECK(properties.sharedMemPerMultiprocessor == 100 * 1024);
    CHECK(attribute(cudaDevAttrMaxThreadsPerBlock) == 1024);
    CHECK(properties.maxThreadsPerBlock == 1024);
    CHECK(attribute(cudaDevAttrWarpSize) == 32);
    CHECK(properties.warpSize == 32);
    CHECK(attribute(cudaDevAttrComputeCapabilityMajor) == properties.major);
    CHECK(attribute(cudaDevAttrComputeCapabilityMinor) == properties.minor);
    CHECK(properties.major == 9);
    CHECK(properties.minor == 0);
    CHECK(properties.regsPerBlock == 65536);
    CHECK(properties.l2CacheSize == 50 << 20);
    CHECK(properties.maxThreadsDim[0] == 1024);
    CHECK(properties.maxThreadsDim[1] == 1024);
    CHECK(properties.maxThreadsDim[2] == 64);
    CHECK(properties.maxGridSize[0] == 0x7FFFFFFF);
    CHECK(properties.maxGridSize[1] == 65535);
    CHECK(properties.maxGridSize[2] == 65535);
    CHECK(properties.totalGlobalMem == std::size_t(3) << 30);
    emulator::settings().shared_bytes_per_block = 32 * 1024;
    CHECK(attribute(cudaDevAttrMaxSharedMemoryPerBlock) == 32 * 1024);
    emulator::settings() = before;
    int value;
    check_error(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(9999), 0), cudaErrorInvalidValue);
    check_error(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 3), cudaErrorInvalidDevice);
}

TEST_CASE("runtime: allocations are aligned to 256 bytes, apart from each other, and counted") {
    std::size_t free_before, free_now, total;
    CHECK(cudaMemGetInfo(&free_before, &total) == cudaSuccess);
    CHECK(total == emulator::settings().memory_bytes);
    std::vector<char*> pointers;
    for (const std::size_t bytes : {1u, 3u, 256u, 1000u, (1u << 20) - 1, 1u << 20, (1u << 20) + 1, 5u << 20}) {
        char* pointer = nullptr;
        CHECK(cudaMalloc(&pointer, bytes) == cudaSuccess);
        CHECK(reinterpret_cast<std::uintptr_t>(pointer) % 256 == 0);
        for (const char* other : pointers) CHECK((pointer + bytes < other || pointer > other));
        CHECK(cudaMemset(pointer, 1, bytes) == cudaSuccess);
        pointers.push_back(pointer);
    }
    CHECK(cudaMemGetInfo(&free_now, &total) == cudaSuccess);
    CHECK(free_before - free_now == 1 + 3 + 256 + 1000 + (3u << 20) + (5u << 20));
    for (char* pointer : pointers) CHECK(cudaFree(pointer) == cudaSuccess);
    CHECK(cudaMemGetInfo(&free_now, &total) == cudaSuccess);
    CHECK(free_now == free_before);
}

TEST_CASE("runtime: an allocation of nothing, of too much, of more than is left") {
    void* pointer = &pointer;
    CHECK(cudaMalloc(&pointer, 0) == cudaSuccess);
    CHECK(pointer == nullptr);
    CHECK(cudaFree(nullptr) == cudaSuccess);
    check_error(cudaMalloc(static_cast<void**>(nullptr), 1), cudaErrorInvalidValue);

    const emulator::Settings before = emulator::settings();
    const DeviceArray<char> held(600 << 10);
    emulator::settings().memory_bytes = 1 << 20;
    check_error(cudaMalloc(&pointer, ~std::size_t(0)), cudaErrorMemoryAllocation);
    check_error(cudaMalloc(&pointer, (1 << 20) + 1), cudaErrorMemoryAllocation);
    check_error(cudaMalloc(&pointer, 500 << 10), cudaErrorMemoryAllocation);
    std::size_t free = 1, total;
    CHECK(cudaMemGetInfo(&free, &total) == cudaSuccess);
    check_error(cudaMalloc(&pointer, free + 1), cudaErrorMemoryAllocation);
    CHECK(cudaMalloc(&pointer, free) == cudaSuccess);  // all that is left
    CHECK(cudaFree(pointer) == cudaSuccess);
    emulator::settings().memory_bytes = 500 << 10;  // less than is held already
    check_error(cudaMalloc(&pointer, 1), cudaErrorMemoryAllocation);
    CHECK(cudaMemGetInfo(&free, &total) == cudaSuccess);
    CHECK(free == 0);
    emulator::settings() = before;
}

TEST_CASE("runtime: what cannot be freed") {
    char* pointer = nullptr;
    CHECK(cudaMalloc(&pointer, 100) == cudaSuccess);
    check_error(cudaFree(pointer + 1), cudaErrorInvalidValue);
    char on_the_host;
    check_error(cudaFree(&on_the_host), cudaErrorInvalidValue);
    CHECK(cudaFree(pointer) == cudaSuccess);
    check_error(cudaFree(pointer), cudaErrorInvalidValue);
    check_error(cudaMemset(pointer, 0, 1), cudaErrorInvalidValue);  // nor written any more
}

TEST_CASE("runtime: freed memory is not given out again at once") {
    void *first, *second;
    CHECK(cudaMalloc(&first, 100) == cudaSuccess);
    CHECK(cudaFree(first) == cudaSuccess);
    CHECK(cudaMalloc(&second, 100) == cudaSuccess);
    CHECK(first != second);
    CHECK(cudaFree(second) == cudaSuccess);
}

TEST_CASE("runtime: copies in every direction") {
    std::vector<int> from(100), to(100);
    for (int i = 0; i < 100; ++i) from[i] = i * 0x01030507;  // no byte of it is like its neighbours
    const DeviceArray<int> a(100), b(100);
    const std::size_t bytes = 400;
    SUBCASE("named") {
        CHECK(cudaMemcpy(a.data(), from.data(), bytes, cudaMemcpyHostToDevice) == cudaSuccess);
        CHECK(cudaMemcpy(b.data(), a.data(), bytes, cudaMemcpyDeviceToDevice) == cudaSuccess);
        CHECK(cudaMemcpy(to.data(), b.data(), bytes, cudaMemcpyDeviceToHost) == cudaSuccess);
    }
    SUBCASE("found out") {
        CHECK(cudaMemcpy(a.data(), from.data(), bytes, cudaMemcpyDefault) == cudaSuccess);
        CHECK(cudaMemcpy(b.data(), a.data(), bytes, cudaMemcpyDefault) == cudaSuccess);
        CHECK(cudaMemcpy(to.data(), b.data(), bytes, cudaMemcpyDefault) == cudaSuccess);
    }
    SUBCASE("in a stream") {
        CHECK(cudaMemcpyAsync(a.data(), from.data(), bytes, cudaMemcpyHostToDevice) == cudaSuccess);
        CHECK(cudaMemcpyAsync(b.data(), a.data(), bytes, cudaMemcpyDeviceToDevice, nullptr) == cudaSuccess);
        CHECK(cudaMemcpyAsync(to.data(), b.data(), bytes, cudaMemcpyDeviceToHost) == cudaSuccess);
    }
    SUBCASE("on the host") { CHECK(cudaMemcpy(to.data(), from.data(), bytes, cudaMemcpyHostToHost) == cudaSuccess); }
    SUBCASE("in parts") {
        CHECK(cudaMemcpy(a.data(), from.data(), bytes, cudaMemcpyHostToDevice) == cudaSuccess);
        for (int i = 0; i < 100; i += 20)
            CHECK(cudaMemcpy(to.data() + i, a.data() + i, 80, cudaMemcpyDeviceToHost) == cudaSuccess);
    }
    CHECK(to == from);
}

TEST_CASE("runtime: copies that are refused") {
    std::vector<int> host(100, 7);
    const DeviceArray<int> a(100);
    const std::size_t bytes = 400;
    check_error(cudaMemcpy(a.data(), host.data(), bytes, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    check_error(cudaMemcpy(host.data(), a.data(), bytes, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    check_error(cudaMemcpy(host.data(), a.data(), bytes, cudaMemcpyHostToHost), cudaErrorInvalidValue);
    check_error(cudaMemcpy(a.data(), host.data(), bytes, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
    check_error(cudaMemcpy(host.data(), host.data(), bytes, static_cast<cudaMemcpyKind>(5)),
                cudaErrorInvalidMemcpyDirection);
    check_error(cudaMemcpy(a.data(), host.data(), bytes + 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    check_error(cudaMemcpy(a.data() + 50, host.data(), 201, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    check_error(cudaMemcpy(host.data(), a.data() - 1, 4, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    check_error(cudaMemcpy(nullptr, host.data(), bytes, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    check_error(cudaMemcpy(a.data(), nullptr, bytes, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    check_error(cudaMemcpy(nullptr, a.data(), bytes, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    CHECK(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyHostToDevice) == cudaSuccess);
    CHECK(host == std::vector<int>(100, 7));
    unsigned untouched = 0;
    for (const int x : a.download()) untouched += x == -1;  // the poison of fresh memory
    CHECK(untouched == 100);
}

TEST_CASE("runtime: memset") {
    const DeviceArray<unsigned char> a(100);
    CHECK(cudaMemset(a.data(), 0, 100) == cudaSuccess);
    CHECK(cudaMemset(a.data() + 10, 0x1AB, 20) == cudaSuccess);  // its lowest byte counts
    CHECK(cudaMemsetAsync(a.data() + 99, 3, 1) == cudaSuccess);
    std::vector<unsigned char> expected(100, 0);
    std::fill_n(expected.begin() + 10, 20, 0xAB);
    expected[99] = 3;
    CHECK(a.download() == expected);
    check_error(cudaMemset(a.data() + 1, 0, 100), cudaErrorInvalidValue);
    check_error(cudaMemset(nullptr, 0, 1), cudaErrorInvalidValue);
    CHECK(cudaMemset(nullptr, 0, 0) == cudaSuccess);
    CHECK(a.download() == expected);
}

TEST_CASE("runtime: streams and events") {
    cudaStream_t stream = nullptr, other = nullptr;
    CHECK(cudaStreamCreate(&stream) == cudaSuccess);
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) == cudaSuccess);
    CHECK(stream != nullptr);
    CHECK(stream != other);
    cudaEvent_t start, end;
    CHECK(cudaEventCreate(&start) == cudaSuccess);
    CHECK(cudaEventCreate(&end) == cudaSuccess);
    float milliseconds = -1;
    check_error(cudaEventElapsedTime(&milliseconds, start, end), cudaErrorInvalidResourceHandle);  // not recorded yet
    CHECK(cudaEventRecord(start, stream) == cudaSuccess);
    check_error(cudaEventElapsedTime(&milliseconds, start, end), cudaErrorInvalidResourceHandle);
    check_error(cudaEventElapsedTime(&milliseconds, end, start), cudaErrorInvalidResourceHandle);
    check_error(cudaEventElapsedTime(&milliseconds, start, nullptr), cudaErrorInvalidResourceHandle);
    check_error(cudaEventElapsedTime(&milliseconds, nullptr, start), cudaErrorInvalidResourceHandle);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(cudaEventRecord(end, stream) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(other, end) == cudaSuccess);
    CHECK(cudaEventSynchronize(end) == cudaSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(cudaEventElapsedTime(&milliseconds, start, end) == cudaSuccess);
    CHECK(milliseconds >= 20);
    CHECK(milliseconds < 10000);
    check_error(cudaEventRecord(nullptr), cudaErrorInvalidResourceHandle);
    CHECK(cudaEventDestroy(start) == cudaSuccess);
    CHECK(cudaEventDestroy(end) == cudaSuccess);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    CHECK(cudaStreamDestroy(other) == cudaSuccess);
}

TEST_CASE("runtime: an error of the API is not one of a kernel") {
    CHECK(cudaSetDevice(5) == cudaErrorInvalidDevice);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(cudaStreamSynchronize(nullptr) == cudaSuccess);
    CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
}

TEST_CASE("runtime: a reset frees everything") {
    // Last here: it takes memory from whoever holds some.
    void* pointer;
    CHECK(cudaMalloc(&pointer, 100) == cudaSuccess);
    CHECK(cudaSetDevice(5) == cudaErrorInvalidDevice);
    CHECK(cudaDeviceReset() == cudaSuccess);
    CHECK(cudaGetLastError() == cudaSuccess);
    check_error(cudaFree(pointer), cudaErrorInvalidValue);
    std::size_t free, total;
    CHECK(cudaMemGetInfo(&free, &total) == cudaSuccess);
    CHECK(free == total);
}

}  // namespace
}  // namespace flashladder
