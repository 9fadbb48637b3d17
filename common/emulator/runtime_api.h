// The part of the CUDA runtime that the project uses. All work is done when a call returns; what streams and events do
// not order is found all the same: streams.h.
#pragma once

#include <cstddef>
#include <source_location>
#include <tuple>
#include <type_traits>
#include <utility>

#include "vector_types.h"

// Values and meanings as in the CUDA toolkit.
enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidSymbol = 13,
    cudaErrorInvalidMemcpyDirection = 21,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorPeerAccessUnsupported = 217,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchOutOfResources = 701,
    cudaErrorLaunchTimeout = 702,
    cudaErrorIllegalInstruction = 715,
    cudaErrorPeerAccessAlreadyEnabled = 704,
    cudaErrorAssert = 710,
    cudaErrorMisalignedAddress = 716,
    cudaErrorLaunchFailure = 719,
    cudaErrorCooperativeLaunchTooLarge = 720,
    cudaErrorNotSupported = 801,
    cudaErrorUnknown = 999,
};
using cudaError_t = cudaError;
const char* cudaGetErrorName(cudaError_t error);
/// In words. After a failed kernel: with the emulator's report of it.
const char* cudaGetErrorString(cudaError_t error);
/// The last error, which is forgotten thereby. Unlike a GPU's, an emulated context survives a failed kernel.
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();

// ---- devices -------------------------------------------------------------------------------------------------------

struct cudaDeviceProp {
    char name[256];
    std::size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
    int regsPerBlock, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
    int major, minor, multiProcessorCount, l2CacheSize;
    std::size_t totalConstMem, memPitch, textureAlignment, reservedSharedMemPerBlock;
    int clockRate, memoryClockRate, memoryBusWidth;  // kHz and bits, as of an H100: nothing here takes that time
    int maxThreadsPerMultiProcessor, maxBlocksPerMultiProcessor, regsPerMultiprocessor, asyncEngineCount;
    int deviceOverlap, kernelExecTimeoutEnabled, integrated, canMapHostMemory, computeMode, concurrentKernels,
        ECCEnabled;
    int pciBusID, pciDeviceID, pciDomainID, tccDriver, unifiedAddressing, managedMemory, concurrentManagedAccess;
    int cooperativeLaunch, isMultiGpuBoard, streamPrioritiesSupported, globalL1CacheSupported, localL1CacheSupported;
};
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrClockRate = 13,
    cudaDevAttrGpuOverlap = 15,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrIntegrated = 18,
    cudaDevAttrComputeMode = 20,
    cudaDevAttrMemoryClockRate = 36,
    cudaDevAttrGlobalMemoryBusWidth = 37,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrManagedMemory = 83,
    cudaDevAttrConcurrentManagedAccess = 89,
    cudaDevAttrCooperativeLaunch = 95,
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceReset();
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);

/// There is one device, which is no peer of itself. What has several of them for a number that repeats runs here.
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);

enum cudaComputeMode { cudaComputeModeDefault, cudaComputeModeExclusive, cudaComputeModeProhibited };
enum cudaLimit { cudaLimitStackSize, cudaLimitPrintfFifoSize, cudaLimitMallocHeapSize };
enum cudaFuncCache {
    cudaFuncCachePreferNone,
    cudaFuncCachePreferShared,
    cudaFuncCachePreferL1,
    cudaFuncCachePreferEqual
};
enum cudaSharedMemConfig {
    cudaSharedMemBankSizeDefault,
    cudaSharedMemBankSizeFourByte,
    cudaSharedMemBankSizeEightByte
};
constexpr unsigned cudaDeviceBlockingSync = 4, cudaDeviceScheduleAuto = 0, cudaDeviceScheduleSpin = 1, cudaDeviceScheduleYield = 2,
                   cudaDeviceScheduleBlockingSync = 4, cudaDeviceMapHost = 8;
