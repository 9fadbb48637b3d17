// What a rung must ask of the GPU by the arithmetic of its lesson, to be held against what is counted.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "harness/operation.h"
#include "operations/attention_backward/problem.h"

namespace flashladder::attention_backward {

/// Of the rungs whose lesson has one; nothing for the others. `shared_bytes` is M, what a block may have at most.
std::optional<ClosedForm> closed_form(const std::string& stage, const AttentionShape& shape, std::size_t shared_bytes);

}  // namespace flashladder::attention_backward
