// Written by tools/tune.py from docs/results/tune*.json: do not edit. By the rows of harness/configurations.h.
// NVIDIA H100 80GB HBM3, commit d6daa9127bcf.
// NVIDIA H200, commit d6daa9127bcf.
#pragma once

namespace flashladder {

inline constexpr ConfigurationCost configuration_costs[] = {
    {.configuration = 0, .causal = false, .launch = 4.120, .task = 1.544, .step = 0.8812},  // d 64: 4 x 64 keys, 4 slots, dynamic, turns
    {.configuration = 2, .causal = false, .launch = 0.000, .task = 3.923, .step = 0.8662},  // d 64: 4 x 64 keys, 4 slots, one block each, turns
    {.configuration = 3, .causal = false, .launch = 4.742, .task = 1.149, .step = 1.3103},  // d 64: 3 x 128 keys, 4 slots, dynamic, turns
    {.configuration = 4, .causal = false, .launch = 0.607, .task = 3.449, .step = 1.2856},  // d 64: 3 x 128 keys, 4 slots, one block each, turns
    {.configuration = 5, .causal = false, .launch = 0.386, .task = 2.896, .step = 1.1063},  // d 64: 2 x 128 keys, 4 slots, one block each, turns
    {.configuration = 6, .causal = false, .launch = 0.331, .task = 3.008, .step = 0.7173},  // d 64: 1 x 128 keys, 4 slots, one block each
    {.configuration = 0, .causal = true, .launch = 4.833, .task = 0.852, .step = 0.9496},  // d 64: 4 x 64 keys, 4 slots, dynamic, turns
    {.configuration = 2, .causal = true, .launch = 0.072, .task = 3.475, .step = 0.9041},  // d 64: 4 x 64 keys, 4 slots, one block each, turns
    {.configuration = 4, .causal = true, .launch = 0.624, .task = 3.784, .step = 1.3412},  // d 64: 3 x 128 keys, 4 slots, one block each, turns
    {.configuration = 5, .causal = true, .launch = 0.000, .task = 3.611, .step = 1.1007},  // d 64: 2 x 128 keys, 4 slots, one block each, turns
    {.configuration = 6, .causal = true, .launch = 0.000, .task = 3.378, .step = 0.7057},  // d 64: 1 x 128 keys, 4 slots, one block each
    {.configuration = 7, .causal = false, .launch = 2.491, .task = 2.249, .step = 0.9969},  // d 128: 3 x 64 keys, 4 slots, dynamic, turns
    {.configuration = 10, .causal = false, .launch = 0.000, .task = 3.729, .step = 0.9932},  // d 128: 3 x 64 keys, 4 slots, one block each, turns
    {.configuration = 11, .causal = false, .launch = 0.000, .task = 3.520, .step = 1.4340},  // d 128: 2 x 128 keys, 2 slots, one block each, turns
    {.configuration = 12, .causal = false, .launch = 0.000, .task = 3.668, .step = 1.0431},  // d 128: 1 x 128 keys, 2 slots, one block each
    {.configuration = 8, .causal = true, .launch = 3.969, .task = 1.672, .step = 1.1247},  // d 128: 3 x 64 keys, 4 slots, dynamic
    {.configuration = 9, .causal = true, .launch = 3.218, .task = 1.245, .step = 1.1864},  // d 128: 3 x 64 keys, 4 slots, dynamic, sections of 33% of L2
    {.configuration = 10, .causal = true, .launch = 0.000, .task = 4.913, .step = 1.0395},  // d 128: 3 x 64 keys, 4 slots, one block each, turns
    {.configuration = 11, .causal = true, .launch = 0.000, .task = 4.652, .step = 1.4794},  // d 128: 2 x 128 keys, 2 slots, one block each, turns
    {.configuration = 12, .causal = true, .launch = 0.000, .task = 4.128, .step = 1.0057},  // d 128: 1 x 128 keys, 2 slots, one block each
    {.configuration = 17, .causal = false, .launch = 0.000, .task = 5.503, .step = 1.2601},  // d 256: 2 x 64 keys, 2 slots, dynamic, turns
    {.configuration = 17, .causal = true, .launch = 0.000, .task = 6.829, .step = 1.3547},  // d 256: 2 x 64 keys, 2 slots, dynamic, turns
};

}  // namespace flashladder
