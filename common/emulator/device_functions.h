// What device code sees: qualifiers, built-in variables, barriers, warp instructions, atomics, arithmetic intrinsics.
// The extra last parameter of many functions is never passed: it tells reports the line of the call.
#pragma once

#include <math.h>  // with these two, abs, exp and their kin take a float without std:: too, as in CUDA
#include <stdlib.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>

#include "vector_types.h"

#define __host__
#define __device__
#define __global__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
// Thread-local variables lie side by side, so the emulator can give each block its own; see machine.cpp.
#define __shared__ static thread_local

#define threadIdx (::emulator::thread_index())
#define blockIdx (::emulator::block_index())
#define blockDim (::emulator::block_extent())
#define gridDim (::emulator::grid_extent())
constexpr int warpSize = 32;

namespace emulator {

using Where = std::source_location;

uint3 thread_index();
uint3 block_index();
dim3 block_extent();
dim3 grid_extent();
void* dynamic_shared_memory();

int synchronize_block(const char* name, int predicate, const Where& where);
void synchronize_warp(unsigned mask, const Where& where);
unsigned vote(const char* name, unsigned mask, bool predicate, const Where& where);  // the lanes that say yes
unsigned active_lanes();
/// What an atomic says of the order of the other accesses.
enum class Order { relaxed, acquire, release, acquire_release };
void atomic_access(const void* address, std::size_t bytes, Order order, const Where& where);
void atomic_compares(const void* expected);  // the next one does
void atomic_is_over();
void thread_fence();
void made_progress();  // so what waits does not wait in vain
void sleep(const Where& where);
long long clock(const Where& where);

enum class Shuffle { indexed, up, down, exclusive_or };
/// The value of the lane that `kind` names, counted within groups of `width` lanes; the caller's own where there is
/// none.
std::uint64_t shuffle(Shuffle kind, unsigned mask, std::uint64_t value, int operand, int width, const Where& where);

template <class T>
inline T shuffle(Shuffle kind, unsigned mask, T value, int operand, int width, const Where& where) {
    static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8), "4 or 8 bytes a lane");
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    bits = shuffle(kind, mask, bits, operand, width, where);
    std::memcpy(&value, &bits, sizeof(T));
    return value;
}

/// Reads, changes and writes without another thread in between; the old value. The hooks see a read and a write; for
/// them to find the kernel's line, this and its callers are always inlined.
template <class T, class F>
__forceinline__ T atomic_update(T* address, F change, const Where& where, Order order = Order::relaxed) {
    atomic_access(address, sizeof(T), order, where);
    const T old = *address, now = change(old);
    *address = now;
    atomic_is_over();
    if (std::memcmp(&old, &now, sizeof(T)) != 0) made_progress();
    return old;
}

}  // namespace emulator

// ---- barriers and fences -------------------------------------------------------------------------------------------

inline void __syncthreads(emulator::Where where = emulator::Where::current()) {
    emulator::synchronize_block("__syncthreads", 0, where);
}
inline int __syncthreads_count(int predicate, emulator::Where where = emulator::Where::current()) {
    return emulator::synchronize_block("__syncthreads_count", predicate != 0, where);
}
inline int __syncthreads_or(int predicate, emulator::Where where = emulator::Where::current()) {
    return emulator::synchronize_block("__syncthreads_or", predicate != 0, where) != 0;
}
inline int __syncthreads_and(int predicate, emulator::Where where = emulator::Where::current()) {
    return emulator::synchronize_block("__syncthreads_and", predicate == 0, where) == 0;
}
inline void __syncwarp(unsigned mask = 0xFFFFFFFFu, emulator::Where where = emulator::Where::current()) {
    emulator::synchronize_warp(mask, where);
}
// One fiber runs at a time, and its writes are seen by the next one: what is not ordered, the race detector alone sees.
inline void __threadfence_block() { emulator::thread_fence(); }
inline void __threadfence() { emulator::thread_fence(); }
inline void __threadfence_system() { emulator::thread_fence(); }

// ---- warp instructions ---------------------------------------------------------------------------------------------