// Wishes about what is not modelled: granted, without an effect.
cudaError_t cudaDeviceSetLimit(cudaLimit limit, std::size_t value);
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache config);
cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig config);
cudaError_t cudaSetDeviceFlags(unsigned flags);
cudaError_t cudaProfilerStart();
cudaError_t cudaProfilerStop();
cudaError_t cudaThreadSynchronize();  // the old name of cudaDeviceSynchronize()

// ---- streams and events --------------------------------------------------------------------------------------------

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
constexpr unsigned cudaStreamNonBlocking = 1;
cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
/// Wall-clock milliseconds of the emulation, not of any GPU.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end);

constexpr unsigned cudaStreamDefault = 0;
constexpr unsigned cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2;
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
inline cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned flags) {
    return cudaEventCreateWithFlags(event, flags);
}
#define CUDART_CB
using cudaStreamCallback_t = void (*)(cudaStream_t stream, cudaError_t status, void* data);
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data, unsigned flags);
using cudaHostFn_t = void (*)(void* data);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data);

// ---- memory --------------------------------------------------------------------------------------------------------

using cudaWhere = std::source_location;
enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault,
};
/// Fresh memory is filled with 0xFF bytes: NaN as float, so that a read before the first write shows.
cudaError_t cudaMalloc(void** pointer, std::size_t bytes, std::source_location where = std::source_location::current());
template <class T>
cudaError_t cudaMalloc(T** pointer, std::size_t bytes, std::source_location where = std::source_location::current()) {
    return cudaMalloc(reinterpret_cast<void**>(pointer), bytes, where);
}
cudaError_t cudaFree(void* pointer);
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                       cudaWhere = cudaWhere::current());
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t = nullptr,
                            cudaWhere = cudaWhere::current());
cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device, std::size_t bytes,
                           cudaWhere = cudaWhere::current());
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, std::size_t bytes,
                                cudaStream_t = nullptr, cudaWhere = cudaWhere::current());
cudaError_t cudaMemset(void* pointer, int value, std::size_t bytes, cudaWhere = cudaWhere::current());
cudaError_t cudaMemsetAsync(void* pointer, int value, std::size_t bytes, cudaStream_t = nullptr,
                            cudaWhere = cudaWhere::current());

// Of `__device__`, `__constant__` and `__managed__` variables, which are named themselves. Anything else is an invalid
// symbol.
cudaError_t cudaGetSymbolAddress(void** address, const void* symbol);
cudaError_t cudaGetSymbolSize(std::size_t* bytes, const void* symbol);
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, std::size_t bytes, std::size_t offset = 0,
                               cudaMemcpyKind kind = cudaMemcpyHostToDevice);
cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, std::size_t bytes, std::size_t offset = 0,
                                 cudaMemcpyKind kind = cudaMemcpyDeviceToHost);
template <class Address, class T>
cudaError_t cudaGetSymbolAddress(Address** address, const T& symbol) {
    return cudaGetSymbolAddress(reinterpret_cast<void**>(address), static_cast<const void*>(&symbol));
}
template <class T>
cudaError_t cudaGetSymbolSize(std::size_t* bytes, const T& symbol) {
    return cudaGetSymbolSize(bytes, static_cast<const void*>(&symbol));
}
template <class T>
cudaError_t cudaMemcpyToSymbol(const T& symbol, const void* from, std::size_t bytes, std::size_t offset = 0,
                               cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
    return cudaMemcpyToSymbol(static_cast<const void*>(&symbol), from, bytes, offset, kind);
}
template <class T>
cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, std::size_t bytes, std::size_t offset = 0,
                                 cudaMemcpyKind kind = cudaMemcpyDeviceToHost) {
    return cudaMemcpyFromSymbol(to, static_cast<const void*>(&symbol), bytes, offset, kind);
}
namespace emulator {
cudaError_t copy_to_symbol(const void* symbol, const void* from, std::size_t bytes, std::size_t offset, cudaMemcpyKind kind,
                           cudaStream_t stream);
cudaError_t copy_from_symbol(void* to, const void* symbol, std::size_t bytes, std::size_t offset, cudaMemcpyKind kind,
                             cudaStream_t stream);
}  // namespace emulator
template <class T>
cudaError_t cudaMemcpyToSymbolAsync(const T& symbol, const void* from, std::size_t bytes, std::size_t offset,
                                    cudaMemcpyKind kind, cudaStream_t stream = nullptr) {
    return emulator::copy_to_symbol(static_cast<const void*>(&symbol), from, bytes, offset, kind, stream);
}
template <class T>
cudaError_t cudaMemcpyFromSymbolAsync(void* to, const T& symbol, std::size_t bytes, std::size_t offset,
                                      cudaMemcpyKind kind, cudaStream_t stream = nullptr) {
    return emulator::copy_from_symbol(to, static_cast<const void*>(&symbol), bytes, offset, kind, stream);
}

