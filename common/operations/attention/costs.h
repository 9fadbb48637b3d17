// Written by tools/measure/tune.py from docs/results/tune*.json: do not edit. By the rows of operations/attention/configurations.h.
// NVIDIA H200, commit 6cde6839e977.
#pragma once

namespace flashladder::attention {

inline constexpr ConfigurationCost configuration_costs[] = {
    {.configuration = 0, .causal = false, .launch = 2.907, .task = 1.363, .step = 0.8085},  // d 64: 4 x 64 keys, 4 slots, dynamic, turns
    {.configuration = 2, .causal = false, .launch = 0.000, .task = 3.260, .step = 0.8356},  // d 64: 4 x 64 keys, 4 slots, one block each, turns
    {.configuration = 3, .causal = false, .launch = 3.846, .task = 0.778, .step = 1.2405},  // d 64: 3 x 128 keys, 4 slots, dynamic, turns
    {.configuration = 4, .causal = false, .launch = 0.654, .task = 3.031, .step = 1.2662},  // d 64: 3 x 128 keys, 4 slots, one block each, turns
    {.configuration = 5, .causal = false, .launch = 0.603, .task = 2.697, .step = 1.0633},  // d 64: 2 x 128 keys, 4 slots, one block each, turns
    {.configuration = 6, .causal = false, .launch = 0.984, .task = 2.048, .step = 0.7835},  // d 64: 1 x 128 keys, 4 slots, one block each
    {.configuration = 0, .causal = true, .launch = 3.114, .task = 1.610, .step = 0.8008},  // d 64: 4 x 64 keys, 4 slots, dynamic, turns
    {.configuration = 4, .causal = true, .launch = 0.937, .task = 3.514, .step = 1.2098},  // d 64: 3 x 128 keys, 4 slots, one block each, turns
    {.configuration = 5, .causal = true, .launch = 0.458, .task = 3.437, .step = 1.0197},  // d 64: 2 x 128 keys, 4 slots, one block each, turns
    {.configuration = 6, .causal = true, .launch = 0.633, .task = 3.025, .step = 0.7711},  // d 64: 1 x 128 keys, 4 slots, one block each
    {.configuration = 7, .causal = false, .launch = 3.188, .task = 0.800, .step = 1.0072},  // d 128: 3 x 64 keys, 4 slots, dynamic, turns
    {.configuration = 10, .causal = false, .launch = 0.000, .task = 3.137, .step = 1.0133},  // d 128: 3 x 64 keys, 4 slots, one block each, turns
    {.configuration = 11, .causal = false, .launch = 0.000, .task = 3.583, .step = 1.3708},  // d 128: 2 x 128 keys, 2 slots, one block each, turns
    {.configuration = 12, .causal = false, .launch = 1.083, .task = 2.178, .step = 1.0856},  // d 128: 1 x 128 keys, 2 slots, one block each
    {.configuration = 18, .causal = false, .launch = 3.301, .task = 1.228, .step = 1.3609},  // d 128: 2 x 128 keys, 2 slots, dynamic, turns
    {.configuration = 8, .causal = true, .launch = 4.184, .task = 1.497, .step = 0.9996},  // d 128: 3 x 64 keys, 4 slots, dynamic
    {.configuration = 10, .causal = true, .launch = 0.000, .task = 4.819, .step = 0.9974},  // d 128: 3 x 64 keys, 4 slots, one block each, turns
    {.configuration = 11, .causal = true, .launch = 0.326, .task = 4.805, .step = 1.3185},  // d 128: 2 x 128 keys, 2 slots, one block each, turns
    {.configuration = 12, .causal = true, .launch = 1.529, .task = 3.207, .step = 1.0561},  // d 128: 1 x 128 keys, 2 slots, one block each
    {.configuration = 18, .causal = true, .launch = 3.822, .task = 2.430, .step = 1.3065},  // d 128: 2 x 128 keys, 2 slots, dynamic, turns
    {.configuration = 17, .causal = false, .launch = 0.000, .task = 4.862, .step = 1.2602},  // d 256: 2 x 64 keys, 2 slots, dynamic, turns
    {.configuration = 17, .causal = true, .launch = 0.000, .task = 5.633, .step = 1.2816},  // d 256: 2 x 64 keys, 2 slots, dynamic, turns
};

}  // namespace flashladder::attention
