// The reference of attention's backward pass against differences of its forward pass, and what the comparison lets pass.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "harness/dtype.h"
#include "operations/attention_backward/comparison.h"
#include "operations/attention_backward/operation.h"
#include "operations/attention_backward/usual_mistakes.h"
#include "operations/modified_attention/reference.h"
#include "operations/windowed_backward/operation.h"
#include "test_seed.h"

namespace flashladder::attention_backward {
namespace {

using attention::Values;

AttentionShape shape_of(int heads, int kv_heads, int n_q, int n_k, bool causal, DType dtype = DType::f32) {
    AttentionShape s;
    s.batch = 2;
    s.heads = heads, s.kv_heads = kv_heads;
    s.n_q = n_q, s.n_k = n_k;
    s.head_dim = 32;
    s.causal = causal;
    s.dtype = dtype;
    return s;
}

RowsToCheck all_rows(const AttentionShape& shape) { return rows_to_check(shape, 1, std::size_t(1) << 20); }

constexpr int no_window = std::numeric_limits<int>::max();

Inputs fresh_inputs(const AttentionShape& shape, int window, std::uint64_t seed) {
    return window == no_window
               ? backward_inputs(shape, Values::normal, seed)
               : windowed_backward::windowed_inputs(windowed_backward::windowed(shape, window), Values::normal, seed);
}

/// sum(O dO), in double.
double objective(const attention::Inputs& forward, const std::vector<float>& dO, int window) {
    std::vector<std::size_t> rows(forward.shape.lse_elements());
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = i;
    const std::vector<double> O =
        window == no_window ? attention::reference_attention(forward, std::move(rows)).O
                            : modified_attention::reference_attention({forward, window, {}, 0}, std::move(rows)).O;
    double sum = 0;
    for (std::size_t x = 0; x < O.size(); ++x) sum += O[x] * dO[x];
    return sum;
}

TEST_CASE("gradients: the reference is what central differences of sum(O dO) say, along random directions") {
    constexpr float step = 0x1p-13f;
    std::mt19937_64 random(test_seed());
    std::normal_distribution<float> normal;
    for (const auto& [heads, kv_heads, n_q, n_k, causal, window] : {std::tuple(2, 2, 9, 13, false, no_window),
                                                                    {4, 2, 13, 9, false, no_window},
                                                                    {2, 1, 7, 12, true, no_window},
                                                                    {3, 3, 14, 6, true, no_window},
                                                                    {2, 2, 5, 1, false, no_window},
                                                                    {4, 2, 11, 11, true, 4},
                                                                    {2, 2, 6, 13, true, 3},
                                                                    {2, 1, 13, 8, true, 5},
                                                                    {2, 2, 9, 9, true, 1}}) {
        const Inputs in = fresh_inputs(shape_of(heads, kv_heads, n_q, n_k, causal), window, random());
        const Gradients g = reference_gradients(in, all_rows(in.shape()));
        const std::tuple<const char*, std::vector<float> attention::Inputs::*, const std::vector<double>*> tensors[] = {
            {"Q", &attention::Inputs::Q, &g.dQ.values}, {"K", &attention::Inputs::K, &g.dK.values},
            {"V", &attention::Inputs::V, &g.dV.values}};
        for (const auto& [name, tensor, gradient] : tensors) {
            attention::Inputs more = in.forward, less = in.forward;
            double expected = 0, size = 0;
            for (std::size_t x = 0; x < gradient->size(); ++x) {
                const float by = step * normal(random);
                (more.*tensor)[x] += by, (less.*tensor)[x] -= by;
                const double apart = double((more.*tensor)[x]) - double((less.*tensor)[x]);  // as it is in float
                expected += (*gradient)[x] * apart;
                size += std::pow((*gradient)[x] * apart, 2);
            }
            const double found = objective(more, in.dO, window) - objective(less, in.dO, window);
            CHECK_MESSAGE(std::abs(found - expected) <= 1e-6 * std::sqrt(size) + 1e-13 * double(in.dO.size()),
                          fmt::format("d{}: differences say {:.9g}, the reference {:.9g} ({}, window {})", name, found, expected,
                                      attention::to_string(in.shape()), window));
        }
    }
}

TEST_CASE("gradients: a query without keys has dQ = 0, and a NaN in its dO reaches nobody") {
    Inputs in = backward_inputs(shape_of(2, 2, 9, 4, true), Values::normal, test_seed());
    REQUIRE(in.lse.front() == -std::numeric_limits<float>::infinity());
    const Gradients before = reference_gradients(in, all_rows(in.shape()));
    in.dO.at(3) = std::numeric_limits<float>::quiet_NaN();
    const Gradients g = reference_gradients(in, all_rows(in.shape()));
    for (std::size_t x = 0; x < 5 * 32; ++x) CHECK(g.dQ.values[x] == 0);
    CHECK(g.dK.values == before.dK.values);
    CHECK(g.dV.values == before.dV.values);
}

TEST_CASE("gradients: a sample of rows has the first and the last of each head, and the same numbers") {
    const Inputs in = backward_inputs(shape_of(2, 2, 40, 50, false), Values::normal, test_seed());
    const RowsToCheck some = rows_to_check(in.shape(), test_seed(), 30), all = all_rows(in.shape());
    CHECK(some.queries.size() <= 30);
    for (std::size_t head = 0; head < 4; ++head) {
        CHECK(std::ranges::count(some.queries, head * 40) == 1);
        CHECK(std::ranges::count(some.keys, head * 50 + 49) == 1);
    }
    const Gradients part = reference_gradients(in, some), whole = reference_gradients(in, all);
    for (std::size_t r = 0; r < some.keys.size(); ++r)
        for (std::size_t x = 0; x < 32; ++x) CHECK(part.dK.values[r * 32 + x] == whole.dK.values[some.keys[r] * 32 + x]);
}

Outputs outputs_of(const Gradients& g) {
    return {{g.dQ.values.begin(), g.dQ.values.end()}, {g.dK.values.begin(), g.dK.values.end()},
            {g.dV.values.begin(), g.dV.values.end()}};
}

TEST_CASE("gradients: the standard way passes in each dtype, and what is wrong does not") {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        const AttentionShape shape = shape_of(2, 1, 60, 70, true, dtype);
        const Inputs in = backward_inputs(shape, Values::normal, test_seed());
        const Gradients reference = reference_gradients(in, all_rows(shape)), standard = standard_gradients(in, all_rows(shape));
        const Outputs right = outputs_of(standard);
        const Comparison passed = compare(right, shape, reference, standard);
        CHECK_MESSAGE(passed.passed, passed.describe(shape));
        const auto check_fails = [&](auto change, const char* what) {
            Outputs wrong = right;
            change(wrong);
            const Comparison c = compare(wrong, shape, reference, standard);
            CHECK_MESSAGE(!c.passed, what, " passes: ", c.describe(shape));
        };
        check_fails([](Outputs& o) { o.dQ[77] = std::numeric_limits<float>::quiet_NaN(); }, "a NaN");
        check_fails([](Outputs& o) { o.dK.back() += 0.3f; }, "an element that is off by 0.3");
        check_fails([](Outputs& o) { o.dV.assign(o.dV.size(), 0); }, "no gradient at all");
        check_fails([](Outputs& o) { for (float& x : o.dK) x *= 1.02f; }, "2% too much");
        check_fails([&](Outputs& o) {
            for (std::size_t x = 0; x < 32; ++x) o.dQ[59 * 32 + x] = o.dQ[58 * 32 + x];
        }, "a row of its neighbour");
        CHECK(compare(right, shape, reference, standard).describe(shape).find("expected") == std::string::npos);
    }
    const AttentionShape one_key = shape_of(2, 2, 40, 1, false);
    const Inputs in = backward_inputs(one_key, Values::normal, test_seed());
    const Gradients reference = reference_gradients(in, all_rows(one_key)), standard = standard_gradients(in, all_rows(one_key));
    Outputs out = outputs_of(standard);
    CHECK(compare(out, one_key, reference, standard).passed);
    out.dQ[5] = out.dK[6] = 1e-3f;
    const std::string described = compare(out, one_key, reference, standard).describe(one_key);
    CHECK_MESSAGE(described.find(": dQ[batch 0 head 0 query 0][5] is 0.001, expected 0; dQ's relative error") != std::string::npos,
                  described);
    CHECK_MESSAGE(described.find("\ndK[batch 0 head 0 key 0][6] is 0.001, expected 0; dK's relative error") != std::string::npos,
                  described);
}

TEST_CASE("gradients: a factor that is missing, or there twice, is told, and nothing else is") {
    for (const DType dtype : {DType::f32, DType::bf16}) {
        const AttentionShape shape = shape_of(4, 2, 21, 34, true, dtype);
        const Inputs in = backward_inputs(shape, Values::normal, test_seed());
        const Gradients reference = reference_gradients(in, all_rows(shape)), standard = standard_gradients(in, all_rows(shape));
        const auto times = [&](double factor, std::size_t changed = 0) {
            Outputs out;
            for (const auto& [from, to] : {std::pair(&standard.dV, &out.dV), {&standard.dQ, &out.dQ}, {&standard.dK, &out.dK}})
                for (const double x : from->values) to->push_back(round_to(dtype, float(to == &out.dV ? x : factor * x)));
            for (std::size_t i = 0; i < changed; ++i) out.dQ[i] += 1;
            return compare(out, shape, reference, standard).describe(shape);
        };
        const double root = std::sqrt(32.0);
        for (const auto& [factor, words] :
             {std::pair(root, "sqrt(d): is the scale missing?"), {1 / root, "1 / sqrt(d): is it scaled twice?"}, {-1.0, "the sign"},
              {1.4426950408889634, "log2(e), or 1 / log2(e)"}, {3.0, "all of dQ is 3 times what it should be; "}}) {
            const std::string text = times(factor);
            CAPTURE(text);
            CHECK(text.find(words) != std::string::npos);
            CHECK(text.find("all of dK is ") != std::string::npos);
            CHECK(text.find("all of dV is ") == std::string::npos);
        }
        CHECK(times(1).find("times what it should be") == std::string::npos);
        CHECK(times(root, 32).find("all of dQ is ") == std::string::npos);
    }
}

/// The way back as somebody writes it: which keys are seen, what P and dS are made of, what they are multiplied with, which
/// heads are read and summed.
struct Written {
    std::function<bool(int i, int j)> sees;
    std::function<double(double S, double lse)> P = [](double S, double lse) { return std::exp(S - lse); };
    std::function<double(double P, double dP, double D)> dS = [](double P, double dP, double D) { return P * (dP - D); };
    const std::vector<float>*of_dV = nullptr, *of_dQ = nullptr, *of_dK = nullptr;
    std::function<int(int h)> kv_head = {};
    std::function<bool(int h)> sums = [](int) { return true; };
};
Outputs outputs_of(const Inputs& in, const Written& code) {
    const AttentionShape& s = in.shape();
    const auto d = std::size_t(s.head_dim);
    const auto dot = [&](const std::vector<float>& a, std::size_t i, const std::vector<float>& b, std::size_t j) {
        double sum = 0;
        for (std::size_t x = 0; x < d; ++x) sum += double(a[i * d + x]) * b[j * d + x];
        return sum;
    };
    const attention::Inputs& f = in.forward;
    std::vector<double> dV(s.kv_elements()), dQ(s.q_elements()), dK(s.kv_elements());
    for (int b = 0; b < s.batch; ++b)
        for (int h = 0; h < s.heads; ++h)
            for (int i = 0; i < s.n_q; ++i)
                for (int j = 0; j < s.n_k; ++j) {
                    if (!code.sees(i, j)) continue;
                    const int kv_head = code.kv_head ? code.kv_head(h) : h / (s.heads / s.kv_heads);
                    const auto q = std::size_t((b * s.heads + h) * s.n_q + i), k = std::size_t((b * s.kv_heads + kv_head) * s.n_k + j);
                    const double P = code.P(f.scale * dot(f.Q, q, f.K, k), in.lse[q]);
                    const double dS = f.scale * code.dS(P, dot(in.dO, q, f.V, k), dot(in.dO, q, in.O, q));
                    for (std::size_t x = 0; x < d; ++x) {
                        dQ[q * d + x] += dS * (code.of_dQ ? *code.of_dQ : f.K)[k * d + x];
                        if (!code.sums(h)) continue;
                        dV[k * d + x] += P * (code.of_dV ? *code.of_dV : in.dO)[q * d + x];
                        dK[k * d + x] += dS * (code.of_dK ? *code.of_dK : f.Q)[q * d + x];
                    }
                }
    Outputs out;
    for (const auto& [from, to] : {std::pair(&dV, &out.dV), {&dQ, &out.dQ}, {&dK, &out.dK}})
        for (const double x : *from) to->push_back(round_to(s.dtype, float(x)));
    return out;
}

TEST_CASE("gradients: a usual mistake is told from its numbers, of each gradient that it is in, and nothing else is") {
    for (const DType dtype : {DType::f32, DType::bf16})
        for (const bool causal : {false, true}) {
            const AttentionShape shape = shape_of(4, 2, 21 + int(test_seed() % 5), 31 + int(test_seed() / 7 % 5), causal, dtype);
            const Inputs in = backward_inputs(shape, Values::normal, test_seed());
            const Gradients reference = reference_gradients(in, all_rows(shape)), standard = standard_gradients(in, all_rows(shape));
            const auto told = [&](const Written& code) {
                const Outputs out = outputs_of(in, code);
                Comparison c = compare(out, shape, reference, standard);
                if (!c.passed) name_usual_mistakes(c, out, in, reference);
                return std::pair(c, c.describe(shape));
            };
            // Of which gradients: "VQK", in the order of a description.
            const auto says = [&](const Written& code, const std::string& words, const std::string& of) {
                const auto& [c, text] = told(code);
                INFO(text, "; expected: ", words, ", of ", of);
                for (const auto& [letter, one] : {std::pair('V', &c.dV), {'Q', &c.dQ}, {'K', &c.dK}}) {
                    const bool is_in = of.find(letter) != std::string::npos;
                    CHECK(one->mistake.find(words) == (is_in ? 0 : std::string::npos));
                    const std::string sentence = fmt::format("d{} is what comes out {}", letter, words);
                    CHECK((text.find(sentence) != std::string::npos) == is_in);
                }
            };
            const int diagonal = shape.n_k - shape.n_q;
            const auto up_to = [&](int more) { return [=](int i, int j) { return !causal || j <= i + diagonal + more; }; };
            const auto right = up_to(0);
            CHECK(told({right}).first.passed);
            const attention::Inputs& f = in.forward;
            says({.sees = right, .of_dK = &in.dO}, "if dS^T is multiplied by dO, not by Q", "K");
            says({.sees = right, .of_dK = &in.O}, "if dS^T is multiplied by O, not by Q", "K");
            says({.sees = right, .of_dQ = &f.V}, "if dS is multiplied by V, not by K", "Q");
            says({.sees = right, .of_dV = &f.Q}, "if P^T is multiplied by Q, not by dO", "V");
            says({.sees = right, .of_dV = &in.O}, "if P^T is multiplied by O, not by dO", "V");
            says({.sees = right, .P = [](double S, double) { return std::exp(S); }}, "if LSE is not subtracted", "V");
            says({.sees = right, .P = [](double S, double lse) { return std::exp2(S - lse); }}, "if P is a power of 2", "V");
            says({.sees = right, .dS = [](double P, double dP, double) { return P * dP; }}, "if D is not subtracted", "QK");
            says({.sees = right, .dS = [](double P, double dP, double D) { return P * (dP + D); }}, "if D is added", "QK");
            says({.sees = right, .dS = [](double, double dP, double D) { return dP - D; }}, "if dS is not multiplied by P", "QK");
            says({.sees = right, .dS = [](double P, double, double) { return P; }}, "if P stands where dS should", "QK");
            says({.sees = right, .dS = [](double, double dP, double) { return dP; }}, "if dP stands where dS should", "QK");
            if (causal) {
                says({up_to(1)}, "if each query sees one key too many", "VQK");
                says({up_to(-1)}, "if each query sees one key too few", "VQK");
                says({[](int i, int j) { return j <= i; }}, "if query i sees the keys up to i", "VQK");
                says({[](int, int) { return true; }}, "without the causal mask", "VQK");
            } else {
                says({[=](int i, int j) { return j <= i + diagonal; }}, "with a causal mask", "VQK");
                says({[=](int, int j) { return j < shape.n_k - 1; }}, "if the last key does not count", "VQK");
            }
            says({.sees = right, .kv_head = [](int h) { return h % 2; }}, "if head h of Q has head h % kv_heads", "VQK");
            says({.sees = right, .sums = [](int h) { return h % 2 == 1; }}, "if only the last of the heads", "VK");
            says({.sees = right, .sums = [](int h) { return h % 2 == 0; }}, "if only the first of the heads", "VK");
            for (const Written& code : {Written{.sees = up_to(2)}, Written{.sees = [](int, int j) { return j > 0; }},
                                        Written{.sees = right, .P = [](double S, double) { return S; }}})
                if (auto [c, text] = told(code); !c.passed) CHECK_MESSAGE(text.find("comes out") == std::string::npos, text);
        }
}

TEST_CASE("gradients: a usual mistake with a window is told, too, and others as they are without one") {
    const AttentionShape shape = shape_of(4, 2, 21 + int(test_seed() % 5), 31 + int(test_seed() / 7 % 5), true);
    const int window = 5 + int(test_seed() / 3 % 9), diagonal = shape.n_k - shape.n_q;
    const Inputs in = fresh_inputs(shape, window, test_seed());
    const Gradients reference = reference_gradients(in, all_rows(shape)), standard = standard_gradients(in, all_rows(shape));
    const auto says = [&](const Written& code, const std::string& words) {
        const Outputs out = outputs_of(in, code);
        Comparison c = compare(out, shape, reference, standard);
        if (!c.passed) name_usual_mistakes(c, out, in, reference);
        CHECK_MESSAGE(c.passed == words.empty(), c.describe(shape));
        for (const auto* one : {&c.dV, &c.dQ, &c.dK}) CHECK_MESSAGE(one->mistake == words, one->mistake, "; expected: ", words);
    };
    // The keys from the so manieth before the window on, up to the so manieth behind the query's own.
    const auto sees = [=](int before, int behind) {
        return [=](int i, int j) { return j > i + diagonal - window - before && j <= i + diagonal + behind; };
    };
    says({sees(0, 0)}, "");
    says({sees(1, 0)}, "if each query sees one key before its window");
    says({sees(-1, 0)}, "if the first key of each window is not seen");
    says({sees(shape.n_k, 0)}, "if windows hide nothing");
    says({sees(0, 1)}, "if each query sees one key too many");
    says({[=](int i, int j) { return j > i - window && j <= i; }}, "if query i stands at key i, and not at i + N_k - N_q");
    says({.sees = sees(0, 0), .kv_head = [](int h) { return h % 2; }},
         "if head h of Q has head h % kv_heads of K and V, and not head h / (heads / kv_heads)");
}

TEST_CASE("gradients: where one key has nearly all the weight, what the standard way loses is allowed, and not much more") {
    for (const DType dtype : {DType::bf16, DType::f16}) {
        const AttentionShape shape = shape_of(2, 2, 60, 200, false, dtype);
        const Inputs in = backward_inputs(shape, Values::peaky, test_seed());
        const Gradients reference = reference_gradients(in, all_rows(shape)), standard = standard_gradients(in, all_rows(shape));
        const Outputs right = outputs_of(standard);
        const Comparison c = compare(right, shape, reference, standard);
        CHECK_MESSAGE(c.passed, c.describe(shape));
        CHECK(c.dK.error > allowed_gradient_error(dtype));  // so it is the other rule that lets it pass
        // A fifth more of the same error:
        Outputs worse = right;
        for (std::size_t x = 0; x < worse.dK.size(); ++x)
            worse.dK[x] += 0.2f * (worse.dK[x] - static_cast<float>(reference.dK.values[x]));
        const Comparison further = compare(worse, shape, reference, standard);
        CHECK_MESSAGE(!further.dK.passed, further.describe(shape));
    }
}

TEST_CASE("gradients: batches of a large problem have the same numbers, and the operation counts 2.5 forward passes") {
    AttentionShape shape = shape_of(1, 1, 3, 5, false);
    const Problem problem = problem_of(shape);
    CHECK(problem.operation->flops(problem) == 2.5 * shape.flops());
    const Data small = problem.operation->inputs(problem, 1);
    CHECK(inputs_of(small).dO == backward_inputs(shape, Values::normal, 1).dO);
    CHECK(small.tensors.at("K").front() != small.tensors.at("K").at(5 * 32));
}

}  // namespace
}  // namespace flashladder::attention_backward
