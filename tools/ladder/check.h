// `ladder check`: a user's own CUDA program on the emulator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace flashladder {

struct CheckOptions {
    std::vector<std::string> files;            // what would be given to nvcc
    std::vector<std::string> include_folders;  // -I
    std::vector<std::string> definitions;      // -D
    std::vector<std::string> arguments;        // of the program itself
    bool races = true;                         // look for them
    bool counts = true;                        // print the work of its source lines
    int lines = 10;                            // that are shown
    std::uint64_t seed = 1;
    int seeds = 1;  // runs, with one seed after the other, until one fails
};

/// Compiles the program and runs it, looking for races and counting. Says in its last line how it went. Returns the
/// exit status: 0 only if no launch has failed and the program has returned 0.
int check_program(const CheckOptions& options);

}  // namespace flashladder
