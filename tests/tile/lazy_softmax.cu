#include "tile/lazy_softmax.h"

#include "fragments.h"
#include "tile/multiply.h"

namespace flashladder {
namespace {

constexpr std::uint32_t not_yet = 0xDEADBEEF;

/// Two warps, 16 rows each of S (32, blocks * keys).
template <class T, int keys, int d>
__global__ void attend_kernel(const float* S, const std::uint16_t* V, int blocks, tile::LazyScale scale, float* O,
                              float* lse, float* m, float* largest, int* freed) {
    const tile::SharedTile<T, keys, d, tile::SwizzledFor<d>> V_smem{dynamic_shared<T>()};
    const int first = threadIdx.x / warp * 16;
    tile::Accumulator<16, d> O_reg;
    tile::Operand<T, 16, keys> P;
    tile::fill(O_reg, 0);
    tile::LazySoftmax softmax;
    softmax.begin(scale);
    tile::Accumulator<16, keys> of_before;  // scores of other rows, of which nothing remains
    tile::fill(of_before, 5);
    softmax.update<true>(of_before, P, O_reg, scale);
    softmax.begin(scale);
    for (int j = 0; j < blocks; ++j) {
        __syncthreads();  // V_j is about to be overwritten
        write(V_smem, V + j * keys * d);
        __syncthreads();
        tile::Accumulator<16, keys> S_reg;
        read(S_reg, S + (first * blocks + j) * keys, blocks * keys);
        for (auto& fragment : P.fragment[0])
            for (std::uint32_t& pair : fragment) pair = not_yet;
        int& frees = freed[j * 2 * warp + threadIdx.x] = 0;
        const auto free = [&] {
            bool written = false;
            for (const auto& fragment : P.fragment[0])
                for (const std::uint32_t pair : fragment) written |= pair != not_yet;
            frees += written ? 100 : 1;
        };
        if (j == 0)
            softmax.update<true>(S_reg, P, O_reg, scale, free);
        else if (j % 2 == 1)
            softmax.update<false, 8>(S_reg, P, O_reg, scale, free);
        else
            softmax.update<false>(S_reg, P, O_reg, scale, free);
        write(m + (j * lazy_rows + first) * 4, softmax.exact.m);
        float largest_of_lane = 0;
        for (const auto& fragment : P.fragment[0])
            for (const std::uint32_t pair : fragment)
                for (const auto half : {std::uint16_t(pair), std::uint16_t(pair >> 16)})
                    largest_of_lane = fmaxf(largest_of_lane, float(reinterpret_cast<const T&>(half)));
        largest[j * 2 * warp + threadIdx.x] = largest_of_lane;
        tile::multiply(O_reg, P, V_smem);
    }
    tile::store_rows(lse, softmax.finish(O_reg, scale), first, lazy_rows);
    write(O + first * d, O_reg);
}

template <class T, int keys, int d>
LazyAttended attend(const Floats& S, const Bits16& V, float scale_log2) {
    const std::size_t blocks = V.size() / (keys * d);
    const DeviceArray<float> S_device(S), O(std::size_t(lazy_rows) * d), lse(lazy_rows), m(blocks * lazy_rows * 4),
        largest(blocks * 2 * warp);
    const DeviceArray<int> freed(blocks * 2 * warp);
    const DeviceArray<std::uint16_t> V_device(V);
    launch_kernel(attend_kernel<T, keys, d>, {1, 2 * warp, keys * d * 2}, S_device.data(), V_device.data(), int(blocks),
                  tile::lazy_scale(scale_log2), O.data(), lse.data(), m.data(), largest.data(), freed.data());
    return {O.download(), lse.download(), m.download(), largest.download(), freed.download()};
}

LazyScales scale_of(float scale_log2) {
    const tile::LazyScale scale = tile::lazy_scale(scale_log2);
    return {scale.log2, scale.lowest};
}

template <class T, int keys, int d>
LazyCase lazy_case() {
    return {element_of<T>, keys, d, tile::most_of_a_lane<T>, attend<T, keys, d>, scale_of};
}

}  // namespace

std::vector<LazyCase> lazy_cases() {
    return {lazy_case<__nv_bfloat16, 16, 16>(), lazy_case<__half, 16, 32>(),         lazy_case<__half, 64, 64>(),
            lazy_case<__nv_bfloat16, 64, 32>(), lazy_case<__nv_bfloat16, 128, 64>(), lazy_case<__half, 176, 16>()};
}

}  // namespace flashladder
