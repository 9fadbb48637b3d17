// The specification: attention of packed sequences as problem.h defines it, sequence by sequence, in double.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "operations/attention/reference.h"
#include "operations/varlen_attention/problem.h"

namespace flashladder::varlen_attention {

/// Tensors are packed.
struct Inputs : attention::Inputs {
    Sequences sequences;
};

/// Sequence b alone, as attention has it. It must have queries and keys.
attention::Inputs sequence_of(const Inputs& inputs, int b);

/// A row of the results, as LSE numbers them: of query i of sequence b, in a head. "sequence 2 head 0 query 5".
std::string place_of_row(const Sequences& sequences, std::size_t row);
/// Element x of row r is, in O, at this place.
std::size_t place_in_O(const Shape& shape, std::size_t row, std::size_t x);

/// O and LSE of these rows, in double.
attention::AttentionRows reference_attention(const Inputs& inputs, const std::vector<std::size_t>& rows);

/// The same in the arithmetic of standard attention. How far this is from the reference says how much error is nobody's
/// fault.
attention::AttentionRows standard_attention(const Inputs& inputs, const std::vector<std::size_t>& rows);

}  // namespace flashladder::varlen_attention
