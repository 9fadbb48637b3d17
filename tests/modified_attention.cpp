// The specification of attention with modified scores, against attention's own, and against what it says by hand.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <random>

#include "operations/attention/inputs.h"
#include "operations/modified_attention/operation.h"
#include "test_seed.h"

namespace flashladder::modified_attention {
namespace {

using attention::AttentionRows;
using attention::Values;

attention::AttentionShape some_shape(int n_q, int n_k) {
    return {.batch = 2, .heads = 4, .kv_heads = 2, .n_q = n_q, .n_k = n_k, .head_dim = 32, .causal = true};
}

double furthest(const AttentionRows& a, const AttentionRows& b) {
    REQUIRE(a.O.size() == b.O.size());
    double most = 0;
    for (std::size_t x = 0; x < a.O.size(); ++x) most = std::max(most, std::abs(a.O[x] - b.O[x]));
    for (std::size_t r = 0; r < a.lse.size(); ++r)
        if (a.lse[r] != b.lse[r]) most = std::max(most, std::abs(a.lse[r] - b.lse[r]));  // -infinity is itself
    return most;
}

TEST_CASE("modified attention: nothing modified is causal attention, in double and as the yardstick") {
    for (const auto& [n_q, n_k] : {std::pair(33, 33), {20, 50}, {50, 20}}) {
        const Inputs in = inputs_of(make_inputs(modified(some_shape(n_q, n_k), n_k + 5), Values::normal, test_seed()));
        const auto rows = rows_to_check(in.shape, 1);
        CHECK(furthest(reference_attention(in, rows), attention::reference_attention(in, rows)) <= 1e-12);
        CHECK(furthest(standard_attention(in, rows), attention::standard_attention(in, rows)) <= 1e-5);
    }
}

TEST_CASE("modified attention: a window, ALiBi and a cap by hand, of four keys with scores 3, 2, 1, 0") {
    attention::AttentionShape s{.n_q = 1, .n_k = 4, .head_dim = 32, .causal = true};
    Inputs in{{s, std::vector<float>(32), std::vector<float>(4 * 32), std::vector<float>(4 * 32), 0.5f}, 4, {}, 0};
    in.shape.causal = true;
    in.Q[0] = 2;
    for (std::size_t j = 0; j < 4; ++j) in.K[j * 32] = 3 - float(j), in.V[j * 32 + j] = 1;
    const auto weights = [&] { return reference_attention(in, {0}); };
    const double e = std::exp(1.0);

    in.window = 2;  // keys 2 and 3
    AttentionRows found = weights();
    CHECK(found.O[0] == 0);
    CHECK(found.O[1] == 0);
    CHECK(found.O[2] == doctest::Approx(e / (e + 1)));
    CHECK(found.lse[0] == doctest::Approx(std::log(e + 1)));

    in.slopes = {1};  // what key 2 has more, it loses by its distance
    CHECK(weights().O[2] == doctest::Approx(0.5));

    in.window = 4, in.slopes.clear(), in.soft_cap = 0.5;
    found = weights();
    const auto capped = [](double s) { return std::exp(0.5 * std::tanh(s / 0.5)); };
    CHECK(found.O[0] == doctest::Approx(capped(3) / (capped(3) + capped(2) + capped(1) + 1)));
    in.slopes = {0.25f};  // behind the cap
    CHECK(weights().O[0] / weights().O[3] == doctest::Approx(capped(3) * std::exp(-0.75)));
}

TEST_CASE("modified attention: scores are counted as they are seen, and NaN is far from the reference") {
    const Shape s = modified(some_shape(20, 50), 7);
    CHECK(s.scores() == 2 * 4 * 20 * 7);
    CHECK(modified(some_shape(6, 6), 100).scores() == 2 * 4 * 21);
    CHECK(modified(some_shape(6, 2), 2).scores() == 2 * 4 * 3);
    CHECK(to_string(s) == "B 2 H 4/2 N 20x50 d 32 window 7 f32");
    CHECK(to_string(modified(some_shape(9, 9), std::numeric_limits<int>::max(), true, 30)) ==
          "B 2 H 4/2 N 9 d 32 ALiBi cap 30 f32");
    CHECK(shape_of(problem_of(s)) == s);

    const Data data = make_inputs(s, Values::normal, test_seed());
    const Inputs in = inputs_of(data);
    Data right{data.problem};
    for (const double x : reference_attention(in, rows_to_check(in.shape, 1)).O) right.tensors["O"].push_back(float(x));
    const Reference reference = operation().reference(data, 1, 1 << 20);
    CHECK(reference(right).passed);
    right.tensors["O"][70] = std::numeric_limits<float>::quiet_NaN();
    CHECK_FALSE(reference(right).passed);
    CHECK(reference(right).description.find("O[batch 0 head 0 query 2][6] is nan") != std::string::npos);
}

}  // namespace
}  // namespace flashladder::modified_attention
