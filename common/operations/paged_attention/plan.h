// Which parts of the keys there are, and in which order they begin: rung 27's parts, as rung 26 plans tasks. By the device,
// which alone knows how long sequences are.
#pragma once

#include <cuda_runtime.h>

#include "operations/attention/longest_first.h"
#include "operations/attention/merge.h"

namespace flashladder::paged_attention {

/// Blocks of keys of a sequence, against one of its tiles of queries, for each head of K and V.
struct alignas(16) PlannedPart {
    int sequence, tile_of_queries;
    int N_k;           // of the sequence
    int part, parts;   // the number of this one, and how many the tile has
    int first, steps;  // blocks from `first` on; a tile that sees no key has one step, behind the last key
};

#if defined(__CUDACC__) || !defined(FLASHLADDER_GPU)  // else by g++, for its struct
struct Planner {
    static constexpr int fewest_blocks = 4, cost = 2;  // of a part; its start, its end and the merge take as long as these

    const int* lengths;
    attention::PackedTiles tiles;
    bool causal;
    int asked;       // parts of the longest; 0: as many as are best
    int most_parts;  // of a tile
    int multiprocessors;
    PlannedPart* plan;
    int* parts;       // of each tile of queries, sequence by sequence
    int* planned;     // how many a head has in all
    unsigned* taken;  // of all heads', by the blocks of the kernel behind

    /// Tiles of queries of all sequences, and blocks of keys of tile x: those of which one of its queries sees a key.
    __device__ int places() const { return tiles.batches * tiles.T_r; }
    __device__ int blocks(int x) const {
        const int N_k = lengths[x / tiles.T_r], behind = min((x % tiles.T_r + 1) * tiles.packing.queries(), tiles.N_q);
        const int seen = causal ? max(behind + N_k - tiles.N_q, 0) : N_k;
        return (seen + attention::block_of_keys - 1) / attention::block_of_keys;
    }
    /// How many parts T blocks are, if none is to have more than `most`.
    __device__ static int parts_of(int T, int most) { return T > most ? (T + most - 1) / most : 1; }
    __device__ PlannedPart find(int x, int part, int most) const {
        const int T = blocks(x), parts = parts_of(T, most), N_k = lengths[x / tiles.T_r];
        if (part >= parts) return {};
        const int first = T > 0 ? part * T / parts : (N_k + attention::block_of_keys - 1) / attention::block_of_keys;
        const int end = T > 0 ? (part + 1) * T / parts : first + 1;
        return {x / tiles.T_r, x % tiles.T_r, N_k, part, parts, first, end - first};
    }
    /// About how many steps the busiest multiprocessor has, if no part has more than `most`: its share of all, or what
    /// comes of it that of the long ones, of more than half as many, some have one more than others. By a warp.
    __device__ long long time(int most) const {
        int steps = 0, long_parts = 0, steps_of_long = 0;
        for (int x = threadIdx.x % 32; x < places(); x += 32) {
            const int T = blocks(x), parts = parts_of(T, most), of_tile = T + cost * parts;
            steps += of_tile;
            if (2 * T > most * parts) long_parts += parts, steps_of_long += of_tile;
        }
        const long long heads = tiles.heads_of_tiles(), parts = __reduce_add_sync(0xFFFFFFFFu, long_parts);
        const long long rounds = (parts * heads + multiprocessors - 1) / multiprocessors;
        return max(__reduce_add_sync(0xFFFFFFFFu, steps) * heads / multiprocessors,
                   rounds * __reduce_add_sync(0xFFFFFFFFu, steps_of_long) / max(parts, 1ll));
    }
};

/// One block. The kernel behind may begin to begin.
__global__ void __launch_bounds__(attention::buckets) plan_parts(const Planner p) {
    __shared__ int longest;
    __shared__ unsigned long long best;  // the time, and the parts of the longest in 16 bits
    cudaTriggerProgrammaticLaunchCompletion();
    if (threadIdx.x == 0) longest = 0, best = ~0ull;
    __syncthreads();
    for (int x = threadIdx.x; x < p.places(); x += blockDim.x) atomicMax(&longest, p.blocks(x));
    __syncthreads();
    const int T = longest, most_parts = p.asked ? 1 : max(min(T / Planner::fewest_blocks, p.most_parts), 1);
    const auto most_of = [&](int parts) { return (T + parts - 1) / parts; };  // blocks of a part
    for (int parts = 1 + threadIdx.x / 32; parts <= most_parts; parts += blockDim.x / 32) {
        const long long time = p.time(most_of(parts));
        if (threadIdx.x % 32 == 0) atomicMin(&best, static_cast<unsigned long long>(time << 16 | parts));
    }
    __syncthreads();
    const int parts = p.asked ? p.asked : int(best & 0xFFFF), most = most_of(parts);
    for (int x = threadIdx.x; x < p.places(); x += blockDim.x) p.parts[x] = Planner::parts_of(p.blocks(x), most);
    const int tasks = attention::plan_longest_first(p.plan, p.places() * parts,
                                                    [&](int n) { return p.find(n / parts, n % parts, most); });
    if (threadIdx.x == 0) *p.planned = tasks, *p.taken = 0;
}
#endif

}  // namespace flashladder::paged_attention
