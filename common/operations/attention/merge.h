// What rung 27 has taught: rows of a tile that are heads of a group, a problem's keys in parts, and the merge of what
// comes of them.
#pragma once

#include <algorithm>
#include <climits>
#include <cmath>

#include "launch.h"
#include "operations/attention/packed_rows.h"
#include "operations/attention/parts.h"

namespace flashladder::attention {

// ---- tiles of packed heads

/// The tiles of a problem, each in as many tasks as there are parts.
struct PackedTiles {
    Packing packing;
    int N_q, heads, kv_heads, batches;
    int T_r, parts;  // tiles of queries, of the heads of a tile; parts of their keys

    struct Task {
        int i, behind;                          // queries from i on up to, but not with, `behind`
        int first_head, heads, kv_head, batch;  // so many heads are of the group
        int part;

        /// The blocks that the part has of T_c: from `first` on up to, but not with, `end`.
        __device__ int first(int T_c, int parts) const { return part * T_c / parts; }
        __device__ int end(int T_c, int parts) const { return (part + 1) * T_c / parts; }
    };
    __host__ __device__ int tasks() const { return batches * kv_heads * packing.tiles_of_group * T_r * parts; }
    __device__ Task task(int n) const {
        const int part = n % parts, tile = n / parts, tiles_of_head = T_r * packing.tiles_of_group;
        const int kv_head = tile / tiles_of_head % kv_heads, i = tile % T_r * packing.queries();
        const int in_group = tile / T_r % packing.tiles_of_group * packing.heads;
        return {i,
                min(i + packing.queries(), N_q),
                kv_head * packing.group + in_group,
                min(packing.heads, packing.group - in_group),
                kv_head,
                tile / tiles_of_head / kv_heads,
                part};
    }
    /// Of a row of a tile: its head, counted from the first one of the tile on, and its query.
    __device__ __forceinline__ int head_of(int row) const { return row % packing.heads; }
    __device__ __forceinline__ int query_of(const Task& task, int row) const { return task.i + row / packing.heads; }
};
inline PackedTiles packed_tiles(const AttentionShape& s, int parts) {
    return {packing_of(s), s.n_q, s.heads, s.kv_heads, s.batch, blocks_of_queries(s), parts};
}

/// A lane's rows of O and LSE of a part, where they are rows of the problem; the results themselves, if it is all there is.
/// By the four warps of a consumer.
template <class Element, int d>
__device__ __forceinline__ void store_part(const PartialResults<float>& partial, const Results<Element>& results,
                                           const tile::Accumulator<16, d>& O, const tile::RowValues<16>& lse,
                                           const PackedTiles& tiles, const PackedTiles::Task& task, int warp) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int row_of_tile = warp * 16 + tile::row_of(0, h);
        const int head = tiles.head_of(row_of_tile), query = tiles.query_of(task, row_of_tile);
        const bool stores = head < task.heads && query < tiles.N_q;
        const int row = (task.batch * tiles.heads + task.first_head + head) * tiles.N_q + query;
        const std::size_t place = partial.place(row, task.part);
        float* LSE = tiles.parts == 1 ? results.LSE : partial.LSE;
        if (LSE && stores && threadIdx.x % 4 == 0) LSE[place] = lse.value[0][h];
        if (tiles.parts == 1)
            store_row(results.row_of_O(row), O, h, stores);
        else
            store_row(partial.O + place * d, O, h, stores);
    }
}

// ---- the merge

constexpr int merge_warps = 4;

