#include "runtime_api.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "machine.h"
#include "report.h"
#include "symbols.h"

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

std::set<std::uintptr_t> also_hosts;  // where the allocations begin that the host may use too

bool is_also_hosts(const void* pointer) {
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    const auto& memory = DeviceMemory::instance();
    const Allocation* allocation = memory.covers(address) ? memory.find(address) : nullptr;
    return allocation && also_hosts.contains(allocation->begin);
}

bool inside(const void* pointer, std::size_t bytes, bool on_device) {
    const auto& memory = DeviceMemory::instance();
    if (on_device || is_also_hosts(pointer)) return memory.valid(pointer, bytes);
    return !memory.covers(reinterpret_cast<std::uintptr_t>(pointer));
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
        NAME(cudaErrorInvalidSymbol);
        NAME(cudaErrorInvalidMemcpyDirection);
        NAME(cudaErrorInvalidDevice);
        NAME(cudaErrorInvalidResourceHandle);
        NAME(cudaErrorIllegalAddress);
        NAME(cudaErrorLaunchOutOfResources);
        NAME(cudaErrorLaunchTimeout);
        NAME(cudaErrorIllegalInstruction);
        NAME(cudaErrorMisalignedAddress);
        NAME(cudaErrorNoDevice);
        NAME(cudaErrorNotReady);
        NAME(cudaErrorAssert);
        NAME(cudaErrorCooperativeLaunchTooLarge);
        NAME(cudaErrorNotSupported);
        NAME(cudaErrorUnknown);
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
        case cudaErrorInvalidSymbol:
            return "invalid device symbol";
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
        case cudaErrorNoDevice:
            return "no CUDA-capable device is detected";
        case cudaErrorNotReady:
            return "device not ready";
        case cudaErrorAssert:
            return "device-side assert triggered";
        case cudaErrorCooperativeLaunchTooLarge:
            return "too many blocks in cooperative launch";
        case cudaErrorNotSupported:
            return "operation not supported";
        case cudaErrorUnknown:
            return "unknown error";
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
    properties->totalConstMem = 64 * 1024;
    properties->memPitch = 0x7FFFFFFF;
    properties->textureAlignment = 512;
    properties->reservedSharedMemPerBlock = 1024;
    properties->clockRate = 1'980'000;
    properties->memoryClockRate = 2'619'000;
    properties->memoryBusWidth = 5120;
    properties->maxThreadsPerMultiProcessor = 2048;
    properties->maxBlocksPerMultiProcessor = 32;
    properties->regsPerMultiprocessor = 65536;
    properties->asyncEngineCount = properties->deviceOverlap = properties->canMapHostMemory = 1;
    properties->concurrentKernels = properties->unifiedAddressing = properties->managedMemory = 1;
    properties->concurrentManagedAccess = properties->cooperativeLaunch = 1;
    properties->streamPrioritiesSupported = properties->globalL1CacheSupported = properties->localL1CacheSupported = 1;
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
        case cudaDevAttrClockRate: *value = properties.clockRate; break;
        case cudaDevAttrGpuOverlap: *value = properties.deviceOverlap; break;
        case cudaDevAttrIntegrated: *value = properties.integrated; break;
        case cudaDevAttrComputeMode: *value = properties.computeMode; break;
        case cudaDevAttrMemoryClockRate: *value = properties.memoryClockRate; break;
        case cudaDevAttrGlobalMemoryBusWidth: *value = properties.memoryBusWidth; break;
        case cudaDevAttrMaxThreadsPerMultiProcessor: *value = properties.maxThreadsPerMultiProcessor; break;
        case cudaDevAttrManagedMemory: *value = properties.managedMemory; break;
        case cudaDevAttrConcurrentManagedAccess: *value = properties.concurrentManagedAccess; break;
        case cudaDevAttrCooperativeLaunch: *value = properties.cooperativeLaunch; break;
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
    also_hosts.clear();
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
namespace {
/// The variable that is named; null for what is none.
Allocation* variable_named(const void* symbol) {
    const auto address = reinterpret_cast<std::uintptr_t>(symbol);
    Allocation* variable = DeviceMemory::instance().find_variable(address);
    return variable && variable->begin == address ? variable : nullptr;
}

/// Whether a copy to or from a variable makes sense. `kind` may be `host`, which is what cudaMemcpyDefault becomes, or
/// between two places of the device.
cudaError_t check_symbol_copy(const void* symbol, std::size_t bytes, std::size_t offset, cudaMemcpyKind& kind,
                              cudaMemcpyKind host) {
    const Allocation* variable = variable_named(symbol);
    if (!variable) return cudaErrorInvalidSymbol;
    if (offset > variable->bytes || bytes > variable->bytes - offset) return cudaErrorInvalidValue;
    if (kind == cudaMemcpyDefault) kind = host;
    return kind == host || kind == cudaMemcpyDeviceToDevice ? cudaSuccess : cudaErrorInvalidMemcpyDirection;
}
}  // namespace

cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
    Allocation* variable = variable_named(symbol);
    if (!address || !variable) return set_error(address ? cudaErrorInvalidSymbol : cudaErrorInvalidValue);
    variable->has_address = true;
    *address = const_cast<void*>(symbol);
    return cudaSuccess;
}
cudaError_t cudaGetSymbolSize(std::size_t* bytes, const void* symbol) {
    const Allocation* variable = variable_named(symbol);
    if (!bytes || !variable) return set_error(bytes ? cudaErrorInvalidSymbol : cudaErrorInvalidValue);
    *bytes = variable->bytes;
    return cudaSuccess;
}
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, std::size_t bytes, std::size_t offset,
                               cudaMemcpyKind kind) {
    if (const cudaError_t error = check_symbol_copy(symbol, bytes, offset, kind, cudaMemcpyHostToDevice))
        return set_error(error);
    return cudaMemcpy(static_cast<char*>(const_cast<void*>(symbol)) + offset, from, bytes, kind);
}
cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, std::size_t bytes, std::size_t offset,
                                 cudaMemcpyKind kind) {
    if (const cudaError_t error = check_symbol_copy(symbol, bytes, offset, kind, cudaMemcpyDeviceToHost))
        return set_error(error);
    return cudaMemcpy(to, static_cast<const char*>(symbol) + offset, bytes, kind);
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

cudaError_t cudaDeviceSetLimit(cudaLimit, std::size_t) { return cudaSuccess; }
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return cudaSuccess; }
cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }
cudaError_t cudaThreadSynchronize() { return cudaDeviceSynchronize(); }

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) { return cudaStreamCreate(stream); }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t) { return kernel_error; }
cudaError_t cudaEventQuery(cudaEvent_t event) {
    return event ? kernel_error : set_error(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data, unsigned) {
    if (!callback) return set_error(cudaErrorInvalidValue);
    callback(stream, kernel_error, data);
    return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void* data) {
    if (!function) return set_error(cudaErrorInvalidValue);
    function(data);
    return cudaSuccess;
}

cudaError_t cudaMallocManaged(void** pointer, std::size_t bytes, unsigned flags, cudaWhere where) {
    if (bytes == 0 || (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost)) return set_error(cudaErrorInvalidValue);
    const cudaError_t error = cudaMalloc(pointer, bytes, where);
    if (error == cudaSuccess) also_hosts.insert(reinterpret_cast<std::uintptr_t>(*pointer));
    return error;
}
cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned, cudaWhere where) {
    const cudaError_t error = cudaMalloc(pointer, bytes, where);
    if (error == cudaSuccess && *pointer) also_hosts.insert(reinterpret_cast<std::uintptr_t>(*pointer));
    return error;
}
cudaError_t cudaMallocHost(void** pointer, std::size_t bytes, unsigned flags, cudaWhere where) {
    return cudaHostAlloc(pointer, bytes, flags, where);
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
    if (!is_also_hosts(host)) return set_error(cudaErrorInvalidValue);
    *device = host;
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void* pointer) {
    return pointer && !is_also_hosts(pointer) ? set_error(cudaErrorInvalidValue) : cudaFree(pointer);
}
cudaError_t cudaHostRegister(void* pointer, std::size_t, unsigned) {
    return set_error(pointer ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaHostUnregister(void* pointer) { return set_error(pointer ? cudaSuccess : cudaErrorInvalidValue); }
cudaError_t cudaMallocAsync(void** pointer, std::size_t bytes, cudaStream_t, cudaWhere where) {
    return cudaMalloc(pointer, bytes, where);
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) { return cudaFree(pointer); }
cudaError_t cudaMallocPitch(void** pointer, std::size_t* pitch, std::size_t width, std::size_t height, cudaWhere where) {
    constexpr std::size_t row = 512;
    if (!pitch) return set_error(cudaErrorInvalidValue);
    *pitch = (width + row - 1) / row * row;
    return cudaMalloc(pointer, *pitch * height, where);
}
cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                         std::size_t height, cudaMemcpyKind kind) {
    if (width > to_pitch || width > from_pitch) return set_error(cudaErrorInvalidValue);
    for (std::size_t row = 0; row < height; ++row)
        if (const cudaError_t error = cudaMemcpy(static_cast<char*>(to) + row * to_pitch,
                                                 static_cast<const char*>(from) + row * from_pitch, width, kind))
            return error;
    return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                              std::size_t height, cudaMemcpyKind kind, cudaStream_t) {
    return cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind);
}
cudaError_t cudaMemset2D(void* pointer, std::size_t pitch, int value, std::size_t width, std::size_t height) {
    if (width > pitch) return set_error(cudaErrorInvalidValue);
    for (std::size_t row = 0; row < height; ++row)
        if (const cudaError_t error = cudaMemset(static_cast<char*>(pointer) + row * pitch, value, width)) return error;
    return cudaSuccess;
}
cudaError_t cudaMemPrefetchAsync(const void* pointer, std::size_t bytes, int, cudaStream_t) {
    return set_error(is_also_hosts(pointer) && inside(pointer, bytes, true) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMemAdvise(const void* pointer, std::size_t bytes, cudaMemoryAdvise, int device) {
    return cudaMemPrefetchAsync(pointer, bytes, device);
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

namespace emulator {
namespace {

unsigned* grid_arrivals = nullptr;  // of the cooperative launch in progress

}  // namespace

unsigned* grid_barrier(const std::source_location& where) {
    if (!grid_arrivals)
        fail(cudaErrorLaunchFailure, where,
             [] { return "no cooperative launch: only one by cudaLaunchCooperativeKernel() can synchronise its grid"; });
    return grid_arrivals;
}

cudaError_t launch_from_host(const void* entry, void (*run)(void*), void* parameters, std::size_t parameter_bytes, dim3 grid,
                             dim3 block, std::size_t shared_bytes, bool cooperative) {
    const Kernel kernel{entry, run, parameters, parameter_bytes};
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
