// Counts the divisions of kernels. No hook is called for them, so each division in the compiler's output (divss and
// divsd, or fdiv) becomes a macro of the assembler: it adds one to a counter of its own and then divides.
#pragma once

#include <cstdint>

namespace emulator {

/// One division instruction of a kernel and how often it was executed.
struct DivisionSite {
    const void* pc;  // behind the instruction, like a return address
    std::uint64_t count;
};

/// Whether a kernel of this program was optimised by clang, which before its hooks come copies a float4 part by part and
/// divides ahead of conditions: what is counted then is more than the source asks for, and misaligned parts may be aligned.
extern bool optimised_by_clang;

}  // namespace emulator

// In kernels only: these are compiled with the hooks of -fsanitize=thread. First as g++ says it, whose headers may define
// clang's __has_feature as 0.
#if defined(__SANITIZE_THREAD__)
#define FLASHLADDER_HOOKS
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FLASHLADDER_HOOKS
#endif
#endif

#ifdef FLASHLADDER_HOOKS
#if defined(__clang__) && defined(__OPTIMIZE__)
namespace emulator {
namespace {
[[maybe_unused]] const bool said_so = optimised_by_clang = true;
}
}  // namespace emulator
#endif

// A DivisionSite at 771, for the instruction that ends at 772. "?" puts it into the group of the code that it belongs to,
// so that the linker drops or keeps both.
asm(R"(
.macro division_site
.pushsection flashladder_divisions, "aw?"
.balign 8
771: .quad 772f, 0
.popsection
.endm
)");

// Neither registers nor flags may change, nor what lies below the stack pointer where the compiler uses that.
#if defined(__x86_64__)
// divss is divps behind a prefix; written so, the macro does not call itself.
asm(R"(
.macro count_division
division_site
lea -128(%rsp), %rsp
push %rax
mov 771b + 8(%rip), %rax
lea 1(%rax), %rax
mov %rax, 771b + 8(%rip)
pop %rax
lea 128(%rsp), %rsp
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
#elif defined(__aarch64__)
// The macro must not call itself, so the instruction is put together from the numbers of its registers. Those of s0 to
// d31 are known. Another fdiv, of vectors, would be several divisions: an error.
asm(R"(
.irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
.set .Lnumber_of_s\n, \n
.set .Lnumber_of_d\n, \n + (1 << 22)
.endr
.macro fdiv d, n, m
.ifndef .Lnumber_of_\d
.error "a division that is not counted: fdiv \d, \n, \m"
.endif
division_site
stp x16, x17, [sp, #-16]!
adrp x16, 771b + 8
ldr x17, [x16, #:lo12:771b + 8]
add x17, x17, #1
str x17, [x16, #:lo12:771b + 8]
ldp x16, x17, [sp], #16
.inst 0x1e201800 | .Lnumber_of_\d | (.Lnumber_of_\n & 31) << 5 | (.Lnumber_of_\m & 31) << 16
772:
.endm
)");
#else
#error "how divisions are counted is known for x86-64 and arm64 alone"
#endif
#endif
