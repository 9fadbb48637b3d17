// What ends a program where no hook has looked: signals of the processor, exceptions, and a loop that never ends. In a
// kernel they are failures like all others, with kernel, thread and line, and the program goes on.
#pragma once

#include <signal.h>

#include <array>
#include <string>

#include "report.h"

namespace emulator {

/// From here to the end of the scope, a division by zero, a stack that overflows or is smashed, or a wild access of a
/// kernel stops the launch; and its being there after `seconds` of the processor, if that is not 0.
class CrashGuard {
public:
    explicit CrashGuard(int seconds);
    ~CrashGuard();
    CrashGuard(const CrashGuard&) = delete;

private:
    const bool is_limited_;
    stack_t stack_before_;
    std::array<struct sigaction, 5> before_;
};

/// Where the last exception of a kernel was thrown: the innermost place in the kernel or what it calls.
Place thrown_at();

}  // namespace emulator
