// Ring attention as harness and tools see it.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/operation.h"
#include "operations/attention/inputs.h"
#include "operations/ring_attention/problem.h"

namespace flashladder::ring_attention {

const Operation& operation();

/// The same problem, in both types. Its tensors are the ranks' shards, one behind the other.
Problem problem_of(const AttentionShape& shape, int ranks, bool wants_lse = false);
AttentionShape shape_of(const Problem& problem);
int ranks_of(const Problem& problem);

/// Rows of a (batch, heads, N) tensor as ranks have them, (ranks, batch, heads, N / ranks), and back.
std::vector<float> to_shards(const std::vector<float>& whole, const AttentionShape& shape, int heads, int ranks);
std::vector<float> from_shards(const std::vector<float>& shards, const AttentionShape& shape, int heads, int ranks);

Data data_of(const attention::Inputs& inputs, int ranks, bool wants_lse = false);
/// In one piece, as attention has them.
attention::Inputs inputs_of(const Data& data);

/// Bytes of K and V that go from rank to rank.
double sent_bytes(const AttentionShape& shape, int ranks);

}  // namespace flashladder::ring_attention
