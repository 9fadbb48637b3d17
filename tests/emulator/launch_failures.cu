// Launches that are refused, and errors as code without exceptions sees them.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "device_array.h"
#include "failure.h"
#include "launch.h"

namespace flashladder {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

__global__ void set_to_one(int* x) { *x = 1; }

/// Refused by an exception and by an error code, and nothing has run.
Report check_refused(const LaunchConfig& config, cudaError_t code, const std::string& kind) {
    const DeviceArray<int> x(std::vector<int>{0});
    const Report report = check_failure({code, kind, "set_to_one", "", ""}, __FILE__,
                                        [&](int*) { launch_kernel(set_to_one, config, x.data()); });
    launch_unchecked(set_to_one, config, x.data());
    CHECK(cudaPeekAtLastError() == code);
    CHECK(last_report().kind == kind);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);  // it never ran
    CHECK(cudaGetLastError() == code);
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(x.download()[0] == 0);
    return report;
}

TEST_CASE("failure: an empty launch") {
    const dim3 one(1);
    for (const auto& [grid, block] : std::vector<std::pair<dim3, dim3>>{{dim3(0), one},
                                                                        {dim3(1, 0), one},
                                                                        {dim3(1, 1, 0), one},
                                                                        {one, dim3(0)},
                                                                        {one, dim3(2, 0)},
                                                                        {one, dim3(2, 2, 0)}}) {
        const Report report = check_refused({grid, block}, cudaErrorInvalidConfiguration, "empty launch");
        CHECK(contains(report.words, "grid (" + std::to_string(grid.x)));
    }
}

TEST_CASE("failure: too many threads") {
    for (const dim3 block : {dim3(1025), dim3(33, 32), dim3(1, 1025), dim3(1, 1, 65), dim3(1u << 31, 1u << 31, 4),
                            dim3(1u << 31, 2), dim3(2, 1u << 31)}) {
        const Report report = check_refused({1, block}, cudaErrorInvalidConfiguration, "too many threads");
        CHECK(contains(report.words, "block (" + std::to_string(block.x)));
    }
    const DeviceArray<int> x(1);
    for (const dim3 block : {dim3(1024), dim3(32, 32), dim3(1, 1024), dim3(1, 1, 64)})
        CHECK_NOTHROW(launch_kernel(set_to_one, {1, block}, x.data()));
}

TEST_CASE("failure: too many blocks") {
    for (const dim3 grid : {dim3(1u << 31), dim3(1, 65536), dim3(1, 1, 65536)})
        check_refused({grid, 1}, cudaErrorInvalidConfiguration, "too many blocks");
    const DeviceArray<int> x(1);
    CHECK_NOTHROW(launch_kernel(set_to_one, {{1, 2, 65535}, 1}, x.data()));
}

TEST_CASE("failure: too much shared memory") {
    const std::size_t most = emulator::settings().shared_bytes_per_block;
    const Report report =
        check_failure({cudaErrorInvalidValue, "too much shared memory", "set_to_one", "", ""}, __FILE__, [&](int* x) {
            launch_kernel(set_to_one, {1, 1, most + 1}, x);
        });
    CHECK(contains(report.words, std::to_string(most + 1) + " bytes"));
    CHECK(contains(report.words, std::to_string(most)));
    const DeviceArray<int> x(1);
    CHECK_NOTHROW(launch_kernel(set_to_one, {1, 1, most}, x.data()));
}

__global__ void set_to_two(int* x) { *x = 2; }

