// CUDA's small vector types, with CUDA's sizes and alignments.
#pragma once

// Vectors of one to four elements; those of two and four are aligned to their size, up to 16 bytes.
#define FLASHLADDER_VECTORS(name, element)                                                                 \
    struct name##1 { element x; };                                                                         \
    struct alignas(2 * sizeof(element)) name##2 { element x, y; };                                         \
    struct name##3 { element x, y, z; };                                                                   \
    struct alignas(4 * sizeof(element) > 16 ? 16 : 4 * sizeof(element)) name##4 { element x, y, z, w; };   \
    constexpr name##1 make_##name##1(element x) { return {x}; }                                            \
    constexpr name##2 make_##name##2(element x, element y) { return {x, y}; }                              \
    constexpr name##3 make_##name##3(element x, element y, element z) { return {x, y, z}; }                \
    constexpr name##4 make_##name##4(element x, element y, element z, element w) { return {x, y, z, w}; }

FLASHLADDER_VECTORS(char, signed char)
FLASHLADDER_VECTORS(uchar, unsigned char)
FLASHLADDER_VECTORS(short, short)
FLASHLADDER_VECTORS(ushort, unsigned short)
FLASHLADDER_VECTORS(int, int)
FLASHLADDER_VECTORS(uint, unsigned)
FLASHLADDER_VECTORS(long, long)
FLASHLADDER_VECTORS(ulong, unsigned long)
FLASHLADDER_VECTORS(longlong, long long)
FLASHLADDER_VECTORS(ulonglong, unsigned long long)
FLASHLADDER_VECTORS(float, float)
FLASHLADDER_VECTORS(double, double)
#undef FLASHLADDER_VECTORS

/// Extent of a grid or of a block; what is left out is 1.
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};
