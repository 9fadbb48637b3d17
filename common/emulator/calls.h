// The calls that have led to what happens later, or to what a later access races with. When a report needs them, the
// stack that they were on is gone.
#pragma once

#include <cstdint>
#include <source_location>
#include <vector>

#include "report.h"

namespace emulator {

struct Thread;

/// Keeps the calls that the current thread is in, under a number; 0 for none. The same calls have the same number, and
/// to keep them again costs no more than to follow the frame pointers. So whatever is between here and the kernel must
/// be compiled with them.
std::uint32_t keep_calls();
/// The same of return addresses, innermost first.
std::uint32_t keep_calls(const std::vector<const void*>& pcs);
/// The same of a thread that is in wait(): its stack is still there.
std::uint32_t keep_calls_of(const Thread& waiting);
/// The same of the current thread where it was stopped, at `pc` in the function of this frame; `pc` is the innermost.
std::uint32_t keep_calls_of_stopped(const void* pc, const void* frame);
/// Their return addresses, innermost first.
const std::vector<const void*>& kept_calls(std::uint32_t number);

/// An instruction's line, with the calls that have led to it.
inline Place with_calls(const std::source_location& line) {
    Place place(line);
    place.calls = keep_calls();
    return place;
}

}  // namespace emulator
