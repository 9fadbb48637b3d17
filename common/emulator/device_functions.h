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

#include "intrinsics.h"
#include "vector_types.h"

#define __host__
#define __device__
#define __global__
// The emulator reads the symbol table: a section tells which variables are constants, and which of them the host may name.
#define __constant__ __attribute__((section("emulator_constant" FLASHLADDER_NAME(__COUNTER__))))
#define __managed__ __attribute__((section("emulator_managed")))
#define FLASHLADDER_NAME(x) FLASHLADDER_NAME_OF(x)
#define FLASHLADDER_NAME_OF(x) #x
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
// Thread-local variables lie side by side, so the emulator can give each block its own; see machine.cpp.
#define __shared__ static thread_local

// Those of the thread that runs now. The machine writes them under other names; a thread's own never change, so kernels
// see constants, whose loads the compiler neither hooks nor repeats. It would, were the extents a dim3, which has
// constructors; one can be made of a uint3.
extern const uint3 threadIdx asm("emulator_thread_index"), blockIdx asm("emulator_block_index"),
    blockDim asm("emulator_block_extent"), gridDim asm("emulator_grid_extent");
constexpr int warpSize = 32;

namespace emulator {

using Where = std::source_location;

void* dynamic_shared_memory();

int synchronize_block(const char* name, int predicate, const Where& where);
void synchronize_warp(unsigned mask, const Where& where);
unsigned vote(const char* name, unsigned mask, bool predicate, const Where& where);  // the lanes that say yes
unsigned active_lanes();
unsigned match(const char* name, unsigned mask, std::uint64_t value, const Where& where);  // lanes with this value
enum class Reduce { add, min, max, bit_and, bit_or, bit_xor };
std::int64_t reduce(const char* name, Reduce kind, unsigned mask, std::int64_t value, const Where& where);
/// The lanes of a warp that go the same way from here: some of those that come while others run.
unsigned coalesced_lanes(const Where& where);
/// How many blocks have come to a grid's barrier since the launch, which must be a cooperative one.
unsigned* grid_barrier(const Where& where);
[[noreturn]] void trap(const Where& where);
void check_launch_bounds(unsigned threads, unsigned blocks = 0, unsigned cluster_blocks = 0,
                         const Where& where = Where::current());
/// What an atomic says of the order of the other accesses.
enum class Order { relaxed, acquire, release, acquire_release };
void atomic_access(const void* address, std::size_t bytes, Order order, const Where& where);
void atomic_compares(const void* expected);  // the next one does
void atomic_of_vector(const void* address, const Where& where);  // the next one is
void atomic_is_over();
void thread_fence();
void grid_dependency_is_over();
void made_progress();  // so what waits does not wait in vain
void sleep(const Where& where);
long long clock(const Where& where);

enum class Shuffle { indexed, up, down, exclusive_or };
/// The value of the lane that `kind` names, counted within groups of `width` lanes; the caller's own where there is
/// none.
std::uint64_t shuffle(Shuffle kind, unsigned mask, std::uint64_t value, int operand, int width, const Where& where);

template <class T>
inline T shuffle(Shuffle kind, unsigned mask, T value, int operand, int width, const Where& where) {
    static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8),
                  "2, 4 or 8 bytes a lane");
    using Bits = std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                    std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;
    const std::uint64_t bits = std::bit_cast<Bits>(value);
    return std::bit_cast<T>(static_cast<Bits>(shuffle(kind, mask, bits, operand, width, where)));
}

template <class T>
inline std::uint64_t bits_of(T value) {
    static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8), "4 or 8 bytes a lane");
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    return bits;
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

// ---- programmatic dependent launch -----------------------------------------------------------------------------------

// Here one kernel runs after the other; who has been launched as a dependent one may touch nothing before he has waited.
inline void cudaGridDependencySynchronize() { emulator::grid_dependency_is_over(); }
inline void cudaTriggerProgrammaticLaunchCompletion() {}

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

