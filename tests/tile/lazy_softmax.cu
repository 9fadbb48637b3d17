#include "tile/lazy_softmax.h"

#include "fragments.h"
#include "tile/multiply.h"

namespace flashladder {
namespace {

/// Two warps, 16 rows each of S (32, blocks * keys).
template <class T, int keys, int d>
__global__ void attend_kernel(const float* S, const std::uint16_t* V, int blocks, tile::LazyScale scale, float* O,
                              float* lse, int* raised, float* factor, float* largest) {
    const tile::SharedTile<T, keys, d, tile::SwizzledFor<d>> V_smem{dynamic_shared<T>()};
    const int first = threadIdx.x / warp * 16;
    tile::Accumulator<16, d> O_reg;
    tile::fill(O_reg, 0);
    tile::LazySoftmax softmax;
    tile::fill(softmax.factor, -1);
    softmax.begin(scale);
    tile::Accumulator<16, keys> of_before;  // scores of other rows, of which nothing remains
    tile::fill(of_before, 5);
    softmax.update<true>(of_before, scale);
    softmax.begin(scale);
    for (int j = 0; j < blocks; ++j) {
        __syncthreads();  // V_j is about to be overwritten
        write(V_smem, V + j * keys * d);
        __syncthreads();
        tile::Accumulator<16, keys> S_reg;
        read(S_reg, S + (first * blocks + j) * keys, blocks * keys);
        const bool now = j == 0 ? softmax.update<true>(S_reg, scale) : softmax.update<false>(S_reg, scale);
        if (now && j > 0) tile::multiply_rows(O_reg, softmax.factor);
        raised[j * 2 * warp + threadIdx.x] = now;
        write(factor + (j * lazy_rows + first) * 4, softmax.factor);
        float largest_of_lane = 0;
        for_each(S_reg, 0, [&](float& p, int) { largest_of_lane = fmaxf(largest_of_lane, p); });
        largest[j * 2 * warp + threadIdx.x] = largest_of_lane;
        tile::multiply(O_reg, tile::to_operand<T>(S_reg), V_smem);
    }
    tile::store_rows(lse, softmax.finish(O_reg, scale), first, lazy_rows);
    write(O + first * d, O_reg);
}

template <class T, int keys, int d>
LazyAttended attend(const Floats& S, const Bits16& V, float scale_log2) {
    const std::size_t blocks = V.size() / (keys * d);
    const DeviceArray<float> S_device(S), O(std::size_t(lazy_rows) * d), lse(lazy_rows), factor(blocks * lazy_rows * 4),
        largest(blocks * 2 * warp);
    const DeviceArray<int> raised(blocks * 2 * warp);
    const DeviceArray<std::uint16_t> V_device(V);
    launch_kernel(attend_kernel<T, keys, d>, {1, 2 * warp, keys * d * 2}, S_device.data(), V_device.data(), int(blocks),
                  tile::lazy_scale<T>(scale_log2), O.data(), lse.data(), raised.data(), factor.data(), largest.data());
    return {O.download(), lse.download(), raised.download(), factor.download(), largest.download()};
}

template <class T>
LazyScales scale_of(float scale_log2) {
    const tile::LazyScale scale = tile::lazy_scale<T>(scale_log2);
    return {scale.log2, scale.slack, scale.lowest};
}

template <class T, int keys, int d>
LazyCase lazy_case() {
    return {element_of<T>, keys, d, attend<T, keys, d>, scale_of<T>};
}

}  // namespace

std::vector<LazyCase> lazy_cases() {
    return {lazy_case<__nv_bfloat16, 16, 16>(), lazy_case<__half, 16, 32>(),         lazy_case<__half, 64, 64>(),
            lazy_case<__nv_bfloat16, 64, 32>(), lazy_case<__nv_bfloat16, 128, 64>(), lazy_case<__half, 176, 16>()};
}

}  // namespace flashladder
