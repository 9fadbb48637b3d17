// What -fsanitize=thread makes of the language's own atomics: std::atomic, std::atomic_ref, __atomic built-ins, and the
// guard of a variable that is initialised when control first comes to it. Ordered as they say; on a GPU they are of the
// scope "system".
#include <atomic>
#include <cstdint>

#include "machine.h"

extern "C" {
void __tsan_read1(void*);
void __tsan_write1(void*);
void __tsan_read2(void*);
void __tsan_write2(void*);
void __tsan_read4(void*);
void __tsan_write4(void*);
void __tsan_read8(void*);
void __tsan_write8(void*);
}

namespace emulator {
namespace {

#define PC __builtin_return_address(0)

Order order_of(int memory_order) {
    switch (memory_order) {
        case __ATOMIC_RELAXED:
            return Order::relaxed;
        case __ATOMIC_CONSUME:
        case __ATOMIC_ACQUIRE:
            return Order::acquire;
        case __ATOMIC_RELEASE:
            return Order::release;
        default:
            return Order::acquire_release;
    }
}

template <class T>
void check(volatile T* address, bool writes) {
    void* p = const_cast<T*>(address);
    if constexpr (sizeof(T) == 1) writes ? __tsan_write1(p) : __tsan_read1(p);
    if constexpr (sizeof(T) == 2) writes ? __tsan_write2(p) : __tsan_read2(p);
    if constexpr (sizeof(T) == 4) writes ? __tsan_write4(p) : __tsan_read4(p);
    if constexpr (sizeof(T) == 8) writes ? __tsan_write8(p) : __tsan_read8(p);
}

/// Of the host, or of a thread, which others may come before.
template <class T, class Change>
T update(volatile T* address, int memory_order, bool reads, bool writes, const void* pc, Change change) {
    if (current) {
        yield(Place(pc));
        current->in_atomic = true;
        if (reads) check(address, false);
        if (writes) check(address, true);
        if (watching)
            watch_strong(const_cast<T*>(address), sizeof(T), writes, order_of(memory_order), Place(pc));
        current->in_atomic = false;
    }
    const T old = *address;
    if (writes) *address = change(old);
    if (current && writes && *address != old) made_progress();
    return old;
}

}  // namespace
}  // namespace emulator

using emulator::update;

#define OPERATION(bits, name, expression)                                                                    \
    std::uint##bits##_t __tsan_atomic##bits##_##name(volatile std::uint##bits##_t* p, std::uint##bits##_t v, \
                                                     int order) {                                            \
        using T = std::uint##bits##_t;                                                                       \
        return update(p, order, true, true, PC, [v]([[maybe_unused]] T old) { return static_cast<T>(expression); });\
    }
#define ATOMICS(bits)                                                                                                 \
    std::uint##bits##_t __tsan_atomic##bits##_load(const volatile std::uint##bits##_t* p, int order) {                \
        using T = std::uint##bits##_t;                                                                                \
        return update(const_cast<volatile T*>(p), order, true, false, PC, [](T old) { return old; });                 \
    }                                                                                                                 \
    void __tsan_atomic##bits##_store(volatile std::uint##bits##_t* p, std::uint##bits##_t v, int order) {             \
        update(p, order, false, true, PC, [v](std::uint##bits##_t) { return v; });                                    \
    }                                                                                                                 \
    OPERATION(bits, exchange, v)                                                                                      \
    OPERATION(bits, fetch_add, old + v)                                                                               \
    OPERATION(bits, fetch_sub, old - v)                                                                               \
    OPERATION(bits, fetch_and, old & v)                                                                               \
    OPERATION(bits, fetch_or, old | v)                                                                                \
    OPERATION(bits, fetch_xor, old ^ v)                                                                               \
    OPERATION(bits, fetch_nand, ~(old & v))                                                                           \
    std::uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(volatile std::uint##bits##_t* p,                   \
                                                                   std::uint##bits##_t expected,                      \
                                                                   std::uint##bits##_t v, int order, int) {           \
        return update(p, order, true, true, PC,                                                                       \
                      [=](std::uint##bits##_t old) { return old == expected ? v : old; });                            \
    }                                                                                                                 \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile std::uint##bits##_t* p, std::uint##bits##_t* expected, \
                                                      std::uint##bits##_t v, int order, int) {                        \
        const auto old = update(p, order, true, true, PC,                                                             \
                                [=](std::uint##bits##_t now) { return now == *expected ? v : now; });                 \
        const bool same = old == *expected;                                                                           \
        *expected = old;                                                                                              \
        return same;                                                                                                  \
    }                                                                                                                 \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile std::uint##bits##_t* p, std::uint##bits##_t* expected,   \
                                                    std::uint##bits##_t v, int order, int failure) {                  \
        return __tsan_atomic##bits##_compare_exchange_strong(p, expected, v, order, failure);                         \
    }

extern "C" {
ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)
void __tsan_atomic_thread_fence(int) {
    if (emulator::current) emulator::thread_fence();
}
void __tsan_atomic_signal_fence(int) {}
}
