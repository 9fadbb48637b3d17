// The two places where CUDA's own syntax cannot be compiled by a host compiler, as functions. Everything else in a
// kernel is plain CUDA C++.
//
//   launch_kernel(kernel, {grid, block, bytes, stream}, a, b);    kernel<<<grid, block, bytes, stream>>>(a, b);
//   float* tile = dynamic_shared<float>();                        extern __shared__ float tile[];
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#endif

namespace flashladder {

/// A CUDA call that failed.
struct CudaError : std::runtime_error {
    cudaError_t code;
    CudaError(cudaError_t code, const std::string& what) : std::runtime_error(what), code(code) {}
};

/// Throws CudaError if a CUDA runtime call failed: its name, then what it was about.
inline void check_cuda(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    (void)cudaGetLastError();  // reported here, so not again by the next call that looks
    throw CudaError(error, std::string(what) + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error));
}

/// An attribute of the current device: how many multiprocessors it has, how large its L2 is. Throws CudaError.
inline int device_attribute(cudaDeviceAttr attribute) {
    int device = 0, value = 0;
    check_cuda(cudaGetDevice(&device), "asking for the device");
    check_cuda(cudaDeviceGetAttribute(&value, attribute, device), "asking for an attribute of the device");
    return value;
}

/// How the emulator's reports call a stream. A GPU has no use for it.
inline void name_stream([[maybe_unused]] cudaStream_t stream, [[maybe_unused]] const std::string& name) {
#ifndef FLASHLADDER_GPU
    emulator::name_stream(stream, name);
#endif
}

struct LaunchConfig {
    dim3 grid;
    dim3 block;
    std::size_t shared_bytes = 0;  // dynamic shared memory
    cudaStream_t stream = nullptr;
    dim3 cluster = {1, 1, 1};  // blocks that share memory, of which the grid is a multiple (sm_90)
    unsigned blocks = 1;       // the second bound of the kernel's __launch_bounds__, for setmaxnreg on the emulator
    /// Its blocks may begin once all of the kernel before it have called cudaTriggerProgrammaticLaunchCompletion(), or have
    /// ended. What that kernel writes is there behind cudaGridDependencySynchronize() (sm_90).
    bool dependent = false;
};

/// No more blocks than this on a multiprocessor of the GPU, although more would have room: launches of this thread ask for
/// as much shared memory as that takes. 0: no limit. For tools that measure what occupancy is worth.
inline thread_local int most_blocks = 0;

/// The dynamic shared memory that a launch asks for, in bytes.
inline std::size_t shared_bytes_of(const LaunchConfig& config) {
#ifdef FLASHLADDER_GPU
    if (most_blocks > 0) {
        const int all = device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
        const int each = device_attribute(cudaDevAttrReservedSharedMemoryPerBlock);
        const int too_much_for_one_more = all / (most_blocks + 1) - each + 1;
        return std::max(config.shared_bytes, static_cast<std::size_t>(too_much_for_one_more));
    }
#endif
    return config.shared_bytes;
}

/// What the last launch_kernel() of this thread launched: entry is null if there was none.
struct LaunchedKernel {
    const void* entry = nullptr;
    int threads = 0;  // of a block
    std::size_t shared_bytes = 0;
    cudaStream_t stream = nullptr;
};
inline thread_local LaunchedKernel last_launch;

/// Launches a kernel; allows it more than 48 KB of dynamic shared memory where asked for. Does not wait for it.
/// Throws CudaError where the launch is refused; on the emulator also where the kernel fails.
template <class... Parameters, class... Arguments>
void launch_kernel(void (*kernel)(Parameters...), const LaunchConfig& config, Arguments&&... arguments) {
    struct Call {
        void (*kernel)(Parameters...);
        std::tuple<Parameters...> arguments;
    } call{kernel, {static_cast<Parameters>(std::forward<Arguments>(arguments))...}};
    const void* entry = reinterpret_cast<const void*>(kernel);
    const std::size_t shared_bytes = shared_bytes_of(config);
    last_launch = {entry, static_cast<int>(config.block.x * config.block.y * config.block.z), shared_bytes,
                   config.stream};
    const cudaError_t opted_in =
        cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (opted_in != cudaSuccess) {
        const int all = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
        const std::string asked = std::to_string(shared_bytes), there = std::to_string(all);
        const std::string what = "opting in to " + asked + " bytes of dynamic shared memory a block (" + there +
                                 " on this device, with what is static)";
        check_cuda(opted_in, what.c_str());
    }
#ifdef FLASHLADDER_GPU
    void* addresses[sizeof...(Parameters) + 1];
    std::apply(
        [&](auto&... p) {
            std::size_t i = 0;
            ((addresses[i++] = (void*)&p), ...);
        },
        call.arguments);
    cudaLaunchConfig_t launch{};
    launch.gridDim = config.grid;
    launch.blockDim = config.block;
    launch.dynamicSmemBytes = shared_bytes;
    launch.stream = config.stream;
    cudaLaunchAttribute attributes[2] = {};
    launch.attrs = attributes;
    if (config.cluster.x * config.cluster.y * config.cluster.z > 1) {
        cudaLaunchAttribute& cluster = attributes[launch.numAttrs++];
        cluster.id = cudaLaunchAttributeClusterDimension;
        cluster.val.clusterDim = {config.cluster.x, config.cluster.y, config.cluster.z};
    }
    if (config.dependent) {
        cudaLaunchAttribute& serialization = attributes[launch.numAttrs++];
        serialization.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        serialization.val.programmaticStreamSerializationAllowed = 1;
    }
    check_cuda(cudaLaunchKernelExC(&launch, entry, addresses), "launch");
#else
    const auto run = [](void* parameters) {
        auto& call = *static_cast<Call*>(parameters);
        std::apply(call.kernel, call.arguments);
    };
    emulator::launch({entry, run, &call, sizeof call, config.blocks, nullptr, config.dependent, config.stream},
                     config.grid, config.block, shared_bytes, config.cluster);
#endif
    check_cuda(cudaGetLastError(), "kernel");
}

#if defined(__CUDACC__) && defined(FLASHLADDER_GPU)
/// Start of the block's dynamic shared memory, aligned to 1024 bytes.
template <class T>
__device__ inline T* dynamic_shared() {
    extern __shared__ __align__(1024) unsigned char bytes[];
    return reinterpret_cast<T*>(bytes);
}
#elif !defined(FLASHLADDER_GPU)
template <class T>
inline T* dynamic_shared() {
    return static_cast<T*>(emulator::dynamic_shared_memory());
}
#endif

}  // namespace flashladder
