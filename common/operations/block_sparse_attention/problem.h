// Block-sparse attention: attention in which whole blocks of scores are left out.
//
//   O = softmax(scale * Q K^T where M = 1, else -infinity) V,   LSE as in attention (operations/attention/problem.h)
//
// M is constant on blocks of 128 queries by 128 keys. It comes as lists: for each block of queries the numbers of the
// blocks of keys that it sees. If causal, a query sees of these the keys up to its own place alone. A query that sees
// no key has O = 0 and LSE = -infinity.
#pragma once

#include <string>
#include <vector>

#include "operations/attention/problem.h"

namespace flashladder::block_sparse_attention {

using attention::AttentionShape;

constexpr int block = 128;  // queries, and keys, of a block of M

constexpr int blocks_of(int n) { return (n + block - 1) / block; }

/// Which blocks of keys the blocks of queries see.
struct Lists {
    int heads = 1;  // that have lists of their own; 1: all heads, and in any case all batches, share theirs
    std::vector<int>
        first;  // list r, of block r % T_r of head r / T_r, is blocks[first[r]] to blocks[first[r + 1] - 1]
    std::vector<int> blocks;  // of keys, ascending within a list
    int block_size = block;

    bool operator==(const Lists&) const = default;
};
/// What is wrong with lists for this shape, in one line with the place and the value; "" if nothing is.
std::string why_bad(const Lists& lists, const AttentionShape& shape);

/// How lists are made: what one of these takes is in them.
struct Pattern {
    int density = 100;       // percent of all blocks, drawn
    int window = 0;          // blocks beside the diagonal, on either side; those on the diagonal are in every list
    bool butterfly = false;  // blocks whose distance from the diagonal is a power of two
    bool per_head = false;   // each head draws its own
    int draw = 1;            // the seed of what is drawn; 0 in the name of a problem: its lists are somebody's own

    bool operator==(const Pattern&) const = default;
};
/// The last query stands at the last key. What `causal` hides as a whole is in no list.
Lists make_lists(const AttentionShape& shape, const Pattern& pattern);

/// Scores that are to be computed: of all blocks in lists; if causal half of those that the diagonal crosses, and none
/// behind it.
double scores(const AttentionShape& shape, const Lists& lists);

/// What a stage gets. shape, Q, K, V, O, lse, scale, scratch and stream are attention's. Lists are in device memory, where nobody looks whether they are good ones.
struct Args : attention::ForwardArgs {
    const int* first = nullptr;   // Lists::first
    const int* blocks = nullptr;  // Lists::blocks
    int list_heads = 1;           // Lists::heads: 1, or shape.heads
    int block_size = block;
};

}  // namespace flashladder::block_sparse_attention
