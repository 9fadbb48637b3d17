// Comes first in every file of kernels. g++ puts no hooks in front of what it makes of these functions, so kernels, and
// the standard library within them, call the emulator's, which check what they read and write. clang calls hooks.
#pragma once

#if defined(__SANITIZE_THREAD__) && !defined(__clang__)

#include <stddef.h>

extern "C" {
void* memcpy(void* __restrict to, const void* __restrict from, size_t n) noexcept __asm__("emulator_memcpy");
void* memmove(void* to, const void* from, size_t n) noexcept __asm__("emulator_memmove");
void* memset(void* to, int value, size_t n) noexcept __asm__("emulator_memset");
}
#define __builtin_memcpy memcpy
#define __builtin_memmove memmove
#define __builtin_memset memset

#endif
