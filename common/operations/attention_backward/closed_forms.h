// What a rung must ask of the GPU by the arithmetic of its lesson, to be held against what is counted.
#pragma once

#include <optional>
#include <string>

#include "harness/operation.h"
#include "operations/attention_backward/problem.h"

namespace flashladder::attention_backward {

/// Of the rungs whose lesson has one; nothing for the others.
std::optional<ClosedForm> closed_form(const std::string& stage, const AttentionShape& shape);

}  // namespace flashladder::attention_backward
