// What the test files of the rungs of attention's backward pass share.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "operations/attention_backward/run.h"
#include "operations/attention_backward/stage.h"
#include "suite.h"
#include "test_seed.h"

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#include "operations/attention_backward/counts.h"
#endif

namespace flashladder::attention_backward {

using attention::Values;

/// A virtual GPU on which it is soon said that blocks wait for ever.
struct SmallGpu : VirtualGpu {
    explicit SmallGpu(int multiprocessors) : VirtualGpu(multiprocessors) {
#ifndef FLASHLADDER_GPU
        emulator::settings().patience = 1 << 21;  // what is late comes sooner
#endif
    }
};

/// The stage under test: the only one that is linked into the program.
const Stage& stage_under_test();

/// A shape with this many heads in one batch, of the first dtype that the stage under test supports.
AttentionShape shape_of(int heads, int n_q, int n_k, int head_dim);
/// The same, causal; or with heads that share one head of K and V; or with so many batches.
AttentionShape causal(AttentionShape shape);
AttentionShape grouped(AttentionShape shape);
AttentionShape of_batches(int batches, AttentionShape shape);

/// " on 2 multiprocessors", for reports; on a GPU, which has what it has, nothing.
std::string of_few(int multiprocessors);

/// Runs the stage under test and compares its gradients. What is wrong, in words; "" if nothing is. Before numbers that are
/// wrong stands `what`, but not before what ended a kernel.
std::string fault(const Inputs& inputs, attention::Judge judge = attention::Judge::both_rules, const std::string& what = "",
                  attention::Layout layout = attention::Layout::heads_first);
/// The same of one gradient, "dQ", "dK" or "dV".
std::string fault_of(const std::string& gradient, const Inputs& inputs,
                     attention::Judge judge = attention::Judge::both_rules, const std::string& what = "");

/// Its gradients are right; else the message begins with `what`, if numbers are wrong.
void check_gradients(const Inputs& inputs, const std::string& what, attention::Judge judge = attention::Judge::both_rules);
/// One gradient is, "dQ", "dK" or "dV".
void check_gradient(const std::string& gradient, const Inputs& inputs, const std::string& what,
                    attention::Judge judge = attention::Judge::both_rules);

/// The stage under test, with these inputs, has no race. On a GPU nothing is checked.
void check_no_race(const Inputs& inputs);

/// Two of lengths drawn by `turn`, with several blocks of keys: one that is causal, and one with heads that share K and V.
std::vector<AttentionShape> shapes_of_several_blocks(int head_dim, std::uint64_t turn);

#ifndef FLASHLADDER_GPU
/// What the launch of this kernel has asked for; fails if there is none.
const emulator::Work& work_of(const StageCounts& counts, const std::string& kernel);

/// A stage whose dQ is added to by all blocks: in whatever order they run, dK and dV have the same bits, and dQ is right.
void check_whatever_order();
#endif

/// These outputs are the same to the bit. Else fails with "dQ has other bits than ...".
void check_same_bits(const Outputs& found, const Outputs& expected, const std::string& than);

/// Gradients of grouped heads of d 64 and 128, causal or not, whose lengths are near multiples of a step's queries, up to
/// most_queries, and of a block's keys.
void check_lengths_near_edges(int (*queries_of_a_step)(int d), int (*keys_of_a_block)(int d), int most_queries = 300);

/// Causal, the stage under test: with NaN in K and V from key `seen` on, though not in O and LSE, the first `queries` rows of
/// dQ and the first `seen` rows of dK and dV are the same to the bit.
void check_hidden_keys_reach_nobody(AttentionShape shape, int seen, int queries);

}  // namespace flashladder::attention_backward
