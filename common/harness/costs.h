// Written by tools/tune.py from docs/results/tune*.json: do not edit. By the rows of harness/configurations.h.
// NVIDIA H100 80GB HBM3, commit provisional.
#pragma once

namespace flashladder {

inline constexpr Cost costs[] = {
    {.configuration = 0, .causal = false, .launch = 3.569, .task = 1.634, .step = 0.8994},  // d 64: 4 x 64 keys, 4 slots, dynamic, turns
    {.configuration = 2, .causal = false, .launch = 0.000, .task = 3.706, .step = 0.8823},  // d 64: 4 x 64 keys, 4 slots, one block each, turns
    {.configuration = 3, .causal = false, .launch = 4.742, .task = 1.058, .step = 1.3387},  // d 64: 3 x 128 keys, 4 slots, dynamic, turns
    {.configuration = 4, .causal = false, .launch = 0.563, .task = 3.329, .step = 1.3173},  // d 64: 3 x 128 keys, 4 slots, one block each, turns
    {.configuration = 5, .causal = false, .launch = 0.000, .task = 3.088, .step = 1.1258},  // d 64: 2 x 128 keys, 4 slots, one block each, turns
    {.configuration = 6, .causal = false, .launch = 0.326, .task = 2.472, .step = 0.7710},  // d 64: 1 x 128 keys, 4 slots, one block each
    {.configuration = 1, .causal = true, .launch = 3.492, .task = 1.050, .step = 0.9587},  // d 64: 4 x 64 keys, 4 slots, dynamic
    {.configuration = 2, .causal = true, .launch = 0.000, .task = 3.075, .step = 0.9128},  // d 64: 4 x 64 keys, 4 slots, one block each, turns
    {.configuration = 4, .causal = true, .launch = 0.359, .task = 3.515, .step = 1.3553},  // d 64: 3 x 128 keys, 4 slots, one block each, turns
    {.configuration = 5, .causal = true, .launch = 0.000, .task = 4.355, .step = 1.0793},  // d 64: 2 x 128 keys, 4 slots, one block each, turns
    {.configuration = 6, .causal = true, .launch = 0.000, .task = 3.504, .step = 0.7070},  // d 64: 1 x 128 keys, 4 slots, one block each
    {.configuration = 7, .causal = false, .launch = 3.470, .task = 2.491, .step = 1.0062},  // d 128: 3 x 64 keys, 4 slots, dynamic, turns
    {.configuration = 10, .causal = false, .launch = 0.000, .task = 4.542, .step = 1.0040},  // d 128: 3 x 64 keys, 4 slots, one block each, turns
    {.configuration = 11, .causal = false, .launch = 0.000, .task = 3.411, .step = 1.4801},  // d 128: 2 x 128 keys, 2 slots, one block each, turns
    {.configuration = 12, .causal = false, .launch = 0.000, .task = 3.092, .step = 1.1383},  // d 128: 1 x 128 keys, 2 slots, one block each
    {.configuration = 8, .causal = true, .launch = 2.597, .task = 3.161, .step = 1.0771},  // d 128: 3 x 64 keys, 4 slots, dynamic
    {.configuration = 9, .causal = true, .launch = 2.510, .task = 2.573, .step = 1.1280},  // d 128: 3 x 64 keys, 4 slots, dynamic, sections of 33% of L2
    {.configuration = 10, .causal = true, .launch = 0.000, .task = 5.166, .step = 1.0255},  // d 128: 3 x 64 keys, 4 slots, one block each, turns
    {.configuration = 11, .causal = true, .launch = 0.000, .task = 5.361, .step = 1.4368},  // d 128: 2 x 128 keys, 2 slots, one block each, turns
    {.configuration = 12, .causal = true, .launch = 0.000, .task = 4.020, .step = 1.0220},  // d 128: 1 x 128 keys, 2 slots, one block each
    {.configuration = 17, .causal = false, .launch = 42.993, .task = 0.000, .step = 1.3285},  // d 256: 2 x 64 keys, 2 slots, dynamic, turns
    {.configuration = 17, .causal = true, .launch = 50.257, .task = 0.000, .step = 1.4431},  // d 256: 2 x 64 keys, 2 slots, dynamic, turns
};

}  // namespace flashladder
