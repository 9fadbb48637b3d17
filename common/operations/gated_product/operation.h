// A gated product as harness and tools see it.
#pragma once

#include "harness/operation.h"
#include "operations/gated_product/problem.h"

namespace flashladder::gated_product {

const Operation& operation();

/// The same problem, in both types.
Problem problem_of(const Shape& shape);
Shape shape_of(const Problem& problem);

}  // namespace flashladder::gated_product
