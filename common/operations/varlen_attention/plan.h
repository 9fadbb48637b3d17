// The tasks of a head, in device memory, and in the order in which they are taken. A stage that plans its tasks has
// room for places_of() of them at the start of its scratch, and behind these the number of those that there are.
#pragma once

#include <cuda_runtime.h>

namespace flashladder::varlen_attention {

/// A block of queries of a sequence, for each head: up to `consumers` units of 64 queries.
struct alignas(16) PlannedTask {
    int first_q, N_q, first_k, N_k;  // of its sequence: the first rows, and how many
    int i, units, steps;             // from query i on; steps: blocks of keys
};

constexpr int unit = 64;  // queries of a consumer

/// Blocks of queries have places: a sequence's lie side by side, and begin where this would be the place behind the
/// last one, if the rows and sequences before it were all. No sequence has more blocks than places up to the next
/// one's.
__host__ __device__ constexpr int places_of(int rows, int sequences, int consumers) {
    return rows / (consumers * unit) + sequences;
}

}  // namespace flashladder::varlen_attention
