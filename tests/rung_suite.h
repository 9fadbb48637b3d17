// What the test files of the rungs share.
#pragma once

#include "harness/inputs.h"
#include "harness/run.h"
#include "harness/stage.h"
#include "test_seed.h"

namespace flashladder {

/// The stage under test: the only one that is linked into the program.
const Stage& stage_under_test();

/// A shape with this many heads in one batch, of the first dtype that the stage under test supports.
AttentionShape shape_of(int heads, int n_q, int n_k, int head_dim);

/// Cosine of the angle between row `row` of the output and of the reference, which holds all rows.
double cosine_of_rows(const Outputs& outputs, const AttentionRows& reference, std::size_t row);

}  // namespace flashladder
