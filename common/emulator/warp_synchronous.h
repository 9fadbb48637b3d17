// Warp-synchronous code: lanes of a warp hand values on through volatile shared memory as if they ran in step, which
// they do not since Volta. Volatile accesses do not race with one another, for flags that threads wait for are volatile
// too. What tells the two apart is remembered here, beside the race detector's own cells.
//
// A thread that waits, and has read too early, reads again. So a read that has missed a write, and is not repeated, is
// none of a flag. Unless there is another thing that the thread could do meanwhile; therefore the two lanes must have
// come by the same store, each with a place of its own, as they do in a reduction, a scan or an exchange.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "races.h"

namespace emulator {

struct Block;

/// The last one of a lane, of a place.
struct VolatileRead {
    std::uintptr_t address = 0;
    Event event;         // team 0 if there was none
    Event missed;        // the write of another lane in step that came later, and that nothing orders; or team 0
    bool fresh = false;  // it has seen such a write: then it may be a flag that was set already
    bool open = false;   // its thread has not stored since: it may read again, or fence
};

/// What the lanes of one warp have done at a place.
struct VolatilePlace {
    Event write;  // the last one
    std::array<VolatileRead, 32> reads;
};

/// Of a block, while races are looked for: the volatile accesses to its shared memory.
struct VolatileAccesses {
    std::unordered_map<std::uint64_t, VolatilePlace> places;              // by address and warp
    std::map<std::pair<unsigned, std::uint64_t>, std::uintptr_t> stores;  // by thread and site: where it stored last
    std::vector<VolatileRead> suspects;  // one for each pair of sites; it will turn out where threads wait
};

/// By the current thread, to shared memory or elsewhere.
void watch_volatile(const void* address, bool writes, const Place& where);
/// The current thread fences: what it has just read was a flag.
void watch_volatile_fence();
/// The block's last thread ends: by now it is known where threads wait.
void check_warp_synchronous(Block& block);
/// A launch begins.
void forget_waiting_sites();

}  // namespace emulator
