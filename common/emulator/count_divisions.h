// Counts the divisions of kernels. No hook is called for them, so each divss and divsd of the compiler's output becomes
// a macro of the assembler: it adds one to a counter of its own and then divides.
#pragma once

#include <cstdint>

namespace emulator {

/// One division instruction of a kernel and how often it was executed.
struct DivisionSite {
    const void* pc;  // behind the instruction, like a return address
    std::uint64_t count;
};

}  // namespace emulator

// In kernels only: these are compiled with the hooks of -fsanitize=thread.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FLASHLADDER_HOOKS
#endif
#elif defined(__SANITIZE_THREAD__)
#define FLASHLADDER_HOOKS
#endif

#if defined(FLASHLADDER_HOOKS) && defined(__x86_64__)
// Neither registers nor flags may change. "?" puts the counter into the group of the code that it belongs to, so that
// the linker drops or keeps both. divss is divps behind a prefix; written so, the macro does not call itself.
asm(R"(
.macro count_division
.pushsection flashladder_divisions, "aw?"
.balign 8
771: .quad 772f, 0
.popsection
push %rax
mov 771b + 8(%rip), %rax
lea 1(%rax), %rax
mov %rax, 771b + 8(%rip)
pop %rax
.endm
.macro divss operands:vararg
count_division
.byte 0xf3
divps \operands
772:
.endm
.macro divsd operands:vararg
count_division
.byte 0xf2
divps \operands
772:
.endm
)");
#endif
