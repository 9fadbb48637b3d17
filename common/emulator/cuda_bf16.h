// bfloat16 for the CPU backend: what the project's kernels and their host code use of the toolkit's header of this
// name.
#pragma once

#include "device_functions.h"
#include "float16.h"
#include "vector_types.h"

struct __nv_bfloat16_raw {
    unsigned short x;
};

struct alignas(2) __nv_bfloat16 {
    __nv_bfloat16() = default;
    __forceinline__ __nv_bfloat16(float value) : bits_(emulator::bf16_from_float(value)) {}
    __forceinline__ __nv_bfloat16(__nv_bfloat16_raw raw) : bits_(raw.x) {}
    __forceinline__ operator float() const { return emulator::float_from_bf16(bits_); }
    __forceinline__ operator __nv_bfloat16_raw() const { return {bits_}; }

private:
    unsigned short bits_;
};
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

__forceinline__ __nv_bfloat16 __float2bfloat16(float x) { return x; }
__forceinline__ __nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
__forceinline__ float __bfloat162float(__nv_bfloat16 x) { return x; }
__forceinline__ __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
__forceinline__ __nv_bfloat162 __float22bfloat162_rn(float2 x) { return {x.x, x.y}; }
__forceinline__ float2 __bfloat1622float2(__nv_bfloat162 x) { return {x.x, x.y}; }
__forceinline__ unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return __nv_bfloat16_raw(x).x; }
__forceinline__ __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return __nv_bfloat16_raw{bits}; }
