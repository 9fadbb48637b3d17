#include "failure.h"

#include <doctest/doctest.h>

#include <sstream>
#include <vector>

#include "../test_seed.h"

namespace flashladder {
namespace {

/// Each thread gets the sum of its block's indices, by way of every means of the virtual GPU.
__global__ void add_indices(int* result) {
    __shared__ int of_warp[4];
    int* own = dynamic_shared<int>();
    own[threadIdx.x] = threadIdx.x;
    __syncthreads();
    int sum = own[(threadIdx.x + 5) % blockDim.x];
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, lanes);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
    __syncthreads();
    atomicAdd(&result[blockIdx.x * blockDim.x + threadIdx.x], of_warp[0] + of_warp[1] + of_warp[2] + of_warp[3]);
}

}  // namespace

void check_gpu_works() {
    constexpr int blocks = 6, threads = 128;
    const DeviceArray<int> result(std::vector<int>(blocks * threads, 0));
    launch_kernel(add_indices, {blocks, threads, threads * sizeof(int)}, result.data());
    CHECK(result.download() == std::vector<int>(blocks * threads, threads * (threads - 1) / 2));
    CHECK(emulator::last_report() == "");
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
}

Report last_report() {
    Report report;
    std::istringstream lines(emulator::last_report());
    std::string line;
    std::getline(lines, line);
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) {
        report.kind = line.substr(0, colon);
        report.words = line.substr(colon + 2);
    }
    const std::pair<std::string, std::string*> fields[] = {{"  kernel     ", &report.kernel},
                                                           {"  block      ", &report.block},
                                                           {"  thread     ", &report.thread},
                                                           {"  source     ", &report.source},
                                                           {"  reproduce  ", &report.reproduce}};
    while (std::getline(lines, line)) {
        std::string* field = nullptr;
        for (const auto& [name, value] : fields)
            if (line.starts_with(name)) *(field = value) = line.substr(name.size());
        if (!field) report.words += "\n" + line;
    }
    return report;
}

Report check_failure(const Expected& expected, const char* file, const std::function<void(int* lines)>& launch) {
    const DeviceArray<int> lines(std::vector<int>(3, 0));
    cudaError_t code = cudaSuccess;
    try {
        launch(lines.data());
    } catch (const CudaError& error) {
        code = error.code;
        CHECK(std::string(error.what()).find(emulator::last_report()) != std::string::npos);
    }
    Report report = last_report();
    report.lines = lines.download();
    INFO(emulator::last_report());
    CHECK(code == expected.code);
    CHECK(report.kind == expected.kind);
    CHECK(report.words != "");
    CHECK(report.kernel == expected.kernel);
    if (!expected.block.empty()) CHECK(report.block == expected.block);
    if (!expected.thread.empty()) CHECK(report.thread == expected.thread);
    if (report.lines[0] != 0) {
        CHECK(report.source == std::string(file) + ":" + std::to_string(report.lines[0]));
        CHECK(report.reproduce == "LADDER_SEED=" + std::to_string(test_seed()));
    }
    CHECK(cudaGetLastError() == cudaSuccess);  // the exception has reported it
    check_gpu_works();
    return report;
}

}  // namespace flashladder
