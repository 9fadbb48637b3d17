// Describes a tensor in device memory to TMA. A map is made on the host and passed to a kernel by value, as
// `const __grid_constant__ CUtensorMap`; TMA takes its address.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <type_traits>

#include "launch.h"
#include "ptx/swizzle.h"

namespace flashladder::ptx {

template <class T>
constexpr CUtensorMapDataType tensor_map_type() {
    if constexpr (std::is_same_v<T, __nv_bfloat16>) return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    if constexpr (std::is_same_v<T, __half>) return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    if constexpr (std::is_same_v<T, float>) return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
}

/// The driver's function of this name. A program that uses it starts where there is no driver all the same.
inline decltype(&::cuTensorMapEncodeTiled) tensor_map_encoder() {
#ifdef FLASHLADDER_GPU
    static void* const function = [] {
        void* found = nullptr;
        cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
        const cudaError_t error =
            cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
#else
        const cudaError_t error = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
#endif
        check_cuda(found ? error : cudaErrorNotSupported, "looking for the driver's cuTensorMapEncodeTiled");
        return found;
    }();
    return reinterpret_cast<decltype(&::cuTensorMapEncodeTiled)>(function);
#else
    return &::cuTensorMapEncodeTiled;
#endif
}

/// The first of the driver's rules that such a map breaks, with its numbers; "" if none of these. The driver itself says
/// "invalid argument".
template <class T, std::size_t rank>
std::string tensor_map_fault(const T* tensor, const std::array<std::uint64_t, rank>& extents,
                             const std::array<std::uint64_t, rank - 1>& strides,
                             const std::array<std::uint32_t, rank>& box, Swizzle swizzle) {
    const auto number = [](auto x) { return std::to_string(x); };
    const std::uint64_t row_bytes = std::uint64_t(box[0]) * sizeof(T), swizzle_bytes = swizzle_width(swizzle);
    if (swizzle != Swizzle::none && row_bytes > swizzle_bytes)
        return "a row of the box is " + number(box[0]) + " elements, " + number(row_bytes) +
               " bytes, and the swizzle is " + number(swizzle_bytes) + " bytes wide";
    for (std::size_t i = 0; i < rank; ++i)
        if (box[i] < 1 || box[i] > 256)
            return "the box has " + number(box[i]) + " elements in dimension " + number(i) + ", and may have 1 to 256";
    if (row_bytes % 16 != 0) return "a row of the box is " + number(row_bytes) + " bytes, no multiple of 16";
    for (std::size_t i = 0; i < rank; ++i)
        if (extents[i] == 0) return "the tensor has no element in dimension " + number(i);
    for (std::size_t i = 0; i + 1 < rank; ++i)
        if (strides[i] % 16 != 0)
            return "the stride of dimension " + number(i + 1) + " is " + number(strides[i]) + " bytes, no multiple of 16";
    if (reinterpret_cast<std::uintptr_t>(tensor) % 16 != 0) return "the tensor does not begin at a multiple of 16 bytes";
    return "";
}

/// A map of a tensor: extents in elements, the innermost dimension first; strides in bytes, of all dimensions but the
/// innermost, which is contiguous; and the box that one instruction moves. What of a box lies outside the tensor reads
/// as 0 and is not written.
/// Throws CudaError where the driver refuses: the address and the strides are multiples of 16 bytes; the box has 1 to
/// 256 elements in each dimension, and a multiple of 16 bytes in a row, no more than the swizzle is wide.
template <class T, std::size_t rank>
CUtensorMap make_tensor_map(const T* tensor, const std::array<std::uint64_t, rank>& extents,
                            const std::array<std::uint64_t, rank - 1>& strides,
                            const std::array<std::uint32_t, rank>& box, Swizzle swizzle) {
    alignas(64) CUtensorMap map;
    std::array<cuuint64_t, rank> all_strides{};  // never empty
    std::copy(strides.begin(), strides.end(), all_strides.begin());
    std::array<cuuint32_t, rank> element_strides;
    element_strides.fill(1);
    const CUresult result = tensor_map_encoder()(
        &map, tensor_map_type<T>(), rank, const_cast<T*>(tensor), extents.data(), all_strides.data(), box.data(),
        element_strides.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, static_cast<CUtensorMapSwizzle>(swizzle),
        CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result == CUDA_SUCCESS) return map;
    const std::string fault = tensor_map_fault<T, rank>(tensor, extents, strides, box, swizzle);
    check_cuda(static_cast<cudaError_t>(result),  // the two enumerations agree
               ("making a tensor map" + (fault.empty() ? "" : ": " + fault)).c_str());
    return map;
}

}  // namespace flashladder::ptx
