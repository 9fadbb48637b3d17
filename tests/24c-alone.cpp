// Rung 24.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "attention_backward_suite.h"
#include "launch.h"

namespace flashladder::attention_backward {
namespace {

[[maybe_unused]] const StrictBarriers strict_barriers;

TEST_CASE("statistics of later heads: found in time, whatever the number of multiprocessors") {
    std::uint64_t turn = test_seed();
    for (const int d : {64, 128})
        for (const int multiprocessors : {1, 2, 3})
            for (const bool is_causal : {false, true}) {
                const VirtualGpu gpu(multiprocessors, 100000);
                AttentionShape shape = shape_of(6, drawn_length(64, 30, 300, turn), drawn_length(128, 30, 500, turn + 1), d);
                ++turn;
                shape.causal = is_causal, shape.batch = 2, shape.kv_heads = turn % 2 ? 6 : 3;
#ifndef FLASHLADDER_GPU
                emulator::settings().last_block_first = turn % 3 == 0;
#endif
                const Inputs in = backward_inputs(shape, Values::normal, test_seed());
                check_gradients(in, "later heads");
                check_no_race(in);
            }
}

}  // namespace
}  // namespace flashladder::attention_backward
