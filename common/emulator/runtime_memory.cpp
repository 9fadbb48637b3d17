// The runtime API: memory, which device, host or both may use, and copies.
#include <algorithm>
#include <cstring>

#include "machine.h"
#include "runtime_state.h"
#include "streams.h"

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
    if (!pointer) return cudaSuccess;
    host_waits();
    return set_error(DeviceMemory::instance().free(pointer) ? cudaSuccess : cudaErrorInvalidValue);
}

namespace {

bool on_device(const void* p) { return DeviceMemory::instance().covers(reinterpret_cast<std::uintptr_t>(p)); }

/// Rows of `bytes`, the next of which begin so many bytes further.
struct Rows {
    std::size_t bytes, number = 1, to_pitch = 0, from_pitch = 0;
};

/// The host waits for a copy that is not asynchronous, unless it is from device to device; and for one to memory of its
/// own, that is not pinned, in any case.
cudaError_t copy(void* to, const void* from, const Rows& rows, cudaMemcpyKind kind, cudaStream_t stream, bool host_waits,
                 const WorkName& name) {
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return set_error(cudaErrorInvalidMemcpyDirection);
    if (rows.bytes == 0 || rows.number == 0) return cudaSuccess;
    const bool to_device = kind == cudaMemcpyDefault ? on_device(to)
                                                     : kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDefault
                                 ? on_device(from)
                                 : kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    const auto row = [&](auto* pointer, std::size_t i, std::size_t pitch) { return pointer + i * pitch; };
    for (std::size_t i = 0; i < rows.number; ++i)
        if (!to || !from || !inside(row(static_cast<char*>(to), i, rows.to_pitch), rows.bytes, to_device) ||
            !inside(row(static_cast<const char*>(from), i, rows.from_pitch), rows.bytes, from_device))
            return set_error(cudaErrorInvalidValue);
    StreamWorkScope work(stream, name);
    for (std::size_t i = 0; i < rows.number; ++i) {
        char* const to_row = row(static_cast<char*>(to), i, rows.to_pitch);
        const char* const from_row = row(static_cast<const char*>(from), i, rows.from_pitch);
        work.reads(from_row, rows.bytes), work.writes(to_row, rows.bytes);
        std::memmove(to_row, from_row, rows.bytes);
    }
    const cudaError_t error = work.end();
    if ((host_waits && !(to_device && from_device)) || (!to_device && !on_device(to))) host_waits_for(stream);
    return error;
}

cudaError_t fill(void* pointer, int value, const Rows& rows, cudaStream_t stream, const WorkName& name) {
    if (rows.bytes == 0 || rows.number == 0) return cudaSuccess;
    const auto row = [&](std::size_t i) { return static_cast<char*>(pointer) + i * rows.to_pitch; };
    for (std::size_t i = 0; i < rows.number; ++i)
        if (!DeviceMemory::instance().valid(row(i), rows.bytes)) return set_error(cudaErrorInvalidValue);
    StreamWorkScope work(stream, name);
    for (std::size_t i = 0; i < rows.number; ++i) {
        work.writes(row(i), rows.bytes);
        std::memset(row(i), value, rows.bytes);
    }
    return work.end();
}

WorkName call(const char* name, const cudaWhere& where) { return {name, nullptr, nullptr, where}; }

}  // namespace

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaWhere where) {
    return copy(to, from, {bytes}, kind, nullptr, true, call("cudaMemcpy", where));
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream,
                            cudaWhere where) {
    return copy(to, from, {bytes}, kind, stream, false, call("cudaMemcpyAsync", where));
}
cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device, std::size_t bytes, cudaWhere where) {
    if (to_device != 0 || from_device != 0) return set_error(cudaErrorInvalidDevice);
    return copy(to, from, {bytes}, cudaMemcpyDeviceToDevice, nullptr, true, call("cudaMemcpyPeer", where));
}
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, std::size_t bytes,
                                cudaStream_t stream, cudaWhere where) {
    if (to_device != 0 || from_device != 0) return set_error(cudaErrorInvalidDevice);
    return copy(to, from, {bytes}, cudaMemcpyDeviceToDevice, stream, false, call("cudaMemcpyPeerAsync", where));
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
cudaError_t emulator::copy_to_symbol(const void* symbol, const void* from, std::size_t bytes, std::size_t offset,
                                     cudaMemcpyKind kind, cudaStream_t stream) {
    if (const cudaError_t error = check_symbol_copy(symbol, bytes, offset, kind, cudaMemcpyHostToDevice))
        return set_error(error);
    return cudaMemcpyAsync(static_cast<char*>(const_cast<void*>(symbol)) + offset, from, bytes, kind, stream);
}
cudaError_t emulator::copy_from_symbol(void* to, const void* symbol, std::size_t bytes, std::size_t offset,
                                       cudaMemcpyKind kind, cudaStream_t stream) {
    if (const cudaError_t error = check_symbol_copy(symbol, bytes, offset, kind, cudaMemcpyDeviceToHost))
        return set_error(error);
    return cudaMemcpyAsync(to, static_cast<const char*>(symbol) + offset, bytes, kind, stream);
}
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, std::size_t bytes, std::size_t offset,
                               cudaMemcpyKind kind) {
    const cudaError_t error = copy_to_symbol(symbol, from, bytes, offset, kind, nullptr);
    host_waits_for(static_cast<cudaStream_t>(nullptr));
    return error;
}
cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, std::size_t bytes, std::size_t offset,
                                 cudaMemcpyKind kind) {
    const cudaError_t error = copy_from_symbol(to, symbol, bytes, offset, kind, nullptr);
    host_waits_for(static_cast<cudaStream_t>(nullptr));
    return error;
}

