// The tensors of ForwardArgs as TMA sees them: one parameter of a kernel.
#pragma once

#include "operations/attention/problem.h"
#include "tile/global_tile.h"

namespace flashladder::attention {

/// Q in tiles of queries, K and V in tiles of keys, O in tiles of queries again or in others.
template <class QueryTile, class KeyTile, class OutputTile = QueryTile>
struct ForwardMaps {
    tile::TensorMap<QueryTile> Q;
    tile::TensorMap<KeyTile> K, V;
    tile::TensorMap<OutputTile> O;
};

/// Throws CudaError where the driver refuses a tensor.
template <class QueryTile, class KeyTile, class OutputTile = QueryTile>
ForwardMaps<QueryTile, KeyTile, OutputTile> forward_maps(const ForwardArgs& args) {
    const AttentionShape& s = args.shape;
    return {tile::make_tensor_map<QueryTile>(args.Q, args.Q_strides, s.batch, s.heads, s.n_q),
            tile::make_tensor_map<KeyTile>(args.K, args.K_strides, s.batch, s.kv_heads, s.n_k),
            tile::make_tensor_map<KeyTile>(args.V, args.V_strides, s.batch, s.kv_heads, s.n_k),
            tile::make_tensor_map<OutputTile>(args.O, args.O_strides, s.batch, s.heads, s.n_q)};
}

}  // namespace flashladder::attention
