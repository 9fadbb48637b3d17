#pragma once

namespace flashladder::ptx {

/// How 16-byte chunks are permuted within rows of so many bytes, so that a column of them meets all banks. The values
/// are those of CUtensorMapSwizzle.
enum class Swizzle { none = 0, bytes_32 = 1, bytes_64 = 2, bytes_128 = 3 };

/// Bytes of a row that is swizzled.
constexpr unsigned swizzle_width(Swizzle swizzle) { return swizzle == Swizzle::none ? 0 : 16u << int(swizzle); }

}  // namespace flashladder::ptx
