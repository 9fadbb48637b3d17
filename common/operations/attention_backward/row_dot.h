// rowsum(dO O), which the gradient of the softmax needs of each query.
#pragma once

#include <cuda_runtime.h>

#include "tensor.h"
#include "tile/shared_tile.h"

namespace flashladder::attention_backward {

/// A (batch, heads, rows, d) tensor, of any strides.
template <class Element>
struct Rows {
    const void* tensor;
    Strides strides;

    __device__ __forceinline__ const Element* row(int batch, int head, int i) const {
        return static_cast<const Element*>(tensor) + batch * strides.batch + head * strides.head + i * strides.row;
    }
};

/// The product of a row of O and of dO, d elements each; 0 unless `exists`. By d / 8 lanes of a warp that are
/// neighbours, each with the address of its own 16 bytes. All lanes of the warp call it, and all of the row have the result.
template <int d, class Element>
__device__ __forceinline__ float row_dot_of_chunks(const Element* O, const Element* dO, bool exists = true) {
    constexpr int lanes = d / tile::chunk;
    float sum = 0;
    if (exists) {
        const uint4 O_chunk = *reinterpret_cast<const uint4*>(O);
        const uint4 dO_chunk = *reinterpret_cast<const uint4*>(dO);
        const auto *o = reinterpret_cast<const Element*>(&O_chunk), *g = reinterpret_cast<const Element*>(&dO_chunk);
#pragma unroll
        for (int e = 0; e < tile::chunk; ++e) sum += float(o[e]) * float(g[e]);
    }
    for (int n = lanes / 2; n > 0; n /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, n);
    return sum;
}
/// The same of rows that lie in one piece, by their addresses.
template <int d, class Element>
__device__ __forceinline__ float row_dot(const Element* O, const Element* dO, bool exists) {
    const unsigned at = threadIdx.x % (d / tile::chunk) * tile::chunk;
    return row_dot_of_chunks<d>(O + at, dO + at, exists);
}

}  // namespace flashladder::attention_backward
