// Rung 25.
#include <doctest/doctest.h>

#include "attention_backward_suite.h"

namespace flashladder::attention_backward {
namespace {

[[maybe_unused]] const StrictBarriers strict_barriers;

constexpr int unit = 64, B_r = 64, consumers = 2;  // keys that a consumer multiplies at a time; queries of a step
constexpr int keys_of_a_block(int d) { return consumers * 128 / d * unit; }

TEST_CASE("agrees with the reference: lengths near the edges of steps and of blocks of keys") {
    for (const int d : {64, 128})
        for (const bool is_causal : {false, true, true}) {
            const std::uint64_t turn = static_cast<std::uint64_t>(d + is_causal);
            AttentionShape shape =
                shape_of(2, drawn_length(B_r, 20, 300, turn), drawn_length(keys_of_a_block(d), 20, 300, turn + 1), d);
            shape.causal = is_causal;
            shape.batch = 2;
            shape.dtype = test_seed() % 2 ? DType::bf16 : DType::f16;
            check_gradients(backward_inputs(grouped(shape), Values::normal, test_seed()), "lengths near edges");
        }
}

TEST_CASE("causal: keys that no query of a step sees reach nobody, whatever they hold") {
    for (const int d : {64, 128})
        check_hidden_keys_reach_nobody(shape_of(1, 400, 400, d), keys_of_a_block(d), keys_of_a_block(d));
}

#ifndef FLASHLADDER_GPU
TEST_CASE("in whatever order blocks run, dK and dV have the same bits, and dQ is within the rule") {
    check_whatever_order();
}
#endif

}  // namespace
}  // namespace flashladder::attention_backward
