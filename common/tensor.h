// How tensors lie in memory: types of elements, and distances between rows.
#pragma once

#include <cstddef>
#include <cstdint>

namespace flashladder {

/// i32 is for inputs that are places, not numbers to compute with: below 2^24, as the host has them as floats.
enum class DType { f32, bf16, f16, i32 };

constexpr std::size_t bytes_per_element(DType dtype) { return dtype == DType::f32 || dtype == DType::i32 ? 4 : 2; }

/// Elements from a row of a (batch, heads, rows, columns) tensor to the next, from a head to the next, from a batch to the
/// next. Rows themselves are contiguous.
struct Strides {
    std::int64_t batch = 0, head = 0, row = 0;

    bool operator==(const Strides&) const = default;
};

/// Those of a (batch, heads, rows, columns) tensor without gaps.
constexpr Strides contiguous(int heads, int rows, int columns) {
    return {std::int64_t(heads) * rows * columns, std::int64_t(rows) * columns, columns};
}

}  // namespace flashladder
