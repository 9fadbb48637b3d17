#include "operations/windowed_backward/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "operations/attention_backward/operation.h"
#include "operations/modified_attention/operation.h"

namespace flashladder::windowed_backward {
namespace {

using attention::AttentionShape;

/// The same problem of the other direction, whose scores may be modified in other ways, too.
Problem forward(Problem problem) {
    problem.operation = &modified_attention::operation();
    problem.sizes["alibi"] = problem.sizes["soft_cap"] = 0;
    return problem;
}
Problem backward(Problem problem) {
    problem.operation = &operation(), problem.extras.clear();
    problem.sizes.erase("alibi"), problem.sizes.erase("soft_cap");
    return problem;
}

class WindowedBackward : public Operation {
public:
    std::string name() const override { return "windowed_backward"; }
    std::vector<Size> sizes() const override {
        std::vector<Size> all = modified_attention::operation().sizes();
        std::erase_if(all, [](const Size& size) { return size.name == "alibi" || size.name == "soft_cap"; });
        return all;
    }
    std::string title(const Problem& problem) const override {
        return modified_attention::operation().title(forward(problem));
    }
    std::vector<Tensor> all_tensors(const Problem& problem) const override {
        return attention_backward::operation().all_tensors(problem);
    }

    double flops(const Problem& problem) const override { return windowed_backward::flops(shape_of(problem)); }
    double units(const Problem& problem) const override { return shape_of(problem).scores(); }
    const char* unit() const override { return "score"; }

    Data inputs(const Problem& problem, std::uint64_t seed) const override {
        return windowed_backward::data_of(windowed_inputs(shape_of(problem), attention::Values::normal, seed));
    }
    Reference reference(const Data& data, std::uint64_t seed, std::size_t most) const override {
        return attention_backward::reference_of(inputs_of(data), to_string(shape_of(data.problem)), seed, most);
    }

    std::vector<std::pair<std::string, Data>> checks(DType dtype, std::uint64_t seed) const override {
        std::vector<std::pair<std::string, Data>> all;
        for (const int window : {256, 100}) {
            const AttentionShape square{.heads = 2, .kv_heads = 2, .n_q = 256, .n_k = 256, .dtype = dtype};
            const Shape s = windowed(square, window);
            all.emplace_back(fmt::format("random, {}", to_string(s)),
                             windowed_backward::data_of(windowed_inputs(s, attention::Values::normal, seed)));
        }
        return all;
    }
    std::vector<Problem> benched(const GivenSizes& given) const override {
        std::vector<Problem> all;
        for (GivenSizes sizes : {GivenSizes{{"n_q", 1024}, {"window", 128}}, {{"n_q", 4096}, {"window", 512}}}) {
            sizes.merge(GivenSizes{{"heads", 16}, {"head_dim", 128}});
            for (const auto& [name, value] : given) sizes[name] = value;
            if (const Problem p = problem(sizes); std::ranges::find(all, p) == all.end()) all.push_back(p);
        }
        return all;
    }
    bool takes_long(const Problem& problem, DType dtype) const override {
        return modified_attention::operation().takes_long(forward(problem), dtype);
    }
    Problem cut_down(const Problem& problem) const override {
        return backward(modified_attention::operation().cut_down(forward(problem)));
    }
    Problem part_of(const Problem& problem) const override { return with(problem, {{"batch", 1}}); }

    std::vector<CountedProblem> counted() const override { return {}; }  // no rung is compared with a capstone
};

}  // namespace

const Operation& operation() {
    static const WindowedBackward windowed_backward;
    return windowed_backward;
}

Problem problem_of(const Shape& shape) { return backward(modified_attention::problem_of(shape)); }

Shape shape_of(const Problem& problem) { return modified_attention::shape_of(forward(problem)); }

Inputs windowed_inputs(const Shape& shape, attention::Values values, std::uint64_t seed) {
    return with_forward_pass(attention::make_inputs(shape, values, seed), attention_backward::fresh_dO(shape, seed),
                             shape.window);
}

Inputs with_forward_pass(attention::Inputs forward, std::vector<float> dO, int window) {
    std::vector<std::size_t> rows(forward.shape.lse_elements());
    for (std::size_t row = 0; row < rows.size(); ++row) rows[row] = row;
    const attention::AttentionRows passed =
        modified_attention::reference_attention({forward, window, {}, 0}, std::move(rows));
    Inputs inputs = attention_backward::with_passed(std::move(forward), std::move(dO), passed);
    inputs.window = window;
    return inputs;
}

Data data_of(const Inputs& inputs) {
    Data data = attention_backward::data_of(inputs);
    data.problem = windowed_backward::problem_of(windowed(inputs.shape(), inputs.window));
    return data;
}

Inputs inputs_of(const Data& data) {
    Data of_attention = data;
    const Shape shape = shape_of(data.problem);
    of_attention.problem = attention_backward::problem_of(shape);
    Inputs inputs = attention_backward::inputs_of(of_attention);
    inputs.window = shape.window;
    return inputs;
}

}  // namespace flashladder::windowed_backward
