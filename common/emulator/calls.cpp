#include "calls.h"

#include <array>
#include <unordered_map>

#include "machine.h"

namespace emulator {
namespace {

std::vector<std::vector<const void*>> kept(1);             // by number
std::unordered_map<std::uint64_t, std::uint32_t> numbers;  // by hash, of which no two of 64 bits are the same by chance

struct Known {
    std::uint64_t hash = 0;
    std::uint32_t number = 0;
};
constinit std::array<Known, 1024> lately = {};

std::uint32_t number_of(const void* const* pcs, std::size_t n) {
    if (n == 0) return 0;
    std::uint64_t hash = n;
    for (std::size_t i = 0; i < n; ++i) {
        hash = (hash ^ reinterpret_cast<std::uintptr_t>(pcs[i])) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
    }
    Known& known = lately[hash % lately.size()];
    if (known.hash == hash) return known.number;
    const auto [found, is_new] = numbers.try_emplace(hash, static_cast<std::uint32_t>(kept.size()));
    if (is_new) kept.emplace_back(pcs, pcs + n);
    known = {hash, found->second};
    return known.number;
}

/// Of a thread's stack, from the frame of a function that it is in; `pc` comes before them, if it is one.
std::uint32_t calls_from(const void* innermost, const Thread& thread, const void* pc = nullptr) {
    struct Frame {
        const Frame* caller;
        const void* pc;  // where the caller goes on
    };
    std::array<const void*, 64> pcs;
    std::size_t n = 0;
    if (pc) pcs[n++] = pc;
    const auto address = [](const Frame* frame) { return reinterpret_cast<std::uintptr_t>(frame); };
    const auto* frame = static_cast<const Frame*>(innermost);
    // What is not compiled with frame pointers leads anywhere; a caller's frame lies above.
    for (std::uintptr_t above = thread.stack_begin;
         n < pcs.size() && address(frame) > above && address(frame) < thread.first_frame &&
         address(frame) % alignof(Frame) == 0;
         frame = frame->caller) {
        pcs[n++] = frame->pc;
        above = address(frame);
    }
    return number_of(pcs.data(), n);
}

}  // namespace

std::uint32_t keep_calls() { return calls_from(__builtin_frame_address(0), *current); }
std::uint32_t keep_calls_of(const Thread& waiting) { return calls_from(waiting.frame_of_wait, waiting); }
std::uint32_t keep_calls_of_stopped(const void* pc, const void* frame) { return calls_from(frame, *current, pc); }

std::uint32_t keep_calls(const std::vector<const void*>& pcs) { return number_of(pcs.data(), pcs.size()); }

const std::vector<const void*>& kept_calls(std::uint32_t number) { return kept[number]; }

}  // namespace emulator
