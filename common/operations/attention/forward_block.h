// What blocks of rungs 12 and 13 have as rung 11 taught it: shared memory, and the producer that fills it.
#pragma once

#include "lcsf/ring.h"
#include "lcsf/tasks.h"
#include "ptx/fence.h"
#include "tile/global_tile.h"

namespace flashladder::attention {

/// Tiles, and the barriers of their rings. Tiles has Q in two slots for each consumer, this task's and the next one's, and
/// K and V in Config::stages slots each.
template <class Tiles>
struct ForwardMemory : Tiles {
    using Config = typename Tiles::Config;
    lcsf::Ring<2> Q_ring[Config::consumers];
    lcsf::Ring<Config::stages> K_ring, V_ring;
    lcsf::TaskSlots tasks;

    /// Makes the barriers, before anything else. By all threads of the block.
    __device__ __forceinline__ void init_barriers() {
        if (threadIdx.x == 0) {
            constexpr int warps = 4 * Config::consumers;  // one lane of each releases
            for (auto& ring : Q_ring) ring.init(1, 4);
            K_ring.init(1, warps);
            V_ring.init(1, warps);
            tasks.init(warps);
            ptx::fence_barrier_init();
        }
        __syncthreads();
    }
};

/// The producer, one thread: asks for all that the block's tasks need, and tells the consumers which tasks these are.
/// p.task(n) is task n: its first query i, its head, kv_head and batch, its T_c blocks of keys. The last one comes first,
/// as it is the one with a mask.
template <bool causal, class Memory, class Maps, class Problem>
__device__ __forceinline__ void produce(Memory& smem, const Maps& maps, const Problem& p) {
    using Config = typename Memory::Config;
    using QueryTile = typename Memory::QueryTile;
    using KeyTile = typename Memory::KeyTile;
    lcsf::RingPosition<2> query;
    lcsf::RingPosition<Config::stages> key;  // of V too: as many tiles go through both rings
    lcsf::TaskProducer tasks;
    while (tasks.task < p.order.tasks()) {
        const auto task = p.template task<causal, Config>(tasks.task);
        tasks.ask(p.taken);
        for (int t = task.T_c - 1; t >= 0; --t) {
            const int j = t * KeyTile::rows, slot = key.slot;
            smem.K_ring.wait_empty(key);
            tile::load(KeyTile{smem.K[slot]}, maps.K, smem.K_ring.full[slot], j, task.kv_head, task.batch);
            for (int c = 0; t == task.T_c - 1 && c < Config::consumers; ++c) {
                smem.Q_ring[c].wait_empty(query);
                tile::load(QueryTile{smem.Q[query.slot][c]}, maps.Q, smem.Q_ring[c].full[query.slot],
                           task.i + c * QueryTile::rows, task.head, task.batch);
            }
            smem.V_ring.wait_empty(key);
            tile::load(KeyTile{smem.V[slot]}, maps.V, smem.V_ring.full[slot], j, task.kv_head, task.batch);
            key.advance();
        }
        query.advance();
        tasks.advance(smem.tasks);
    }
}

}  // namespace flashladder::attention
