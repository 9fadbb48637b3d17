// The tiles of rung 27: rows are heads of a group, for each of some queries.
#pragma once

#include <cuda_runtime.h>

#include "operations/attention/parts.h"

namespace flashladder::attention {

/// The tiles of a problem.
struct PackedTiles {
    Packing packing;
    int N_q, heads, kv_heads, batches;
    int T_r;  // tiles of queries, of the heads of a tile

    struct Task {
        int i;                                  // its first query
        int first_head, heads, kv_head, batch;  // so many heads are of the group
    };
    /// Of a batch, those that share their queries.
    __host__ __device__ int heads_of_tiles() const { return kv_heads * packing.tiles_of_group; }
    __device__ Task task(int tile_of_queries, int tile_of_heads, int batch) const {
        const int kv_head = tile_of_heads / packing.tiles_of_group, i = tile_of_queries * packing.queries();
        const int in_group = tile_of_heads % packing.tiles_of_group * packing.heads;
        return {i, kv_head * packing.group + in_group, min(packing.heads, packing.group - in_group), kv_head, batch};
    }
    /// The query behind the last one of a tile.
    __device__ int behind(int tile_of_queries) const { return min((tile_of_queries + 1) * packing.queries(), N_q); }
    /// Of a row of a tile: its head, counted from the first one of the tile on, and its query.
    __device__ __forceinline__ int head_of(int row) const { return row % packing.heads; }
    __device__ __forceinline__ int query_of(const Task& task, int row) const { return task.i + row / packing.heads; }
};
inline PackedTiles packed_tiles(const AttentionShape& s) {
    return {packing_of(s), s.n_q, s.heads, s.kv_heads, s.batch, blocks_of_queries(s)};
}

}  // namespace flashladder::attention
