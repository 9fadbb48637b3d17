// The runtime API: launches, what is asked for before them, and which are refused.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "machine.h"
#include "report.h"
#include "runtime_state.h"
#include "streams.h"
#include "symbols.h"

namespace emulator {

std::map<const void*, std::size_t> opted_in;

namespace {

constexpr unsigned max_cluster = 8;  // blocks

unsigned* grid_arrivals = nullptr;  // of the cooperative launch in progress

/// Refuses a launch, or what prepares one, in words.
cudaError_t refuse(cudaError_t error, const std::string& kernel, const std::string& why) {
    set_report(fmt::format("{}\n  kernel     {}", why, kernel));
    if (settings().failed) settings().failed(last_report());
    return reported = set_error(error);
}

cudaError_t refuse_shared_bytes(const std::string& kernel, std::size_t bytes, std::size_t allowed) {
    return refuse(
        cudaErrorInvalidValue, kernel,
        fmt::format("too much shared memory: {} bytes asked for, {} allowed (a block has at most {}; over 49152 needs "
                    "cudaFuncAttributeMaxDynamicSharedMemorySize)",
                    bytes, allowed, settings().shared_bytes_per_block));
}

}  // namespace

void launch(const Kernel& kernel, dim3 grid, dim3 block, std::size_t dynamic_shared_bytes, dim3 cluster) {
    clear_report();
    const auto refuse_configuration = [&](const std::string& why) {
        refuse(cudaErrorInvalidConfiguration, name_of(kernel), why);
    };
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x == 0 || block.y == 0 || block.z == 0)
        return refuse_configuration(fmt::format("empty launch: grid ({}, {}, {}), block ({}, {}, {})", grid.x, grid.y,
                                                grid.z, block.x, block.y, block.z));
    if (grid.x > 0x7FFFFFFF || grid.y > 0xFFFF || grid.z > 0xFFFF)
        return refuse_configuration(fmt::format(
            "too many blocks: grid ({}, {}, {}), at most (2147483647, 65535, 65535)", grid.x, grid.y, grid.z));
    if (block.x > max_threads || block.y > max_threads || block.z > 64 || block.x * block.y * block.z > max_threads)
        return refuse_configuration(
            fmt::format("too many threads: block ({}, {}, {}), at most 1024, and 64 in z", block.x, block.y, block.z));
    if (cluster.x * cluster.y * cluster.z == 0 || cluster.x * cluster.y * cluster.z > max_cluster || grid.x % cluster.x != 0 ||
        grid.y % cluster.y != 0 || grid.z % cluster.z != 0)
        return refuse_configuration(fmt::format(
            "wrong cluster: ({}, {}, {}) blocks, of a grid of ({}, {}, {}); at most 8, and the grid is a multiple", cluster.x,
            cluster.y, cluster.z, grid.x, grid.y, grid.z));
    const std::vector<Symbol> variables = thread_locals_of(kernel.entry);
    std::size_t static_bytes = 0;
    for (const Symbol& variable : variables) static_bytes += variable.bytes;
    if (static_bytes > shared_bytes_without_opt_in) {
        std::string names;
        for (const Symbol& variable : variables)
            names += fmt::format("{}{} of {}", names.empty() ? "" : ", ", name_of(variable), variable.bytes);
        refuse(cudaErrorInvalidValue, name_of(kernel),
               fmt::format("too much shared memory: {} bytes of __shared__ variables ({}), 49152 allowed; nvcc compiles no "
                           "such kernel",
                           static_bytes, names));
        return;
    }
    const auto opt_in = opted_in.find(kernel.entry);
    // A template that was launched without its arguments has no address to opt in by.
    const std::size_t opted = opt_in != opted_in.end() ? opt_in->second
                              : kernel.entry           ? shared_bytes_without_opt_in
                                                       : settings().shared_bytes_per_block;
    const std::size_t most = settings().shared_bytes_per_block - std::min(settings().shared_bytes_per_block, static_bytes);
    const std::size_t allowed =
        std::min(opt_in == opted_in.end() && kernel.entry ? opted - static_bytes : opted, most);
    if (dynamic_shared_bytes > allowed) {
        refuse_shared_bytes(name_of(kernel), dynamic_shared_bytes, allowed);
        return;
    }
    StreamWorkScope work(kernel.stream, {nullptr, kernel.entry, kernel.name, {}});
    work.is_kernel();
    reported = set_error(static_cast<cudaError_t>(run_grid(kernel, grid, block, dynamic_shared_bytes, cluster)));
    if (reported == cudaSuccess) {
        work.end();
        return;
    }
    kernel_error = reported;
    if (settings().failed) settings().failed(last_report());
}

