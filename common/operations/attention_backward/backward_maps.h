// The tensors of BackwardArgs as TMA sees them: one parameter of a kernel.
#pragma once

#include "operations/attention_backward/problem.h"
#include "tile/global_tile.h"

namespace flashladder::attention_backward {

/// K and V in tiles of keys, their gradients too or in others, Q and dO in tiles of queries.
template <class KeyTile, class QueryTile, class OutputTile = KeyTile>
struct BackwardMaps {
    tile::TensorMap<KeyTile> K, V;
    tile::TensorMap<OutputTile> dK, dV;
    tile::TensorMap<QueryTile> Q, dO;
};

/// Throws CudaError where the driver refuses a tensor.
template <class KeyTile, class QueryTile, class OutputTile = KeyTile>
BackwardMaps<KeyTile, QueryTile, OutputTile> backward_maps(const BackwardArgs& args) {
    const AttentionShape& s = args.shape;
    return {tile::make_tensor_map<KeyTile>(args.K, args.K_strides, s.batch, s.kv_heads, s.n_k),
            tile::make_tensor_map<KeyTile>(args.V, args.V_strides, s.batch, s.kv_heads, s.n_k),
            tile::make_tensor_map<OutputTile>(args.dK, args.dK_strides, s.batch, s.kv_heads, s.n_k),
            tile::make_tensor_map<OutputTile>(args.dV, args.dV_strides, s.batch, s.kv_heads, s.n_k),
            tile::make_tensor_map<QueryTile>(args.Q, args.Q_strides, s.batch, s.heads, s.n_q),
            tile::make_tensor_map<QueryTile>(args.dO, args.dO_strides, s.batch, s.heads, s.n_q)};
}

}  // namespace flashladder::attention_backward