/// Memory that host and device may both use. Nothing moves between the two, so no page faults are seen; nor whether the
/// host looks before cudaDeviceSynchronize(), for kernels are done when their launch returns.
constexpr unsigned cudaMemAttachGlobal = 1, cudaMemAttachHost = 2;
cudaError_t cudaMallocManaged(void** pointer, std::size_t bytes, unsigned flags = cudaMemAttachGlobal,
                              cudaWhere = cudaWhere::current());
/// The host's memory, which kernels may use too.
constexpr unsigned cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2,
                   cudaHostAllocWriteCombined = 4;
constexpr unsigned cudaHostRegisterDefault = 0, cudaHostRegisterPortable = 1;
cudaError_t cudaMallocHost(void** pointer, std::size_t bytes, unsigned flags = 0, cudaWhere = cudaWhere::current());
cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned flags, cudaWhere = cudaWhere::current());
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned flags = 0);
cudaError_t cudaFreeHost(void* pointer);
cudaError_t cudaHostRegister(void* pointer, std::size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void* pointer);
cudaError_t cudaMallocAsync(void** pointer, std::size_t bytes, cudaStream_t stream, cudaWhere = cudaWhere::current());
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream, cudaWhere = cudaWhere::current());
/// Rows of `width` bytes, each at a multiple of 512.
cudaError_t cudaMallocPitch(void** pointer, std::size_t* pitch, std::size_t width, std::size_t height,
                            cudaWhere = cudaWhere::current());
#define FLASHLADDER_ALLOCATION(name, parameters, arguments) \
    template <class T>                                      \
    cudaError_t name parameters {                           \
        return name arguments;                              \
    }
FLASHLADDER_ALLOCATION(cudaMallocManaged,
                       (T * *p, std::size_t n, unsigned flags = cudaMemAttachGlobal,
                        cudaWhere where = cudaWhere::current()),
                       (reinterpret_cast<void**>(p), n, flags, where))
FLASHLADDER_ALLOCATION(cudaMallocHost,
                       (T * *p, std::size_t n, unsigned flags = 0, cudaWhere where = cudaWhere::current()),
                       (reinterpret_cast<void**>(p), n, flags, where))
FLASHLADDER_ALLOCATION(cudaHostAlloc, (T * *p, std::size_t n, unsigned flags, cudaWhere where = cudaWhere::current()),
                       (reinterpret_cast<void**>(p), n, flags, where))
FLASHLADDER_ALLOCATION(cudaHostGetDevicePointer, (T * *p, void* host, unsigned flags = 0),
                       (reinterpret_cast<void**>(p), host, flags))
FLASHLADDER_ALLOCATION(cudaMallocAsync,
                       (T * *p, std::size_t n, cudaStream_t stream, cudaWhere where = cudaWhere::current()),
                       (reinterpret_cast<void**>(p), n, stream, where))
FLASHLADDER_ALLOCATION(cudaMallocPitch,
                       (T * *p, std::size_t* pitch, std::size_t width, std::size_t height,
                        cudaWhere where = cudaWhere::current()),
                       (reinterpret_cast<void**>(p), pitch, width, height, where))
#undef FLASHLADDER_ALLOCATION
cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                         std::size_t height, cudaMemcpyKind kind, cudaWhere = cudaWhere::current());
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t = nullptr,
                              cudaWhere = cudaWhere::current());
