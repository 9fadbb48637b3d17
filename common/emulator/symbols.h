// What the program's symbol table says: its functions, and the variables that kernels may use. A `__shared__` variable
// is a thread-local one, a `__device__` or `__constant__` one is any other that is not only read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace emulator {

struct Symbol {
    std::uintptr_t begin = 0;  // of a thread-local variable: from the beginning of the thread's copies
    std::size_t bytes = 0;
    const char* name = "";  // as the compiler has mangled it
    std::string_view section;

    bool contains(std::uintptr_t address) const { return address - begin < bytes; }
};

/// Without doubles, by their addresses. Empty for a program that was stripped.
struct Symbols {
    std::vector<Symbol> functions, variables, thread_locals;

    /// Of the program or library that contains the emulator.
    static const Symbols& instance();
};

/// The one that contains the address, or null.
const Symbol* find_symbol(const std::vector<Symbol>& symbols, std::uintptr_t address);
/// The last one that begins at the address or before it, or null.
const Symbol* find_symbol_before(const std::vector<Symbol>& symbols, std::uintptr_t address);

/// The `__shared__` variables that a function declares itself, of which `entry` is the address.
std::vector<Symbol> thread_locals_of(const void* entry);

/// Whether a function of this mangled name is one that a kernel did not write: a copy constructor or an assignment, as the
/// compiler makes them, or one of the standard library's or the emulator's.
bool is_library_function(std::string_view name);

/// A variable's name without namespaces and functions: "tile".
std::string name_of(const Symbol& variable);

}  // namespace emulator
