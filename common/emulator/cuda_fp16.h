// Half precision for the CPU backend.
#pragma once

#include <cmath>
#include <type_traits>
#include <utility>

#include "device_functions.h"
#include "float16.h"
#include "vector_types.h"

struct __half_raw {
    unsigned short x;
};
struct alignas(4) __half2_raw {
    unsigned short x, y;
};

struct alignas(2) __half {
    __half() = default;
    __forceinline__ __half(float value) : bits_(emulator::f16_from_float(value)) {}
    template <class T>
    requires(std::is_arithmetic_v<T>) __forceinline__ __half(T value)
        : bits_(emulator::f16_from(emulator::to_odd(+value))) {}
    __forceinline__ __half(__half_raw raw) : bits_(raw.x) {}
    __forceinline__ operator float() const { return emulator::float_from_f16(bits_); }
    template <class T>
    requires(std::is_integral_v<T>) __forceinline__ operator T() const { return emulator::saturated<T>(float(*this)); }
    __forceinline__ operator bool() const { return (bits_ & 0x7FFF) != 0; }
    __forceinline__ operator __half_raw() const { return {bits_}; }

    __forceinline__ static __half rounded(double value, emulator::Rounding rounding) {
        return of_bits(emulator::f16_from(value, rounding));
    }
    __forceinline__ static __half of_bits(unsigned bits) { return __half_raw{static_cast<unsigned short>(bits)}; }
    __forceinline__ unsigned short bits() const { return bits_; }

private:
    unsigned short bits_;
};
struct alignas(4) __half2 {
    __half x, y;

    __half2() = default;
    __forceinline__ __half2(__half x, __half y) : x(x), y(y) {}
    __forceinline__ __half2(__half2_raw raw) : x(__half::of_bits(raw.x)), y(__half::of_bits(raw.y)) {}
    __forceinline__ operator __half2_raw() const { return {x.bits(), y.bits()}; }
};
using half = __half;
using half2 = __half2;
using nv_half = __half;
using nv_half2 = __half2;

#define Half __half
#define Half2 __half2
#define FLASHLADDER_HALF half
#define FLASHLADDER_HALF2 half2
#include "half_functions.h"
#undef FLASHLADDER_HALF2
#undef FLASHLADDER_HALF
#undef Half2
#undef Half

#define CUDART_INF_FP16 __ushort_as_half(0x7C00)
#define CUDART_NAN_FP16 __ushort_as_half(0x7FFF)
#define CUDART_MIN_DENORM_FP16 __ushort_as_half(0x0001)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half(0x7BFF)
#define CUDART_NEG_ZERO_FP16 __ushort_as_half(0x8000)
#define CUDART_ZERO_FP16 __ushort_as_half(0x0000)
#define CUDART_ONE_FP16 __ushort_as_half(0x3C00)
