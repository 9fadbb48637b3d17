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

constexpr int merge_warps = 4;

/// Block x merges the parts of row x: as many as parts_of_tiles has for the queries of its tile, batch by batch. What is in
/// one part is there already.
template <class Element, int d>
__global__ void __launch_bounds__(merge_warps * 32)
    merge_parts(const PartialResults<const float> partial, const Results<Element> results, const PackedTiles tiles,
                const int* parts_of_tiles) {
    constexpr int at_once = 4;  // parts that a warp loads under one another
    __shared__ float2 sums[merge_warps][d / 2];  // of the weighted O of each warp's parts
    __shared__ float largest_of[merge_warps], sum_of[merge_warps];
    const int x = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    cudaGridDependencySynchronize();
    const int query = x % tiles.N_q, batch = x / tiles.N_q / tiles.heads;
    const int parts = parts_of_tiles[batch * tiles.T_r + query / tiles.packing.queries()];
    if (parts == 1) return;

    // Parts are keys to it, LSE their scores, O their values: rung 01's loop.
    float largest = -INFINITY, sum = 0;
    float2 O[d / 64] = {};
    for (int part = warp; part < parts; part += at_once * merge_warps) {
        float LSE[at_once], larger = largest;
        float2 pairs[at_once][d / 64];
#pragma unroll
        for (int n = 0; n < at_once; ++n) {
            const bool there = part + n * merge_warps < parts;
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

/// Launches it, where there may be parts to be merged, so that it may begin while these are still computed.
template <class Element, int d>
void launch_merge(const PartialResults<float>& partial, const Results<Element>& results, const PackedTiles& tiles,
                  const int* parts_of_tiles, cudaStream_t stream) {
    if (partial.parts == 1) return;
    launch_kernel(merge_parts<Element, d>,
                  {.grid = dim3(unsigned(partial.rows)), .block = dim3(merge_warps * 32), .stream = stream,
                   .dependent = true},
                  PartialResults<const float>{partial.O, partial.LSE, partial.rows, partial.parts}, results, tiles,
                  parts_of_tiles);
}

}  // namespace flashladder::attention
