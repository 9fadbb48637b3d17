// Blocks that reach each other's shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "races.h"
#include "report.h"

namespace emulator {

struct Block;
struct Thread;

struct Cluster {
    std::vector<Block*> blocks;  // by rank
    unsigned arrived = 0;        // threads at its barrier
    std::uint64_t phase = 0;
    std::vector<Thread*> waiting;
    Gathering arriving;                 // who have arrived for this phase
    Clock arrived_clock;                // of those who have for the last one
    std::uint32_t team = 0, slots = 0;  // for the race detector: its number, and how many slots are given out

    unsigned live() const;  // threads
    std::size_t threads() const;
    /// Lets those who wait go on, if all have arrived.
    void check_barrier();
};

/// Block `rank` of the current cluster; it is an error if there is none, or if it has returned.
Block& other_block(unsigned rank, const char* instruction, const Place& where);
/// The place in another block that corresponds to one in the current block's shared memory: its address as that block
/// sees it, which for static shared memory is the same.
void* corresponding(const void* shared, const Block& other, const Place& where);
/// Of an address outside the current block: true if it lies in the shared memory of another block of the cluster, of
/// which the access is checked then.
bool access_other_block(std::uintptr_t address, std::size_t n, bool write, const Place& where);

}  // namespace emulator
