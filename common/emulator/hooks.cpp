// Kernels are compiled with -fsanitize=thread, which puts a call in front of every load and store. ThreadSanitizer's
// own run-time library is not linked: these are the functions that the compiler calls, and they check each access of a
// CUDA thread. A return address tells the source line.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "cuda_runtime.h"
#include "machine.h"
#include "streams.h"
#include "symbols.h"

namespace emulator {
namespace {

DeviceMemory& device = DeviceMemory::instance();  // here: a variable of a function asks each time whether it is there

/// A return address that was seen lately, and whether its function is one that a report should not name.
struct KnownCall {
    const void* pc;
    bool in_library;
};
constinit std::array<KnownCall, 4096> known_calls = {};

[[gnu::always_inline]] inline KnownCall& known_call(const void* pc) {
    const auto address = reinterpret_cast<std::uintptr_t>(pc);
    return known_calls[(address >> 2 ^ address >> 14) % known_calls.size()];
}

bool is_in_library(const void* pc) {
    KnownCall& known = known_call(pc);
    if (known.pc == pc) return known.in_library;
    const Reporting reporting;
    const Symbol* function = find_symbol(Symbols::instance().functions, reinterpret_cast<std::uintptr_t>(pc) - 1);
    known = {pc, function && is_library_function(function->name)};
    return known.in_library;
}

/// The kernel's return address, whose function or a library's function that it has called has the return address `pc`.
[[gnu::noinline]] const void* find_kernel_pc(const void* pc) {
    if (!is_in_library(pc)) return pc;
    struct Frame {
        const Frame* caller;
        const void* pc;  // where the caller goes on
    };
    constexpr int between = 8, deep = 64;  // functions of this file; of libraries
    const auto* frame = static_cast<const Frame*>(__builtin_frame_address(0));
    // What is not compiled with frame pointers leads anywhere.
    const auto is_frame = [](const Frame* frame) {
        const auto address = reinterpret_cast<std::uintptr_t>(frame);
        return address >= current->stack_begin && address + sizeof(Frame) <= current->stack_end &&
               address % alignof(Frame) == 0;
    };
    bool found = false;
    for (int i = 0; i < between + deep && is_frame(frame); ++i, frame = frame->caller) {
        found |= frame->pc == pc;
        if (found && !is_in_library(frame->pc)) return frame->pc;
        if (!found && i == between) break;
    }
    return pc;
}
/// The same, as nearly every access asks for it.
[[gnu::always_inline]] inline Place place_of(const void* pc) {
    const KnownCall& known = known_call(pc);
    return Place(known.pc == pc && !known.in_library ? pc : find_kernel_pc(pc));
}

template <class Words>
[[noreturn]] void refuse(int code, const char* kind, std::uintptr_t address, std::size_t n, Access access,
                         const void* pc, Words place) {
    fail(code, place_of(pc), [&] {
        return fmt::format("{}: {}-byte {} at {:#x}: {}", kind, n, access == Access::read ? "read" : "write", address,
                           place());
    });
}

[[gnu::cold, noreturn]] void refuse_misaligned(std::uintptr_t address, std::size_t n, Access access, const void* pc) {
    refuse(cudaErrorMisalignedAddress, "misaligned", address, n, access, pc,
           [n] { return fmt::format("not a multiple of {}", n); });
}

[[gnu::cold, noreturn]] void refuse_shared(const SharedWindow& window, std::uintptr_t address, std::size_t n,
                                           Access access, const void* pc) {
    refuse(cudaErrorIllegalAddress, "out of bounds", address, n, access, pc,
           [&] { return describe_shared(window, address); });
}

/// A read of bytes of which some were never written, or lie between two variables.
[[gnu::cold, noreturn]] void refuse_read(const SharedWindow& window, std::uintptr_t address, std::size_t n,
                                         const void* pc) {
    if (std::memchr(window.written + (address - window.begin), SharedWindow::gap, n))
        refuse_shared(window, address, n, Access::read, pc);
    reporting = true;
    hold_reader(address, n, place_of(pc),
                fmt::format("uninitialised shared memory: {}-byte read at {:#x}: {}", n, address,
                            describe_shared(window, address)));
}

[[gnu::cold, noreturn]] void refuse_device(const Allocation* allocation, std::uintptr_t address, std::size_t n,
                                           Access access, const void* pc) {
    refuse(cudaErrorIllegalAddress, allocation && !allocation->live ? "use after free" : "out of bounds", address, n,
           access, pc, [address] { return DeviceMemory::instance().describe(address); });
}

[[gnu::cold, noreturn]] void refuse_early(std::uintptr_t address, std::size_t n, Access access, const void* pc) {
    refuse(cudaErrorLaunchFailure, "too early", address, n, access, pc, [] { return why_early; });
}

[[gnu::cold]] void check_elsewhere(std::uintptr_t address, std::size_t n, Access access, const void* pc) {
    if (reporting || is_private_or_constant(address)) return;
    if (access_other_block(address, n, access == Access::write, place_of(pc))) return;
    const SharedWindow& window = current->block->dynamic_shared;
    // The pages around the window belong to shared memory too: a run over its end lands there.
    constexpr std::uintptr_t near = 256 * 1024;
    if (address - window.begin + near < near + 2 * near) refuse_shared(window, address, n, access, pc);
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

/// False for what is no access of the kernel's.
template <std::size_t n, Access access>
[[gnu::always_inline]] inline bool check_shared(const SharedWindow& window, std::uintptr_t address, const void* pc) {
    static constexpr std::array<std::uint8_t, 16> all_written = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    check_alignment<n, access>(address, pc);
    const std::size_t offset = address - window.begin;
    if (offset + n > window.bytes) [[unlikely]]
        refuse_shared(window, address, n, access, pc);
    if constexpr (access == Access::write) {
        if ((window.written[offset] | window.written[offset + n - 1]) & SharedWindow::gap) [[unlikely]]
            refuse_shared(window, address, n, access, pc);
        std::memcpy(window.written + offset, all_written.data(), n);
        window.mark(offset, n, current->write_mark);
    } else if (std::memcmp(window.written + offset, all_written.data(), n) != 0) [[unlikely]] {
        if (n == 1 && window.written[offset] == SharedWindow::guard) return false;
        refuse_read(window, address, n, pc);
    }
    return true;
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
    const Place where = place_of(pc);
    if (access == Access::write && awaiting_store) explain_unwritten_reads(address, n, where);
    if (watching && !is_volatile && !current->in_atomic)
        watch_shared(window, address, n, {access == Access::write}, where);
    if (counting) trace_access(address, n, access, true, where, is_volatile);
}

template <std::size_t n, Access access, bool is_volatile>
[[gnu::noinline]] void note_device(std::uintptr_t address, const void* pc) {
    const Place where = place_of(pc);
    if (watching && !is_volatile && !current->in_atomic) watch_device(address, n, {access == Access::write}, where);
    if (following) follow(address, n, access == Access::write, is_volatile || current->in_atomic);
    if (!counting) return;
    device.mark(address, n, access == Access::read ? DeviceMemory::read_mark : DeviceMemory::written_mark);
    trace_access(address, n, access, false, where);
}

/// False if there is no such variable.
template <std::size_t n, Access access, bool is_volatile>
bool check_variable(std::uintptr_t address, const void* pc) {
    const Allocation* variable = device.find_variable(address);
    if (!variable) return false;
    if (!variable->has_address && is_passed_by_host(*variable))
        refuse(cudaErrorIllegalAddress, "out of bounds", address, n, access, pc, [&] {
            return fmt::format(
                "the host's variable {}, whose address the launch has passed; cudaGetSymbolAddress() gives "
                "that of a __device__ variable",
                variable->name);
        });
    check_device<n, access>(address, pc);
    if (!variable->constant) {
        if (current->may_be_early) refuse_early(address, n, access, pc);
        if (watching || counting || following) note_device<n, access, is_volatile>(address, pc);
    } else if (access == Access::write) {
        refuse(cudaErrorIllegalAddress, "constant memory", address, n, access, pc,
               [&] { return device.describe(address); });
    }
    return true;
}

/// What is neither the block's, nor allocated, nor the thread's own.
template <std::size_t n, Access access, bool is_volatile>
[[gnu::noinline]] void check_outside(std::uintptr_t address, const void* pc) {
    if (!reporting && check_variable<n, access, is_volatile>(address, pc)) return;
    check_elsewhere(address, n, access, pc);
}

template <std::size_t n, Access access, bool is_volatile = false>
[[gnu::always_inline]] inline void check(const void* pointer, const void* pc) {
    if (!current) return;  // host code in the same file
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    const Block& block = *current->block;
    if (block.dynamic_shared.covers(address)) {
        if (!check_shared<n, access>(block.dynamic_shared, address, pc)) return;
        if (watching || counting || awaiting_store) [[unlikely]]
            note_shared<n, access, is_volatile>(block.dynamic_shared, address, pc);
    } else if (device.covers(address)) {
        check_device<n, access>(address, pc);
        if (current->may_be_early) [[unlikely]]
            refuse_early(address, n, access, pc);
        if (watching || counting || following) [[unlikely]]
            note_device<n, access, is_volatile>(address, pc);
    } else if (block.static_shared.covers(address)) {
        if (!check_shared<n, access>(block.static_shared, address, pc)) return;
        if (watching || counting || awaiting_store) [[unlikely]]
            note_shared<n, access, is_volatile>(block.static_shared, address, pc);
    } else if (address - current->stack_begin >= current->stack_end - current->stack_begin) {
        check_outside<n, access, is_volatile>(address, pc);
    } else if (!current->lent.empty()) [[unlikely]] {
        check_lent(address, n, access == Access::write, place_of(pc));
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

[[gnu::cold]] void watch_volatile_access(const void* p, std::size_t n, bool writes, const void* pc) {
    const Place where = place_of(pc);
    watch_strong(p, n, writes, Order::relaxed, where);
    watch_volatile(p, writes, where);
}

/// An access of which AddressSanitizer has told. ThreadSanitizer tells of those of 1, 2, 4, 8 and 16 bytes.
void check_other_sizes(const void* p, std::size_t n, Access access, const void* pc) {
    if (n > 16 || !std::has_single_bit(n)) check_pieces(p, n, access, pc);
}

/// Before a volatile read: the loop around it may wait for another thread.
void let_others_run(const void* p, std::size_t n, const void* pc) {
    if (!current) return;
    yield(place_of(pc));
    if (watching) watch_volatile_access(p, n, false, pc);
}

/// Before a volatile write: the value may have been computed from one that others change.
void let_others_interfere(const void* p, std::size_t n, const void* pc) {
    if (!current) return;
    step_aside();
    if (watching) watch_volatile_access(p, n, true, pc);
}

// What the compiler says of an index that is too large: the layout is that of its sanitizers' run-time library.
struct TypeDescriptor {
    std::uint16_t kind, info;
    char name[];  // "'float [31][32]'"
};
struct IndexOutOfBounds {
    const char* file;
    std::uint32_t line, column;  // g++: of a bracket of the index; clang: where the expression begins
    const TypeDescriptor *array, *index;
};

/// The array that is indexed, as it stands in the source; "" if that cannot be read.
std::string expression_at(const IndexOutOfBounds& what) {
    const std::string line = source_line(what.file, what.line);
    const auto is_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("_.:>-", c); };
    std::size_t end = what.column - 1;
    if (end >= line.size()) return "";
    if (line[end] != '[' && line[end] != ']') {  // clang
        const auto stop = std::find_if_not(line.begin() + static_cast<std::ptrdiff_t>(end), line.end(), is_name);
        return line.substr(end, static_cast<std::size_t>(stop - line.begin()) - end);
    }
    // Back over the indices before it, bracket by bracket.
    for (std::size_t open = line[end] == ']'; end > 0 && (open > 0 || line[end - 1] == ']');) {
        --end;
        open += line[end] == ']';
        open -= line[end] == '[';
    }
    std::size_t begin = end;
    while (begin > 0 && is_name(line[begin - 1])) --begin;
    return line.substr(begin, end - begin);
}

[[gnu::cold]] void refuse_index(const IndexOutOfBounds& what, std::uintptr_t index, const void* pc) {
    std::string type = what.array->name;
    std::erase(type, '\'');
    if (const std::size_t open = type.find('['); open != type.npos && open > 0 && type[open - 1] != ' ')
        type = fmt::format("{} {}", type.substr(0, open), type.substr(open));  // as g++ has it
    const bool is_signed = what.index->info & 1;
    const unsigned bits = 1u << (what.index->info >> 1);
    const auto value = is_signed && bits < 64 ? static_cast<std::intptr_t>(index << (64 - bits)) >> (64 - bits)
                                              : static_cast<std::intptr_t>(index);
    const auto words = [&] {
        const std::string name = expression_at(what);
        return fmt::format("out of bounds: index {} of {}{}", value, name.empty() ? "an array " : name + ", a ", type);
    };
    if (current) fail(cudaErrorIllegalAddress, place_of(pc), words);
    fmt::print(stderr, "{}:{}: {}\n", what.file, what.line, words());
    std::abort();
}

}  // namespace
}  // namespace emulator

using emulator::Access, emulator::check, emulator::check_other_sizes, emulator::check_pieces,
    emulator::let_others_interfere, emulator::let_others_run;
using emulator::IndexOutOfBounds, emulator::refuse_index;

// The compiler calls a hook for an aligned access, and an "unaligned" one where it cannot promise that; for other sizes
// g++ calls a range, and clang what AddressSanitizer calls.
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
// The first three are for copies of structs by clang, the others what memory_functions.h makes of calls.
#define MEMORY_FUNCTIONS(prefix)                                       \
    void* prefix##memcpy(void* to, const void* from, std::size_t n) {  \
        check_pieces(from, n, Access::read, PC);                       \
        check_pieces(to, n, Access::write, PC);                        \
        return std::memcpy(to, from, n);                               \
    }                                                                  \
    void* prefix##memmove(void* to, const void* from, std::size_t n) { \
        check_pieces(from, n, Access::read, PC);                       \
        check_pieces(to, n, Access::write, PC);                        \
        return std::memmove(to, from, n);                              \
    }                                                                  \
    void* prefix##memset(void* p, int value, std::size_t n) {          \
        check_pieces(p, n, Access::write, PC);                         \
        return std::memset(p, value, n);                               \
    }
MEMORY_FUNCTIONS(__tsan_)
MEMORY_FUNCTIONS(emulator_)
// What -fsanitize=bounds calls where an index is too large for its array.
void __ubsan_handle_out_of_bounds(IndexOutOfBounds* what, std::uintptr_t index) { refuse_index(*what, index, PC); }

// clang calls these for every access, beside the hooks above; N is said of one that is not aligned, too.
#define HAS_ITS_HOOK(n)           \
    void __asan_load##n(void*) {} \
    void __asan_store##n(void*) {}
HAS_ITS_HOOK(1)
HAS_ITS_HOOK(2)
HAS_ITS_HOOK(4)
HAS_ITS_HOOK(8)
HAS_ITS_HOOK(16)
void __asan_loadN(void* p, std::size_t n) { check_other_sizes(p, n, Access::read, PC); }
void __asan_storeN(void* p, std::size_t n) { check_other_sizes(p, n, Access::write, PC); }
void __asan_handle_no_return() {}

void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_init() {}
}
