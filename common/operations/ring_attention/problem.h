// Ring attention: the self-attention of one long sequence that is spread over several GPUs.
//
//   O = softmax(scale * Q K^T) V,   LSE as in attention (operations/attention/problem.h), with N_q = N_k = N
//
// Each of G ranks has a shard of Q, K and V, (batch, heads, N / G, d), and gets that of O. In round r rank g computes with
// the K and V of rank g - r, while they travel on to rank g + 1; ranks count around.
//
// Where the queries are: without a mask rank g has the g-th part of the sequence. If causal, that would leave the first
// rank almost nothing to do, so the sequence has 2 G chunks, and rank g has chunks g and 2 G - 1 - g, one behind the
// other: a zigzag.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>
#include <vector>

#include "operations/attention/problem.h"

namespace flashladder::ring_attention {

/// Of the whole sequence: n_q = n_k = N.
using attention::AttentionShape;

/// Of what N must be a multiple for so many ranks.
constexpr int chunks(int ranks, bool causal) { return causal ? 2 * ranks : ranks; }
/// What a rank has of it.
constexpr AttentionShape shard_of(AttentionShape shape, int ranks) {
    return shape.n_q /= ranks, shape.n_k /= ranks, shape;
}
/// Where in the sequence row i of a rank's shard is.
constexpr int position_of(int i, int rank, int ranks, int rows_of_shard, bool causal) {
    const int half = rows_of_shard / 2;
    if (!causal) return rank * rows_of_shard + i;
    return i < half ? rank * half + i : (2 * ranks - 1 - rank) * half + i - half;
}

/// What a rank gets. Pointers are memory of its device.
struct Rank {
    int device = 0;           // several ranks may share one
    const void* Q = nullptr;  // (batch, heads, N / G, d)
    const void* K = nullptr;  // (batch, kv_heads, N / G, d)
    const void* V = nullptr;
    void* O = nullptr;         // (batch, heads, N / G, d)
    float* lse = nullptr;      // (batch, heads, N / G), or null
    void* scratch = nullptr;   // Stage::scratch_bytes() bytes, 256-byte aligned; contents undefined
    cudaStream_t stream = {};  // of its device: what the rank's results wait for, and what waits for them
};

/// What a stage gets: contiguous tensors. It neither allocates nor synchronises.
struct Args {
    AttentionShape shape;  // of all
    std::vector<Rank> ranks;
    float scale = 1;
};

/// One round of one rank by itself, for who sends K and V around in another way. `shape` and the tensors are those of a
/// shard; K and V come from rank - round. Rounds of a rank are launched one after the other, with the same scratch, O
/// and lse, which are complete behind the last one.
struct RoundArgs : attention::ForwardArgs {
    int ranks = 1, rank = 0, round = 0;
};

/// What lies between two rounds, at the beginning of a rank's scratch.
struct State {
    unsigned* taken;  // of the dynamic schedule
    float* lse;       // (batch, heads, N / G)
    float* O;         // (batch, heads, N / G, d)
    void* behind;
};
State state_in(void* scratch, const AttentionShape& shard, int ranks);
/// Bytes of that, a multiple of 256.
std::size_t bytes_of_state(const AttentionShape& shard, int ranks);
/// Of a K and V that travel: K, and V behind it. A multiple of 256.
std::size_t bytes_of_buffer(const AttentionShape& shard);

}  // namespace flashladder::ring_attention
