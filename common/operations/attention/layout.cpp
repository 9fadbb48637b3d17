#include "operations/attention/layout.h"

#include <algorithm>
#include <limits>

#include "launch.h"

namespace flashladder::attention {
namespace {

Strides strides_in(Layout layout, int heads, int rows, int columns, int gap) {
    switch (layout) {
        case Layout::heads_first: break;
        case Layout::sequence_first: return {std::int64_t(rows) * heads * columns, columns, std::int64_t(heads) * columns};
        case Layout::padded: return contiguous(heads, rows, columns + gap);
    }
    return contiguous(heads, rows, columns);
}

}  // namespace

const char* to_string(Layout layout) {
    switch (layout) {
        case Layout::heads_first: return "heads first";
        case Layout::sequence_first: return "sequence first";
        case Layout::padded: return "padded rows";
    }
    return "?";
}

LaidOut::LaidOut(const char* name, Layout layout, int batch, int heads, int rows, int columns, int gap, DType dtype)
    : DeviceBuffer(static_cast<std::size_t>(batch * strides_in(layout, heads, rows, columns, gap).batch) *
                       bytes_per_element(dtype),
                   name),  // a batch stride has all of a batch
      layout(layout), batch(batch), heads(heads), rows(rows), columns(columns), dtype(dtype),
      strides(strides_in(layout, heads, rows, columns, gap)) {}

template <class Visit>
void LaidOut::for_each_row(Visit visit) const {
    std::size_t row = 0;
    for (int b = 0; b < batch; ++b)
        for (int h = 0; h < heads; ++h)
            for (int i = 0; i < rows; ++i)
                visit(row++, static_cast<std::size_t>(b * strides.batch + h * strides.head + i * strides.row));
}

void LaidOut::upload(const std::vector<float>& values) {
    if (layout == Layout::heads_first) return DeviceBuffer::upload(values, dtype);
    const std::size_t d = static_cast<std::size_t>(columns);
    std::vector<float> all(static_cast<std::size_t>(batch * strides.batch), std::numeric_limits<float>::quiet_NaN());
    for_each_row([&](std::size_t row, std::size_t first) { std::copy_n(&values[row * d], d, &all[first]); });
    DeviceBuffer::upload(all, dtype);
}

std::vector<float> LaidOut::download() const {
    const std::vector<float> all = download(bytes() / bytes_per_element(dtype), dtype);
    if (layout == Layout::heads_first) return all;
    const std::size_t d = static_cast<std::size_t>(columns);
    std::vector<float> values(std::size_t(batch) * std::size_t(heads) * std::size_t(rows) * d);
    for_each_row([&](std::size_t row, std::size_t first) { std::copy_n(&all[first], d, &values[row * d]); });
    return values;
}

std::size_t LaidOut::written_gap_bytes() const {
    std::vector<unsigned char> all(bytes());
    check_cuda(cudaMemcpy(all.data(), data(), all.size(), cudaMemcpyDeviceToHost), "download");
    const std::size_t element = bytes_per_element(dtype), row_bytes = static_cast<std::size_t>(columns) * element;
    for_each_row([&](std::size_t, std::size_t first) { std::fill_n(&all[first * element], row_bytes, 0xFF); });
    return static_cast<std::size_t>(std::ranges::count_if(all, [](unsigned char byte) { return byte != 0xFF; }));
}

}  // namespace flashladder::attention
