// Written by tools/measure/tune.py from docs/results/tune*.json: do not edit. By the rows of operations/attention/configurations.h.
// NVIDIA H200, commit 516a46fa531c.
#pragma once

namespace flashladder::attention {

inline constexpr ConfigurationCost configuration_costs[] = {
    {.configuration = 0, .causal = false, .launch = 2.985, .task = 1.286, .step = 0.8066},  // d 64: 4 x 64 keys, 4 slots, dynamic, turns
    {.configuration = 2, .causal = false, .launch = 0.000, .task = 3.230, .step = 0.8335},  // d 64: 4 x 64 keys, 4 slots, one block each, turns
    {.configuration = 3, .causal = false, .launch = 3.823, .task = 0.719, .step = 1.2442},  // d 64: 3 x 128 keys, 4 slots, dynamic, turns
    {.configuration = 4, .causal = false, .launch = 0.668, .task = 2.998, .step = 1.2656},  // d 64: 3 x 128 keys, 4 slots, one block each, turns
    {.configuration = 5, .causal = false, .launch = 0.747, .task = 2.599, .step = 1.0065},  // d 64: 2 x 128 keys, 4 slots, one block each, turns
    {.configuration = 6, .causal = false, .launch = 0.881, .task = 2.172, .step = 0.7073},  // d 64: 1 x 128 keys, 4 slots, one block each
    {.configuration = 0, .causal = true, .launch = 3.049, .task = 1.744, .step = 0.7940},  // d 64: 4 x 64 keys, 4 slots, dynamic, turns
    {.configuration = 4, .causal = true, .launch = 0.992, .task = 3.495, .step = 1.2049},  // d 64: 3 x 128 keys, 4 slots, one block each, turns
    {.configuration = 5, .causal = true, .launch = 0.497, .task = 3.454, .step = 0.9872},  // d 64: 2 x 128 keys, 4 slots, one block each, turns
    {.configuration = 6, .causal = true, .launch = 0.850, .task = 2.977, .step = 0.6775},  // d 64: 1 x 128 keys, 4 slots, one block each
    {.configuration = 7, .causal = false, .launch = 3.252, .task = 0.753, .step = 1.0025},  // d 128: 3 x 64 keys, 4 slots, dynamic, turns
    {.configuration = 10, .causal = false, .launch = 0.000, .task = 3.177, .step = 1.0068},  // d 128: 3 x 64 keys, 4 slots, one block each, turns
    {.configuration = 11, .causal = false, .launch = 0.083, .task = 3.551, .step = 1.3621},  // d 128: 2 x 128 keys, 2 slots, one block each, turns
    {.configuration = 12, .causal = false, .launch = 0.998, .task = 2.307, .step = 1.0159},  // d 128: 1 x 128 keys, 2 slots, one block each
    {.configuration = 18, .causal = false, .launch = 3.339, .task = 1.252, .step = 1.3484},  // d 128: 2 x 128 keys, 2 slots, dynamic, turns
    {.configuration = 8, .causal = true, .launch = 4.040, .task = 1.538, .step = 0.9985},  // d 128: 3 x 64 keys, 4 slots, dynamic
    {.configuration = 10, .causal = true, .launch = 0.000, .task = 4.732, .step = 0.9951},  // d 128: 3 x 64 keys, 4 slots, one block each, turns
    {.configuration = 11, .causal = true, .launch = 0.146, .task = 4.869, .step = 1.3091},  // d 128: 2 x 128 keys, 2 slots, one block each, turns
    {.configuration = 12, .causal = true, .launch = 1.230, .task = 3.439, .step = 0.9783},  // d 128: 1 x 128 keys, 2 slots, one block each
    {.configuration = 18, .causal = true, .launch = 3.632, .task = 2.537, .step = 1.2918},  // d 128: 2 x 128 keys, 2 slots, dynamic, turns
    {.configuration = 17, .causal = false, .launch = 0.000, .task = 4.749, .step = 1.2689},  // d 256: 2 x 64 keys, 2 slots, dynamic, turns
    {.configuration = 17, .causal = true, .launch = 0.000, .task = 5.784, .step = 1.2716},  // d 256: 2 x 64 keys, 2 slots, dynamic, turns
};

}  // namespace flashladder::attention
