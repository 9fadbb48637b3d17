// Written by tools/measure/tune.py from docs/results/tune*.json: do not edit. By the rows of operations/attention/configurations.h.
// NVIDIA H200, commit 5db6ca5077b8.
#pragma once

namespace flashladder::attention {

inline constexpr ConfigurationCost configuration_costs[] = {
    {.configuration = 0, .causal = false, .launch = 2.960, .task = 1.150, .step = 0.8741},  // d 64: 4 x 64 keys, 4 slots, dynamic, turns
    {.configuration = 2, .causal = false, .launch = 0.000, .task = 3.162, .step = 0.8749},  // d 64: 4 x 64 keys, 4 slots, one block each, turns
    {.configuration = 3, .causal = false, .launch = 4.214, .task = 0.634, .step = 1.3203},  // d 64: 3 x 128 keys, 4 slots, dynamic, turns
    {.configuration = 4, .causal = false, .launch = 1.007, .task = 2.816, .step = 1.3028},  // d 64: 3 x 128 keys, 4 slots, one block each, turns
    {.configuration = 5, .causal = false, .launch = 0.710, .task = 2.588, .step = 1.1230},  // d 64: 2 x 128 keys, 4 slots, one block each, turns
    {.configuration = 6, .causal = false, .launch = 0.808, .task = 2.291, .step = 0.7499},  // d 64: 1 x 128 keys, 4 slots, one block each
    {.configuration = 0, .causal = true, .launch = 2.877, .task = 1.599, .step = 0.8536},  // d 64: 4 x 64 keys, 4 slots, dynamic, turns
    {.configuration = 4, .causal = true, .launch = 0.893, .task = 3.448, .step = 1.2864},  // d 64: 3 x 128 keys, 4 slots, one block each, turns
    {.configuration = 5, .causal = true, .launch = 0.257, .task = 3.387, .step = 1.0950},  // d 64: 2 x 128 keys, 4 slots, one block each, turns
    {.configuration = 6, .causal = true, .launch = 0.606, .task = 2.990, .step = 0.7428},  // d 64: 1 x 128 keys, 4 slots, one block each
    {.configuration = 7, .causal = false, .launch = 3.555, .task = 0.530, .step = 1.0082},  // d 128: 3 x 64 keys, 4 slots, dynamic, turns
    {.configuration = 10, .causal = false, .launch = 0.000, .task = 3.154, .step = 1.0128},  // d 128: 3 x 64 keys, 4 slots, one block each, turns
    {.configuration = 11, .causal = false, .launch = 0.130, .task = 3.061, .step = 1.5230},  // d 128: 2 x 128 keys, 2 slots, one block each, turns
    {.configuration = 12, .causal = false, .launch = 1.136, .task = 1.915, .step = 1.2006},  // d 128: 1 x 128 keys, 2 slots, one block each
    {.configuration = 19, .causal = false, .launch = 4.281, .task = 0.730, .step = 1.4621},  // d 128: 2 x 128 keys, 2 slots, dynamic
    {.configuration = 8, .causal = true, .launch = 4.170, .task = 1.629, .step = 0.9978},  // d 128: 3 x 64 keys, 4 slots, dynamic
    {.configuration = 10, .causal = true, .launch = 0.000, .task = 4.604, .step = 0.9984},  // d 128: 3 x 64 keys, 4 slots, one block each, turns
    {.configuration = 11, .causal = true, .launch = 0.224, .task = 4.479, .step = 1.4888},  // d 128: 2 x 128 keys, 2 slots, one block each, turns
    {.configuration = 12, .causal = true, .launch = 1.392, .task = 3.055, .step = 1.1675},  // d 128: 1 x 128 keys, 2 slots, one block each
    {.configuration = 18, .causal = true, .launch = 3.748, .task = 2.115, .step = 1.4433},  // d 128: 2 x 128 keys, 2 slots, dynamic, turns
    {.configuration = 17, .causal = false, .launch = 0.000, .task = 4.945, .step = 1.2799},  // d 256: 2 x 64 keys, 2 slots, dynamic, turns
    {.configuration = 17, .causal = true, .launch = 0.000, .task = 5.626, .step = 1.2828},  // d 256: 2 x 64 keys, 2 slots, dynamic, turns
};

}  // namespace flashladder::attention
