// The runtime API: memory, which device, host or both may use, and copies.
#include <algorithm>
#include <cstring>

#include "machine.h"
#include "runtime_state.h"

namespace emulator {

std::set<std::uintptr_t> also_hosts;

namespace {

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
}  // namespace emulator

using namespace emulator;

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    *total = settings().memory_bytes;
    *free = *total - std::min(*total, DeviceMemory::instance().bytes_in_use());
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
cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device, std::size_t bytes) {
    if (to_device != 0 || from_device != 0) return set_error(cudaErrorInvalidDevice);
    return cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, std::size_t bytes,
                                cudaStream_t) {
    return cudaMemcpyPeer(to, to_device, from, from_device, bytes);
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