template <class T>
inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32,
                     emulator::Where where = emulator::Where::current()) {
    return emulator::shuffle(emulator::Shuffle::indexed, mask, value, lane, width, where);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                        emulator::Where where = emulator::Where::current()) {
    return emulator::shuffle(emulator::Shuffle::up, mask, value, static_cast<int>(delta), width, where);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                          emulator::Where where = emulator::Where::current()) {
    return emulator::shuffle(emulator::Shuffle::down, mask, value, static_cast<int>(delta), width, where);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32,
                         emulator::Where where = emulator::Where::current()) {
    return emulator::shuffle(emulator::Shuffle::exclusive_or, mask, value, lanes, width, where);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, emulator::Where where = emulator::Where::current()) {
    return emulator::vote("__ballot_sync", mask, predicate != 0, where);
}
inline int __any_sync(unsigned mask, int predicate, emulator::Where where = emulator::Where::current()) {
    return emulator::vote("__any_sync", mask, predicate != 0, where) != 0;
}
inline int __all_sync(unsigned mask, int predicate, emulator::Where where = emulator::Where::current()) {
    return emulator::vote("__all_sync", mask, predicate == 0, where) == 0;
}
inline unsigned __activemask() { return emulator::active_lanes(); }

// ---- atomics -------------------------------------------------------------------------------------------------------

template <class T>
__forceinline__ T atomicAdd(T* p, std::type_identity_t<T> v, emulator::Where where = emulator::Where::current()) {
    return emulator::atomic_update(p, [v](T old) { return static_cast<T>(old + v); }, where);
}
template <class T>
__forceinline__ T atomicSub(T* p, std::type_identity_t<T> v, emulator::Where where = emulator::Where::current()) {
    return emulator::atomic_update(p, [v](T old) { return static_cast<T>(old - v); }, where);
}
template <class T>
__forceinline__ T atomicExch(T* p, std::type_identity_t<T> v, emulator::Where where = emulator::Where::current()) {
    return emulator::atomic_update(p, [v](T) { return v; }, where);
}
template <class T>
__forceinline__ T atomicMin(T* p, std::type_identity_t<T> v, emulator::Where where = emulator::Where::current()) {
    return emulator::atomic_update(p, [v](T old) { return std::min(old, v); }, where);
}
template <class T>
__forceinline__ T atomicMax(T* p, std::type_identity_t<T> v, emulator::Where where = emulator::Where::current()) {
    return emulator::atomic_update(p, [v](T old) { return std::max(old, v); }, where);
}
template <class T>
__forceinline__ T atomicAnd(T* p, std::type_identity_t<T> v, emulator::Where where = emulator::Where::current()) {
    return emulator::atomic_update(p, [v](T old) { return old & v; }, where);
}
template <class T>
__forceinline__ T atomicOr(T* p, std::type_identity_t<T> v, emulator::Where where = emulator::Where::current()) {
    return emulator::atomic_update(p, [v](T old) { return old | v; }, where);
}
template <class T>
__forceinline__ T atomicXor(T* p, std::type_identity_t<T> v, emulator::Where where = emulator::Where::current()) {
    return emulator::atomic_update(p, [v](T old) { return old ^ v; }, where);
}
template <class T>
__forceinline__ T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> v,
                            emulator::Where where = emulator::Where::current()) {
    emulator::atomic_compares(&expected);
    return emulator::atomic_update(p, [=](T old) { return old == expected ? v : old; }, where);
}
/// Counts up to `limit` and starts anew at 0.
__forceinline__ unsigned atomicInc(unsigned* p, unsigned limit, emulator::Where where = emulator::Where::current()) {
    return emulator::atomic_update(p, [limit](unsigned old) { return old >= limit ? 0 : old + 1; }, where);
}

// ---- arithmetic ----------------------------------------------------------------------------------------------------

using std::max;
using std::min;
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline float __frcp_rn(float x) { return 1 / x; }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __vimax3_s32(int a, int b, int c) { return std::max({a, b, c}); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
template <class T>
__forceinline__ T __ldg(const T* p) {
    return *p;
}

// ---- time ----------------------------------------------------------------------------------------------------------

inline long long clock64(emulator::Where where = emulator::Where::current()) { return emulator::clock(where); }
inline void __nanosleep(unsigned, emulator::Where where = emulator::Where::current()) { emulator::sleep(where); }
