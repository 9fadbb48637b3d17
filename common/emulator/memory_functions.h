// Comes first in every file of kernels. The compiler puts no hooks in front of what these functions do, so kernels, and
// the standard library within them, call the emulator's, which check what they read and write.
#pragma once

#include <stddef.h>

extern "C" {
void* memcpy(void* __restrict to, const void* __restrict from, size_t n) noexcept __asm__("emulator_memcpy");
void* memmove(void* to, const void* from, size_t n) noexcept __asm__("emulator_memmove");
void* memset(void* to, int value, size_t n) noexcept __asm__("emulator_memset");
}
#define __builtin_memcpy memcpy
#define __builtin_memmove memmove
#define __builtin_memset memset
