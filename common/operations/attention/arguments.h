// What can be wrong with a shape, or with where a tensor lies: for the forward pass, and for its gradients.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "operations/attention/problem.h"

namespace flashladder::attention {

/// What no stage can do that has these head dimensions and dtypes, in one line with the limit and the value; "" if nothing.
/// `max_batch_heads`: 0 for any number, with at most 65535 of either.
std::string why_bad_shape(const AttentionShape& shape, const std::vector<int>& head_dims, const std::vector<DType>& dtypes,
                          int max_batch_heads);

/// A (batch, heads, rows, columns) tensor of a problem, and where it lies.
struct Placed {
    const char* name;
    const void* pointer;
    Strides& strides;
    std::int64_t batch, heads, rows, columns;
    bool is_output;

    Strides without_gaps() const {
        return contiguous(static_cast<int>(heads), static_cast<int>(rows), static_cast<int>(columns));
    }

    /// Makes the strides of a contiguous tensor of those that say nothing: all 0, or of a dimension of extent 1, where
    /// PyTorch has any number.
    void fill_in_strides();

    /// What is wrong with its place in memory, "" if nothing is. `no_strides`: where strides are supported, of a stage that
    /// does contiguous tensors alone; "" for one that does any multiples of 16 bytes.
    std::string why_bad(const std::string& no_strides, DType dtype) const;

private:
    /// Whether two rows share an element. Says so too of rows that are interleaved in a way that no library makes.
    bool overlaps_itself() const;
};

}  // namespace flashladder::attention
