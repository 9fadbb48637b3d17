// What memcpy_async means, whichever header declares it: threads share a copy in pieces, which go by cp.async from
// device to shared memory, else at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "ptx_functions.h"

namespace emulator {

/// Whoever copies alone.
struct OneThread {
    static constexpr unsigned size() { return 1; }
    static constexpr unsigned thread_rank() { return 0; }
};

/// The calling thread's share of `bytes`: every so many a piece of `piece` bytes, a power of two up to 16. A GPU has no
/// cp.async for fewer than 4 bytes and copies these at once; who counts on that breaks the rules all the same.
template <std::size_t piece, class Group>
__forceinline__ void copy_share(const Group& group, void* to, const void* from, std::size_t bytes, const Where& where) {
    struct alignas(piece) Piece {
        unsigned char bytes[piece];
    };
    auto* const target = static_cast<Piece*>(to);
    const auto* const source = static_cast<const Piece*>(from);
    const bool is_asynchronous = is_shared(to) && is_global(from);
    for (std::size_t i = group.thread_rank(); i * piece < bytes; i += group.size())
        if (is_asynchronous)
            cp_async(target + i, source + i, int(piece), int(piece), where);
        else
            target[i] = source[i];
}

/// The same, with the largest pieces that both addresses and the size allow.
template <class Group>
__forceinline__ void copy_share(const Group& group, void* to, const void* from, std::size_t bytes, const Where& where) {
    const std::uintptr_t misalignment = (std::uintptr_t(to) | std::uintptr_t(from) | bytes) & 15;
    switch (misalignment & -misalignment) {
        case 0:
            return copy_share<16>(group, to, from, bytes, where);
        case 8:
            return copy_share<8>(group, to, from, bytes, where);
        case 4:
            return copy_share<4>(group, to, from, bytes, where);
        case 2:
            return copy_share<2>(group, to, from, bytes, where);
        default:
            return copy_share<1>(group, to, from, bytes, where);
    }
}

/// As the type of what is copied says, and the size, if that is a cuda::aligned_size_t.
template <class T, class Size>
constexpr std::size_t piece_of() {
    std::size_t alignment = 1;
    if constexpr (!std::is_void_v<T>) {
        static_assert(std::is_trivially_copyable_v<T>, "memcpy_async copies bytes: T must be trivially copyable");
        alignment = alignof(T);
    }
    if constexpr (requires { Size::align; }) alignment = Size::align > alignment ? Size::align : alignment;
    return alignment < 16 ? alignment : 16;
}

}  // namespace emulator
