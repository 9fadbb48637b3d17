// Where rows of a tile that are heads of a group come from, and where they go: for rung 27's kernels.
#pragma once

#include <cstdint>

#include "operations/attention/problem.h"
#include "ptx/convert.h"
#include "ptx/tensor_map.h"
#include "tile/global_tile.h"
#include "tile/register_tile.h"

namespace flashladder::attention {

/// Q as TMA sees it where rows are heads: a box of so many heads of so many queries.
template <class Tile>
tile::TensorMap<Tile> packed_map(const ForwardArgs& args, int heads, int queries) {
    using Element = typename Tile::Element;
    const AttentionShape& s = args.shape;
    const auto bytes = [](std::int64_t elements) { return std::uint64_t(elements) * sizeof(Element); };
    return {ptx::make_tensor_map<Element, 4>(
        static_cast<const Element*>(args.Q),
        {std::uint64_t(s.head_dim), std::uint64_t(s.heads), std::uint64_t(s.n_q), std::uint64_t(s.batch)},
        {bytes(args.Q_strides.head), bytes(args.Q_strides.row), bytes(args.Q_strides.batch)},
        {tile::TensorMap<Tile>::panel, std::uint32_t(heads), std::uint32_t(queries), 1},
        ptx::Swizzle::bytes_128)};
}

/// O and LSE of all keys: rows of a (batch, heads, N_q) order.
template <class Element>
struct Results {
    Element* O;
    float* LSE;  // null where it is not wanted
    Strides strides;
    int heads, N_q;

    __device__ Element* row_of_O(int row) const {
        return O + row / N_q / heads * strides.batch + row / N_q % heads * strides.head + row % N_q * strides.row;
    }
};

/// Two elements of a row of O, from floats.
template <class Element>
__device__ __forceinline__ void store_pair(Element* pair, float first, float second) {
    *reinterpret_cast<std::uint32_t*>(pair) = ptx::pack<Element>(first, second);
}

/// The lane's row h of two, if it is to be stored, to where the row begins, in whole sectors. By a warp.
template <int d>
__device__ __forceinline__ void store_row(float* row, const tile::Accumulator<16, d>& O, int h, bool stores) {
#pragma unroll
    for (int x = 0; x < d / 8; ++x)
        if (stores)
            *reinterpret_cast<float2*>(row + tile::column_of(x, 0)) = {O.fragment[0][x][2 * h], O.fragment[0][x][2 * h + 1]};
}
template <class Element, int d>
__device__ __forceinline__ void store_row(Element* row, const tile::Accumulator<16, d>& O, int h, bool stores) {
    const int lane = threadIdx.x % 4, odd = lane % 2;
#pragma unroll
    for (int x = 0; x < d / 8; x += 2) {
        // The four lanes of a row have 16 bytes of a fragment, half a sector. So each gives two elements to its neighbour
        // and takes two, and then two lanes have this fragment and two the next one.
        const auto pair = [&](int f) {
            return ptx::pack<Element>(O.fragment[0][f][2 * h], O.fragment[0][f][2 * h + 1]);
        };
        const std::uint32_t here = pair(x), next = pair(x + 1);
        const std::uint32_t theirs = __shfl_xor_sync(0xFFFFFFFFu, odd ? here : next, 1);
        if (stores)
            *reinterpret_cast<uint2*>(row + (x + odd) * 8 + lane / 2 * 4) = odd ? uint2{theirs, next} : uint2{here, theirs};
    }
}

}  // namespace flashladder::attention
