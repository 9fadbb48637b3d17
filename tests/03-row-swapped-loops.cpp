// Rung 03. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "rung_suite.h"

#ifndef FLASHLADDER_GPU
#include "harness/counts.h"
#endif

namespace flashladder {
namespace {

[[maybe_unused]] const StrictBarriers strict_barriers;

TEST_CASE("EXERCISE 3.1: causal, where the keys of a block end") {
    // Values that the first block of queries does not see are NaN. A weight of 0 does not help against NaN: only a
    // kernel that never looks at them keeps them out.
    Inputs in = make_inputs(shape_of(1, 200, 200, 64), Values::normal, test_seed());
    in.shape.causal = true;
    std::fill(in.V.begin() + 128 * 64, in.V.end(), std::numeric_limits<float>::quiet_NaN());
    const Outputs out = run(stage_under_test(), in);
    const auto poisoned = std::count_if(out.O.begin(), out.O.begin() + 64 * 64, [](float x) { return std::isnan(x); });
    CHECK_MESSAGE(poisoned == 0, "queries 0 to 63 see keys 0 to 63, but values of keys from 128 on reached them");
}

TEST_CASE("EXERCISE 3.2: rescaling l and O") {
    // With 3.3 open, a row is off by one factor: its direction tells.
    const Inputs in = make_inputs(shape_of(1, 33, 300, 64), Values::growing_maximum, test_seed());
    const Outputs out = run(stage_under_test(), in);
    const AttentionRows reference = reference_attention(in, rows_to_check(in.shape, 1));
    for (std::size_t row = 0; row < 33; ++row) {
        const double cosine = cosine_of_rows(out, reference, row);
        CHECK_MESSAGE(cosine >= 0.9999, "row ", row, " of O points elsewhere: cosine ", cosine);
    }
}

TEST_CASE("EXERCISE 3.3: the one division, and LSE") {
    const Inputs in = make_inputs(shape_of(1, 33, 300, 64), Values::normal, test_seed());
    const Comparison result = check(stage_under_test(), in, Judge::both_rules, true);
    CHECK_MESSAGE(result.passed, result.describe(in.shape));
}

#ifndef FLASHLADDER_GPU
TEST_CASE("Q is read once and O written once; K and V once a block of queries, about half of that if causal") {
    for (const int head_dim : {64, 128}) {
        Inputs in = make_inputs(shape_of(2, 1024, 1024, head_dim), Values::normal, test_seed());
        const StageCounts all = count_stage(stage_under_test(), in);
        in.shape.causal = true;
        const StageCounts causal = count_stage(stage_under_test(), in);
        const std::uint64_t bytes_of_Q = in.Q.size() * sizeof(float);
        for (const StageCounts* c : {&all, &causal}) {
            CHECK(c->tensors.at("Q").read.requested_bytes == bytes_of_Q);
            CHECK(c->tensors.at("O").written.requested_bytes == bytes_of_Q);
            CHECK(c->tensors.at("O").read.requested_bytes == 0);
        }
        for (const char* tensor : {"K", "V"}) {
            const double full = double(all.tensors.at(tensor).read.requested_bytes);
            CHECK(full == 16.0 * bytes_of_Q);
            CHECK(double(causal.tensors.at(tensor).read.requested_bytes) ==
                  full * 17 / 32);  // (1 + 2 + ... + 16) / 16^2
        }
    }
}
#endif

TEST_CASE("needs no memory beyond inputs and outputs") {
    CHECK(stage_under_test().scratch_bytes(shape_of(4, 1000, 1000, 64)) == 0);
}

}  // namespace
}  // namespace flashladder
