// Rung 03. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "rung_suite.h"

namespace flashladder {
namespace {

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

TEST_CASE("needs no memory beyond inputs and outputs") {
    CHECK(stage_under_test().scratch_bytes(shape_of(4, 1000, 1000, 64)) == 0);
}

}  // namespace
}  // namespace flashladder
