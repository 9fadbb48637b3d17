// The judge itself: what it lets pass and what it must not, the reference against a case worked out by hand, the
// inputs, the layouts; and what a stage is handed or spared, before it is launched.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <utility>

#include "launch.h"
#include "harness/dtype.h"
#include "operations/attention/inputs.h"
#include "operations/attention/run.h"
#include "operations/attention/usual_mistakes.h"
#include "test_seed.h"

namespace flashladder::attention {
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

AttentionShape in_dtype(AttentionShape s, DType dtype) { return s.dtype = dtype, s; }

/// Standard attention's own output, as a stage would give it, and what it is compared with.
struct Judged {
    Inputs in;
    AttentionRows reference = reference_attention(in, rows_to_check(in.shape, 1));
    AttentionRows yardstick = standard_attention(in, rows_to_check(in.shape, 1));
    Outputs out;

    explicit Judged(DType dtype = DType::f32)
        : in(make_inputs(in_dtype(shape_of(2, 3, 40, 50, 32), dtype), Values::normal, test_seed())) {
        for (double x : yardstick.O) out.O.push_back(static_cast<float>(x));
        for (double x : yardstick.lse) out.lse.push_back(static_cast<float>(x));
    }
    Comparison compare(Judge judge = Judge::both_rules) const {
        return attention::compare(out, in.shape, reference, yardstick, judge);
    }
};

/// Attention as somebody writes it: which keys are seen, which head is read, what becomes of a score, and of a row.
struct Written {
    std::function<bool(int i, int j)> sees;
    std::function<int(int h)> kv_head = {};
    std::function<double(double dot)> weight = {};
    bool divides = true;
    int zeros = 0;  // keys behind the last one
};
Outputs outputs_of(const Inputs& in, const Written& code) {
    const AttentionShape& s = in.shape;
    Outputs out;
    for (int b = 0; b < s.batch; ++b)
        for (int h = 0; h < s.heads; ++h)
            for (int i = 0; i < s.n_q; ++i) {
                const int kv = b * s.kv_heads + (code.kv_head ? code.kv_head(h) : h * s.kv_heads / s.heads);
                std::vector<double> o(std::size_t(s.head_dim), 0);
                double l = 0;
                for (int j = 0; j < s.n_k + code.zeros; ++j) {
                    if (j < s.n_k && !code.sees(i, j)) continue;
                    double dot = 0;
                    const auto at = [&](const std::vector<float>& x, int row, int e) { return x[std::size_t(row * s.head_dim + e)]; };
                    for (int e = 0; e < s.head_dim && j < s.n_k; ++e)
                        dot += at(in.Q, (b * s.heads + h) * s.n_q + i, e) * at(in.K, kv * s.n_k + j, e);
                    const double p = code.weight ? code.weight(dot) : std::exp(in.scale * dot);
                    l += p;
                    for (int e = 0; e < s.head_dim && j < s.n_k; ++e) o[std::size_t(e)] += p * at(in.V, kv * s.n_k + j, e);
                }
                for (const double x : o) out.O.push_back(round_to(s.dtype, l == 0 ? 0.0f : float(code.divides ? x / l : x)));
            }
    return out;
}

TEST_CASE("a usual mistake is told from its numbers, and nothing else is") {
    for (const DType dtype : {DType::f32, DType::bf16})
        for (const bool causal : {false, true}) {
            // More keys than queries: the diagonals of both corners differ. No multiple of a tile.
            AttentionShape s = in_dtype(shape_of(2, 6, 33 + int(test_seed() % 10), 50 + int(test_seed() / 7 % 6), 32), dtype);
            s.kv_heads = 3, s.causal = causal;
            const Inputs in = make_inputs(s, Values::normal, test_seed());
            const auto rows = rows_to_check(s, 1);
            const AttentionRows reference = reference_attention(in, rows), yardstick = standard_attention(in, rows);
            const auto told = [&](const Written& code) { return usual_mistake(outputs_of(in, code), in, reference, yardstick); };
            const int diagonal = s.n_k - s.n_q;
            const auto up_to = [&](int more) { return [=](int i, int j) { return !causal || j <= i + diagonal + more; }; };
            const auto right = up_to(0);
            const auto says = [&](const Written& code, const std::string& words) {
                const std::string text = told(code);
                CHECK_MESSAGE(text.find(words) != std::string::npos, to_string(s), ": '", text, "' does not say '", words, "'");
            };
            CHECK(told({right}) == "");
            if (causal) {
                says({up_to(1)}, "one key too many");
                says({up_to(-1)}, "one key too few");
                says({[](int i, int j) { return j <= i; }}, "sees the keys up to i");
                says({[](int, int) { return true; }}, "without the causal mask");
                CHECK(told({up_to(2)}) == "");
            } else {
                says({[&](int, int j) { return j < s.n_k - 1; }}, "the last key does not count");
                says({[=](int i, int j) { return j <= i + diagonal; }}, "which was not asked for");
                says({.sees = right, .zeros = 64 - s.n_k}, "behind the last one count");
                CHECK(told({[&](int, int j) { return j < s.n_k - 2; }}) == "");
            }
            const double scale = in.scale;
            says({.sees = right, .weight = [](double x) { return std::exp(x); }}, "without the scale");
            says({.sees = right, .weight = [=](double x) { return std::exp(scale * scale * x); }}, "scaled twice");
            says({.sees = right, .weight = [=](double x) { return std::exp2(scale * x); }}, "not multiplied by log2(e)");
            says({.sees = right, .weight = [=](double x) { return std::exp(scale * x * 1.4426950408889634); }}, "weights are powers of e");
            says({.sees = right, .kv_head = [](int h) { return h % 3; }}, "reads head h % kv_heads");
            says({.sees = right, .kv_head = [](int) { return 0; }}, "read the first one");
            says({.sees = right, .divides = false}, "but for a factor");
            Outputs noise = outputs_of(in, {right});
            for (float& x : noise.O) x = -x;
            CHECK(usual_mistake(noise, in, reference, yardstick) == "");
        }
}

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
    const std::pair<DType, double> allowed[] = {{DType::f32, 1e-5}, {DType::bf16, 5e-3}, {DType::f16, 1e-3}};
    for (const auto& [dtype, error] : allowed) {
        Judged j(dtype);
        CAPTURE(std::string(to_string(dtype)));
        for (std::size_t r = 0; r < j.out.lse.size(); ++r) j.out.lse[r] = static_cast<float>(j.reference.lse[r]);
        j.out.lse[5] = static_cast<float>(j.reference.lse[5] * (1 + 0.9 * error));
        CHECK(j.compare().passed);
        j.out.lse[5] = static_cast<float>(j.reference.lse[5] * (1 + 1.1 * error));
        CHECK_FALSE(j.compare().passed);
    }
}

