// A consumer as rung 12 has built it, without its softmax: how its products begin and end.
#pragma once

#include "lcsf/ring.h"
#include "lcsf/turns.h"
#include "tile/warpgroup.h"

namespace flashladder::attention {

/// 128 threads, which call all of this together. Memory is a ForwardMemory. Reports name the lines of the calls.
template <class Memory>
struct OverlappedConsumer {
    using Config = typename Memory::Config;
    using KeyTile = typename Memory::KeyTile;
    using Scores = tile::Accumulator<16, Config::B_c>;

    Memory& smem;
    int consumer, warp, lane;
    lcsf::Turns<Config::consumers> turns = {consumer};
    lcsf::RingPosition<2> query = {};
    lcsf::RingPosition<Config::stages> key = {}, value = {};  // V_j is read a step later than K_j
    tile::Operand<typename Memory::Element, 16, Config::B_c> P_reg = {};
    tile::Accumulator<16, Memory::d> O_reg = {};

    /// S = Q_i K_j^T, in its turn, which somebody has to pass.
    __device__ __forceinline__ void begin_scores(Scores& S_reg, ptx::Where where = ptx::Where::current()) {
        smem.K_ring.wait_full(key, where);
        turns.wait();
        const typename Memory::QueryTile Q_smem{smem.Q[query.slot][consumer]};
        tile::begin_multiply_transposed(S_reg, Q_smem, KeyTile{smem.K[key.slot]});
    }
    /// O += P V, of the block of keys before.
    __device__ __forceinline__ void begin_output(ptx::Where where = ptx::Where::current()) {
        smem.V_ring.wait_full(value, where);
        tile::begin_multiply(O_reg, P_reg, KeyTile{smem.V[value.slot]});
    }
    /// Behind the wait for S.
    __device__ __forceinline__ void end_scores(ptx::Where where = ptx::Where::current()) {
        if (lane == 0) smem.K_ring.release(key, where);
        key.advance();
    }
    __device__ __forceinline__ void end_output(ptx::Where where = ptx::Where::current()) {
        tile::wait<0>(O_reg, P_reg);
        give_back_values(where);
    }
    __device__ __forceinline__ void give_back_values(ptx::Where where = ptx::Where::current()) {
        if (lane == 0) smem.V_ring.release(value, where);
        value.advance();
    }
};

}  // namespace flashladder::attention
