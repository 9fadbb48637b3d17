// Types of elements, by name and by their bits.
#pragma once

#include <cstdint>
#include <string>

#include "tensor.h"

namespace flashladder {

const char* to_string(DType dtype);
/// Throws std::invalid_argument with one line that names what is not a dtype.
DType parse_dtype(const std::string& name);

/// The value nearest to x that the dtype has.
float round_to(DType dtype, float x);

/// The bits of a value that bf16 or f16 has, and the value of such bits.
std::uint16_t to_bits(DType dtype, float x);
float from_bits(DType dtype, std::uint16_t bits);

/// From 1 to the next number that the dtype has.
double epsilon(DType dtype);

/// By how much a number of this size may be off that was rounded to the dtype once: half a unit in its last place.
double one_rounding(DType dtype, double size);

/// The relative error, in the Frobenius norm, that a result of sums in float may have which is stored in the dtype.
double allowed_error(DType dtype);

/// What was found, as a message says it. A NaN has no sign there, and a remark: outputs are filled with NaN before a
/// launch, of bits that are all set, in whatever dtype; a NaN that was computed has others, here and on a GPU.
std::string found_text(double found);

/// "C[7][5] is 1.2, expected 1.1: off by 1.00e-01, where ...": an element that is off, and the limit that it breaks, which
/// those of the whole result may keep.
std::string element_text(const std::string& element, DType dtype, double found, double wanted, double allowed);

}  // namespace flashladder
