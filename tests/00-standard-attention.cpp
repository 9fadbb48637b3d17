// Rung 00. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>

#include <algorithm>

#include "rung_suite.h"

namespace flashladder {
namespace {

[[maybe_unused]] const StrictBarriers strict_barriers;

TEST_CASE("EXERCISE 0.1: the product of two tiles") {
    // Every key comes 32 times in a row, so that every lane of the softmax sees the same scores: with 0.2 open, each
    // row is off by one factor, and its direction is right.
    Inputs in = make_inputs(shape_of(1, 20, 96, 64), Values::normal, test_seed());
    for (std::size_t j = 0; j < 96; ++j) std::copy_n(&in.K[j / 32 * 32 * 64], 64, &in.K[j * 64]);
    const Outputs out = run(stage_under_test(), in);
    const AttentionRows reference = reference_attention(in, rows_to_check(in.shape, 1));
    for (std::size_t row = 0; row < 20; ++row) {
        const double cosine = cosine_of_rows(out, reference, row);
        CHECK_MESSAGE(cosine >= 0.9999, "row ", row, " of O points elsewhere: cosine ", cosine);
    }
}

TEST_CASE("EXERCISE 0.2: the sum over a warp") {
    Inputs in = make_inputs(shape_of(1, 33, 100, 64), Values::normal, test_seed());
    const Comparison result = check(stage_under_test(), in);
    CHECK_MESSAGE(result.passed, "each row of P must add up to 1; ", result.describe(in.shape));
}

TEST_CASE("EXERCISE 0.3: scores too large for exp") {
    Inputs in = make_inputs(shape_of(1, 33, 100, 64), Values::large_offset, test_seed());
    const Comparison result = check(stage_under_test(), in, Judge::worst_row_only);
    CHECK_MESSAGE(result.passed, "scores near 200 and -200; ", result.describe(in.shape));
}

}  // namespace
}  // namespace flashladder
