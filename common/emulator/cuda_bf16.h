// bfloat16 for the CPU backend.
#pragma once

#include <cmath>
#include <type_traits>
#include <utility>

#include "device_functions.h"
#include "float16.h"
#include "vector_types.h"

struct __nv_bfloat16_raw {
    unsigned short x;
};
struct alignas(4) __nv_bfloat162_raw {
    unsigned short x, y;
};

struct alignas(2) __nv_bfloat16 {
    __nv_bfloat16() = default;
    __forceinline__ __nv_bfloat16(float value) : bits_(emulator::bf16_from_float(value)) {}
    template <class T>
    requires(std::is_arithmetic_v<T>) __forceinline__ __nv_bfloat16(T value)
        : bits_(emulator::bf16_from(emulator::to_odd(+value))) {}
    __forceinline__ __nv_bfloat16(__nv_bfloat16_raw raw) : bits_(raw.x) {}
    __forceinline__ operator float() const { return emulator::float_from_bf16(bits_); }
    template <class T>
    requires(std::is_integral_v<T>) __forceinline__ operator T() const { return emulator::saturated<T>(float(*this)); }
    __forceinline__ operator bool() const { return (bits_ & 0x7FFF) != 0; }
    __forceinline__ operator __nv_bfloat16_raw() const { return {bits_}; }

    __forceinline__ static __nv_bfloat16 rounded(double value, emulator::Rounding rounding) {
        return of_bits(emulator::bf16_from(value, rounding));
    }
    __forceinline__ static __nv_bfloat16 of_bits(unsigned bits) {
        return __nv_bfloat16_raw{static_cast<unsigned short>(bits)};
    }
    __forceinline__ unsigned short bits() const { return bits_; }

private:
    unsigned short bits_;
};
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;

    __nv_bfloat162() = default;
    __forceinline__ __nv_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) : x(x), y(y) {}
    __forceinline__ __nv_bfloat162(__nv_bfloat162_raw raw)
        : x(__nv_bfloat16::of_bits(raw.x)), y(__nv_bfloat16::of_bits(raw.y)) {}
    __forceinline__ operator __nv_bfloat162_raw() const { return {x.bits(), y.bits()}; }
};
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

#define Half __nv_bfloat16
#define Half2 __nv_bfloat162
#define FLASHLADDER_HALF bfloat16
#define FLASHLADDER_HALF2 bfloat162
#include "half_functions.h"
#undef FLASHLADDER_HALF2
#undef FLASHLADDER_HALF
#undef Half2
#undef Half

#define CUDART_INF_BF16 __ushort_as_bfloat16(0x7F80)
#define CUDART_NAN_BF16 __ushort_as_bfloat16(0x7FFF)
#define CUDART_MIN_DENORM_BF16 __ushort_as_bfloat16(0x0001)
#define CUDART_MAX_NORMAL_BF16 __ushort_as_bfloat16(0x7F7F)
#define CUDART_NEG_ZERO_BF16 __ushort_as_bfloat16(0x8000)
#define CUDART_ZERO_BF16 __ushort_as_bfloat16(0x0000)
#define CUDART_ONE_BF16 __ushort_as_bfloat16(0x3F80)
