// A kernel in a file that formats text and so brings parts of fmt and of the standard library into the program that are
// compiled like the kernel, hooks and all. The linker may keep these for the emulator too, which formats reports while
// a thread runs. A program of its own: in others the linker takes these functions from files without kernels.
#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

#include "device_array.h"
#include "launch.h"

namespace flashladder {
namespace {

__global__ void write_past_end(int* x) { x[threadIdx.x] = 1; }

/// Uses what the emulator uses.
std::string describe(const std::map<std::string, std::vector<const char*>>& names) {
    std::string text;
    for (const auto& [name, values] : names)
        for (const char* value : values) text += fmt::format("{:<10} {} at {:#x}\n", name, value, 42u);
    return text;
}

int check_report() {
    const DeviceArray<int> x(10);
    try {
        launch_kernel(write_past_end, {1, 11}, x.data());
    } catch (const CudaError& error) {
        const std::string report = error.what();
        fmt::print("{}\n{}", report, describe({{"found", {"write_past_end"}}}));
        for (const char* part :
             {"out of bounds: 4-byte write", "byte 40 of allocation 1, which", "kernel     write_past_end",
              "thread     (10, 0, 0)", "source     tests/emulator/formatting.cu:"})
            if (report.find(part) == std::string::npos) return fmt::print("but not: {}\n", part), 1;
        return 0;
    }
    fmt::print("no failure\n");
    return 1;
}

}  // namespace
}  // namespace flashladder

int main() { return flashladder::check_report(); }
