#include "operations/attention/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "harness/dtype.h"
#include "operations/attention/stage.h"

namespace flashladder::attention {

namespace {

/// "64, 128", or "multiples of 8 up to 256" of all of these.
std::string to_string(const std::vector<int>& head_dims) {
    if (head_dims.size() > 4 && head_dims == multiples_of(head_dims.front(), head_dims.back()))
        return fmt::format("multiples of {} up to {}", head_dims.front(), head_dims.back());
    return fmt::format("{}", fmt::join(head_dims, ", "));
}

}  // namespace

std::string why_bad_shape(const AttentionShape& shape, const std::vector<int>& head_dims, const std::vector<DType>& dtypes,
                          int max_batch_heads) {
    const std::pair<const char*, int> sizes[] = {{"batch", shape.batch},       {"heads", shape.heads},
                                                 {"kv_heads", shape.kv_heads}, {"n_q", shape.n_q},
                                                 {"n_k", shape.n_k},           {"head_dim", shape.head_dim}};
    for (const auto& [name, value] : sizes)
        if (value <= 0) return fmt::format("{} is {}, but must be at least 1", name, value);
    if (std::find(head_dims.begin(), head_dims.end(), shape.head_dim) == head_dims.end())
        return fmt::format("head_dim {} is not supported (only {})", shape.head_dim, to_string(head_dims));
    if (std::find(dtypes.begin(), dtypes.end(), shape.dtype) == dtypes.end()) {
        std::vector<std::string> able;
        for (const DType dtype : dtypes) able.push_back(to_string(dtype));
        return fmt::format("dtype {} is not supported (only {})", to_string(shape.dtype), fmt::join(able, ", "));
    }
    if (shape.heads % shape.kv_heads != 0)
        return fmt::format("heads {} is not a multiple of kv_heads {}", shape.heads, shape.kv_heads);
    const long long batch_heads = static_cast<long long>(shape.batch) * shape.heads;
    const long long most = max_batch_heads > 0 ? max_batch_heads : 0x7FFFFFFF;
    if (batch_heads > most) return fmt::format("batch * heads is {}, but at most {} are supported", batch_heads, most);
    // Most rungs launch a grid of (tiles, heads, batch), of which CUDA allows no more in y and z. For all, as none is
    // about problems with more.
    constexpr int max_grid_yz = 65535;
    for (const auto& [name, value] : {std::pair("batch", shape.batch), {"heads", shape.heads}})
        if (value > max_grid_yz) return fmt::format("{} is {}, but at most {} are supported", name, value, max_grid_yz);
    return "";
}

void Placed::fill_in_strides() {
    const Strides plain = without_gaps();
    if (strides == Strides{}) strides = plain;
    if (batch == 1) strides.batch = plain.batch;
    if (heads == 1) strides.head = plain.head;
    if (rows == 1) strides.row = plain.row;
}

bool Placed::overlaps_itself() const {
    std::array<std::pair<std::int64_t, std::int64_t>, 3> dimensions{
        {{strides.batch, batch}, {strides.head, heads}, {strides.row, rows}}};
    std::sort(dimensions.begin(), dimensions.end());
    std::int64_t end = columns;  // of what the dimensions so far take up
    for (const auto& [stride, extent] : dimensions) {
        if (extent == 1) continue;
        if (stride < end) return true;
        end += (extent - 1) * stride;
    }
    return false;
}

std::string Placed::why_bad(const std::string& no_strides, DType dtype) const {
    constexpr std::int64_t alignment = 16;  // bytes
    const auto all = [&] {
        return fmt::format("strides {}, {}, {} of batch, head, row", strides.batch, strides.head, strides.row);
    };
    if (!no_strides.empty() && strides != without_gaps())
        return fmt::format("{} is not contiguous ({}): {}", name, all(), no_strides);
    if (reinterpret_cast<std::uintptr_t>(pointer) % alignment != 0)
        return fmt::format("{} is at {}, which is not aligned to {} bytes", name, pointer, alignment);
    if (!no_strides.empty()) return "";
    for (const auto& [what, stride] :
         {std::pair("batch", strides.batch), {"head", strides.head}, {"row", strides.row}}) {
        if (stride < 0) return fmt::format("{} has a negative {} stride, {}", name, what, stride);
        if (stride * static_cast<std::int64_t>(bytes_per_element(dtype)) % alignment != 0)
            return fmt::format("{} has a {} stride of {} elements, which is not a multiple of {} bytes", name, what, stride,
                               alignment);
    }
    if (rows > 1 && strides.row < columns)
        return fmt::format("{} has a row stride of {}, less than head_dim {}", name, strides.row, columns);
    if (is_output && overlaps_itself()) return fmt::format("{} overlaps itself ({})", name, all());
    return "";
}

}  // namespace flashladder::attention
