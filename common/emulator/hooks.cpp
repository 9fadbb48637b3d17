// Kernels are compiled with -fsanitize=thread, which puts a call in front of every load and store. ThreadSanitizer's
// own run-time library is not linked: these are the functions that the compiler calls, and they check each access of a
// CUDA thread. A return address tells the source line.
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "cuda_runtime.h"
#include "machine.h"

namespace emulator {
namespace {

DeviceMemory& device = DeviceMemory::instance();  // here: a variable of a function asks each time whether it is there

template <class Words>
[[noreturn]] void refuse(int code, const char* kind, std::uintptr_t address, std::size_t n, Access access,
                         const void* pc, Words place) {
    fail(code, Place(pc), [&] {
        return fmt::format("{}: {}-byte {} at {:#x}: {}", kind, n, access == Access::read ? "read" : "write", address,
                           place());
    });
}

[[gnu::cold, noreturn]] void refuse_misaligned(std::uintptr_t address, std::size_t n, Access access, const void* pc) {
    refuse(cudaErrorMisalignedAddress, "misaligned", address, n, access, pc,
           [n] { return fmt::format("not a multiple of {}", n); });
}

[[gnu::cold, noreturn]] void refuse_shared(int code, const char* kind, const SharedWindow& window, const char* which,
                                           std::uintptr_t address, std::size_t n, Access access, const void* pc) {
    refuse(code, kind, address, n, access, pc, [&] {
        return fmt::format("byte {} of the block's {} bytes of {} shared memory",
                           static_cast<std::ptrdiff_t>(address - window.begin), window.bytes, which);
    });
}

[[gnu::cold, noreturn]] void refuse_unwritten(const SharedWindow& window, const char* which, std::uintptr_t address,
                                              std::size_t n, const void* pc) {
    reporting = true;
    hold_reader(address, n, Place(pc),
                fmt::format("uninitialised shared memory: {}-byte read at {:#x}: byte {} of the block's {} bytes of {} "
                            "shared memory, which no thread of the block has written",
                            n, address, address - window.begin, window.bytes, which));
}

[[gnu::cold, noreturn]] void refuse_device(const Allocation* allocation, std::uintptr_t address, std::size_t n,
                                           Access access, const void* pc) {
    refuse(cudaErrorIllegalAddress, allocation && !allocation->live ? "use after free" : "out of bounds", address, n,
           access, pc, [address] { return DeviceMemory::instance().describe(address); });
}

[[gnu::cold]] void check_elsewhere(std::uintptr_t address, std::size_t n, Access access, const void* pc) {
    if (reporting || is_private_or_constant(address)) return;
    if (access_other_block(address, n, access == Access::write, Place(pc))) return;
    const SharedWindow& window = current->block->dynamic_shared;
    // The pages around the window belong to shared memory too: a run over its end lands there.
    constexpr std::uintptr_t near = 256 * 1024;
    if (address - window.begin + near < near + 2 * near)
        refuse_shared(cudaErrorIllegalAddress, "out of bounds", window, "dynamic", address, n, access, pc);
    refuse(cudaErrorIllegalAddress, address < 4096 ? "null pointer" : "out of bounds", address, n, access, pc,
           [] { return "neither device nor shared memory; a pointer into the host's memory, or a wild one"; });
}

/// Of device and shared memory only: elsewhere the compiler has seen to it. It calls the hook of 16 bytes for two kinds
/// of type, a vector such as float4 and a struct of two doubles, which is content with a multiple of 8. The latter is
/// taken for a vector here.
template <std::size_t n, Access access>
[[gnu::always_inline]] inline void check_alignment(std::uintptr_t address, const void* pc) {
    if (address % n != 0) [[unlikely]]
        refuse_misaligned(address, n, access, pc);
}

template <std::size_t n, Access access>
[[gnu::always_inline]] inline void check_shared(const SharedWindow& window, std::uintptr_t address, const char* which,
                                                const void* pc) {
    static constexpr std::array<std::uint8_t, 16> all_written = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    check_alignment<n, access>(address, pc);
    const std::size_t offset = address - window.begin;
    if (offset + n > window.bytes) [[unlikely]]
        refuse_shared(cudaErrorIllegalAddress, "out of bounds", window, which, address, n, access, pc);
    if constexpr (access == Access::write) {
        std::memcpy(window.written + offset, all_written.data(), n);
        window.mark(offset, n, current->write_mark);
    } else if (std::memcmp(window.written + offset, all_written.data(), n) != 0) [[unlikely]]
        refuse_unwritten(window, which, address, n, pc);
}

template <std::size_t n, Access access>
[[gnu::always_inline]] inline void check_device(std::uintptr_t address, const void* pc) {
    check_alignment<n, access>(address, pc);
    const Allocation* allocation = device.find(address);
    if (!allocation || !allocation->live || !allocation->contains(address, n)) [[unlikely]]
        refuse_device(allocation, address, n, access, pc);
}

// What a launch whose races are looked for, or whose work is counted, notes besides. Apart from the rest, so that an
// access which is only checked saves no registers. Atomics and volatile accesses have been seen by watch_strong().

template <std::size_t n, Access access, bool is_volatile>
[[gnu::noinline]] void note_shared(const SharedWindow& window, std::uintptr_t address, const void* pc) {
    if (access == Access::write && awaiting_store) explain_unwritten_reads(address, n, Place(pc));
    if (watching && !is_volatile && !current->in_atomic)
        watch_shared(window, address, n, {access == Access::write}, Place(pc));
    if (counting) trace_access(address, n, access, true, Place(pc));
}

template <std::size_t n, Access access, bool is_volatile>
[[gnu::noinline]] void note_device(std::uintptr_t address, const void* pc) {
    if (watching && !is_volatile && !current->in_atomic)
        watch_device(address, n, {access == Access::write}, Place(pc));
    if (!counting) return;
    device.mark(address, n, access == Access::read ? DeviceMemory::read_mark : DeviceMemory::written_mark);
    trace_access(address, n, access, false, Place(pc));
}

template <std::size_t n, Access access, bool is_volatile = false>
[[gnu::always_inline]] inline void check(const void* pointer, const void* pc) {
    if (!current) return;  // host code in the same file
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    const Block& block = *current->block;
    if (block.dynamic_shared.covers(address)) {
        check_shared<n, access>(block.dynamic_shared, address, "dynamic", pc);
        if (watching || counting || awaiting_store) [[unlikely]]
            note_shared<n, access, is_volatile>(block.dynamic_shared, address, pc);
    } else if (device.covers(address)) {
        check_device<n, access>(address, pc);
        if (watching || counting) [[unlikely]]
            note_device<n, access, is_volatile>(address, pc);
    } else if (block.static_shared.covers(address)) {
        check_shared<n, access>(block.static_shared, address, "static", pc);
        if (watching || counting || awaiting_store) [[unlikely]]
            note_shared<n, access, is_volatile>(block.static_shared, address, pc);
    } else if (address - current->stack_begin >= current->stack_end - current->stack_begin) {
        check_elsewhere(address, n, access, pc);
    } else if (!current->lent.empty()) [[unlikely]] {
        check_lent(address, n, access == Access::write, Place(pc));
    }
}

/// An access of which the compiler promises no alignment: a GPU would make it of pieces that are aligned.
void check_pieces(const void* pointer, std::size_t n, Access access, const void* pc) {
    const auto* p = static_cast<const char*>(pointer);
    while (n > 0) {
        std::size_t piece = 16;
        while (piece > n || reinterpret_cast<std::uintptr_t>(p) % piece != 0) piece /= 2;
        const bool read = access == Access::read;
        switch (piece) {
            case 16:
                read ? check<16, Access::read>(p, pc) : check<16, Access::write>(p, pc);
                break;
            case 8:
                read ? check<8, Access::read>(p, pc) : check<8, Access::write>(p, pc);
                break;
            case 4:
                read ? check<4, Access::read>(p, pc) : check<4, Access::write>(p, pc);
                break;
            case 2:
                read ? check<2, Access::read>(p, pc) : check<2, Access::write>(p, pc);
                break;
            default:
                read ? check<1, Access::read>(p, pc) : check<1, Access::write>(p, pc);
                break;
        }
        p += piece;
        n -= piece;
    }
}

/// Before a volatile read: the loop around it may wait for another thread.
void let_others_run(const void* p, std::size_t n, const void* pc) {
    if (!current) return;
    yield(Place(pc));
    if (watching) watch_strong(p, n, false, Order::relaxed, Place(pc));
}

/// Before a volatile write: the value may have been computed from one that others change.
void let_others_interfere(const void* p, std::size_t n, const void* pc) {
    if (!current) return;
    step_aside();
    if (watching) watch_strong(p, n, true, Order::relaxed, Place(pc));
}

}  // namespace
}  // namespace emulator

