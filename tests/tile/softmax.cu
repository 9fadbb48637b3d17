#include "fragments.h"
#include "tile/multiply.h"
#include "tile/online_softmax.h"

namespace flashladder {
namespace {

/// Two warps, `rows` rows each of S (2 rows, blocks * keys).
template <class T, int rows, int keys, int d, bool by_lanes>
__global__ void attend_kernel(const float* S, const std::uint16_t* V, int blocks, bool in_pieces, int N, float* O,
                              float* lse, float* lanes) {
    const tile::SharedTile<T, keys, d, tile::SwizzledFor<d>> V_smem{dynamic_shared<T>()};
    const int first = threadIdx.x / warp * rows;
    tile::Accumulator<rows, d> O_reg;
    tile::fill(O_reg, 0);
    std::conditional_t<by_lanes, tile::OnlineSoftmax<rows, tile::SumsByLanes>, tile::OnlineSoftmax<rows>> softmax;
    for (int j = 0; j < blocks; ++j) {
        __syncthreads();  // V_j is about to be overwritten
        write(V_smem, V + j * keys * d);
        __syncthreads();
        tile::Accumulator<rows, keys> S_reg;
        read(S_reg, S + (first * blocks + j) * keys, blocks * keys);
        if (in_pieces) {
            const auto m_new = tile::row_max(S_reg, softmax.m);
            softmax.raise(m_new, O_reg);
            tile::exponentials(S_reg, m_new);
        } else {
            softmax.update(S_reg, O_reg);
        }
        const auto P_reg = tile::to_operand<T>(S_reg);
        if constexpr (by_lanes)
            softmax.add(S_reg);
        else
            softmax.add(P_reg);
        tile::multiply(O_reg, P_reg, V_smem);
    }
    write(lanes + first * 4, softmax.sums());
    const auto lse_rows = in_pieces ? softmax.finish(O_reg, softmax.sums()) : softmax.finish(O_reg);
    tile::store_rows(lse, lse_rows, first, N);
    write(O + first * d, O_reg);
}

template <class T, int rows, int keys, int d, bool by_lanes>
Attended attend(const Floats& S, const Bits16& V, bool in_pieces, int N) {
    const DeviceArray<float> S_device(S), O(std::size_t(2) * rows * d), lse(Floats(std::size_t(2) * rows, -1)),
        lanes(8 * rows);
    const DeviceArray<std::uint16_t> V_device(V);
    launch_kernel(attend_kernel<T, rows, keys, d, by_lanes>, {1, 2 * warp, keys * d * 2}, S_device.data(),
                  V_device.data(), int(V.size() / (keys * d)), in_pieces, N, O.data(), lse.data(), lanes.data());
    return {O.download(), lse.download(), lanes.download()};
}

template <class T, int rows, int keys, int d, bool by_lanes = false>
SoftmaxCase softmax_case() {
    return {element_of<T>, rows, keys, d, by_lanes, attend<T, rows, keys, d, by_lanes>};
}

}  // namespace

std::vector<SoftmaxCase> softmax_cases() {
    return {softmax_case<__nv_bfloat16, 16, 16, 16>(),  softmax_case<__half, 32, 16, 32>(),
            softmax_case<__nv_bfloat16, 32, 64, 64>(),  softmax_case<__half, 16, 64, 128>(),
            softmax_case<__nv_bfloat16, 16, 128, 32>(), softmax_case<__half, 32, 32, 64>(),
            softmax_case<__half, 16, 16, 16, true>(),   softmax_case<__nv_bfloat16, 16, 128, 64, true>(),
            softmax_case<__half, 32, 64, 32, true>(),   softmax_case<__nv_bfloat16, 16, 64, 128, true>()};
}

}  // namespace flashladder
