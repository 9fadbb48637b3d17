#include "operations/modified_attention/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <utility>

#include "harness/dtype.h"
#include "operations/attention/comparison.h"
#include "operations/attention/operation.h"

namespace flashladder::modified_attention {
namespace {

using attention::AttentionRows;
using attention::AttentionShape;

AttentionShape square(int heads, int n, int head_dim) {
    return {.heads = heads, .kv_heads = heads, .n_q = n, .n_k = n, .head_dim = head_dim, .causal = true};
}

/// As attention has it, which has a size more.
Problem with_causal(Problem problem) {
    problem.sizes["causal"] = 1;
    return problem;
}

class ModifiedAttention : public Operation {
public:
    std::string name() const override { return "modified_attention"; }

    std::vector<Size> sizes() const override {
        std::vector<Size> all = attention::operation().sizes();
        std::erase_if(all, [](const Size& size) { return size.name == "causal"; });
        all.push_back({.name = "window",
                       .option = "window",
                       .meaning = "keys that a query sees, its own the last",
                       .same_as = "n_k"});
        all.push_back({.name = "alibi",
                       .option = "alibi",
                       .meaning = "subtract slope times distance",
                       .value = 0,
                       .is_flag = true});
        all.push_back({.name = "soft_cap", .option = "soft-cap", .meaning = "c of c tanh(s / c); 0: none", .value = 0});
        return all;
    }

    std::string title(const Problem& problem) const override {
        const std::string text = to_string(shape_of(problem));
        return text.substr(0, text.rfind(' '));  // the dtype is last
    }

    std::vector<Tensor> all_tensors(const Problem& problem) const override {
        std::vector<Tensor> all = attention::operation().all_tensors(problem);
        if (problem.at("alibi")) all.insert(all.begin() + 3, {"slopes", {problem.at("heads")}, DType::f32});
        return all;
    }

    double flops(const Problem& problem) const override { return shape_of(problem).flops(); }
    double units(const Problem& problem) const override { return shape_of(problem).scores(); }
    const char* unit() const override { return "score"; }

    Data inputs(const Problem& problem, std::uint64_t seed) const override {
        return make_inputs(shape_of(problem), attention::Values::normal, seed, problem.extras.contains("lse"));
    }

    Reference reference(const Data& data, std::uint64_t seed, std::size_t most) const override {
        const Inputs inputs = inputs_of(data);
        const std::vector<std::size_t> all = rows_to_check(inputs.shape, seed);
        std::vector<std::size_t> rows;
        for (std::size_t i = 0; i < all.size(); i += std::max<std::size_t>(1, all.size() / most))
            rows.push_back(all[i]);
        const auto reference = std::make_shared<const AttentionRows>(reference_attention(inputs, rows)),
                   standard = std::make_shared<const AttentionRows>(standard_attention(inputs, rows));
        return [shape = shape_of(data.problem), reference, standard](const Data& outputs) {
            attention::Outputs typed{outputs.tensors.at("O"), {}};
            if (const auto lse = outputs.tensors.find("lse"); lse != outputs.tensors.end()) typed.lse = lse->second;
            const attention::Comparison c = compare(typed, shape, *reference, *standard);
            return Judgement{c.passed, c.error, c.worst_row, c.allowed_worst_row, c.describe(shape, to_string(shape))};
        };
    }

    std::vector<std::pair<std::string, Data>> checks(DType dtype, std::uint64_t seed) const override {
        AttentionShape shape = square(2, 256, 64);
        shape.dtype = dtype;
        std::vector<std::pair<std::string, Data>> all;
        for (const Shape& s : {modified(shape, 256), modified(shape, 100), modified(shape, 256, true, 20)})
            all.emplace_back(fmt::format("random, {}", to_string(s)), make_inputs(s, attention::Values::normal, seed));
        return all;
    }
    std::vector<Problem> benched(const GivenSizes& given) const override {
        std::vector<Problem> all;
        for (GivenSizes sizes : {GivenSizes{{"n_q", 1024}, {"window", 128}}, {{"n_q", 4096}, {"alibi", 1}, {"soft_cap", 50}}}) {
            sizes.merge(GivenSizes{{"heads", 16}, {"head_dim", 128}});
            for (const auto& [name, value] : given) sizes[name] = value;
            if (const Problem p = problem(sizes); std::ranges::find(all, p) == all.end()) all.push_back(p);
        }
        return all;
    }
    bool takes_long(const Problem& problem, DType dtype) const override {
        return attention::operation().takes_long(with_causal(problem), dtype);
    }
    Problem cut_down(const Problem& problem) const override {
        const Problem small = attention::operation().cut_down(with_causal(problem));
        Problem same = problem;
        for (auto& [name, value] : same.sizes)
            if (const auto cut = small.sizes.find(name); cut != small.sizes.end()) value = cut->second;
        return with(same, {{"window", std::min(same.at("window"), same.at("n_k"))}});
    }
    Problem part_of(const Problem& problem) const override { return with(problem, {{"batch", 1}}); }

    std::vector<CountedProblem> counted() const override { return {}; }  // no rung is compared with a capstone
};

}  // namespace

const Operation& operation() {
    static const ModifiedAttention modified_attention;
    return modified_attention;
}

double Shape::scores() const {
    double all = 0;
    for (int p = n_k - n_q; p < n_k; ++p) all += std::max(0, p + 1 - std::max(0, p - std::min(window, n_k) + 1));
    return all * batch * heads;
}

Shape modified(AttentionShape shape, int window, bool alibi, int soft_cap) {
    shape.causal = true;
    return {shape, window, alibi, soft_cap};
}

std::string to_string(const Shape& shape) {
    AttentionShape plain = shape;
    plain.causal = false;
    const std::string text = to_string(plain);
    const std::size_t dtype = text.rfind(' ');
    return fmt::format(
        "{}{}{}{}{}", text.substr(0, dtype), shape.window < shape.n_k ? fmt::format(" window {}", shape.window) : "",
        shape.alibi ? " ALiBi" : "", shape.soft_cap ? fmt::format(" cap {}", shape.soft_cap) : "", text.substr(dtype));
}

Problem problem_of(const Shape& s, bool wants_lse) {
    Problem problem = attention::problem_of(s, wants_lse);
    problem.operation = &operation(), problem.sizes.erase("causal");
    problem.sizes["window"] = s.window, problem.sizes["alibi"] = s.alibi, problem.sizes["soft_cap"] = s.soft_cap;
    return problem;
}

Shape shape_of(const Problem& problem) {
    const auto size = [&](const char* name) { return static_cast<int>(problem.at(name)); };
    return modified(attention::shape_of(with_causal(problem)), size("window"), problem.at("alibi") != 0,
                    size("soft_cap"));
}

Data make_inputs(const Shape& shape, attention::Values values, std::uint64_t seed, bool wants_lse) {
    Data data = attention::data_of(attention::make_inputs(shape, values, seed), wants_lse);
    data.problem = problem_of(shape, wants_lse);
    if (shape.alibi)
        for (int h = 1; h <= shape.heads; ++h)
            data.tensors["slopes"].push_back(std::exp2(-8.0f * float(h) / float(shape.heads)));
    return data;
}

Inputs inputs_of(Data data) {
    const Shape shape = shape_of(data.problem);
    std::vector<float> slopes;
    if (shape.alibi) slopes = std::move(data.tensors.at("slopes"));
    data.problem = with_causal(std::move(data.problem));
    return {attention::inputs_of(std::move(data)), shape.window, std::move(slopes), double(shape.soft_cap)};
}

}  // namespace flashladder::modified_attention
