// What tools/ladder/translate.cpp writes where CUDA has syntax of its own. `ladder check` puts this in front of a
// user's file, as nvcc puts its cuda_runtime.h there.
#pragma once

#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <tuple>
#include <type_traits>
#include <utility>

#include "cuda_runtime.h"
#include "emulator.h"

// As nvcc defines them where it compiles for the card that the emulator resembles.
#define FLASHLADDER_CUDACC 1  // __CUDACC__ in the user's files alone: in ours it means that nvcc compiles
#define __NVCC__ 1
#define __CUDA_ARCH__ 900
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define CUDART_VERSION 13000
#define CUDA_VERSION 13000
// The guards of the toolkit's headers, by which programs see that these are there.
#define __CUDA_RUNTIME_H__
#define __DRIVER_TYPES_H__

namespace emulator {

/// A launch of a kernel whose parameters are known, so that the arguments become what they become in a call.
template <class... Parameters>
class PreparedLaunch {
public:
    PreparedLaunch(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
                   cudaStream_t stream)
        : name_(name), kernel_(kernel), grid_(grid), block_(block), shared_bytes_(shared_bytes), stream_(stream) {}

    void operator()(Parameters... arguments) const {
        struct Call {
            void (*kernel)(Parameters...);
            std::tuple<Parameters...> arguments;
        } call{kernel_, {std::move(arguments)...}};
        const auto run = [](void* parameters) {
            auto& call = *static_cast<Call*>(parameters);
            std::apply(call.kernel, call.arguments);
        };
        launch({reinterpret_cast<const void*>(kernel_), run, &call, sizeof call, 1, name_, false, stream_}, grid_, block_,
               shared_bytes_);
    }

private:
    const char* name_;
    void (*kernel_)(Parameters...);
    dim3 grid_, block_;
    std::size_t shared_bytes_;
    cudaStream_t stream_;
};

/// The same of a template whose arguments the compiler finds: from the launch's arguments, as they are.
template <class Kernel>
class DeducedLaunch {
public:
    DeducedLaunch(const char* name, Kernel kernel, dim3 grid, dim3 block, std::size_t shared_bytes,
                   cudaStream_t stream)
        : name_(name), kernel_(kernel), grid_(grid), block_(block), shared_bytes_(shared_bytes), stream_(stream) {}

    template <class... Arguments>
    void operator()(Arguments... arguments) const {
        struct Call {
            Kernel kernel;
            std::tuple<Arguments...> arguments;
        } call{kernel_, {arguments...}};
        const auto run = [](void* parameters) {
            auto& call = *static_cast<Call*>(parameters);
            std::apply(call.kernel, call.arguments);
        };
        launch({nullptr, run, &call, sizeof call, 1, name_, false, stream_}, grid_, block_, shared_bytes_);
    }

private:
    const char* name_;
    Kernel kernel_;
    dim3 grid_, block_;
    std::size_t shared_bytes_;
    cudaStream_t stream_;
};

/// A kernel's address, where its name means one function. The first parameter makes the compiler look when a template
/// is instantiated, where it may fail.
template <class... Parameters>
auto the_function(int, void (*kernel)(Parameters...)) {
    return kernel;
}

template <class... Parameters, class Call>
auto prepare(const char* name, void (*kernel)(Parameters...), Call, dim3 grid, dim3 block, std::size_t shared_bytes = 0,
             cudaStream_t stream = nullptr) {
    return PreparedLaunch<Parameters...>(name, kernel, grid, block, shared_bytes, stream);
}
template <class Call>
auto prepare(const char* name, std::nullptr_t, Call call, dim3 grid, dim3 block, std::size_t shared_bytes = 0,
             cudaStream_t stream = nullptr) {
    return DeducedLaunch<Call>(name, call, grid, block, shared_bytes, stream);
}

/// The block's dynamic shared memory, as an array of T.
template <class T>
__forceinline__ T* dynamic_array() {
    return static_cast<T*>(dynamic_shared_memory());
}

/// The same, declared outside of all functions.
template <class T>
struct DynamicArray {
    __forceinline__ operator T*() const { return dynamic_array<T>(); }
    template <class U>
    __forceinline__ explicit operator U*() const {
        return static_cast<U*>(dynamic_shared_memory());
    }
};

[[gnu::error("inline PTX (asm) is not on the emulator; common/ptx has instructions as functions")]] void
inline_ptx(const char* text);

}  // namespace emulator

/// Of a kernel as it is named in a launch: its name, its address if it has one, and a call of it.
#define FLASHLADDER_KERNEL(...) \
#__VA_ARGS__,                                                                           \
        [=](auto later) {                                                                   \
            if constexpr (requires { ::emulator::the_function(later, __VA_ARGS__); })       \
                return ::emulator::the_function(later, __VA_ARGS__);                        \
            else                                                                            \
                return nullptr;                                                             \
        }(0),                                                                               \
        [=](auto&... arguments) { __VA_ARGS__(arguments...); }