TEST_CASE("failure: more than 48 KB of shared memory without being asked") {
    const DeviceArray<int> x(std::vector<int>{0});
    const std::size_t bytes = 48 * 1024;
    cudaDeviceReset();
    const DeviceArray<int> y(std::vector<int>{0});
    launch_unchecked(set_to_two, {1, 1, bytes + 1}, y.data());
    CHECK(last_report().kind == "too much shared memory");
    CHECK(contains(last_report().words, "cudaFuncAttributeMaxDynamicSharedMemorySize"));
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    CHECK(y.download()[0] == 0);
    launch_unchecked(set_to_two, {1, 1, bytes}, y.data());
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(y.download()[0] == 2);
    CHECK(cudaFuncSetAttribute(set_to_two, cudaFuncAttributeMaxDynamicSharedMemorySize, int(2 * bytes)) == cudaSuccess);
    launch_unchecked(set_to_two, {1, 1, 2 * bytes}, y.data());
    CHECK(cudaGetLastError() == cudaSuccess);
    launch_unchecked(set_to_two, {1, 1, 2 * bytes + 1}, y.data());
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    const emulator::Settings before = emulator::settings();
    emulator::settings().shared_bytes_per_block = bytes;
    launch_unchecked(set_to_two, {1, 1, bytes + 1}, y.data());
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    emulator::settings() = before;
}

TEST_CASE("failure: a reset forgets what was asked for, and what went wrong") {
    const std::size_t bytes = 48 * 1024;
    CHECK(cudaFuncSetAttribute(set_to_two, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes + 1)) == cudaSuccess);
    cudaDeviceReset();
    launch_unchecked(set_to_two, {1, 1, bytes + 1}, nullptr);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    launch_unchecked(set_to_two, {1, 1}, nullptr);
    CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    CHECK(emulator::last_report() != "");
    cudaDeviceReset();
    CHECK(emulator::last_report() == "");
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(std::string(cudaGetErrorString(cudaErrorIllegalAddress)) == "an illegal memory access was encountered");
}

TEST_CASE("failure: function attributes that cannot be") {
    const auto attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
    const int most = int(emulator::settings().shared_bytes_per_block);
    CHECK(cudaFuncSetAttribute(set_to_one, attribute, most) == cudaSuccess);
    CHECK(cudaFuncSetAttribute(set_to_one, attribute, most + 1) == cudaErrorInvalidValue);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    emulator::clear_report();
    CHECK(cudaFuncSetAttribute(set_to_one, attribute, -1) == cudaErrorInvalidValue);
    CHECK(emulator::last_report() == "");  // not taken for a large number
    CHECK(cudaFuncSetAttribute(static_cast<const void*>(nullptr), attribute, 1) == cudaErrorInvalidValue);
    CHECK(cudaFuncSetAttribute(set_to_one, static_cast<cudaFuncAttribute>(77), 1) == cudaErrorInvalidValue);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

TEST_CASE("failure: launch_kernel() says how much shared memory was asked for, and how much there is") {
    const std::size_t most = emulator::settings().shared_bytes_per_block;
    std::string what;
    try {
        launch_kernel(set_to_one, {.grid = dim3(1), .block = dim3(1), .shared_bytes = most + 1}, nullptr);
    } catch (const CudaError& error) {
        what = error.what();
    }
    CHECK(contains(what, std::to_string(most + 1) + " bytes of dynamic shared memory"));
    CHECK(contains(what, "(" + std::to_string(most) + " on this device"));
    CHECK(contains(what, "cudaErrorInvalidValue"));
    cudaDeviceReset();
}

// ---- plain error codes

__global__ void write_to(int* p) { *p = 1; }

TEST_CASE("failure: error codes of a kernel that failed") {
    const DeviceArray<int> x(1);
    launch_unchecked(write_to, {1, 1}, x.data() + 1);
    CHECK(cudaPeekAtLastError() == cudaErrorIllegalAddress);
    CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    CHECK(cudaStreamSynchronize(nullptr) == cudaErrorIllegalAddress);
    CHECK(cudaEventSynchronize(nullptr) == cudaErrorIllegalAddress);
    // What goes well hides nothing.
    CHECK(cudaSetDevice(0) == cudaSuccess);
    launch_unchecked(write_to, {1, 1}, x.data());
    CHECK(cudaPeekAtLastError() == cudaErrorIllegalAddress);
    CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    CHECK(cudaSetDevice(7) == cudaErrorInvalidDevice);  // comes in between
    CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);  // unlike a GPU's, the context survives
    check_gpu_works();
}

