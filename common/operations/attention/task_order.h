// In which order rungs from 12 on take their tasks: rung 11's, with its sections.
#pragma once

#include "lcsf/tasks.h"
#include "operations/attention/sections.h"

namespace flashladder::attention {

/// Tasks of B_r queries. Throws CudaError.
inline lcsf::TaskOrder task_order(const AttentionShape& s, int B_r, int section = lcsf::most_of_L2) {
    return {(s.n_q + B_r - 1) / B_r, s.heads, s.batch, heads_of_a_section(s, section)};
}

}  // namespace flashladder::attention