using emulator::Access, emulator::check, emulator::check_pieces, emulator::let_others_interfere,
    emulator::let_others_run;

// g++ calls a hook for an aligned access, an "unaligned" one where it cannot promise that, and a range for other sizes;
// clang also turns copies of structs into the last three.
#define PC __builtin_return_address(0)
#define HOOKS(n)                                                                       \
    void __tsan_read##n(void* p) { check<n, Access::read>(p, PC); }                    \
    void __tsan_write##n(void* p) { check<n, Access::write>(p, PC); }                  \
    void __tsan_volatile_read##n(void* p) {                                            \
        check<n, Access::read, true>(p, PC);                                           \
        let_others_run(p, n, PC);                                                      \
    }                                                                                  \
    void __tsan_volatile_write##n(void* p) {                                           \
        check<n, Access::write, true>(p, PC);                                          \
        let_others_interfere(p, n, PC);                                                \
    }                                                                                  \
    void __tsan_unaligned_read##n(void* p) { check_pieces(p, n, Access::read, PC); }   \
    void __tsan_unaligned_write##n(void* p) { check_pieces(p, n, Access::write, PC); } \
    void __tsan_unaligned_volatile_read##n(void* p) {                                  \
        check_pieces(p, n, Access::read, PC);                                          \
        let_others_run(p, n, PC);                                                      \
    }                                                                                  \
    void __tsan_unaligned_volatile_write##n(void* p) {                                 \
        check_pieces(p, n, Access::write, PC);                                         \
        let_others_interfere(p, n, PC);                                                \
    }

extern "C" {
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __tsan_read_range(void* p, std::size_t n) { check_pieces(p, n, Access::read, PC); }
void __tsan_write_range(void* p, std::size_t n) { check_pieces(p, n, Access::write, PC); }
// clang calls the first three by themselves, g++ by device_functions.h.
#define MEMORY_FUNCTIONS(prefix)                                           \
    void* prefix##memcpy(void* to, const void* from, std::size_t n) {      \
        check_pieces(from, n, Access::read, PC);                           \
        check_pieces(to, n, Access::write, PC);                            \
        return std::memcpy(to, from, n);                                   \
    }                                                                      \
    void* prefix##memmove(void* to, const void* from, std::size_t n) {     \
        check_pieces(from, n, Access::read, PC);                           \
        check_pieces(to, n, Access::write, PC);                            \
        return std::memmove(to, from, n);                                  \
    }                                                                      \
    void* prefix##memset(void* p, int value, std::size_t n) {              \
        check_pieces(p, n, Access::write, PC);                             \
        return std::memset(p, value, n);                                   \
    }
MEMORY_FUNCTIONS(__tsan_)
MEMORY_FUNCTIONS(emulator_)
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_init() {}
}
