// The judge itself: what it lets pass and what it must not, the reference against a case worked out by hand, the
// inputs.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "harness/inputs.h"
#include "harness/run.h"
#include "test_seed.h"

namespace flashladder {
namespace {

AttentionShape shape_of(int batch, int heads, int n_q, int n_k, int d) {
    AttentionShape s;
    s.batch = batch;
    s.heads = s.kv_heads = heads;
    s.n_q = n_q;
    s.n_k = n_k;
    s.head_dim = d;
    return s;
}

/// Standard attention's own output, as a stage would give it, and what it is compared with.
struct Judged {
    Inputs in = make_inputs(shape_of(2, 3, 40, 50, 32), Values::normal, test_seed());
    AttentionRows reference = reference_attention(in, rows_to_check(in.shape, 1));
    AttentionRows yardstick = standard_attention(in, rows_to_check(in.shape, 1));
    Outputs out;

    Judged() {
        for (double x : yardstick.O) out.O.push_back(static_cast<float>(x));
        for (double x : yardstick.lse) out.lse.push_back(static_cast<float>(x));
    }
    Comparison compare(Judge judge = Judge::both_rules) const {
        return flashladder::compare(out, in.shape, reference, yardstick, judge);
    }
};

TEST_CASE("standard attention passes") { CHECK(Judged().compare().passed); }

TEST_CASE("NaN, infinity, an unwritten element and a wrong element fail") {
    const float wrong[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e30f};
    for (const float value : wrong) {
        Judged j;
        j.out.O[test_seed() % j.out.O.size()] = value;
        CHECK_FALSE(j.compare().passed);
        CHECK_FALSE(j.compare(Judge::worst_row_only).passed);
    }
    Judged last;
    last.out.O.back() += 0.01f;
    CHECK_FALSE(last.compare().passed);
}

TEST_CASE("a small error in every row fails by the first rule, in one row by the second") {
    Judged all;
    for (float& x : all.out.O) x *= 1 + 5e-5f;
    CHECK(all.compare().error > all.compare().allowed_error);
    CHECK_FALSE(all.compare().passed);

    Judged one;
    for (std::size_t x = 0; x < 32; ++x) one.out.O[7 * 32 + x] *= 1 + 3e-5f;
    const Comparison c = one.compare();
    CHECK(c.error <= c.allowed_error);
    CHECK(c.worst_row_index == 7);
    CHECK_FALSE(c.passed);
    CHECK(c.describe(one.in.shape).find("batch 0 head 0 query 7") != std::string::npos);
}

TEST_CASE("a wrong LSE fails, and so does NaN there") {
    for (const float value : {0.0f, std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
        Judged j;
        j.out.lse[5] = value;
        CHECK_FALSE(j.compare().passed);
    }
}

TEST_CASE("outputs that are too short are an error, not a pass") {
    Judged j;
    j.out.O.pop_back();
    CHECK_THROWS_AS(j.compare(), std::out_of_range);
}

TEST_CASE("the reference, worked out by hand: two keys, one of them e times as heavy") {
    Inputs in{shape_of(1, 1, 1, 2, 2), {1, 0}, {0, 5, 1, 7}, {1, 2, 3, 4}, 1};
    const AttentionRows r = reference_attention(in, {0});
    const double p = std::exp(1.0) / (1 + std::exp(1.0));
    CHECK(std::abs(r.O[0] - ((1 - p) * 1 + p * 3)) < 1e-15);
    CHECK(std::abs(r.O[1] - ((1 - p) * 2 + p * 4)) < 1e-15);
    CHECK(std::abs(r.lse[0] - std::log(1 + std::exp(1.0))) < 1e-15);
}

TEST_CASE("the reference, causal: bottom-right aligned, and a row that sees nothing gives 0 and -infinity") {
    Inputs in = make_inputs(shape_of(1, 1, 5, 3, 32), Values::normal, test_seed());
    in.shape.causal = true;
    const AttentionRows r = reference_attention(in, rows_to_check(in.shape, 1));
    for (std::size_t i : {0, 1}) {
        CHECK(std::all_of(&r.O[i * 32], &r.O[i * 32] + 32, [](double x) { return x == 0; }));
        CHECK(r.lse[i] == -std::numeric_limits<double>::infinity());
    }
    for (std::size_t x = 0; x < 32; ++x)
        CHECK(r.O[2 * 32 + x] == doctest::Approx(in.V[x]));  // query 2 sees key 0 alone
    Inputs all = in;
    all.shape.causal = false;  // the last query sees every key
    const AttentionRows last = reference_attention(all, {4});
    CHECK(std::equal(last.O.begin(), last.O.end(), &r.O[4 * 32]));
}

TEST_CASE("the reference, grouped queries: heads share K and V") {
    Inputs in = make_inputs(shape_of(2, 4, 6, 9, 32), Values::normal, test_seed());
    Inputs grouped = in;
    grouped.shape.kv_heads = 2;
    grouped.K.resize(grouped.shape.kv_elements());
    grouped.V.resize(grouped.shape.kv_elements());
    for (std::size_t b = 0; b < 2; ++b)
        for (std::size_t h = 0; h < 4; ++h)  // head h reads kv head h / 2
            for (std::size_t e = 0; e < 9 * 32; ++e) {
                in.K[((b * 4 + h) * 9 * 32) + e] = grouped.K[((b * 2 + h / 2) * 9 * 32) + e];
                in.V[((b * 4 + h) * 9 * 32) + e] = grouped.V[((b * 2 + h / 2) * 9 * 32) + e];
            }
    const auto rows = rows_to_check(in.shape, 1);
    CHECK(reference_attention(in, rows).O == reference_attention(grouped, rows).O);
}

TEST_CASE("rows to check: all of a short problem; edges and a sample of a long one") {
    CHECK(rows_to_check(shape_of(2, 3, 100, 7, 32), 1).size() == 600);
    const auto rows = rows_to_check(shape_of(1, 2, 5000, 7, 32), test_seed());
    const std::set<std::size_t> set(rows.begin(), rows.end());
    CHECK(set.size() == rows.size());
    CHECK(rows.size() < 2 * 5000);
    for (std::size_t row : {0, 31, 32, 4999, 5000, 9999}) CHECK(set.contains(row));
}

TEST_CASE("rounding to a dtype") {
    CHECK(round_to(DType::f32, 1.00000012f) == 1.00000012f);
    CHECK(round_to(DType::bf16, 1.00390625f) == 1.0f);         // halfway: to even
    CHECK(round_to(DType::bf16, 1.01171875f) == 1.015625f);    // halfway: to even
    CHECK(round_to(DType::bf16, -1.005f) == -1.0078125f);
    CHECK(round_to(DType::f16, 1.00048828125f) == 1.0f);       // halfway: to even
    CHECK(round_to(DType::f16, 65519.0f) == 65504.0f);
    CHECK(std::isinf(round_to(DType::f16, 65520.0f)));
    CHECK(round_to(DType::f16, 3e-8f) == 0x1p-24f);            // the smallest subnormal
    CHECK(round_to(DType::f16, 0.0f) == 0.0f);
    CHECK(std::isnan(round_to(DType::bf16, std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("buffers bring back what was put in, in every dtype") {
    const std::vector<float> values = {
        0, -0.0f, 1, -1.5f, 65504, 0x1p-24f, 0x1.8p-15f, 1e-3f, std::numeric_limits<float>::infinity()};
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        DeviceBuffer buffer(values.size() * bytes_per_element(dtype));
        buffer.upload(values, dtype);
        const std::vector<float> back = buffer.download(values.size(), dtype);
        for (std::size_t i = 0; i < values.size(); ++i) CHECK(back[i] == round_to(dtype, values[i]));
        buffer.fill(0xFF);
        for (float x : buffer.download(values.size(), dtype)) CHECK(std::isnan(x));
    }
}

TEST_CASE("inputs: as the seed says, different for each, with the temperament that was asked for") {
    const AttentionShape s = shape_of(1, 2, 64, 200, 64);
    const auto scores_of_row = [](const Inputs& in, std::size_t row) {
        std::vector<double> scores;
        for (std::size_t j = 0; j < 200; ++j) {
            double dot = 0;
            for (std::size_t x = 0; x < 64; ++x) dot += in.Q[row * 64 + x] * double(in.K[j * 64 + x]);
            scores.push_back(dot * in.scale);
        }
        return scores;
    };
    CHECK(make_inputs(s, Values::normal, 7).Q == make_inputs(s, Values::normal, 7).Q);
    CHECK(make_inputs(s, Values::normal, 7).Q != make_inputs(s, Values::normal, 8).Q);
    const auto peaky = scores_of_row(make_inputs(s, Values::peaky, test_seed()), 0);
    CHECK(*std::max_element(peaky.begin(), peaky.end()) > 8);
    const auto growing = scores_of_row(make_inputs(s, Values::growing_maximum, test_seed()), 0);
    CHECK(growing[199] > growing[0] + 5);
    const Inputs offset = make_inputs(s, Values::large_offset, test_seed());
    CHECK(scores_of_row(offset, 0)[3] > 150);
    CHECK(scores_of_row(offset, 1)[3] < -150);
    const Inputs zero = make_inputs(s, Values::zero_values_first, test_seed());
    CHECK(std::all_of(zero.V.begin(), zero.V.begin() + 168 * 64, [](float v) { return v == 0; }));
    CHECK(zero.V[168 * 64] != 0);
}

TEST_CASE("real inputs: a transformer's, padded with zeros") {
    const Inputs narrow = real_inputs(32), wide = real_inputs(64);
    CHECK(narrow.shape.heads == 12);
    CHECK(narrow.shape.n_q >= 128);
    CHECK(narrow.shape.head_dim == 32);
    CHECK(wide.scale == narrow.scale);
    CHECK(wide.Q[64 + 31] == narrow.Q[32 + 31]);
    CHECK(wide.V[64 + 32] == 0);
    CHECK_THROWS(real_inputs(16));
    for (const DType dtype : {DType::bf16, DType::f16})  // what the reference sees is what the kernel will see
        for (const Inputs& in : {real_inputs(64, dtype), make_inputs({.dtype = dtype}, Values::normal, test_seed())})
            for (const auto* tensor : {&in.Q, &in.K, &in.V})
                CHECK(std::all_of(tensor->begin(), tensor->end(), [&](float x) { return round_to(dtype, x) == x; }));
}

}  // namespace
}  // namespace flashladder
