// Rung 00. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "rung_suite.h"

namespace flashladder {
namespace {

[[maybe_unused]] const StrictBarriers strict_barriers;

TEST_CASE("EXERCISE 0.1: the product of two tiles") {
    // Every key comes 32 times in a row, so that every lane of the softmax sees the same scores: with 0.2 open, each
    // row is off by one factor, and its direction is right.
    const int n_q = drawn_length(16, 17, 40, 0);
    Inputs in = make_inputs(shape_of(1, n_q, 96, 64), Values::normal, test_seed());
    for (std::size_t j = 0; j < 96; ++j) std::copy_n(&in.K[j / 32 * 32 * 64], 64, &in.K[j * 64]);
    const std::string wrong = wrong_directions(in);
    CHECK_MESSAGE(wrong.empty(), wrong);
}

TEST_CASE("EXERCISE 0.2: the sum over a warp") {
    // Every score is 0, and so is every maximum, whatever 0.3 does. Some lanes have a key more than others.
    Inputs in = make_inputs(shape_of(1, 33, 65 + static_cast<int>(test_seed() % 31), 64), Values::normal, test_seed());
    std::ranges::fill(in.Q, 0.0f);
    const Comparison result = check(stage_under_test(), in);
    CHECK_MESSAGE(result.passed, "Q is 0, so every weight of P is 1 / ", in.shape.n_k, " and O the mean of V; ",
                  result.describe(in.shape));
}

TEST_CASE("EXERCISE 0.3: scores too large for exp") {
    // With few keys there are lanes that have none.
    for (const int n_k : {100, drawn_length(32, 2, 97, 0)}) {
        const AttentionShape shape = shape_of(1, 33, n_k, 64);
        const int one = n_k - 1 - static_cast<int>(test_seed() % n_k) / 2;  // of the last half
        const auto check_scores = [](const std::string& which, const Inputs& in) {
            const Comparison result = check(stage_under_test(), in, Judge::worst_row_only);
            CHECK_MESSAGE(result.passed, which, "; ", result.describe(in.shape));
        };
        check_scores("scores near 200 and -200", make_inputs(shape, Values::large_offset, test_seed()));
        check_scores(fmt::format("the score of key {} is 200, the others near 0", one),
                     inputs_with_scores(shape, [=](int key) { return key == one ? 288 : 0; }, test_seed()));
    }
}

}  // namespace
}  // namespace flashladder
