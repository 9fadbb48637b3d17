// Inputs to test with: random ones of several temperaments, and real ones.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "operations/attention/reference.h"

namespace flashladder::attention {

enum class Values {
    normal,           // Q, K, V standard normal: what everybody tests with
    peaky,            // scores spread over +-20: almost all weight on one key
    growing_maximum,  // scores grow with j: every block of keys moves the maximum
    large_offset,     // all scores of a row near +-200 (every second row negative): overflows without a maximum
    zero_values_first,  // normal, but V is 0 in all but the last 32 keys
};
constexpr Values all_values[] = {Values::normal, Values::peaky, Values::growing_maximum, Values::large_offset,
                                 Values::zero_values_first};
const char* to_string(Values values);

/// Fresh Q, K, V for a shape; scale = 1 / sqrt(d). The same seed gives the same numbers on every machine.
Inputs make_inputs(const AttentionShape& shape, Values values, std::uint64_t seed, int value_dim = 0);

/// Q, K, V of a layer of a real transformer over a real paragraph: batch 1, heads 12, d 32; zero-padded to a larger
/// head_dim, which changes no score, if asked for; rounded to the dtype. Throws std::runtime_error if the fixture cannot
/// be read.
Inputs real_inputs(int head_dim = 32, DType dtype = DType::f32);

}  // namespace flashladder::attention
