#include "tensor_map.h"

#include <fmt/format.h>

#include <cstring>

#include "cuda_runtime.h"
#include "machine.h"

namespace emulator {
namespace {

static_assert(sizeof(TensorMap) <= sizeof(CUtensorMap));

/// 0 for a type that the driver does not know.
unsigned bytes_of(CUtensorMapDataType type) {
    switch (type) {
        case CU_TENSOR_MAP_DATA_TYPE_UINT8:
            return 1;
        case CU_TENSOR_MAP_DATA_TYPE_UINT16:
        case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
        case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
            return 2;
        case CU_TENSOR_MAP_DATA_TYPE_UINT32:
        case CU_TENSOR_MAP_DATA_TYPE_INT32:
        case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
            return 4;
        case CU_TENSOR_MAP_DATA_TYPE_UINT64:
        case CU_TENSOR_MAP_DATA_TYPE_INT64:
        case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
            return 8;
    }
    return 0;
}

/// A thread's copy of a parameter need not lie where a GPU would want it: arm64's calling convention promises 16 bytes.
bool is_misaligned(const CUtensorMap& map) {
    const auto address = reinterpret_cast<std::uintptr_t>(&map);
    const bool on_stack = address - current->stack_begin < current->stack_end - current->stack_begin;
    return !on_stack && address % 64 != 0;
}

}  // namespace

std::uint32_t TensorMap::rows() const {
    std::uint32_t n = 1;
    for (int i = 1; i < rank; ++i) n *= box[static_cast<std::size_t>(i)];
    return n;
}

std::uint32_t TensorMap::place(std::uint32_t row, std::uint32_t chunk) const {
    const std::uint32_t offset = row * pitch() + chunk * chunk_bytes;
    const std::uint32_t mask = (1u << swizzle) - 1;
    return offset ^ (offset / 128 & mask) * chunk_bytes;
}

TensorMap decode(const CUtensorMap& map, const Operand& operand) {
    TensorMap decoded;
    std::memcpy(&decoded, &map, sizeof decoded);
    if (is_misaligned(map) || decoded.mark != TensorMap::valid)
        fail(cudaErrorIllegalInstruction, operand.where, [&] {
            return fmt::format("no tensor map: {} is given one that cuTensorMapEncodeTiled() has not made",
                               operand.instruction);
        });
    return decoded;
}

}  // namespace emulator

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill) {
    using emulator::TensorMap, emulator::max_rank;
    const unsigned element_bytes = emulator::bytes_of(type);
    if (!map || element_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (rank < 1 || rank > max_rank || !extents || !box || !element_strides) return CUDA_ERROR_INVALID_VALUE;
    if (rank > 1 && !strides) return CUDA_ERROR_INVALID_VALUE;
    const auto start = reinterpret_cast<std::uintptr_t>(address);
    if (start % 16 != 0) return CUDA_ERROR_INVALID_VALUE;
    if (swizzle < CU_TENSOR_MAP_SWIZZLE_NONE || swizzle > CU_TENSOR_MAP_SWIZZLE_128B || promotion < 0 ||
        promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B)
        return CUDA_ERROR_INVALID_VALUE;

    TensorMap encoded{};
    encoded.mark = TensorMap::valid;
    encoded.address = start;
    encoded.rank = static_cast<std::uint8_t>(rank);
    encoded.element_bytes = static_cast<std::uint8_t>(element_bytes);
    encoded.swizzle = static_cast<std::uint8_t>(swizzle);
    for (std::size_t i = 0; i < rank; ++i) {
        if (extents[i] == 0 || extents[i] > std::uint64_t(1) << 32) return CUDA_ERROR_INVALID_VALUE;
        if (box[i] == 0 || box[i] > 256 || element_strides[i] == 0 || element_strides[i] > 8)
            return CUDA_ERROR_INVALID_VALUE;
        if (i > 0 && (strides[i - 1] % 16 != 0 || strides[i - 1] >= std::uint64_t(1) << 40))
            return CUDA_ERROR_INVALID_VALUE;
        encoded.last[i] = static_cast<std::uint32_t>(extents[i] - 1);
        encoded.box[i] = static_cast<std::uint16_t>(box[i]);
        if (i > 0) encoded.strides[i - 1] = strides[i - 1];
    }
    // An H100's driver accepts boxes of 128 KiB; where between the two its limit lies is not known.
    if (encoded.row_bytes() % 16 != 0 || encoded.bytes() >= 256 * 1024) return CUDA_ERROR_INVALID_VALUE;
    if (swizzle != CU_TENSOR_MAP_SWIZZLE_NONE && encoded.row_bytes() > encoded.swizzle_bytes())
        return CUDA_ERROR_INVALID_VALUE;
    if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
        return CUDA_ERROR_NOT_SUPPORTED;
    for (std::size_t i = 0; i < rank; ++i)
        if (element_strides[i] != 1) return CUDA_ERROR_NOT_SUPPORTED;
    std::memset(map, 0, sizeof *map);
    std::memcpy(map, &encoded, sizeof encoded);
    return CUDA_SUCCESS;
}
