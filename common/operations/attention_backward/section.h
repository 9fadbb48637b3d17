// Heads whose blocks of keys take turns (rungs 21 to 25).
#pragma once

#include <algorithm>
#include <cstddef>

#include "operations/attention_backward/problem.h"

namespace flashladder::attention_backward {

/// If causal so many heads of K that what they read and add to, with 2 bytes an element and sums of dQ in float, is about
/// `bytes_of_section`, at least one; else one.
inline int heads_of_a_section(const AttentionShape& s, std::size_t bytes_of_section) {
    const std::size_t bytes_of_head = std::size_t(s.heads / s.kv_heads) * s.n_q * s.head_dim * (2 + 2 + sizeof(float));
    return s.causal ? int(std::max<std::size_t>(bytes_of_section / bytes_of_head, 1)) : 1;
}

/// Rungs 25 and 25b. Causal, what a section has stays in L2. Without a mask 8 heads: all blocks of one head begin with its
/// first queries, and would add to the same sums at the same time.
inline int heads_that_take_turns(const AttentionShape& s) {
    return s.causal ? heads_of_a_section(s, (s.head_dim == 64 ? 32 : 16) << 20) : 8;
}

}  // namespace flashladder::attention_backward
