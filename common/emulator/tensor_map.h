// A tensor map, decoded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "access.h"
#include "cuda.h"

namespace emulator {

constexpr int max_rank = 5;
constexpr std::uint32_t chunk_bytes = 16;  // what swizzling moves as one

struct TensorMap {
    std::uint64_t mark;  // that this is one
    std::uint64_t address;
    std::array<std::uint32_t, max_rank> last;         // index of each dimension, the innermost first
    std::array<std::uint16_t, max_rank> box;          // extents
    std::array<std::uint64_t, max_rank - 1> strides;  // bytes, of all dimensions but the innermost
    std::uint8_t rank, element_bytes, swizzle;        // the latter as CUtensorMapSwizzle

    static constexpr std::uint64_t valid = 0x70616D20726F736E;

    std::uint32_t row_bytes() const { return std::uint32_t(box[0]) * element_bytes; }
    std::uint32_t rows() const;
    std::uint32_t bytes() const { return rows() * row_bytes(); }
    std::uint32_t swizzle_bytes() const { return swizzle == CU_TENSOR_MAP_SWIZZLE_NONE ? 0 : 16u << swizzle; }
    /// From row to row in shared memory. A swizzled row takes the whole width, however little of it is filled.
    std::uint32_t pitch() const { return swizzle == CU_TENSOR_MAP_SWIZZLE_NONE ? row_bytes() : swizzle_bytes(); }
    std::uint32_t shared_bytes() const { return rows() * pitch(); }
    /// Where the pattern repeats: eight rows of 128 bytes share it, or twice and four times as many narrower ones.
    std::uint32_t alignment() const { return swizzle == CU_TENSOR_MAP_SWIZZLE_NONE ? 128 : 8 * swizzle_bytes(); }
    /// Where in the tile a chunk lies.
    std::uint32_t place(std::uint32_t row, std::uint32_t chunk) const;
};

/// It is an error if there is no map.
TensorMap decode(const CUtensorMap& map, const Operand& operand);

}  // namespace emulator