TEST_CASE("a NaN is told as what outputs are filled with, or as computed; and no other number is") {
    const std::pair<float, const char*> nans[] = {{std::numeric_limits<float>::quiet_NaN(), "which was computed"},
                                                  {-std::numeric_limits<float>::quiet_NaN(), "which was computed"},
                                                  {from_bits(DType::bf16, 0x7FFF), "which was computed"},
                                                  {from_bits(DType::f16, 0x7FFF), "which was computed"},
                                                  {from_bits(DType::f16, 0xFE00), "which was computed"},
                                                  {std::bit_cast<float>(0xFFFFFFFFu), "as what nobody has written"},
                                                  {from_bits(DType::bf16, 0xFFFF), "as what nobody has written"},
                                                  {from_bits(DType::f16, 0xFFFF), "as what nobody has written"}};
    for (const auto& [nan, remark] : nans) {
        Judged j;
        j.out.O[3] = j.out.lse[5] = nan;
        const std::string text = j.compare().describe(j.in.shape);
        CAPTURE(text);
        CHECK(text.find(fmt::format("O[batch 0 head 0 query 0][3] is nan ({}), expected ", remark)) != std::string::npos);
        CHECK(text.find(fmt::format("LSE[batch 0 head 0 query 5] is nan ({}), expected ", remark)) != std::string::npos);
    }
    for (const float number : {-1.5f, std::numeric_limits<float>::infinity()}) {
        Judged j;
        j.out.O[3] = j.out.lse[5] = number;
        const std::string text = j.compare().describe(j.in.shape);
        CHECK(text.find(fmt::format("[3] is {}, expected ", number)) != std::string::npos);
        CHECK(text.find("nobody") == std::string::npos);
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

ForwardArgs launched;       // what the stage below got last
bool writes_a_gap = false;  // and what it does wrong
bool confuses_strides = false;

/// Attention by the reference, row by row to where the strides say.
void launch_reference(const ForwardArgs& args) {
    launched = args;
    const AttentionShape& s = args.shape;
    const std::size_t d = static_cast<std::size_t>(s.head_dim);
    const auto for_each_row = [&](const void* tensor, int heads, int rows, const Strides& strides, auto visit) {
        std::size_t row = 0;
        for (int b = 0; b < s.batch; ++b)
            for (int h = 0; h < heads; ++h)
                for (int i = 0; i < rows; ++i)
                    visit(static_cast<const float*>(tensor) + b * strides.batch + h * strides.head + i * strides.row,
                          row++ * d);
    };
    const auto gather = [&](const void* tensor, int heads, int rows, const Strides& strides) {
        std::vector<float> values(std::size_t(s.batch) * heads * rows * d);
        for_each_row(tensor, heads, rows, strides, [&](const float* from, std::size_t to) {
            check_cuda(cudaMemcpy(&values[to], from, d * sizeof(float), cudaMemcpyDeviceToHost), "gather");
        });
        return values;
    };
    last_launch = {.entry = &launched, .stream = args.stream};  // as if by a kernel
    const Inputs in{s, gather(args.Q, s.heads, s.n_q, args.Q_strides),
                    gather(args.K, s.kv_heads, s.n_k, args.K_strides),
                    gather(args.V, s.kv_heads, s.n_k, confuses_strides ? args.K_strides : args.V_strides), args.scale};
    const AttentionRows result = reference_attention(in, rows_to_check(s, 1));
    const std::vector<float> O(result.O.begin(), result.O.end());
    for_each_row(args.O, s.heads, s.n_q, args.O_strides, [&](const float* to, std::size_t from) {
        const std::size_t bytes = (d + (writes_a_gap && from == 0)) * sizeof(float);
        check_cuda(cudaMemcpy(const_cast<float*>(to), &O[from], bytes, cudaMemcpyHostToDevice), "scatter");
    });
}

Stage reference_stage(bool strides) {
    return {
        Support{.stage = "98-reference", .head_dims = {64}, .causal = true, .grouped_query = true, .strides = strides},
        launch_reference, [](const AttentionShape&) { return std::size_t(0); }};
}

TEST_CASE("each layout brings the inputs to the stage and its output back") {
    AttentionShape shape = shape_of(2, 4, 9, 13, 64);
    shape.kv_heads = 2;
    const Inputs in = make_inputs(shape, Values::normal, test_seed());
    const auto check_in = [&](Layout layout) {
        return check(reference_stage(true), in, Judge::both_rules, false, layout);
    };
    for (const Layout layout : {Layout::heads_first, Layout::sequence_first, Layout::padded}) {
        const Comparison c = check_in(layout);
        CHECK_MESSAGE(c.passed, std::string(to_string(layout)), ": ", c.describe(shape));
    }
    CHECK(launched.Q_strides == Strides{4 * 9 * 72, 9 * 72, 72});
    CHECK(launched.V_strides == Strides{2 * 13 * 88, 13 * 88, 88});
    check_in(Layout::sequence_first);
    CHECK(launched.O_strides == Strides{9 * 4 * 64, 64, 4 * 64});
    CHECK(launched.K_strides == Strides{13 * 2 * 64, 64, 2 * 64});
    check_in(Layout::heads_first);
    CHECK(launched.K_strides == contiguous(2, 13, 64));

    confuses_strides = true;
    CHECK(check_in(Layout::sequence_first).passed);  // K and V lie alike there
    CHECK_FALSE(check_in(Layout::padded).passed);
    confuses_strides = false;
    writes_a_gap = true;
    const Comparison c = check_in(Layout::padded);
    CHECK_FALSE(c.passed);
    CHECK(c.error <= c.allowed_error);
    // Of the float some byte may be 0xFF, as all are before.
    CHECK_MESSAGE((c.describe(shape).find(" bytes written between rows of O;") != std::string::npos), c.describe(shape));
    writes_a_gap = false;
}

/// The line with which the stage is refused, "" if it is launched.
std::string refusal(const Stage& stage, const ForwardArgs& args) {
    try {
        stage.launch(args);
    } catch (const std::invalid_argument& error) {
        return error.what();
    }
    return "";
}

TEST_CASE("strides that a stage cannot have are refused; those that mean nothing are filled in") {
    const Inputs in = make_inputs(shape_of(2, 2, 8, 8, 64), Values::normal, test_seed());
    const Stage any = reference_stage(true), plain = reference_stage(false);
    const DeviceProblem problem(any, in, false, Layout::padded);
    const auto line = [&](const Stage& stage, auto change) {
        ForwardArgs args = problem.args();
        change(args);
        return refusal(stage, args);
    };
    const auto none = [](auto& a) { a.Q_strides = a.K_strides = a.V_strides = a.O_strides = {}; };
    CHECK(line(any, [](auto&) {}) == "");
    CHECK(line(plain, none) == "");
    CHECK(launched.O_strides == contiguous(2, 8, 64));
    CHECK(line(plain, [&](auto& a) { none(a), a.V_strides = contiguous(2, 8, 64); }) == "");
    CHECK(line(plain, [&](auto& a) { none(a), a.Q = static_cast<const float*>(a.Q) + 1; }).find("Q is at ") !=
          std::string::npos);
    CHECK(line(plain, [&](auto& a) {
              none(a), a.O = static_cast<float*>(a.O) + 2;
          }).ends_with("which is not aligned to 16 bytes"));
    CHECK(line(plain,
               [&](auto& a) {
                   none(a), a.K_strides = {1, 2, 3};
               }) ==
          "98-reference: K is not contiguous (strides 1, 2, 3 of batch, head, row): strides are supported from "
          "08-bulk-tensor-copies on");
    CHECK(line(plain, [&](auto& a) { none(a), a.O_strides = {1024, 512, 0}; }).starts_with("98-reference: O is not"));

    CHECK(line(any, [](auto& a) { a.Q_strides.row = 66; }) ==
          "98-reference: Q has a row stride of 66 elements, which is not a multiple of 16 bytes");
    CHECK(line(any, [](auto& a) { a.V_strides.batch += 2; }).find("V has a batch stride of 1410 el") !=
          std::string::npos);
    CHECK(line(any, [](auto& a) { a.K_strides.head *= -1; }) == "98-reference: K has a negative head stride, -640");
    CHECK(line(any, [](auto& a) {
              a.K_strides.row = 60;
          }).ends_with(": K has a row stride of 60, less than head_dim 64"));
    CHECK(
        line(any, [](auto& a) { a.K_strides.row = 0; }).ends_with(": K has a row stride of 0, less than head_dim 64"));
    CHECK(line(any, [](auto& a) { a.K_strides.head = a.V_strides.batch = 0; }) == "");  // the same for all
    CHECK(line(any, [](auto& a) { a.O_strides.head = 0; }) ==
          "98-reference: O overlaps itself (strides 1536, 0, 96 of batch, head, row)");
    CHECK(line(any, [](auto& a) { a.O_strides.batch = 0; }).find("O overlaps itself") != std::string::npos);
    CHECK(line(any, [](auto& a) { a.O_strides.head = 96; }).find("O overlaps itself") != std::string::npos);
    CHECK(line(any, [](auto& a) { a.O = static_cast<float*>(a.O) + 2; }).find("not aligned to 16 bytes") !=
          std::string::npos);
    CHECK(line(any, [](auto& a) { a.Q = static_cast<const float*>(a.Q) + 1; }).starts_with("98-reference: Q is at"));

    // PyTorch has any stride where there is one of something.
    const Inputs single = make_inputs(shape_of(1, 1, 1, 8, 64), Values::normal, test_seed());
    const DeviceProblem small(plain, single, false);
    ForwardArgs args = small.args();
    args.Q_strides = args.O_strides = {7, -3, 5};
    args.K_strides = args.V_strides = {1, 1, 64};
    for (const Stage& stage : {plain, any}) {
        CHECK(refusal(stage, args) == "");
        CHECK(launched.Q_strides == contiguous(1, 1, 64));
        CHECK(launched.K_strides == contiguous(1, 8, 64));
    }
}

TEST_CASE("more batches or heads than a grid has room for are refused, and so is a product of them") {
    const Stage stage = reference_stage(false);
    const auto why = [&](int batch, int heads) { return why_unsupported(stage, shape_of(batch, heads, 1, 1, 64)); };
    CHECK(why(65535, 1) == "");
    CHECK(why(1, 65535) == "");
    CHECK(why(65536, 1) == "98-reference: batch is 65536, but at most 65535 are supported");
    CHECK(why(1, 65536) == "98-reference: heads is 65536, but at most 65535 are supported");
    CHECK(why(65535, 65535) == "98-reference: batch * heads is 4294836225, but at most 2147483647 are supported");
}

TEST_CASE("a stage for a newer GPU is refused, in words; the emulator can do all") {
    Stage stage = reference_stage(true);
    const Inputs in = make_inputs(shape_of(1, 1, 8, 8, 64), Values::normal, test_seed());
    stage.supports.compute_capability = 10;
    CHECK(why_not_on_this_gpu(stage) == "");
    stage.supports.compute_capability = 995;
    const std::string why = why_not_on_this_gpu(stage);
#ifdef FLASHLADDER_GPU
    CHECK(why.starts_with("98-reference: needs a GPU of compute capability 99.5 or newer; this one has "));
    CHECK(why_unsupported(stage, in.shape) == why);
    CHECK_THROWS_AS(run(stage, in), std::invalid_argument);
#else
    CHECK(why == "");
    CHECK(run(stage, in).O.size() == in.shape.q_elements());
#endif
}

}  // namespace
}  // namespace flashladder::attention
