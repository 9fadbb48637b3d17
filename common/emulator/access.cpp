#include "access.h"

#include <fmt/format.h>

#include <cstring>

#include "cuda_runtime.h"
#include "ptx_functions.h"
#include "streams.h"

namespace emulator {
namespace {

constexpr unsigned fence_bits = 21;          // below, the number of fences; above, the thread's rank + 1
constexpr std::uint32_t shared_base = 1024;  // the first address of a block's shared memory, as on sm_90
constexpr std::uint32_t tile_alignment = 1024;

std::uintptr_t address_of(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

template <class Words>
[[noreturn]] void refuse(int code, const char* kind, const void* p, std::size_t n, const Operand& operand,
                         Words place) {
    fail(code, operand.where, [&] {
        return fmt::format("{}: {} of {} bytes at {:#x}: {}", kind, operand.instruction, n, address_of(p), place());
    });
}

void check_alignment(const void* p, std::size_t n, std::size_t alignment, const Operand& operand) {
    if ((address_of(p) & (alignment - 1)) == 0) return;  // the division would take as long as all else here
    refuse(cudaErrorMisalignedAddress, "misaligned", p, n, operand,
           [&] { return fmt::format("not a multiple of {}", alignment); });
}

std::string place_in(const SharedWindow& window, const void* p) { return describe_shared(window, address_of(p)); }

void check_written(const SharedWindow& window, const void* p, std::size_t n, const Operand& operand) {
    const std::uint8_t* flags = window.written + (address_of(p) - window.begin);
    const void* unwritten = std::memchr(flags, 0, n);
    if (!unwritten) return;
    const char* first = static_cast<const char*>(p) + (static_cast<const std::uint8_t*>(unwritten) - flags);
    reporting = true;
    hold_reader(address_of(p), n, operand.where,
                fmt::format("uninitialised shared memory: {} of {} bytes at {:#x}: {}", operand.instruction, n,
                            address_of(p), place_in(window, first)));
}

/// Static shared memory lies behind the dynamic one, and keeps its alignment.
std::uint32_t static_base(const Block& block) {
    const std::size_t end = shared_base + block.dynamic_shared.bytes;
    return static_cast<std::uint32_t>((end + tile_alignment - 1) / tile_alignment * tile_alignment +
                                      block.static_shared.begin % tile_alignment);
}

}  // namespace

std::uint32_t first_write_mark(unsigned rank) { return (rank + 1) << fence_bits; }

const SharedWindow& find_shared(const void* p, std::size_t n, std::size_t alignment, const Operand& operand) {
    const Block& block = *current->block;
    const SharedWindow& window = block.static_shared.covers(address_of(p)) ? block.static_shared : block.dynamic_shared;
    const std::size_t offset = address_of(p) - window.begin;
    if (offset > window.bytes || n > window.bytes - offset) {
        const bool nowhere = offset + 256 * 1024 > window.bytes + 512 * 1024;
        refuse(cudaErrorIllegalAddress, "out of bounds", p, n, operand,
               [&] { return nowhere ? "not in the block's shared memory" : place_in(window, p); });
    }
    check_alignment(p, n, alignment, operand);
    if (std::memchr(window.written + offset, SharedWindow::gap, n))
        refuse(cudaErrorIllegalAddress, "out of bounds", p, n, operand, [&] { return place_in(window, p); });
    return window;
}

void check_device_access(const void* p, std::size_t n, std::size_t alignment, const Operand& operand) {
    if (current->may_be_early)
        refuse(cudaErrorLaunchFailure, "too early", p, n, operand, [] { return why_early; });
    const DeviceMemory& memory = DeviceMemory::instance();
    if (!memory.valid(p, n)) {
        const Allocation* allocation = memory.find(address_of(p));
        refuse(cudaErrorIllegalAddress, allocation && !allocation->live ? "use after free" : "out of bounds", p, n,
               operand, [&] { return allocation ? memory.describe(address_of(p)) : "not in device memory"; });
    }
    check_alignment(p, n, alignment, operand);
}

void check_device_read(const void* p, std::size_t n, const Operand& operand) {
    check_device_access(p, n, 1, operand);
    if (watching) watch_device(address_of(p), n, {false}, operand.where, operand.instruction);
    if (following) follow(address_of(p), n, false, false);
}

void check_device_write(const void* p, std::size_t n, bool atomic, const Operand& operand) {
    check_device_access(p, n, 1, operand);
    if (watching) watch_device(address_of(p), n, {true, atomic}, operand.where, operand.instruction);
    if (following) follow(address_of(p), n, true, atomic);
}

void check_shared_read(const void* p, std::size_t n, std::size_t alignment, const Operand& operand) {
    const SharedWindow& window = find_shared(p, n, alignment, operand);
    check_written(window, p, n, operand);
    if (watching) watch_shared(window, address_of(p), n, {false}, operand.where, operand.instruction);
}

void note_shared_write(const void* p, std::size_t n, std::size_t alignment, const Operand& operand) {
    const SharedWindow& window = find_shared(p, n, alignment, operand);
    const std::size_t offset = address_of(p) - window.begin;
    std::memset(window.written + offset, 1, n);
    window.mark(offset, n, current->write_mark);
    if (awaiting_store) explain_unwritten_reads(address_of(p), n, operand.where, operand.instruction);
    if (watching) watch_shared(window, address_of(p), n, {true}, operand.where, operand.instruction);
}

void check_async_read(const void* p, std::size_t n, const Operand& operand) {
    const SharedWindow& window = find_shared(p, n, 1, operand);
    check_written(window, p, n, operand);
    if (watching) watch_shared(window, address_of(p), n, {false}, operand.where, operand.instruction);
    if (!settings().proxy_fences) return;
    const std::size_t offset = address_of(p) - window.begin;
    for (std::size_t i = offset / SharedWindow::granule; i <= (offset + n - 1) / SharedWindow::granule; ++i) {
        const std::uint32_t mark = window.writers[i];
        if (mark == 0) continue;
        const Thread& writer = current->block->threads[(mark >> fence_bits) - 1];
        if (mark != writer.write_mark) continue;  // it has fenced since
        const void* stored = reinterpret_cast<void*>(window.begin + i * SharedWindow::granule);
        refuse(cudaErrorLaunchFailure, "missing fence", p, n, operand, [&] {
            return fmt::format("{}, which thread ({}, {}, {}) has stored to with no fence_proxy_async() since",
                               place_in(window, stored), writer.index.x, writer.index.y, writer.index.z);
        });
    }
}

void note_async_write(const void* p, std::size_t n, const Operand& operand) {
    const SharedWindow& window = find_shared(p, n, 1, operand);
    const std::size_t offset = address_of(p) - window.begin;
    std::memset(window.written + offset, 1, n);
    window.mark(offset, n, 0);
    if (awaiting_store) explain_unwritten_reads(address_of(p), n, operand.where, operand.instruction);
    if (watching) watch_shared(window, address_of(p), n, {true}, operand.where, operand.instruction);
}

void* shared_pointer(std::uint32_t address, std::size_t n, const Operand& operand) {
    const Block& block = *current->block;
    const std::uint32_t behind = static_base(block);
    const SharedWindow& window = address < behind ? block.dynamic_shared : block.static_shared;
    const std::size_t offset = address - (address < behind ? shared_base : behind);
    if (offset > window.bytes || n > window.bytes - offset)
        fail(cudaErrorIllegalAddress, operand.where, [&] {
            return fmt::format(
                "out of bounds: {} of {} bytes at shared address {:#x}: the block has {} bytes of dynamic "
                "shared memory, from {:#x} on",
                operand.instruction, n, address, block.dynamic_shared.bytes, shared_base);
        });
    return reinterpret_cast<void*>(window.begin + offset);
}

std::uint32_t shared_address(const void* p) {
    const Block& block = *current->block;
    const bool in_static = block.static_shared.covers(address_of(p));
    const SharedWindow& window = in_static ? block.static_shared : block.dynamic_shared;
    return static_cast<std::uint32_t>((in_static ? static_base(block) : shared_base) + (address_of(p) - window.begin));
}

std::uint32_t shared_address(const void* p, const Where& where) {
    find_shared(p, 0, 1, {"shared_address", where});
    return shared_address(p);
}

void fence_proxy_async(const Where&) {
    ++current->write_mark;
    current->initialised.clear();
}

}  // namespace emulator
