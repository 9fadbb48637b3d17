// Few queries, and their keys in parts, as rung 27 has them: how heads are packed into tiles, and what comes of each part,
// between the kernel that computes it and the merge.
#pragma once

#include <cstddef>

#include "operations/attention/problem.h"

namespace flashladder::attention {

constexpr int block_of_keys = 64;  // of a step
constexpr int tile_rows = 64;

/// Rows of a tile are some heads of a group for each of some queries.
struct Packing {
    int heads;                  // of a tile: a power of two, so that perhaps not all are of the group
    int group, tiles_of_group;  // heads that share K and V; tiles that these take

    __host__ __device__ int queries() const { return tile_rows / heads; }
};
inline Packing packing_of(const AttentionShape& s) {
    const int group = s.heads / s.kv_heads;
    int heads = 1;
    while (heads < group && heads < tile_rows) heads *= 2;
    return {heads, group, (group + heads - 1) / heads};
}

/// Of a problem: tiles of queries of a head, and in all; blocks of keys that the longest of them has.
inline int blocks_of_queries(const AttentionShape& s) {
    const int queries = packing_of(s).queries();
    return (s.n_q + queries - 1) / queries;
}
inline int tiles_of(const AttentionShape& s) {
    return s.batch * s.kv_heads * packing_of(s).tiles_of_group * blocks_of_queries(s);
}
inline int blocks_of_keys(const AttentionShape& s) {
    return (s.n_k + block_of_keys - 1) / block_of_keys;
}

/// O and LSE of each part of the keys, for each row of the problem, in the order (batch, heads, N_q). Lives in the stage's
/// scratch memory.
template <class Float>
struct PartialResults {
    Float* O;    // (rows, parts, d)
    Float* LSE;  // (rows, parts), natural log; -infinity where a row sees no key of the part, and O is 0 there
    int rows, parts;

    /// Where LSE of a row and a part is, and d times that its O.
    __host__ __device__ std::size_t place(int row, int part) const { return std::size_t(row) * parts + part; }
};

inline std::size_t bytes_of_partial_results(const AttentionShape& s, int parts) {
    return s.lse_elements() * std::size_t(parts) * std::size_t(s.head_dim + 1) * sizeof(float);
}
inline PartialResults<float> partial_results(void* scratch, const AttentionShape& s, int parts) {
    float* O = static_cast<float*>(scratch);
    return {O, O + s.q_elements() * std::size_t(parts), int(s.lse_elements()), parts};
}

}  // namespace flashladder::attention
