// The runtime API: errors, the device, streams and events. runtime_launch.cpp has launches, runtime_memory.cpp memory.
#include "runtime_api.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "machine.h"
#include "report.h"
#include "runtime_state.h"
#include "streams.h"

struct CUevent_st {
    std::optional<std::chrono::steady_clock::time_point> time;  // if it was recorded
    emulator::StreamClock done;  // before it
};

namespace emulator {

cudaError_t last_error = cudaSuccess;
cudaError_t kernel_error = cudaSuccess;
cudaError_t reported = cudaSuccess;

namespace {
std::string message;
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
        NAME(cudaErrorPeerAccessUnsupported);
        NAME(cudaErrorInvalidResourceHandle);
        NAME(cudaErrorIllegalAddress);
        NAME(cudaErrorLaunchOutOfResources);
        NAME(cudaErrorLaunchTimeout);
        NAME(cudaErrorIllegalInstruction);
        NAME(cudaErrorMisalignedAddress);
        NAME(cudaErrorNoDevice);
        NAME(cudaErrorNotReady);
        NAME(cudaErrorPeerAccessAlreadyEnabled);
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
        case cudaErrorPeerAccessUnsupported:
            return "peer access is not supported between these two devices";
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
        case cudaErrorPeerAccessAlreadyEnabled:
            return "peer access is already enabled";
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

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
    if (!can) return set_error(cudaErrorInvalidValue);
    if (device != 0 || peer != 0) return set_error(cudaErrorInvalidDevice);
    *can = 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    if (flags != 0) return set_error(cudaErrorInvalidValue);
    return set_error(peer == 0 ? cudaErrorPeerAccessUnsupported : cudaErrorInvalidDevice);
}

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

cudaError_t cudaDeviceSynchronize() {
    host_waits();
    return kernel_error;
}
cudaError_t cudaDeviceReset() {
    DeviceMemory::instance().free_all();
    also_hosts.clear();
    opted_in.clear();
    clear_report();
    forget_streams();
    last_error = kernel_error = cudaSuccess;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = 13000;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    *stream = new_stream(false);
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    *stream = new_stream(flags & cudaStreamNonBlocking);
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    destroy(stream);
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    host_waits_for(stream);
    return kernel_error;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    if (!event) return set_error(cudaErrorInvalidResourceHandle);
    stream_waits(stream, event->done);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
    *event = new CUevent_st;
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    if (!event) return set_error(cudaErrorInvalidResourceHandle);
    event->done = recorded(stream);
    event->time = std::chrono::steady_clock::now();
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (kernel_error != cudaSuccess) return kernel_error;  // whatever is asked of a context that has failed
    if (!event) return set_error(cudaErrorInvalidResourceHandle);
    host_waits_for(event->done);
    return kernel_error;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
    if (!start || !end || !start->time || !end->time) return set_error(cudaErrorInvalidResourceHandle);
    host_waits_for(end->done);
    *milliseconds = std::chrono::duration<float, std::milli>(*end->time - *start->time).count();
    return cudaSuccess;
}

cudaError_t cudaDeviceSetLimit(cudaLimit, std::size_t) { return cudaSuccess; }
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return cudaSuccess; }
cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }
cudaError_t cudaThreadSynchronize() { return cudaDeviceSynchronize(); }

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
    return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }
cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaEventSynchronize(event); }
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
