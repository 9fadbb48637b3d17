// The product of matrices as harness and tools see it.
#pragma once

#include "harness/operation.h"
#include "operations/gemm/problem.h"

namespace flashladder::gemm {

const Operation& operation();

/// The same problem, in both types.
Problem problem_of(const Shape& shape);
Shape shape_of(const Problem& problem);

}  // namespace flashladder::gemm
