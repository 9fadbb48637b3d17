#include "runtime_api.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "machine.h"
#include "report.h"

struct CUstream_st {};
struct CUevent_st {
    std::optional<std::chrono::steady_clock::time_point> time;  // if it was recorded
};

namespace emulator {
namespace {

constexpr std::size_t shared_bytes_without_opt_in = 48 * 1024;
constexpr unsigned max_threads = 1024;
constexpr unsigned max_cluster = 8;  // blocks

cudaError_t last_error = cudaSuccess;
cudaError_t kernel_error = cudaSuccess;  // of a kernel that failed, until cudaGetLastError()
cudaError_t reported = cudaSuccess;      // what last_report() is about
std::string message;
std::map<const void*, std::size_t> opted_in;  // dynamic shared memory that a kernel may use

cudaError_t set_error(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

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

bool inside(const void* pointer, std::size_t bytes, bool on_device) {
    const auto& memory = DeviceMemory::instance();
    return on_device ? memory.valid(pointer, bytes) : !memory.covers(reinterpret_cast<std::uintptr_t>(pointer));
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
    const auto opt_in = opted_in.find(kernel.entry);
    // A template that was launched without its arguments has no address to opt in by.
    const std::size_t opted = opt_in != opted_in.end() ? opt_in->second
                              : kernel.entry           ? shared_bytes_without_opt_in
                                                       : settings().shared_bytes_per_block;
    const std::size_t allowed = std::min(opted, settings().shared_bytes_per_block);
    if (dynamic_shared_bytes > allowed) {
        refuse_shared_bytes(name_of(kernel), dynamic_shared_bytes, allowed);
        return;
    }
    reported = set_error(static_cast<cudaError_t>(run_grid(kernel, grid, block, dynamic_shared_bytes, cluster)));
    if (reported == cudaSuccess) return;
    kernel_error = reported;
    if (settings().failed) settings().failed(last_report());
}

}  // namespace emulator

using namespace emulator;

const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
#define NAME(e) \
    case e: return #e
        NAME(cudaSuccess);
        NAME(cudaErrorInvalidValue);
        NAME(cudaErrorMemoryAllocation);
        NAME(cudaErrorInvalidConfiguration);
        NAME(cudaErrorInvalidMemcpyDirection);
        NAME(cudaErrorInvalidDevice);
        NAME(cudaErrorInvalidResourceHandle);
        NAME(cudaErrorIllegalAddress);
        NAME(cudaErrorLaunchOutOfResources);
        NAME(cudaErrorLaunchTimeout);
        NAME(cudaErrorIllegalInstruction);
        NAME(cudaErrorMisalignedAddress);
        NAME(cudaErrorLaunchFailure);
#undef NAME
    }
    return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
    if (error != cudaSuccess && error == reported && !last_report().empty()) {
        message = last_report();
        return message.c_str();
    }
    switch (error) {  // the words of the CUDA toolkit
        case cudaSuccess:
            return "no error";
        case cudaErrorInvalidValue:
            return "invalid argument";
        case cudaErrorMemoryAllocation:
            return "out of memory";
        case cudaErrorInvalidConfiguration:
            return "invalid configuration argument";
        case cudaErrorInvalidMemcpyDirection:
            return "invalid copy direction for memcpy";
        case cudaErrorInvalidDevice:
            return "invalid device ordinal";
        case cudaErrorInvalidResourceHandle:
            return "invalid resource handle";
        case cudaErrorIllegalAddress:
            return "an illegal memory access was encountered";
        case cudaErrorLaunchOutOfResources:
            return "too many resources requested for launch";
        case cudaErrorLaunchTimeout:
            return "the launch timed out and was terminated";
        case cudaErrorIllegalInstruction:
            return "an illegal instruction was encountered";
        case cudaErrorMisalignedAddress:
            return "misaligned address";
        case cudaErrorLaunchFailure:
            return "unspecified launch failure";
    }
    return "unrecognized error code";
}