/// Block x merges the parts of row x.
template <class Element, int d>
__global__ void __launch_bounds__(merge_warps * 32)
    merge_parts(const PartialResults<const float> partial, const Results<Element> results) {
    constexpr int at_once = 4;  // parts that a warp loads under one another
    __shared__ float2 sums[merge_warps][d / 2];  // of the weighted O of each warp's parts
    __shared__ float largest_of[merge_warps], sum_of[merge_warps];
    const int x = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    cudaGridDependencySynchronize();

    // Parts are keys to it, LSE their scores, O their values: rung 01's loop.
    float largest = -INFINITY, sum = 0;
    float2 O[d / 64] = {};
    for (int part = warp; part < partial.parts; part += at_once * merge_warps) {
        float LSE[at_once], larger = largest;
        float2 pairs[at_once][d / 64];
#pragma unroll
        for (int n = 0; n < at_once; ++n) {
            const bool there = part + n * merge_warps < partial.parts;
            const std::size_t place = partial.place(x, part + n * merge_warps);
            LSE[n] = there ? partial.LSE[place] : -INFINITY;
            larger = fmaxf(larger, LSE[n]);
#pragma unroll
            for (int c = 0; c < d / 64; ++c)
                pairs[n][c] = there ? reinterpret_cast<const float2*>(partial.O + place * d)[c * 32 + lane] : float2{};
        }
        const float shift = larger == -INFINITY ? 0 : larger;  // else -infinity less itself
        const float factor = expf(largest - shift);
        largest = larger, sum *= factor;
#pragma unroll
        for (int c = 0; c < d / 64; ++c) O[c].x *= factor, O[c].y *= factor;
#pragma unroll
        for (int n = 0; n < at_once; ++n) {
            const float weight = expf(LSE[n] - shift);
            sum += weight;
#pragma unroll
            for (int c = 0; c < d / 64; ++c) O[c].x += weight * pairs[n][c].x, O[c].y += weight * pairs[n][c].y;
        }
    }
#pragma unroll
    for (int c = 0; c < d / 64; ++c) sums[warp][c * 32 + lane] = O[c];
    if (lane == 0) largest_of[warp] = largest, sum_of[warp] = sum;
    __syncthreads();

    for (int pair = threadIdx.x; pair < d / 2; pair += merge_warps * 32) {
        largest = -INFINITY, sum = 0;
        for (const float of_warp : largest_of) largest = fmaxf(largest, of_warp);
        const float shift = largest == -INFINITY ? 0 : largest;
        float2 total = {};
        for (int w = 0; w < merge_warps; ++w) {
            const float weight = expf(largest_of[w] - shift);
            sum += weight * sum_of[w];
            total.x += weight * sums[w][pair].x, total.y += weight * sums[w][pair].y;
        }
        const float inverse = sum == 0 ? 0 : 1 / sum;
        store_pair(results.row_of_O(x) + 2 * pair, total.x * inverse, total.y * inverse);
        if (results.LSE && pair == 0) results.LSE[x] = sum == 0 ? -INFINITY : largest + logf(sum);
    }
}

/// Launches it, where there are parts to be merged, so that it may begin while these are still computed.
template <class Element, int d>
void launch_merge(const PartialResults<float>& partial, const Results<Element>& results, cudaStream_t stream) {
    if (partial.parts == 1) return;
    launch_kernel(merge_parts<Element, d>,
                  {.grid = dim3(unsigned(partial.rows)), .block = dim3(merge_warps * 32), .stream = stream,
                   .dependent = true},
                  PartialResults<const float>{partial.O, partial.LSE, partial.rows, partial.parts}, results);
}

// ---- how many parts

/// For `tiles` tiles of queries against up to `blocks` blocks of keys: with which number the busiest multiprocessor has
/// least to do.
inline int parts_for(int tiles, int blocks, int multiprocessors) {
    constexpr int fewest_blocks = 4;  // of a part: its start, its end and the merge cost about two
    int best = 1, least = INT_MAX;
    for (int parts = 1; parts <= std::clamp(blocks / fewest_blocks, 1, multiprocessors); ++parts) {
        const int tasks = (tiles * parts + multiprocessors - 1) / multiprocessors;  // of a multiprocessor
        const int time = tasks * ((blocks + parts - 1) / parts + 2);
        if (time < least) best = parts, least = time;
    }
    return best;
}
inline int parts_of(const AttentionShape& s) {
    return parts_for(tiles_of(s), blocks_of_keys(s), device_attribute(cudaDevAttrMultiProcessorCount));
}

}  // namespace flashladder::attention
