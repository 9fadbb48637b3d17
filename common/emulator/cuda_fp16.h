// Half precision for the CPU backend: what the project's kernels and their host code use of the toolkit's header of
// this name.
#pragma once

#include "device_functions.h"
#include "float16.h"
#include "vector_types.h"

struct __half_raw {
    unsigned short x;
};

struct alignas(2) __half {
    __half() = default;
    __forceinline__ __half(float value) : bits_(emulator::f16_from_float(value)) {}
    __forceinline__ __half(__half_raw raw) : bits_(raw.x) {}
    __forceinline__ operator float() const { return emulator::float_from_f16(bits_); }
    __forceinline__ operator __half_raw() const { return {bits_}; }

private:
    unsigned short bits_;
};
struct alignas(4) __half2 {
    __half x, y;
};
using half = __half;
using half2 = __half2;

__forceinline__ __half __float2half(float x) { return x; }
__forceinline__ __half __float2half_rn(float x) { return x; }
__forceinline__ float __half2float(__half x) { return x; }
__forceinline__ __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
__forceinline__ __half2 __float22half2_rn(float2 x) { return {x.x, x.y}; }
__forceinline__ float2 __half22float2(__half2 x) { return {x.x, x.y}; }
__forceinline__ unsigned short __half_as_ushort(__half x) { return __half_raw(x).x; }
__forceinline__ __half __ushort_as_half(unsigned short bits) { return __half_raw{bits}; }
