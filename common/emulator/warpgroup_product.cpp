// The arithmetic of wgmma: where descriptors say that the elements are, and sums of products. Compiled to be fast: the
// products of 16-bit numbers are exact in float, so it does not matter whether a processor fuses them with the
// addition.
#include <fmt/format.h>

#include <cstring>

#include "access.h"
#include "cuda_runtime.h"
#include "float16.h"
#include "for_each_processor.h"
#include "warpgroup_mma.h"

namespace emulator {
namespace {

constexpr int chunk_elements = 8, chunk_bytes = 16;

/// A matrix descriptor, bit by bit.
struct Layout {
    std::uint32_t start, leading, stride;
    std::uint32_t width;  // of the swizzle, in chunks
    bool mn_major;

    Layout(std::uint64_t bits, bool mn_major, const Operand& operand)
        : start(static_cast<std::uint32_t>(bits & 0x3FFF) << 4),
          leading(static_cast<std::uint32_t>(bits >> 16 & 0x3FFF) << 4),
          stride(static_cast<std::uint32_t>(bits >> 32 & 0x3FFF) << 4),
          mn_major(mn_major) {
        constexpr std::uint32_t widths[] = {1, 8, 4, 2};
        width = widths[bits >> 62];
        constexpr std::uint64_t unused = 0x3FFF00000000C000u | std::uint64_t(3) << 30 | std::uint64_t(3) << 46;
        if (bits & unused)
            fail(cudaErrorLaunchFailure, operand.where, [&] {
                return fmt::format(
                    "wrong descriptor: {:#018x} has bits set that belong to no field in use (a base offset is "
                    "not supported)",
                    bits);
            });
    }

    /// The address of the chunk that begins with element (mn, k), the one of which is contiguous being a multiple of 8.
    std::uint32_t chunk(std::uint32_t mn, std::uint32_t k) const {
        const std::uint32_t row = width * chunk_bytes;
        std::uint32_t address = start;
        if (!mn_major)
            address += mn % 8 * row + mn / 8 * stride + k / 8 * (width == 1 ? leading : chunk_bytes);
        else if (width == 1)
            address += k % 8 * chunk_bytes + k / 8 * leading + mn / 8 * stride;
        else
            address += k % 8 * row + k / 8 * stride + mn / 8 % width * chunk_bytes + mn / 8 / width * leading;
        address &= 0x3FFFF;
        return address ^ (address >> 7 & (width - 1)) << 4;
    }
};

/// Writes element (mn, k) of a matrix in shared memory to values[mn * mn_distance + k * k_distance].
void decode(const Layout& layout, int extent, bool bf16, float* values, int mn_distance, int k_distance,
            const Operand& operand) {
    const int mn_step = layout.mn_major ? chunk_elements : 1, k_step = layout.mn_major ? 1 : chunk_elements;
    const int distance = layout.mn_major ? mn_distance : k_distance;
    for (int mn = 0; mn < extent; mn += mn_step)
        for (int k = 0; k < product_k; k += k_step) {
            const std::uint32_t address = layout.chunk(static_cast<std::uint32_t>(mn), static_cast<std::uint32_t>(k));
            const void* chunk = shared_pointer(address, chunk_bytes, operand);
            check_async_read(chunk, chunk_bytes, operand);
            std::array<std::uint16_t, chunk_elements> bits;
            std::memcpy(bits.data(), chunk, chunk_bytes);
            float* to = values + mn * mn_distance + k * k_distance;
            for (std::size_t i = 0; i < chunk_elements; ++i)
                to[static_cast<int>(i) * distance] = bf16 ? float_from_bf16(bits[i]) : float_from_f16(bits[i]);
        }
}

/// The 8x8 matrices of which a matrix in shared memory consists.
void trace_operand(const Layout& layout, int extent, const Operand& operand) {
    for (std::uint32_t mn = 0; mn < static_cast<std::uint32_t>(extent); mn += matrix_rows)
        for (std::uint32_t k = 0; k < product_k; k += matrix_rows) {
            std::array<std::uintptr_t, matrix_rows> rows;
            for (std::uint32_t i = 0; i < matrix_rows; ++i)
                rows[i] = layout.mn_major ? layout.chunk(mn, k + i) : layout.chunk(mn + i, k);
            trace_matrix(Access::wgmma_operand, rows, operand.where);
        }
}

void decode_fragments(const Product& product, float* A) {
    for (int thread = 0; thread < warpgroup_threads; ++thread) {
        const int warp = thread / warp_size, lane = thread % warp_size;
        for (int i = 0; i < 4; ++i)
            for (int half = 0; half < 2; ++half) {
                const auto bits = static_cast<std::uint16_t>(
                    product.fragments[static_cast<std::size_t>(thread)][static_cast<std::size_t>(i)] >> 16 * half);
                const int row = 16 * warp + lane / 4 + i % 2 * 8, column = lane % 4 * 2 + i / 2 * 8 + half;
                A[row * product_k + column] = product.shape.bf16 ? float_from_bf16(bits) : float_from_f16(bits);
            }
    }
}

/// D += A B, with A (64, 16), B (16, n), D (64, n), all row-major.
FOR_EACH_PROCESSOR void add_product(const float* A, const float* B, float* D, int n) {
    constexpr int rows = 4, columns = 16;
    const auto block = [&](int row, int column, auto width) {
        float sums[rows][columns] = {};
        for (int k = 0; k < product_k; ++k)
            for (int i = 0; i < rows; ++i)
                for (int j = 0; j < width(); ++j) sums[i][j] += A[(row + i) * product_k + k] * B[k * n + column + j];
        for (int i = 0; i < rows; ++i)
            for (int j = 0; j < width(); ++j) D[(row + i) * n + column + j] += sums[i][j];
    };
    for (int row = 0; row < warpgroup_rows; row += rows) {
        int column = 0;
        for (; column + columns <= n; column += columns) block(row, column, [] { return columns; });
        if (column < n) block(row, column, [] { return columns / 2; });
    }
}

}  // namespace

void multiply(const Product& product) {
    const ProductShape& shape = product.shape;
    const Operand operand{"wgmma", product.where};
    static float A[warpgroup_rows * product_k], B[product_k * widest_product];
    if (counting) trace_product(std::uint64_t(2) * warpgroup_rows * product_k * shape.n, operand.where);
    const ActingAs acting(product.reader);
    const auto read = [&](std::uint64_t descriptor, bool mn_major, int extent, float* values, int mn_distance,
                          int k_distance) {
        const Layout layout(descriptor, mn_major, operand);
        decode(layout, extent, shape.bf16, values, mn_distance, k_distance, operand);
        if (counting) trace_operand(layout, extent, operand);
    };
    if (shape.a_in_registers)
        decode_fragments(product, A);
    else
        read(product.a, shape.a_mn_major, warpgroup_rows, A, product_k, 1);
    read(product.b, shape.b_mn_major, shape.n, B, 1, shape.n);
    std::vector<float>& sums = product.accumulator->sums;
    if (!shape.accumulate) std::fill(sums.begin(), sums.end(), 0.0f);
    add_product(A, B, sums.data(), shape.n);
}

}  // namespace emulator
