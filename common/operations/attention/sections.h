// How many heads' tasks lie beside each other in the order of tasks: lcsf/tasks.h.
#pragma once

#include <algorithm>

#include "launch.h"
#include "lcsf/schedule.h"
#include "operations/attention/problem.h"

namespace flashladder::attention {

/// If causal, when long tasks come first, so many heads take turns that their K and V have room in a part of L2, in percent,
/// in sections of equal size: after a small last one most blocks would wait for its few long tasks. Else one head comes
/// after the other. Throws CudaError.
inline int heads_of_a_section(const AttentionShape& s, int section = lcsf::most_of_L2) {
    const double bytes = 2.0 * s.n_k * s.head_dim * bytes_per_element(s.dtype) * s.kv_heads / s.heads;
    const int heads_in_L2 = static_cast<int>(device_attribute(cudaDevAttrL2CacheSize) * (section / 100.0) / bytes);
    const auto divide_up = [](int x, int y) { return (x + y - 1) / y; };
    const int all = s.batch * s.heads, sections = divide_up(all, std::clamp(heads_in_L2, 1, all));
    return s.causal ? divide_up(all, sections) : 1;
}

}  // namespace flashladder::attention
