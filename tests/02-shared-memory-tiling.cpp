// Rung 02. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>

#include <algorithm>

#include "rung_suite.h"

namespace flashladder {
namespace {

TEST_CASE("EXERCISE 2.1: loads of 16 bytes") {
    // All rows of V are the same one, so O is that row whatever the scores are.
    for (const int head_dim : {64, 128}) {
        Inputs in = make_inputs(shape_of(2, 33, 300, head_dim), Values::normal, test_seed());
        for (std::size_t row = 1; row < 600; ++row)
            std::copy_n(in.V.begin(), head_dim, in.V.begin() + static_cast<std::ptrdiff_t>(row * head_dim));
        const Comparison result = check(stage_under_test(), in);
        CHECK_MESSAGE(result.passed, "all rows of V are equal; ", result.describe(in.shape));
    }
}

TEST_CASE("EXERCISE 2.2: a piece of S in registers") {
    for (const int head_dim : {64, 128}) {
        const Inputs in = make_inputs(shape_of(1, 33, 300, head_dim), Values::normal, test_seed());
        const Comparison result = check(stage_under_test(), in);
        CHECK_MESSAGE(result.passed, result.describe(in.shape));
    }
}

TEST_CASE("needs memory in proportion to N, not to N^2") {
    const auto bytes = [](int n) { return stage_under_test().scratch_bytes(shape_of(1, n, n, 64)); };
    CHECK(bytes(2000) == 2 * bytes(1000));
}

}  // namespace
}  // namespace flashladder
