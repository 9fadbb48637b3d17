// The tasks of a head, in device memory, and in the order in which they are taken: a stage that plans its tasks has them
// at the start of its scratch.
#pragma once

namespace flashladder::varlen_attention {

/// A block of queries of a sequence, for each head: up to `consumers` units of 64 queries.
struct alignas(16) PlannedTask {
    int first_q, N_q, first_k, N_k;  // of its sequence: the first rows, and how many
    int i, units, steps;             // from query i on; steps: blocks of keys
};

}  // namespace flashladder::varlen_attention
