// How a (batch, heads, rows, columns) tensor lies in device memory, for those who put it there and look at what has become
// of it.
#pragma once

#include <cstddef>
#include <vector>

#include "harness/device_buffer.h"
#include "tensor.h"

namespace flashladder::attention {

enum class Layout {
    heads_first,     // (batch, heads, rows, columns)
    sequence_first,  // (batch, rows, heads, columns)
    padded,          // heads first, with a gap behind each row
};
const char* to_string(Layout layout);

/// Device memory of such a tensor.
struct LaidOut : DeviceBuffer {
    /// `gap`: elements behind each row, if the layout is padded: where that differs from tensor to tensor, a kernel is wrong
    /// that confuses their strides.
    LaidOut(const char* name, Layout layout, int batch, int heads, int rows, int columns, int gap, DType dtype);

    using DeviceBuffer::download;
    /// Of values in the order of heads_first; gaps are NaN.
    void upload(const std::vector<float>& values);
    /// In that order.
    std::vector<float> download() const;
    /// Since all was filled with 0xFF.
    std::size_t written_gap_bytes() const;
    /// As callers have them: all 0 of heads_first.
    Strides given_strides() const { return layout == Layout::heads_first ? Strides{} : strides; }

    Layout layout;
    int batch, heads, rows, columns;
    DType dtype;
    Strides strides;

private:
    /// Calls visit(number of a row in heads_first's order, number of its first element in memory).
    template <class Visit>
    void for_each_row(Visit visit) const;
};

}  // namespace flashladder::attention