cudaError_t cudaGetLastError() {
    kernel_error = cudaSuccess;
    return std::exchange(last_error, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaGetDeviceCount(int* count) {
    *count = 1;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return set_error(device == 0 ? cudaSuccess : cudaErrorInvalidDevice); }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    if (device != 0) return set_error(cudaErrorInvalidDevice);
    *properties = {};
    std::strcpy(properties->name, "FlashLadder emulator");
    properties->totalGlobalMem = settings().memory_bytes;
    properties->sharedMemPerBlock = std::min(shared_bytes_without_opt_in, settings().shared_bytes_per_block);
    properties->sharedMemPerBlockOptin = settings().shared_bytes_per_block;
    properties->sharedMemPerMultiprocessor = settings().shared_bytes_per_block + 1024;
    properties->regsPerBlock = 65536;
    properties->warpSize = warp_size;
    properties->maxThreadsPerBlock = max_threads;
    constexpr int max_threads_dim[3] = {1024, 1024, 64}, max_grid[3] = {0x7FFFFFFF, 0xFFFF, 0xFFFF};
    std::copy_n(max_threads_dim, 3, properties->maxThreadsDim);
    std::copy_n(max_grid, 3, properties->maxGridSize);
    properties->major = 9;
    properties->multiProcessorCount = settings().multiprocessors;
    properties->l2CacheSize = static_cast<int>(settings().l2_bytes);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    cudaDeviceProp properties;
    if (const cudaError_t error = cudaGetDeviceProperties(&properties, device)) return error;
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock: *value = properties.maxThreadsPerBlock; break;
        case cudaDevAttrMaxSharedMemoryPerBlock: *value = static_cast<int>(properties.sharedMemPerBlock); break;
        case cudaDevAttrWarpSize: *value = properties.warpSize; break;
        case cudaDevAttrMultiProcessorCount: *value = properties.multiProcessorCount; break;
        case cudaDevAttrL2CacheSize: *value = properties.l2CacheSize; break;
        case cudaDevAttrComputeCapabilityMajor: *value = properties.major; break;
        case cudaDevAttrComputeCapabilityMinor: *value = properties.minor; break;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
            *value = static_cast<int>(properties.sharedMemPerMultiprocessor);
            break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin:
            *value = static_cast<int>(properties.sharedMemPerBlockOptin);
            break;
        default: return set_error(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() { return kernel_error; }
cudaError_t cudaDeviceReset() {
    DeviceMemory::instance().free_all();
    opted_in.clear();
    clear_report();
    last_error = kernel_error = cudaSuccess;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = 13000;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    *total = settings().memory_bytes;
    *free = *total - std::min(*total, DeviceMemory::instance().bytes_in_use());
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    *stream = new CUstream_st;
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cudaStreamCreate(stream); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    delete stream;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return kernel_error; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }

cudaError_t cudaEventCreate(cudaEvent_t* event) {
    *event = new CUevent_st;
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
    if (!event) return set_error(cudaErrorInvalidResourceHandle);
    event->time = std::chrono::steady_clock::now();
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return kernel_error; }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
    if (!start || !end || !start->time || !end->time) return set_error(cudaErrorInvalidResourceHandle);
    *milliseconds = std::chrono::duration<float, std::milli>(*end->time - *start->time).count();
    return cudaSuccess;
}

cudaError_t cudaMalloc(void** pointer, std::size_t bytes, std::source_location where) {
    if (!pointer) return set_error(cudaErrorInvalidValue);
    *pointer = bytes == 0 ? nullptr : DeviceMemory::instance().allocate(bytes, where);
    return set_error(bytes > 0 && !*pointer ? cudaErrorMemoryAllocation : cudaSuccess);
}

cudaError_t cudaFree(void* pointer) {
    if (!pointer || DeviceMemory::instance().free(pointer)) return cudaSuccess;
    return set_error(cudaErrorInvalidValue);
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return set_error(cudaErrorInvalidMemcpyDirection);
    if (bytes == 0) return cudaSuccess;
    const auto device = [](const void* p) {
        return DeviceMemory::instance().covers(reinterpret_cast<std::uintptr_t>(p));
    };
    const bool to_device =
        kind == cudaMemcpyDefault ? device(to) : kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device =
        kind == cudaMemcpyDefault ? device(from) : kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (!to || !from || !inside(to, bytes, to_device) || !inside(from, bytes, from_device))
        return set_error(cudaErrorInvalidValue);
    std::memmove(to, from, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
    return cudaMemcpy(to, from, bytes, kind);
}
cudaError_t cudaMemset(void* pointer, int value, std::size_t bytes) {
    if (bytes == 0) return cudaSuccess;
    if (!DeviceMemory::instance().valid(pointer, bytes)) return set_error(cudaErrorInvalidValue);
    std::memset(pointer, value, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* pointer, int value, std::size_t bytes, cudaStream_t) {
    return cudaMemset(pointer, value, bytes);
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
    if (!function || attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0)
        return set_error(cudaErrorInvalidValue);
    const std::size_t most = settings().shared_bytes_per_block;
    if (static_cast<std::size_t>(value) > most)
        return refuse_shared_bytes(function_name(function), static_cast<std::size_t>(value), most);
    opted_in[function] = static_cast<std::size_t>(value);
    return cudaSuccess;
}
