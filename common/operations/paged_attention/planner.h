// Who plans parts (plan.h): the device, which alone knows how long sequences are.
#pragma once

#include "operations/attention/longest_first.h"
#include "operations/attention/packed_tiles.h"
#include "operations/paged_attention/plan.h"

namespace flashladder::paged_attention {

struct Planner {
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
        const int N_k = lengths[x / tiles.T_r];
        const int seen = causal ? max(tiles.behind(x % tiles.T_r) + N_k - tiles.N_q, 0) : N_k;
        return (seen + attention::block_of_keys - 1) / attention::block_of_keys;
    }
    /// How many parts T blocks are, if none is to have more than `most`.
    __device__ static int parts_of(int T, int most) { return T > most ? (T + most - 1) / most : 1; }
    /// Tile x has T blocks.
    __device__ PlannedPart find(int x, int T, int part, int most) const {
        const int parts = parts_of(T, most), N_k = lengths[x / tiles.T_r];
        if (part >= parts) return {};
        const int first = T > 0 ? part * T / parts : (N_k + attention::block_of_keys - 1) / attention::block_of_keys;
        const int end = T > 0 ? (part + 1) * T / parts : first + 1;
        return {x / tiles.T_r, x % tiles.T_r, N_k, part, parts, first, end - first};
    }
    /// About how many steps the busiest multiprocessor has, if no part has more than `most`: its share of all; or, as
    /// some get one more of the long parts than others, those of more than half as many, what such ones take. By a warp.
    template <class Blocks>
    __device__ float time(int most, Blocks blocks_of) const {
        int steps = 0, long_parts = 0, steps_of_long = 0;
        for (int x = threadIdx.x % 32; x < places(); x += 32) {
            const int T = blocks_of(x), parts = parts_of(T, most), of_tile = T + steps_of_a_part * parts;
            steps += of_tile;
            if (2 * T > most * parts) long_parts += parts, steps_of_long += of_tile;
        }
        steps = __reduce_add_sync(0xFFFFFFFFu, steps);
        long_parts = max(__reduce_add_sync(0xFFFFFFFFu, long_parts), 1);
        steps_of_long = __reduce_add_sync(0xFFFFFFFFu, steps_of_long);
        const int heads = tiles.heads_of_tiles(), rounds = (long_parts * heads + multiprocessors - 1) / multiprocessors;
        return fmaxf(float(steps) * float(heads) / float(multiprocessors),
                     float(rounds) * float(steps_of_long) / float(long_parts));
    }
};

/// One block. The kernel behind may begin to begin.
__global__ void __launch_bounds__(attention::buckets) plan_parts(const Planner p) {
    constexpr int warps = attention::buckets / 32, most_known = 2048;
    __shared__ int known[most_known];  // blocks of tiles: to read a length takes long
    __shared__ int longest, all;       // blocks
    __shared__ unsigned long long best;  // the time, and the parts of the longest
    cudaTriggerProgrammaticLaunchCompletion();
    if (threadIdx.x == 0) longest = all = 0, best = ~0ull;
    __syncthreads();
    cudaGridDependencySynchronize();
    int own_longest = 0, own = 0;
    for (int x = threadIdx.x; x < p.places(); x += attention::buckets) {
        const int T = p.blocks(x);
        if (x < most_known) known[x] = T;
        own_longest = max(own_longest, T), own += T;
    }
    own_longest = __reduce_max_sync(0xFFFFFFFFu, own_longest), own = __reduce_add_sync(0xFFFFFFFFu, own);
    if (threadIdx.x % 32 == 0) atomicMax(&longest, own_longest), atomicAdd(&all, own);
    __syncthreads();
    const auto blocks_of = [&](int x) { return x < most_known ? known[x] : p.blocks(x); };
    const auto most_of = [T = longest](int parts) { return (T + parts - 1) / parts; };  // blocks of a part

    // A warp tries a number of parts of the longest, near that with which a part is a multiprocessor's share of all.
    const float share = float(all) * float(p.tiles.heads_of_tiles()) / float(p.multiprocessors);
    const int most_parts = max(min(longest / fewest_blocks, p.most_parts), 1);
    const int near = min(int(float(longest) / fmaxf(share, 1)), most_parts);
    if (const int parts = max(near - warps / 4, 1) + threadIdx.x / 32; !p.asked && parts <= most_parts) {
        const unsigned long long time = __float_as_uint(p.time(most_of(parts), blocks_of));
        if (threadIdx.x % 32 == 0) atomicMin(&best, time << 32 | unsigned(parts));
    }
    __syncthreads();
    const int parts = p.asked ? p.asked : int(best), most = most_of(parts);
    for (int x = threadIdx.x; x < p.places(); x += attention::buckets)
        p.parts[x] = Planner::parts_of(blocks_of(x), most);
    const int tasks = attention::plan_longest_first(p.plan, p.places() * parts, [&](int n) {
        return p.find(n / parts, blocks_of(n / parts), n % parts, most);
    });
    if (threadIdx.x == 0) *p.planned = tasks, *p.taken = 0;
}

}  // namespace flashladder::paged_attention
