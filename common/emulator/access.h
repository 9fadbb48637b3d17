// What instructions do to memory on behalf of a thread, checked as the hooks check its loads and stores. And the marks
// that tell whether a store is visible to the async proxy: the thread, and how many of its fences came before.
#pragma once

#include <cstddef>
#include <cstdint>

#include "machine.h"

namespace emulator {

/// One instruction's access, for reports.
struct Operand {
    const char* instruction;
    Place where;
};

std::uint32_t first_write_mark(unsigned rank);

/// The window of the current block's shared memory in which all `n` bytes lie; it is an error if they do not, or not at a
/// multiple of `alignment`, a power of two.
const SharedWindow& find_shared(const void* p, std::size_t n, std::size_t alignment, const Operand& operand);
void check_device_access(const void* p, std::size_t n, std::size_t alignment, const Operand& operand);

/// By something asynchronous.
void check_device_read(const void* p, std::size_t n, const Operand& operand);
void check_device_write(const void* p, std::size_t n, bool atomic, const Operand& operand);

/// Through the generic proxy, for the current thread.
void check_shared_read(const void* p, std::size_t n, std::size_t alignment, const Operand& operand);
void note_shared_write(const void* p, std::size_t n, std::size_t alignment, const Operand& operand);

/// Through the async proxy: what threads have stored must be fenced.
void check_async_read(const void* p, std::size_t n, const Operand& operand);
void note_async_write(const void* p, std::size_t n, const Operand& operand);

/// Shared memory at a 32-bit address; it is an error if there are not `n` bytes of it.
void* shared_pointer(std::uint32_t address, std::size_t n, const Operand& operand);
/// The 32-bit address of a place in the current block's shared memory.
std::uint32_t shared_address(const void* p);

}  // namespace emulator
