// Failures in words: what happened, where in the source, in which kernel, block and thread.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>

namespace emulator {

std::string to_string(const std::source_location& where);  // file:line, the file relative to the project

/// file:line of an instruction of this program, the innermost one that is not in the emulator; empty where no debug
/// information says. `pc` is a return address.
std::string source_line(const void* pc);

/// Name of the function at an address, without its namespaces and parameters.
std::string function_name(const void* entry);

}  // namespace emulator
