// Written by tools/measure/tune.py from docs/results/tune*.json: do not edit. By the rows of operations/attention/configurations.h.
// NVIDIA H100 80GB HBM3, commit 616073440c83.
// NVIDIA H200, commit 616073440c83.
#pragma once

namespace flashladder::attention {

inline constexpr ConfigurationCost configuration_costs[] = {
    {.configuration = 0, .causal = false, .launch = 4.168, .task = 1.535, .step = 0.8783},  // d 64: 4 x 64 keys, 4 slots, dynamic, turns
    {.configuration = 2, .causal = false, .launch = 0.115, .task = 3.812, .step = 0.8661},  // d 64: 4 x 64 keys, 4 slots, one block each, turns
    {.configuration = 3, .causal = false, .launch = 4.632, .task = 1.151, .step = 1.3151},  // d 64: 3 x 128 keys, 4 slots, dynamic, turns
    {.configuration = 4, .causal = false, .launch = 0.126, .task = 3.810, .step = 1.2846},  // d 64: 3 x 128 keys, 4 slots, one block each, turns
    {.configuration = 5, .causal = false, .launch = 0.140, .task = 2.997, .step = 1.1090},  // d 64: 2 x 128 keys, 4 slots, one block each, turns
    {.configuration = 6, .causal = false, .launch = 0.299, .task = 2.981, .step = 0.7184},  // d 64: 1 x 128 keys, 4 slots, one block each
    {.configuration = 0, .causal = true, .launch = 5.649, .task = 0.875, .step = 0.9374},  // d 64: 4 x 64 keys, 4 slots, dynamic, turns
    {.configuration = 2, .causal = true, .launch = 0.367, .task = 3.520, .step = 0.8953},  // d 64: 4 x 64 keys, 4 slots, one block each, turns
    {.configuration = 4, .causal = true, .launch = 0.711, .task = 3.862, .step = 1.3299},  // d 64: 3 x 128 keys, 4 slots, one block each, turns
    {.configuration = 5, .causal = true, .launch = 0.000, .task = 3.647, .step = 1.0980},  // d 64: 2 x 128 keys, 4 slots, one block each, turns
    {.configuration = 6, .causal = true, .launch = 0.000, .task = 3.374, .step = 0.7063},  // d 64: 1 x 128 keys, 4 slots, one block each
    {.configuration = 7, .causal = false, .launch = 2.334, .task = 2.197, .step = 1.0003},  // d 128: 3 x 64 keys, 4 slots, dynamic, turns
    {.configuration = 10, .causal = false, .launch = 0.000, .task = 3.710, .step = 0.9986},  // d 128: 3 x 64 keys, 4 slots, one block each, turns
    {.configuration = 11, .causal = false, .launch = 0.000, .task = 3.448, .step = 1.4427},  // d 128: 2 x 128 keys, 2 slots, one block each, turns
    {.configuration = 12, .causal = false, .launch = 0.000, .task = 3.674, .step = 1.0357},  // d 128: 1 x 128 keys, 2 slots, one block each
    {.configuration = 8, .causal = true, .launch = 4.432, .task = 1.641, .step = 1.1175},  // d 128: 3 x 64 keys, 4 slots, dynamic
    {.configuration = 9, .causal = true, .launch = 3.896, .task = 1.249, .step = 1.1729},  // d 128: 3 x 64 keys, 4 slots, dynamic, sections of 33% of L2
    {.configuration = 10, .causal = true, .launch = 0.000, .task = 5.143, .step = 1.0296},  // d 128: 3 x 64 keys, 4 slots, one block each, turns
    {.configuration = 11, .causal = true, .launch = 0.000, .task = 4.740, .step = 1.4764},  // d 128: 2 x 128 keys, 2 slots, one block each, turns
    {.configuration = 12, .causal = true, .launch = 0.000, .task = 4.211, .step = 0.9990},  // d 128: 1 x 128 keys, 2 slots, one block each
    {.configuration = 17, .causal = false, .launch = 0.000, .task = 5.608, .step = 1.2540},  // d 256: 2 x 64 keys, 2 slots, dynamic, turns
    {.configuration = 17, .causal = true, .launch = 0.000, .task = 6.747, .step = 1.3558},  // d 256: 2 x 64 keys, 2 slots, dynamic, turns
};

}  // namespace flashladder::attention