unsigned* grid_barrier(const std::source_location& where) {
    if (!grid_arrivals)
        fail(cudaErrorLaunchFailure, where,
             [] { return "no cooperative launch: only one by cudaLaunchCooperativeKernel() can synchronise its grid"; });
    return grid_arrivals;
}

cudaError_t launch_from_host(const void* entry, void (*run)(void*), void* parameters, std::size_t parameter_bytes, dim3 grid,
                             dim3 block, std::size_t shared_bytes, bool cooperative, cudaStream_t stream) {
    Kernel kernel{entry, run, parameters, parameter_bytes};
    kernel.stream = stream;
    const std::uint64_t blocks = std::uint64_t(grid.x) * grid.y * grid.z;
    int fit = 0;
    if (cooperative) {
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, entry, static_cast<int>(block.x * block.y * block.z), shared_bytes);
        const int at_a_time = fit * settings().multiprocessors;
        if (blocks > static_cast<std::uint64_t>(at_a_time))
            return refuse(cudaErrorCooperativeLaunchTooLarge, function_name(entry),
                          fmt::format("too many blocks for a cooperative launch: {}, of which {} have room at a time", blocks,
                                      at_a_time));
    }
    const int multiprocessors = settings().multiprocessors;
    if (cooperative) {
        settings().multiprocessors = std::max(multiprocessors, static_cast<int>(blocks));  // all resident
        grid_arrivals = static_cast<unsigned*>(DeviceMemory::instance().allocate(sizeof(unsigned), {}));
        *grid_arrivals = 0;
    }
    launch(kernel, grid, block, shared_bytes);
    settings().multiprocessors = multiprocessors;
    if (grid_arrivals) DeviceMemory::instance().free(std::exchange(grid_arrivals, nullptr));
    return reported;
}

}  // namespace emulator

using namespace emulator;

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
    if (!function || attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0)
        return set_error(cudaErrorInvalidValue);
    const std::size_t most = settings().shared_bytes_per_block;
    if (static_cast<std::size_t>(value) > most)
        return refuse_shared_bytes(function_name(function), static_cast<std::size_t>(value), most);
    opted_in[function] = static_cast<std::size_t>(value);
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
    if (!attributes || !function) return set_error(cudaErrorInvalidValue);
    *attributes = {};
    attributes->maxThreadsPerBlock = max_threads;
    attributes->ptxVersion = attributes->binaryVersion = 90;
    const auto opt_in = opted_in.find(function);
    attributes->maxDynamicSharedSizeBytes =
        static_cast<int>(opt_in == opted_in.end() ? shared_bytes_without_opt_in : opt_in->second);
    return cudaSuccess;
}
cudaError_t cudaFuncSetCacheConfig(const void* function, cudaFuncCache) {
    return set_error(function ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int threads,
                                                          std::size_t shared_bytes) {
    if (!blocks || !function || threads <= 0) return set_error(cudaErrorInvalidValue);
    cudaDeviceProp device;
    cudaGetDeviceProperties(&device, 0);
    const auto warps = static_cast<std::size_t>((threads + warp_size - 1) / warp_size);
    const std::size_t by_threads = static_cast<std::size_t>(device.maxThreadsPerMultiProcessor / warp_size) / warps;
    const std::size_t by_memory = device.sharedMemPerMultiprocessor / (shared_bytes + device.reservedSharedMemPerBlock);
    const bool too_large = threads > static_cast<int>(max_threads) || shared_bytes > device.sharedMemPerBlockOptin;
    *blocks = too_large ? 0
                        : static_cast<int>(std::min({by_threads, by_memory, std::size_t(device.maxBlocksPerMultiProcessor)}));
    return cudaSuccess;
}
