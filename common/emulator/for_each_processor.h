// Arithmetic that is compiled for several processors; which one it is, the program sees when it starts.
#pragma once

#if defined(__x86_64__) && defined(__linux__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif
