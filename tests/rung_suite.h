// What the test files of the rungs share.
#pragma once

#include <string>

#include "harness/inputs.h"
#include "harness/run.h"
#include "harness/stage.h"
#include "test_seed.h"

namespace flashladder {

/// The stage under test: the only one that is linked into the program.
const Stage& stage_under_test();

/// A shape with this many heads in one batch, of the first dtype that the stage under test supports.
AttentionShape shape_of(int heads, int n_q, int n_k, int head_dim);

/// Runs a stage and compares O and LSE. What is wrong, in words; "" if nothing is. A tile that is read before it has come
/// makes wrong results on a GPU; the emulator may stop the kernel, and says who has read what, or who waits for what.
std::string fault(const Stage& stage, const Inputs& inputs, Layout layout = Layout::heads_first);

/// Causal, the stage under test: the first `rows` queries are the same to the bit with NaN in K and V from key `seen` on;
/// query `later` sees them.
void check_hidden_keys_reach_nobody(AttentionShape shape, int seen, int rows, int later);

/// The stage under test gives the same to the bit whatever its scratch holds, also in a launch behind another one.
void check_ignores_scratch(const Inputs& inputs);

/// Cosine of the angle between row `row` of the output and of the reference, which holds all rows.
double cosine_of_rows(const Outputs& outputs, const AttentionRows& reference, std::size_t row);

}  // namespace flashladder