/// What the lanes have brought, put together.
#define FLASHLADDER_REDUCE(name, T, kind)                                                                         \
    inline T name(unsigned mask, T value, emulator::Where where = emulator::Where::current()) {                   \
        return T(emulator::reduce(#name, emulator::Reduce::kind, mask, std::int64_t(value), where));              \
    }
FLASHLADDER_REDUCE(__reduce_add_sync, unsigned, add)
FLASHLADDER_REDUCE(__reduce_add_sync, int, add)
FLASHLADDER_REDUCE(__reduce_min_sync, unsigned, min)
FLASHLADDER_REDUCE(__reduce_min_sync, int, min)
FLASHLADDER_REDUCE(__reduce_max_sync, unsigned, max)
FLASHLADDER_REDUCE(__reduce_max_sync, int, max)
FLASHLADDER_REDUCE(__reduce_and_sync, unsigned, bit_and)
FLASHLADDER_REDUCE(__reduce_or_sync, unsigned, bit_or)
FLASHLADDER_REDUCE(__reduce_xor_sync, unsigned, bit_xor)
#undef FLASHLADDER_REDUCE

template <class T>
inline unsigned __match_any_sync(unsigned mask, T value, emulator::Where where = emulator::Where::current()) {
    return emulator::match("__match_any_sync", mask, emulator::bits_of(value), where);
}
template <class T>
inline unsigned __match_all_sync(unsigned mask, T value, int* all, emulator::Where where = emulator::Where::current()) {
    const unsigned same = emulator::match("__match_all_sync", mask, emulator::bits_of(value), where);
    *all = same == mask;
    return *all ? mask : 0;
}

// These were removed from CUDA: they named no lanes.
#define FLASHLADDER_REMOVED(name)                                                                          \
    template <class T, class... Rest>                                                                      \
    inline T name(T, Rest...) {                                                                            \
        static_assert(sizeof(T) == 0, #name "() is not in CUDA since 9: " #name "_sync() takes a mask");   \
        return T();                                                                                        \
    }
FLASHLADDER_REMOVED(__shfl)
FLASHLADDER_REMOVED(__shfl_up)
FLASHLADDER_REMOVED(__shfl_down)
FLASHLADDER_REMOVED(__shfl_xor)
FLASHLADDER_REMOVED(__ballot)
FLASHLADDER_REMOVED(__any)
FLASHLADDER_REMOVED(__all)
#undef FLASHLADDER_REMOVED

inline unsigned __activemask() { return emulator::active_lanes(); }

// ---- atomics -------------------------------------------------------------------------------------------------------

template <class T>
__forceinline__ T atomicAdd(T* p, std::type_identity_t<T> v, emulator::Where where = emulator::Where::current()) {
    return emulator::atomic_update(p, [v](T old) { return static_cast<T>(old + v); }, where);
}
/// Of vectors (sm_90): in device memory alone, and each part on its own, though here no thread comes in between.
__forceinline__ float2 atomicAdd(float2* p, float2 v, emulator::Where where = emulator::Where::current()) {
    emulator::atomic_of_vector(p, where);
    return emulator::atomic_update(p, [v](float2 old) { return float2{old.x + v.x, old.y + v.y}; }, where);
}
__forceinline__ float4 atomicAdd(float4* p, float4 v, emulator::Where where = emulator::Where::current()) {
    emulator::atomic_of_vector(p, where);
    return emulator::atomic_update(
        p, [v](float4 old) { return float4{old.x + v.x, old.y + v.y, old.z + v.z, old.w + v.w}; }, where);
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
/// Counts down to 0, and starts anew at `limit`.
__forceinline__ unsigned atomicDec(unsigned* p, unsigned limit, emulator::Where where = emulator::Where::current()) {
    return emulator::atomic_update(p, [limit](unsigned old) { return old == 0 || old > limit ? limit : old - 1; }, where);
}
// Of a block, and of the whole system: as strong as the others here.
#define atomicAdd_block atomicAdd
#define atomicAdd_system atomicAdd
#define atomicSub_block atomicSub
#define atomicSub_system atomicSub
#define atomicExch_block atomicExch
#define atomicExch_system atomicExch
#define atomicMin_block atomicMin
#define atomicMin_system atomicMin
#define atomicMax_block atomicMax
#define atomicMax_system atomicMax
#define atomicAnd_block atomicAnd
#define atomicAnd_system atomicAnd
#define atomicOr_block atomicOr
#define atomicOr_system atomicOr
#define atomicXor_block atomicXor
#define atomicXor_system atomicXor
#define atomicCAS_block atomicCAS
#define atomicCAS_system atomicCAS
#define atomicInc_block atomicInc
#define atomicInc_system atomicInc
#define atomicDec_block atomicDec
#define atomicDec_system atomicDec

// ---- time ----------------------------------------------------------------------------------------------------------

inline long long clock64(emulator::Where where = emulator::Where::current()) { return emulator::clock(where); }
inline void __nanosleep(unsigned, emulator::Where where = emulator::Where::current()) { emulator::sleep(where); }

// ---- failure -------------------------------------------------------------------------------------------------------

[[noreturn]] inline void __trap(emulator::Where where = emulator::Where::current()) { emulator::trap(where); }
