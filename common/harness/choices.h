// Written by tools/tune.py: do not edit. The rows of harness/configurations.h.
#pragma once

namespace flashladder {

inline constexpr Choice choices[] = {
    {.d = 64, .causal = false, .n_k = 4096, .configuration = 0},
    {.d = 64, .causal = false, .n_k = INT_MAX, .configuration = 3},
    {.d = 64, .causal = true, .n_k = 512, .configuration = 2},
    {.d = 64, .causal = true, .n_k = 4096, .configuration = 0},
    {.d = 64, .causal = true, .n_k = INT_MAX, .configuration = 3},
    {.d = 128, .causal = false, .n_k = INT_MAX, .configuration = 4},
    {.d = 128, .causal = true, .n_k = 512, .configuration = 6},
    {.d = 128, .causal = true, .n_k = 2048, .configuration = 5},
    {.d = 128, .causal = true, .n_k = 8192, .configuration = 4},
    {.d = 128, .causal = true, .n_k = INT_MAX, .configuration = 7},
    {.d = 256, .causal = false, .n_k = INT_MAX, .configuration = 12},
    {.d = 256, .causal = true, .n_k = INT_MAX, .configuration = 12},
};

}  // namespace flashladder