TEST_CASE("failure: what cudaGetErrorString says") {
    const DeviceArray<int> x(1);
    launch_unchecked(write_to, {1, 1}, x.data() + 1);
    CHECK(std::string(cudaGetErrorString(cudaErrorIllegalAddress)) == emulator::last_report());
    CHECK(contains(emulator::last_report(), "out of bounds"));
    // Another error has nothing to do with that report.
    CHECK(std::string(cudaGetErrorString(cudaErrorMemoryAllocation)) == "out of memory");
    CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
    // It is kept until the next launch.
    CHECK(std::string(cudaGetErrorString(cudaErrorIllegalAddress)) == emulator::last_report());
    launch_unchecked(write_to, {1, 1}, x.data());
    CHECK(emulator::last_report() == "");
    CHECK(std::string(cudaGetErrorString(cudaErrorIllegalAddress)) == "an illegal memory access was encountered");
}

TEST_CASE("failure: CudaError names the code and what it was about") {
    const DeviceArray<int> x(1);
    try {
        launch_kernel(write_to, {1, 1}, x.data() + 1);
        FAIL("no exception");
    } catch (const CudaError& error) {
        CHECK(error.code == cudaErrorIllegalAddress);
        CHECK(contains(error.what(), "kernel: cudaErrorIllegalAddress: out of bounds: 4-byte write"));
    }
    try {
        check_cuda(cudaErrorInvalidValue, "trying");
        FAIL("no exception");
    } catch (const CudaError& error) {
        CHECK(std::string(error.what()) == "trying: cudaErrorInvalidValue: invalid argument");
    }
    CHECK_NOTHROW(check_cuda(cudaSuccess, "trying"));
}

/// Other blocks stop too, those that wait as well as those that have not begun.
__global__ void fail_in_one_block(unsigned block, int* begun, int* bad) {
    atomicAdd(begun, 1);
    __syncthreads();
    if (blockIdx.x == block) *bad = 1;
    __syncthreads();
}

TEST_CASE("failure: the whole launch ends with the first failure") {
    const DeviceArray<int> begun(std::vector<int>{0}), x(1);
    constexpr int blocks = 1000;
    const WithMultiprocessors restore(4);
    const Report report =
        check_failure({cudaErrorIllegalAddress, "out of bounds", "fail_in_one_block", "", ""}, __FILE__, [&](int*) {
            launch_kernel(fail_in_one_block, {blocks, 32}, 7u, begun.data(), x.data() + 1);
        });
    CHECK(report.block == "(7, 0, 0) of (1000, 1, 1)");
    CHECK(begun.download()[0] < 200 * 32);
}

template <int n>
__global__ void template_kernel(int* p) {
    *p = n;
}

}  // namespace
}  // namespace flashladder

extern "C" const char __executable_start;  // from the linker: the program's first byte, which is in no function

/// Of no namespace and with a template parameter that has a scope: a report shows neither.
template <class T>
__global__ void global_template_kernel(int* p) {
    *p = sizeof(T);
}

namespace flashladder {
namespace {

TEST_CASE("failure: names of kernels") {
    const DeviceArray<int> x(1);
    launch_unchecked(template_kernel<3>, {1, 1}, x.data() + 1);
    CHECK(last_report().kernel == "template_kernel");
    launch_unchecked(global_template_kernel<std::vector<int>>, {1, 1}, x.data() + 1);
    CHECK(last_report().kernel == "global_template_kernel");
    const char on_the_stack = 0;
    for (const char* no_function : {&__executable_start, &on_the_stack}) {
        emulator::launch({no_function, nullptr, nullptr, 0}, 0, 1, 0);
        CHECK(last_report().kernel == "(unnamed kernel)");
    }
    CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
    launch_unchecked(write_to, {1, 1}, x.data() + 1);
    CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
}

}  // namespace
}  // namespace flashladder
