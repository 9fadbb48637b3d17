// Blocks of keys whose queries are split among several tasks (rung 25b).
#pragma once

#include <algorithm>
#include <limits>

#include "operations/attention_backward/problem.h"

namespace flashladder::attention_backward {

/// Some blocks of keys have `parts` tasks each, one behind the other; all others have one. Blocks are counted in the order of
/// tasks.
struct Split {
    int first, blocks;  // from which block on, and how many
    int parts;
    int all_parts, tasks;  // of all blocks that are split; of all
};

/// The split that so many multiprocessors, each of which has room for one block of threads, are soonest done with: by a model
/// in which a task takes the time of its steps, of B_r queries of a head, and of 4 more, and a part that of another 3
/// (measured: lesson 25b). At most 8 parts, and as many steps in each at least where the block has the most.
///
/// Without a mask all blocks of B_c keys are alike, and those are split that are left over when each multiprocessor has had as
/// many as any other. Causal, all are that have as many steps as parts; with all heads in one section they come first.
inline Split split_of(const AttentionShape& s, int B_r, int B_c, int multiprocessors) {
    constexpr int most_parts = 8;
    constexpr double steps_of_a_task = 4, steps_of_sums = 3;
    const auto blocks_of = [](int n, int size) { return (n + size - 1) / size; };
    const int heads = s.batch * s.kv_heads, T_c = blocks_of(s.n_k, B_c), all = heads * T_c;
    const auto steps_of = [&](int block) {
        const int unseen = s.causal ? std::max(0, block * B_c - (s.n_k - s.n_q)) / B_r : 0;
        return s.heads / s.kv_heads * (blocks_of(s.n_q, B_r) - unseen);
    };
    const int longest = steps_of(0), rounds = all / multiprocessors;
    double mean_steps = 0;  // of a multiprocessor
    for (int block = 0; block < T_c; ++block) mean_steps += double(heads) * steps_of(block) / multiprocessors;

    Split best{all, 0, 1, 0, all};
    double least = std::numeric_limits<double>::infinity();
    for (int parts = 1; parts <= most_parts && (parts == 1 || parts * parts <= longest); ++parts) {
        int split = all - rounds * multiprocessors;  // blocks
        if (s.causal) {
            split = 0;
            while (split < T_c && steps_of(split) >= parts) ++split;
            split *= heads;
        }
        const int last_rounds = blocks_of(s.causal ? all + split * (parts - 1) : split * parts, multiprocessors);
        const double steps = s.causal ? std::max(double(longest) / parts, mean_steps)
                                      : longest * (rounds + double(last_rounds) / parts);
        const double time = steps + (s.causal ? last_rounds : rounds + last_rounds) * steps_of_a_task +
                            (parts > 1 ? last_rounds : 0) * steps_of_sums;
        if (time >= least) continue;
        least = time;
        if (parts > 1)
            best = {s.causal ? 0 : all - split, split, parts, split * parts, all + split * (parts - 1)};
    }
    return best;
}

}  // namespace flashladder::attention_backward
