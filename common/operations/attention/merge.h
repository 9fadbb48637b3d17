// What rung 27 has taught: rows of a tile that are heads of a group, a problem's keys in parts, and the merge of what
// comes of them.
#pragma once

#include <algorithm>
#include <climits>
#include <cmath>

#include "launch.h"
#include "operations/attention/parts.h"
#include "ptx/tensor_map.h"
#include "tile/global_tile.h"

namespace flashladder::attention {

// ---- tiles of packed heads

/// Q as TMA sees it where rows are heads: a box of heads of some queries.
template <class Tile>
tile::TensorMap<Tile> packed_map(const ForwardArgs& args, const Packing& packing) {
    using Element = typename Tile::Element;
    const AttentionShape& s = args.shape;
    const auto bytes = [](std::int64_t elements) { return std::uint64_t(elements) * sizeof(Element); };
    return {ptx::make_tensor_map<Element, 4>(
        static_cast<const Element*>(args.Q),
        {std::uint64_t(s.head_dim), std::uint64_t(s.heads), std::uint64_t(s.n_q), std::uint64_t(s.batch)},
        {bytes(args.Q_strides.head), bytes(args.Q_strides.row), bytes(args.Q_strides.batch)},
        {tile::TensorMap<Tile>::panel, std::uint32_t(packing.heads), std::uint32_t(packing.queries()), 1},
        ptx::Swizzle::bytes_128)};
}

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

/// A lane's rows of O and LSE, where they are rows of the problem. By the four warps of a consumer.
template <int d>
__device__ __forceinline__ void store_part(const PartialResults<float>& partial, const tile::Accumulator<16, d>& O,
                                           const tile::RowValues<16>& lse, const PackedTiles& tiles,
                                           const PackedTiles::Task& task, int warp) {
    for (int h = 0; h < 2; ++h) {
        const int row = warp * 16 + tile::row_of(0, h), head = tiles.head_of(row), query = tiles.query_of(task, row);
        if (head >= task.heads || query >= tiles.N_q) continue;
        const std::size_t place =
            partial.place((task.batch * tiles.heads + task.first_head + head) * tiles.N_q + query, task.part);
        if (threadIdx.x % 4 == 0) partial.LSE[place] = lse.value[0][h];
#pragma unroll
        for (int x = 0; x < d / 8; ++x)
            *reinterpret_cast<float2*>(&partial.O[place * d + std::size_t(tile::column_of(x, 0))]) = {
                O.fragment[0][x][2 * h], O.fragment[0][x][2 * h + 1]};
    }
}

// ---- the merge

constexpr int merge_warps = 4;

/// What the merge has to write: rows of a (batch, heads, N_q) order.
template <class Element>
struct MergedResults {
    Element* O;
    float* LSE;  // null where it is not wanted
    Strides strides;
    int heads, N_q;

    __device__ Element* row_of_O(int row) const {
        return O + row / N_q / heads * strides.batch + row / N_q % heads * strides.head + row % N_q * strides.row;
    }
};

/// Block x merges the parts of row x.
template <class Element, int d>
__global__ void __launch_bounds__(merge_warps * 32)
    merge_parts(const PartialResults<const float> partial, const MergedResults<Element> results) {
    __shared__ float2 sums[merge_warps][d / 2];  // of O, by the warps, each of which has some parts
    const int x = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    float largest = -INFINITY;  // each warp for itself
    for (int part = lane; part < partial.parts; part += 32)
        largest = fmaxf(largest, partial.LSE[partial.place(x, part)]);
    for (int distance = 16; distance > 0; distance /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, distance));
    const float shift = largest == -INFINITY ? 0 : largest;  // else -infinity less itself
    float sum = 0;
    for (int part = lane; part < partial.parts; part += 32) sum += expf(partial.LSE[partial.place(x, part)] - shift);
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, distance);

    float2 O[d / 64] = {};
    for (int part = warp; part < partial.parts; part += merge_warps) {
        const std::size_t place = partial.place(x, part);
        const float weight = expf(partial.LSE[place] - shift);
        const float2* pairs = reinterpret_cast<const float2*>(partial.O + place * d);
#pragma unroll
        for (int c = 0; c < d / 64; ++c) {
            const float2 pair = pairs[c * 32 + lane];
            O[c].x += weight * pair.x, O[c].y += weight * pair.y;
        }
    }
#pragma unroll
    for (int c = 0; c < d / 64; ++c) sums[warp][c * 32 + lane] = O[c];
    __syncthreads();
    const float inverse = sum == 0 ? 0 : 1 / sum;
    for (int pair = threadIdx.x; pair < d / 2; pair += merge_warps * 32) {
        float2 total = {};
        for (int w = 0; w < merge_warps; ++w) total.x += sums[w][pair].x, total.y += sums[w][pair].y;
        *reinterpret_cast<std::uint32_t*>(results.row_of_O(x) + 2 * pair) =
            ptx::pack<Element>(total.x * inverse, total.y * inverse);
    }
    if (results.LSE && threadIdx.x == 0) results.LSE[x] = sum == 0 ? -INFINITY : largest + logf(sum);
}

template <class Element, int d>
void launch_merge(const ForwardArgs& args, const PartialResults<float>& partial) {
    const AttentionShape& s = args.shape;
    launch_kernel(merge_parts<Element, d>,
                  {.grid = dim3(unsigned(partial.rows)), .block = dim3(merge_warps * 32), .stream = args.stream},
                  PartialResults<const float>{partial.O, partial.LSE, partial.rows, partial.parts},
                  MergedResults<Element>{static_cast<Element*>(args.O), args.lse, args.O_strides, s.heads, s.n_q});
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
