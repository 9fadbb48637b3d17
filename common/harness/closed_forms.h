// What a rung must ask of the GPU by the arithmetic of its lesson, to be held against what is counted.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "problem.h"

namespace flashladder {

struct ClosedForm {
    double requested_bytes = 0;  // of device memory: what the threads ask for
    double distinct_bytes = 0;   // each byte once a kernel, if it is read, and once, if it is written
    double exponentials = 0;
    double divisions = 0;
};

/// Of the rungs whose lesson has one; nothing for the others. `shared_bytes` is M, what a block may have at most.
std::optional<ClosedForm> closed_form(const std::string& stage, const AttentionShape& shape, std::size_t shared_bytes,
                                      bool wants_lse = false);

}  // namespace flashladder
