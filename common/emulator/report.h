// Failures in words: what happened, where in the source, in which kernel, block and thread.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

namespace emulator {

struct Kernel;

/// Where in a kernel something happens: a line that the compiler has passed along, or a return address, whose line is
/// looked up only when somebody asks. And the calls that have led there, if they were kept: calls.h.
struct Place {
    std::source_location line;
    const void* pc = nullptr;
    std::uint32_t calls = 0;

    Place() = default;
    Place(const std::source_location& line) : line(line) {}
    explicit Place(const void* pc) : pc(pc) {}
};

std::string to_string(const std::source_location& where);  // file:line, the file relative to the project
std::string to_string(const char* file, unsigned line);    // the same of a source location's
/// Of a return address, the innermost line that is not in the emulator; empty where no debug information says.
std::string to_string(const Place& where);
/// The same of many return addresses, for the price of one.
std::vector<std::string> lines_of(const std::vector<const void*>& pcs);

/// Return addresses on the current stack that are this program's own, innermost first.
std::vector<const void*> call_stack();
/// The lines of the calls that have led to this place, innermost first, up to the kernel's own: those that were kept,
/// or else that are on the current stack. Empty if the place is in the kernel itself, or not on this stack.
std::vector<std::string> calls_to(const Place& where, const void* kernel);
/// The same of something that is over: calls that were kept, or that were inlined.
std::vector<std::string> calls_known_of(const Place& where, const void* kernel);

/// The lines of a stack of the host's, innermost first, what was inlined among them.
std::vector<std::string> lines_of_calls(const std::vector<const void*>& stack);

/// The text of a line of a source file, which the project's folder or the current one may contain; "" if it is not there.
std::string source_line(const std::string& file, unsigned line);
/// The same of "file:line", without the semicolon.
std::string text_of(const std::string& place);

/// Name of the function at an address, without its namespaces and parameters.
std::string function_name(const void* entry);
/// The same of a kernel.
std::string name_of(const Kernel& kernel);

}  // namespace emulator