cudaError_t cudaMemset(void* pointer, int value, std::size_t bytes, cudaWhere where) {
    return fill(pointer, value, {bytes}, nullptr, call("cudaMemset", where));
}
cudaError_t cudaMemsetAsync(void* pointer, int value, std::size_t bytes, cudaStream_t stream, cudaWhere where) {
    return fill(pointer, value, {bytes}, stream, call("cudaMemsetAsync", where));
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
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream, cudaWhere where) {
    DeviceMemory& memory = DeviceMemory::instance();
    const Allocation* allocation = memory.find(reinterpret_cast<std::uintptr_t>(pointer));
    if (!pointer || !allocation) return set_error(pointer ? cudaErrorInvalidValue : cudaSuccess);
    StreamWorkScope work(stream, call("cudaFreeAsync", where));
    work.writes(pointer, allocation->bytes);
    const cudaError_t error = work.end();
    return error != cudaSuccess || memory.free(pointer) ? error : set_error(cudaErrorInvalidValue);
}
cudaError_t cudaMallocPitch(void** pointer, std::size_t* pitch, std::size_t width, std::size_t height, cudaWhere where) {
    constexpr std::size_t row = 512;
    if (!pitch) return set_error(cudaErrorInvalidValue);
    *pitch = (width + row - 1) / row * row;
    return cudaMalloc(pointer, *pitch * height, where);
}
cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                         std::size_t height, cudaMemcpyKind kind, cudaWhere where) {
    if (width > to_pitch || width > from_pitch) return set_error(cudaErrorInvalidValue);
    return copy(to, from, {width, height, to_pitch, from_pitch}, kind, nullptr, true, call("cudaMemcpy2D", where));
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                              std::size_t height, cudaMemcpyKind kind, cudaStream_t stream, cudaWhere where) {
    if (width > to_pitch || width > from_pitch) return set_error(cudaErrorInvalidValue);
    return copy(to, from, {width, height, to_pitch, from_pitch}, kind, stream, false, call("cudaMemcpy2DAsync", where));
}
cudaError_t cudaMemset2D(void* pointer, std::size_t pitch, int value, std::size_t width, std::size_t height,
                         cudaWhere where) {
    if (width > pitch) return set_error(cudaErrorInvalidValue);
    return fill(pointer, value, {width, height, pitch}, nullptr, call("cudaMemset2D", where));
}
cudaError_t cudaMemPrefetchAsync(const void* pointer, std::size_t bytes, int, cudaStream_t) {
    return set_error(is_also_hosts(pointer) && inside(pointer, bytes, true) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMemAdvise(const void* pointer, std::size_t bytes, cudaMemoryAdvise, int device) {
    return cudaMemPrefetchAsync(pointer, bytes, device);
}