cudaError_t cudaMemset2D(void* pointer, std::size_t pitch, int value, std::size_t width, std::size_t height,
                         cudaWhere = cudaWhere::current());
constexpr int cudaCpuDeviceId = -1;
enum cudaMemoryAdvise {
    cudaMemAdviseSetReadMostly = 1,
    cudaMemAdviseUnsetReadMostly,
    cudaMemAdviseSetPreferredLocation,
    cudaMemAdviseUnsetPreferredLocation,
    cudaMemAdviseSetAccessedBy,
    cudaMemAdviseUnsetAccessedBy,
};
cudaError_t cudaMemAdvise(const void* pointer, std::size_t bytes, cudaMemoryAdvise advice, int device);
cudaError_t cudaMemPrefetchAsync(const void* pointer, std::size_t bytes, int device, cudaStream_t = nullptr);

// ---- functions -----------------------------------------------------------------------------------------------------

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value);
template <class... P>
cudaError_t cudaFuncSetAttribute(void (*function)(P...), cudaFuncAttribute attribute, int value) {
    return cudaFuncSetAttribute(reinterpret_cast<const void*>(function), attribute, value);
}

/// What there is to know without a GPU's compiler: neither registers nor static shared memory.
struct cudaFuncAttributes {
    std::size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
    int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA, maxDynamicSharedSizeBytes;
};
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function);
cudaError_t cudaFuncSetCacheConfig(const void* function, cudaFuncCache config);
/// By threads, blocks and shared memory; registers are not known.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int threads,
                                                          std::size_t shared_bytes);
template <class... P>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*function)(P...)) {
    return cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(function));
}
template <class... P>
cudaError_t cudaFuncSetCacheConfig(void (*function)(P...), cudaFuncCache config) {
    return cudaFuncSetCacheConfig(reinterpret_cast<const void*>(function), config);
}
template <class... P>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void (*function)(P...), int threads,
                                                          std::size_t shared_bytes) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, reinterpret_cast<const void*>(function), threads,
                                                         shared_bytes);
}
template <class Function>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, Function function, std::size_t shared_bytes = 0,
                                               int limit = 0) {
    *block = limit > 0 && limit < 1024 ? limit : 1024;
    int blocks = 0, multiprocessors = 0;
    const cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, *block, shared_bytes);
    if (error != cudaSuccess) return error;
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
    *grid = blocks * multiprocessors;
    return cudaSuccess;
}

namespace emulator {

cudaError_t launch_from_host(const void* entry, void (*run)(void*), void* parameters, std::size_t parameter_bytes,
                             dim3 grid, dim3 block, std::size_t shared_bytes, bool cooperative, cudaStream_t stream);

template <class... P>
cudaError_t launch_by_addresses(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes,
                                bool cooperative, cudaStream_t stream) {
    struct Call {
        void (*kernel)(P...);
        std::tuple<P...> arguments;
    };
    Call call = [&]<std::size_t... i>(std::index_sequence<i...>) {
        return Call{kernel, {*static_cast<std::remove_reference_t<P>*>(arguments[i])...}};
    }
    (std::index_sequence_for<P...>());
    const auto run = [](void* parameters) {
        auto& call = *static_cast<Call*>(parameters);
        std::apply(call.kernel, call.arguments);
    };
    return launch_from_host(reinterpret_cast<const void*>(kernel), run, &call, sizeof call, grid, block, shared_bytes,
                            cooperative, stream);
}

}  // namespace emulator

/// Of a kernel that keeps its type: without a cast to void*, which `ladder check` leaves out.
template <class... P>
cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments,
                             std::size_t shared_bytes = 0, cudaStream_t stream = nullptr) {
    return emulator::launch_by_addresses(kernel, grid, block, arguments, shared_bytes, false, stream);
}
/// All blocks are resident at a time, so that they can wait for one another; refused where a GPU would have no room.
template <class... P>
cudaError_t cudaLaunchCooperativeKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments,
                                        std::size_t shared_bytes = 0, cudaStream_t stream = nullptr) {
    return emulator::launch_by_addresses(kernel, grid, block, arguments, shared_bytes, true, stream);
}
