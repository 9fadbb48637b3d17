#include "operations/attention_backward/operation.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "operations/attention/operation.h"
#include "operations/attention_backward/closed_forms.h"
#include "operations/attention_backward/comparison.h"

namespace flashladder::attention_backward {
namespace {

/// The same problem of the other direction, which has the same sizes.
Problem turned(Problem problem, const Operation& other) {
    problem.operation = &other;
    problem.extras.clear();
    return problem;
}
Problem forward(const Problem& problem) { return turned(problem, attention::operation()); }
Problem backward(const Problem& problem) { return turned(problem, operation()); }

/// So many multiply-adds have inputs at most that are drawn for every batch: their forward pass runs on the CPU, in double.
constexpr double most_products = 5e9;

class AttentionBackward : public Operation {
public:
    std::string name() const override { return "attention_backward"; }
    std::vector<Size> sizes() const override { return attention::operation().sizes(); }
    std::string title(const Problem& problem) const override { return attention::operation().title(forward(problem)); }

    std::vector<Tensor> all_tensors(const Problem& p) const override {
        const auto [B, H, H_kv, N_q, N_k, d] =
            std::array{p.at("batch"), p.at("heads"), p.at("kv_heads"), p.at("n_q"), p.at("n_k"), p.at("head_dim")};
        return {{"Q", {B, H, N_q, d}, p.dtype},          {"K", {B, H_kv, N_k, d}, p.dtype},
                {"V", {B, H_kv, N_k, d}, p.dtype},       {"O", {B, H, N_q, d}, p.dtype},
                {"dO", {B, H, N_q, d}, p.dtype},         {"lse", {B, H, N_q}, DType::f32},
                {"dQ", {B, H, N_q, d}, p.dtype, true},   {"dK", {B, H_kv, N_k, d}, p.dtype, true},
                {"dV", {B, H_kv, N_k, d}, p.dtype, true}};
    }

    double flops(const Problem& problem) const override { return attention_backward::flops(shape_of(problem)); }
    double units(const Problem& problem) const override { return attention::operation().units(forward(problem)); }
    const char* unit() const override { return attention::operation().unit(); }

    /// Of a large problem each batch has the numbers of the first.
    Data inputs(const Problem& problem, std::uint64_t seed) const override {
        const AttentionShape shape = shape_of(problem);
        AttentionShape drawn = shape;
        if (shape.flops() > 4 * most_products) drawn.batch = 1;
        Data data = data_of(backward_inputs(drawn, attention::Values::normal, seed));
        data.problem = problem;
        for (auto& [name, values] : data.tensors) {
            const std::size_t of_batch = values.size();
            values.resize(of_batch * static_cast<std::size_t>(shape.batch / drawn.batch));
            for (std::size_t i = of_batch; i < values.size(); i += of_batch)
                std::copy_n(values.begin(), of_batch, values.begin() + static_cast<std::ptrdiff_t>(i));
        }
        return data;
    }

    Reference reference(const Data& data, std::uint64_t seed, std::size_t most) const override {
        return reference_of(inputs_of(data), attention::to_string(shape_of(data.problem)), seed, most);
    }

    std::vector<std::pair<std::string, Data>> checks(DType dtype, std::uint64_t seed) const override {
        AttentionShape square, ragged;
        square.dtype = ragged.dtype = dtype;
        square.heads = square.kv_heads = 2;
        square.n_q = square.n_k = 256;
        ragged.batch = 3;
        ragged.n_q = 33;
        ragged.n_k = 257;
        return {{"random, N 256, d 64", data_of(backward_inputs(square, attention::Values::normal, seed))},
                {"peaky, N 33 x 257, d 64", data_of(backward_inputs(ragged, attention::Values::peaky, seed))}};
    }

    std::vector<TimedProblem> timed() const override {
        std::vector<TimedProblem> all;
        for (const TimedProblem& of_forward : attention::operation().timed())
            if (of_forward.set == "grid" && of_forward.problem.at("n_q") <= 4096)  // rung 16 would take 9 s a launch
                all.push_back({"grid", backward(of_forward.problem), ""});
        return all;
    }
    std::vector<Problem> benched(const GivenSizes& given) const override {
        std::vector<Problem> all;
        for (const Problem& problem : attention::operation().benched(given)) all.push_back(backward(problem));
        return all;
    }
    /// Nobody trains with a step of decoding.
    bool takes_part(const std::string&, const Problem& problem) const override {
        return problem.at("n_q") > attention::few_queries;
    }
    bool takes_long(const Problem& problem, DType dtype) const override {
        return attention::operation().takes_long(forward(problem), dtype);
    }
    Problem cut_down(const Problem& problem) const override {
        return backward(attention::operation().cut_down(forward(problem)));
    }
    Problem cut_down_more(const Problem& problem) const override {
        return backward(attention::operation().cut_down_more(forward(problem)));
    }
    Problem part_of(const Problem& problem) const override { return with(problem, {{"batch", 1}}); }

    std::vector<CountedProblem> counted() const override {
        std::vector<CountedProblem> all;
        for (const CountedProblem& of_forward : attention::operation().counted())
            if (of_forward.shared_bytes == 0) all.push_back({backward(of_forward.problem)});
        for (const std::size_t kilobytes : {28, 57, 114})  // only rung 16 looks at how much there is
            all.push_back({problem({{"n_q", 1024}}), kilobytes * 1024, "16"});
        return all;
    }
    std::optional<ClosedForm> closed_form(const std::string& stage, const CountedProblem& counted) const override {
        return attention_backward::closed_form(stage, shape_of(counted.problem), counted.shared_bytes);
    }
};

}  // namespace

const Operation& operation() {
    static const AttentionBackward attention_backward;
    return attention_backward;
}

Reference reference_of(const Inputs& inputs, const std::string& title, std::uint64_t seed, std::size_t most) {
    const AttentionShape shape = inputs.shape();
    const RowsToCheck rows = rows_to_check(shape, seed, most);
    const auto reference = std::make_shared<const Gradients>(reference_gradients(inputs, rows)),
               standard = std::make_shared<const Gradients>(standard_gradients(inputs, rows));
    return [shape, title, reference, standard](const Data& outputs) {
        const auto& tensors = outputs.tensors;
        const Comparison c = compare({tensors.at("dQ"), tensors.at("dK"), tensors.at("dV")}, shape, *reference, *standard);
        const auto* worst = &c.dQ;
        for (const auto* other : {&c.dK, &c.dV})
            if (other->worst_row * worst->allowed_worst_row > worst->worst_row * other->allowed_worst_row) worst = other;
        return Judgement{c.passed, std::max({c.dQ.error, c.dK.error, c.dV.error}), worst->worst_row,
                         worst->allowed_worst_row, c.describe(shape, title)};
    };
}

Problem problem_of(const AttentionShape& shape) { return backward(attention::problem_of(shape)); }

AttentionShape shape_of(const Problem& problem) { return attention::shape_of(problem); }

Data data_of(const Inputs& in) {
    Data data = attention::data_of(in.forward);
    data.problem = attention_backward::problem_of(in.shape());
    data.tensors["O"] = in.O, data.tensors["dO"] = in.dO, data.tensors["lse"] = in.lse;
    return data;
}

Inputs inputs_of(const Data& data) {
    return {attention::inputs_of(data), data.tensors.at("dO"), data.tensors.at("O"), data.tensors.at("lse")};
}

}  // namespace flashladder::attention_backward
