// Which parts of the keys there are, and in which order they begin: rung 27's parts, as rung 26 plans tasks.
#pragma once

#include <cuda_runtime.h>

namespace flashladder::paged_attention {

/// Blocks of keys of a sequence, against one of its tiles of queries, for each head of K and V.
struct alignas(16) PlannedPart {
    int sequence, tile_of_queries;
    int N_k;           // of the sequence
    int part, parts;   // the number of this one, and how many the tile has
    int first, steps;  // blocks from `first` on; a tile that sees no key has one step, behind the last key
};

constexpr int fewest_blocks = 4;    // of a part
constexpr int steps_of_a_part = 2;  // its start, its end and the merge take as long as so many

}  // namespace flashladder::paged_attention
