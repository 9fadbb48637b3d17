// A block of keys, and the steps by which all queries pass (rungs 21 and 22).
#pragma once

#include <cstddef>

#include "lcsf/tasks.h"
#include "operations/attention_backward/section.h"

namespace flashladder::attention_backward {

struct Step {
    int t, head, block;  // the t-th of all: a block of queries of a head
};

/// B_c keys of a head, and the steps, of B_r queries each: the heads of a group one after the other. Problem has N_q, N_k,
/// `group`, heads that share a K and V, and `order`, of the blocks of keys: a block of threads has one of them.
template <class Problem, int B_r, int B_c, bool causal>
struct KeyBlockTask {
    const Problem& p;
    int j, kv_head, batch, blocks, diagonal, first_block, T_r;

    __device__ __forceinline__ explicit KeyBlockTask(const Problem& p)
        : KeyBlockTask(p, p.order.template place<false>(blockIdx.x)) {}
    __device__ __forceinline__ KeyBlockTask(const Problem& p, const lcsf::TaskOrder::Place& place) : p(p) {
        j = place.block * B_c, kv_head = place.head, batch = place.batch;
        blocks = (p.N_q + B_r - 1) / B_r;
        diagonal = p.N_k - p.N_q;  // with a causal mask query i sees the keys up to i + diagonal
        first_block = causal ? max(0, j - diagonal) / B_r : 0;
        T_r = p.group * (blocks - first_block);
    }
    __device__ __forceinline__ Step first() const { return {0, kv_head * p.group, first_block}; }
    __device__ __forceinline__ void advance(Step& step) const {
        ++step.t;
        if (++step.block == blocks) step.block = first_block, ++step.head;
    }
    /// How many blocks of keys come before this one to a step's queries, if those of a head begin one after the other: the
    /// last one first, if causal.
    __device__ __forceinline__ int rank(const Step& step) const {
        const int n = j / B_c, last_key = (step.block + 1) * B_r - 1 + diagonal;  // that one of these queries sees
        return causal ? min(p.order.T_r - 1, last_key / B_c) - n : n;
    }
    /// Where something of a step lies for all heads one after the other, in blocks of queries.
    __device__ __forceinline__ std::size_t place_of(const Step& step) const {
        return std::size_t(batch * p.order.heads * p.group + step.head) * blocks + step.block;
    }
};

/// Blocks of B_c keys, those of a head one after the other. Causal, the longest tasks begin first, in sections of heads.
inline lcsf::TaskOrder key_block_order(const AttentionShape& s, int B_c, std::size_t bytes_of_section) {
    return {(s.n_k + B_c - 1) / B_c, s.kv_heads, s.batch, heads_of_a_section(s, bytes_of_section)};
}

}  // namespace flashladder::attention_backward
