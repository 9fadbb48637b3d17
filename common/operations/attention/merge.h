// What rung 27 has taught: what comes of a part of the keys, and the merge of all parts; each tile has a number of its own.
#pragma once

#include <cmath>

#include "launch.h"
#include "operations/attention/packed_rows.h"
#include "operations/attention/packed_tiles.h"
#include "operations/attention/parts.h"

namespace flashladder::attention {

// ---- the results of a part

/// A lane's rows of O and LSE of a part, where they are rows of the problem; the results themselves, if its tile has no
/// other part. By the four warps of a consumer.
template <class Element, int d>
__device__ __forceinline__ void store_part(const PartialResults<float>& partial, const Results<Element>& results,
                                           const tile::Accumulator<16, d>& O, const tile::RowValues<16>& lse,
                                           const PackedTiles& tiles, const PackedTiles::Task& task, int part,
                                           int parts, int warp) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int row_of_tile = warp * 16 + tile::row_of(0, h);
        const int head = tiles.head_of(row_of_tile), query = tiles.query_of(task, row_of_tile);
        const bool stores = head < task.heads && query < tiles.N_q;
        const int row = (task.batch * tiles.heads + task.first_head + head) * tiles.N_q + query;
        const std::size_t place = parts == 1 ? row : partial.place(row, part);
        float* LSE = parts == 1 ? results.LSE : partial.LSE;
        if (LSE && stores && threadIdx.x % 4 == 0) LSE[place] = lse.value[0][h];
        if (parts == 1)
            store_row(results.row_of_O(row), O, h, stores);
        else
            store_row(partial.O + place * d, O, h, stores);
    }
}

// ---- the merge

constexpr int warps_of_a_merge = 4;

/// What these warps tell each other; lives in shared memory.
template <int d>
struct MergeOfWarps {
    float2 sums[warps_of_a_merge][d / 2];  // of the weighted O of each warp's parts
    float largest[warps_of_a_merge], sum[warps_of_a_merge];
};

/// O of row x from so many parts, and LSE if it is wanted. By four warps, each thread with its number; meet() is their
/// barrier, and they come to it once. `of_warps` is theirs alone, also a while after: others of them may still read it.
template <class Element, int d, class Meet>
__device__ __forceinline__ void merge_row(const PartialResults<const float>& partial, const Results<Element>& results,
                                          int parts, int x, int thread, MergeOfWarps<d>& of_warps, Meet meet) {
    constexpr int at_once = 4;  // parts that a warp loads under one another
    const int warp = thread / 32, lane = thread % 32;

    // Parts are keys to it, LSE their scores, O their values: rung 01's loop.
    float largest = -INFINITY, sum = 0;
    float2 O[d / 64] = {};
    for (int part = warp; part < parts; part += at_once * warps_of_a_merge) {
        float LSE[at_once], larger = largest;
        float2 pairs[at_once][d / 64];
#pragma unroll
        for (int n = 0; n < at_once; ++n) {
            const bool there = part + n * warps_of_a_merge < parts;
            const std::size_t place = partial.place(x, part + n * warps_of_a_merge);
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
    for (int c = 0; c < d / 64; ++c) of_warps.sums[warp][c * 32 + lane] = O[c];
    if (lane == 0) of_warps.largest[warp] = largest, of_warps.sum[warp] = sum;
    meet();

    for (int pair = thread; pair < d / 2; pair += warps_of_a_merge * 32) {
        largest = -INFINITY, sum = 0;
        for (const float of_warp : of_warps.largest) largest = fmaxf(largest, of_warp);
        const float shift = largest == -INFINITY ? 0 : largest;
        float2 total = {};
        for (int w = 0; w < warps_of_a_merge; ++w) {
            const float weight = expf(of_warps.largest[w] - shift);
            sum += weight * of_warps.sum[w];
            total.x += weight * of_warps.sums[w][pair].x, total.y += weight * of_warps.sums[w][pair].y;
        }
        const float inverse = sum == 0 ? 0 : 1 / sum;
        store_pair(results.row_of_O(x) + 2 * pair, total.x * inverse, total.y * inverse);
        if (results.LSE && pair == 0) results.LSE[x] = sum == 0 ? -INFINITY : largest + logf(sum);
    }
}

/// Block x merges the parts of row x: as many as parts_of_tiles has for the queries of its tile, batch by batch. What is in
/// one part is there already.
template <class Element, int d>
__global__ void __launch_bounds__(warps_of_a_merge * 32)
    merge_parts_of_tiles(const PartialResults<const float> partial, const Results<Element> results,
                         const PackedTiles tiles, const int* parts_of_tiles) {
    __shared__ MergeOfWarps<d> of_warps;
    const int x = blockIdx.x;
    cudaGridDependencySynchronize();
    const int query = x % tiles.N_q, batch = x / tiles.N_q / tiles.heads;
    const int parts = parts_of_tiles[batch * tiles.T_r + query / tiles.packing.queries()];
    if (parts == 1) return;
    merge_row<Element, d>(partial, results, parts, x, int(threadIdx.x), of_warps, [] { __syncthreads(); });
}

/// Launches it, where there may be parts to be merged, so that it may begin while these are still computed.
template <class Element, int d>
void launch_merge(const PartialResults<float>& partial, const Results<Element>& results, const PackedTiles& tiles,
                  const int* parts_of_tiles, cudaStream_t stream) {
    if (partial.parts == 1) return;
    launch_kernel(merge_parts_of_tiles<Element, d>,
                  {.grid = dim3(unsigned(partial.rows)), .block = dim3(warps_of_a_merge * 32), .stream = stream,
                   .dependent = true},
                  PartialResults<const float>{partial.O, partial.LSE, partial.rows, partial.parts}, results, tiles,
                  parts_of_tiles);
}

}  // namespace flashladder::attention
