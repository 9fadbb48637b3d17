// Generated kernels, each of which moves one value: accesses.cpp says what is expected of them.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "launch.h"

namespace accesses {

/// Moves the value at `in` + `i` to `out` + `j`, counted in values.
struct Program {
    int number;
    std::size_t bytes, alignment;  // of a value
    int first_line, last_line;     // of its code
    std::function<void(void* in, void* out, int i, int j)> run;
};

template <class Value>
Program make_program(void (*kernel)(Value*, Value*, int, int, int), int number, int first_line, int last_line) {
    return {number, sizeof(Value), alignof(Value), first_line, last_line, [kernel](void* in, void* out, int i, int j) {
                flashladder::launch_kernel(kernel, {1, 1}, static_cast<Value*>(in), static_cast<Value*>(out), i, j,
                                           static_cast<int>(sizeof(Value)));
            }};
}

/// Those of the generated file.
std::vector<Program> programs();

}  // namespace accesses
