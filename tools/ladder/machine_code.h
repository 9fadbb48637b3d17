// What nvcc makes of a program's accesses to shared memory, where nvcc and nvdisasm are at hand. Takes no GPU.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace flashladder {

/// The widest instructions by which a source line loads from shared memory and stores to it, in bytes; 0: by none.
struct SharedWidths {
    std::size_t load = 0, store = 0;
};

struct MachineCode {
    std::string compiler;                       // "nvcc 13.0"
    std::map<std::string, SharedWidths> lines;  // by "/path/of/file.cu:17"
};

/// From what `nvdisasm --print-line-info-inline` prints. An instruction belongs to the line of the function that it was
/// written in, and to those of the calls that were inlined around it.
std::map<std::string, SharedWidths> shared_widths(const std::string& disassembly);

/// Nothing if nvcc or nvdisasm is missing, or nvcc does not compile a file. `options` are for a shell.
std::optional<MachineCode> machine_code(const std::vector<std::string>& files, const std::string& options);

}  // namespace flashladder
