// Written by tools/tune.py from docs/results/tune*.json: do not edit. The rows of harness/configurations.h.
// NVIDIA H100 80GB HBM3, commit a4ca40c4cef6.
// NVIDIA H200, commit a4ca40c4cef6.
#pragma once

namespace flashladder {

inline constexpr Choice choices[] = {
    {.d = 64, .causal = false, .n_k = 5792, .configuration = 0},  // 4 x 64 keys, 4 slots, dynamic, turns
    {.d = 64, .causal = false, .n_k = INT_MAX, .configuration = 3},  // 3 x 128 keys, 4 slots, dynamic, turns
    {.d = 64, .causal = true, .n_k = INT_MAX, .configuration = 1},  // 4 x 64 keys, 4 slots, dynamic
    {.d = 128, .causal = false, .n_k = INT_MAX, .configuration = 4},  // 3 x 64 keys, 4 slots, dynamic, turns
    {.d = 128, .causal = true, .n_k = 724, .configuration = 6},  // 3 x 64 keys, 4 slots, dynamic, sections of 33% of L2
    {.d = 128, .causal = true, .n_k = 5792, .configuration = 5},  // 3 x 64 keys, 4 slots, dynamic
    {.d = 128, .causal = true, .n_k = INT_MAX, .configuration = 7},  // 3 x 64 keys, 4 slots, one block each, turns
    {.d = 256, .causal = false, .n_k = INT_MAX, .configuration = 12},  // 2 x 64 keys, 2 slots, dynamic, turns
    {.d = 256, .causal = true, .n_k = INT_MAX, .configuration = 12},  // 2 x 64 keys, 2 slots, dynamic, turns
};

}  // namespace flashladder
