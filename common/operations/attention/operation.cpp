#include "operations/attention/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>

#include "harness/dtype.h"
#include "operations/attention/closed_forms.h"
#include "operations/attention/comparison.h"

namespace flashladder::attention {
namespace {

constexpr int tokens = 16384, model_width = 2048;  // of the papers' grid
constexpr int small_n = 1024;  // up to this N the grid has all rungs

AttentionShape square(int n, int head_dim) {
    AttentionShape s;
    s.n_q = s.n_k = n;
    s.head_dim = head_dim;
    return s;
}

/// 16384 tokens and a model width of 2048, as the papers have it.
AttentionShape on_the_grid(int head_dim, int n) {
    AttentionShape s = square(n, head_dim);
    s.batch = std::max(1, tokens / n);
    s.heads = s.kv_heads = std::max(1, model_width / head_dim);
    return s;
}

/// A step of a language model: a query for each of `heads`, against all keys so far.
AttentionShape step_of_decoding(int batch, int heads, int kv_heads, int n_k, int head_dim) {
    AttentionShape s;
    s.batch = batch, s.heads = heads, s.kv_heads = kv_heads, s.n_k = n_k, s.head_dim = head_dim;
    return s;
}

/// At most so many batches, heads of K and V, and rows.
AttentionShape at_most(AttentionShape s, int batch, int kv_heads, int n) {
    const int group = s.heads / s.kv_heads;
    s.batch = std::min(s.batch, batch);
    s.kv_heads = std::min(s.kv_heads, kv_heads);
    s.heads = group * s.kv_heads;
    s.n_q = std::min(s.n_q, n), s.n_k = std::min(s.n_k, n);
    return s;
}

class Attention : public Operation {
public:
    std::string name() const override { return "attention"; }

    std::vector<Size> sizes() const override {
        return {{.name = "batch", .option = "batch", .meaning = "B"},
                {.name = "heads", .option = "heads", .meaning = "H"},
                {.name = "kv_heads", .option = "kv-heads", .meaning = "fewer than heads: grouped queries", .same_as = "heads"},
                {.name = "n_q", .option = "n", .meaning = "N, the number of queries", .value = 256},
                {.name = "n_k", .option = "n-k", .meaning = "the number of keys, if it is another", .same_as = "n_q"},
                {.name = "head_dim", .option = "d", .meaning = "the head dimension", .value = 64},
                {.name = "causal", .option = "causal", .meaning = "queries see only the keys before them", .value = 0,
                 .is_flag = true}};
    }

    std::string title(const Problem& problem) const override {
        const std::string text = to_string(shape_of(problem));
        return text.substr(0, text.rfind(' '));  // the dtype is last
    }

    std::vector<Tensor> all_tensors(const Problem& p) const override {
        const auto [B, H, H_kv, N_q, N_k, d] =
            std::array{p.at("batch"), p.at("heads"), p.at("kv_heads"), p.at("n_q"), p.at("n_k"), p.at("head_dim")};
        return {{"Q", {B, H, N_q, d}, p.dtype},
                {"K", {B, H_kv, N_k, d}, p.dtype},
                {"V", {B, H_kv, N_k, d}, p.dtype},
                {"O", {B, H, N_q, d}, p.dtype, true},
                {"lse", {B, H, N_q}, DType::f32, true, true}};
    }

    double flops(const Problem& problem) const override { return shape_of(problem).flops(); }
    double units(const Problem& p) const override {
        return double(p.at("batch")) * double(p.at("heads")) * double(p.at("n_q")) * double(p.at("n_k"));
    }
    const char* unit() const override { return "score"; }

    Data inputs(const Problem& problem, std::uint64_t seed) const override {
        return data_of(make_inputs(shape_of(problem), Values::normal, seed), problem.extras.contains("lse"));
    }

    Reference reference(const Data& data, std::uint64_t seed, std::size_t most) const override {
        const Inputs inputs = inputs_of(data);
        const std::vector<std::size_t> all = rows_to_check(inputs.shape, seed);
        std::vector<std::size_t> rows;
        for (std::size_t i = 0; i < all.size(); i += std::max<std::size_t>(1, all.size() / most)) rows.push_back(all[i]);
        const auto reference = std::make_shared<const AttentionRows>(reference_attention(inputs, rows)),
                   standard = std::make_shared<const AttentionRows>(standard_attention(inputs, rows));
        return [shape = inputs.shape, reference, standard](const Data& outputs) {
            Outputs typed{outputs.tensors.at("O"), {}};
            if (const auto lse = outputs.tensors.find("lse"); lse != outputs.tensors.end()) typed.lse = lse->second;
            const Comparison c = compare(typed, shape, *reference, *standard);
            return Judgement{c.passed, c.error, c.worst_row, c.allowed_worst_row, c.describe(shape)};
        };
    }

    std::vector<std::pair<std::string, Data>> checks(DType dtype, std::uint64_t seed) const override {
        AttentionShape square, ragged;
        square.dtype = ragged.dtype = dtype;
        square.heads = square.kv_heads = 2;
        square.n_q = square.n_k = 256;
        ragged.batch = 3;
        ragged.n_q = 33;
        ragged.n_k = 257;
        return {{"real text, N 137, d 32", data_of(real_inputs(32, dtype))},
                {"real text, padded to d 64", data_of(real_inputs(64, dtype))},
                {"random, N 256, d 64", data_of(make_inputs(square, Values::normal, seed))},
                {"peaky, N 33 x 257, d 64", data_of(make_inputs(ragged, Values::peaky, seed))}};
    }

    std::vector<TimedProblem> timed() const override {
        std::vector<TimedProblem> all;
        const auto add = [&](const char* set, const AttentionShape& shape, const char* lowest) {
            all.push_back({set, problem_of(shape), lowest});
        };
        for (const int head_dim : {64, 128}) {
            for (const int n : {512, 1024, 2048, 4096, 8192}) add("grid", on_the_grid(head_dim, n), "");
            for (const int heads : {1, 4, 16, 64}) {
                AttentionShape s = square(4096, head_dim);
                s.heads = s.kv_heads = heads;
                add("heads", s, "02");
            }
            AttentionShape plain = on_the_grid(head_dim, 4096), causal = plain, grouped = plain;
            causal.causal = true;
            grouped.kv_heads = grouped.heads / 8;
            AttentionShape both = grouped;
            both.causal = true;
            for (const AttentionShape& s : {plain, causal, grouped, both}) add("features", s, "03");
            add("variants", plain, "");
            for (const AttentionShape& s : steps_of_decoding(head_dim)) add("decoding", s, "");
        }
        return all;
    }

    std::vector<Problem> benched(const GivenSizes& given) const override {
        for (const Size& size : sizes())
            if (const auto said = given.find(size.name); said != given.end() && !size.is_flag && said->second < 1)
                throw std::invalid_argument(
                    fmt::format("--{} is {}, but must be at least 1", size.option, said->second));
        const auto said = [&](const char* name, std::vector<int> otherwise) {
            const auto found = given.find(name);
            return found == given.end() ? otherwise : std::vector{static_cast<int>(found->second)};
        };
        std::vector<Problem> problems;
        for (const int head_dim : said("head_dim", {64, 128}))
            for (const int causal : said("causal", {0, 1}))
                for (const int n : said("n_q", {small_n, 4096})) {
                    AttentionShape s = on_the_grid(head_dim, n);
                    s.batch = said("batch", {s.batch}).front();
                    s.heads = said("heads", {s.heads}).front();
                    s.kv_heads = said("kv_heads", {s.heads}).front();
                    s.n_k = said("n_k", {n}).front();
                    s.causal = causal != 0;
                    if (s.heads % s.kv_heads != 0)
                        throw std::invalid_argument(
                            fmt::format("heads {} is not a multiple of kv-heads {}", s.heads, s.kv_heads));
                    problems.push_back(problem_of(s));
                }
        if (given.empty())
            for (const int head_dim : {64, 128})
                for (const AttentionShape& s : steps_of_decoding(head_dim)) problems.push_back(problem_of(s));
        return problems;
    }
    bool takes_part(const std::string& stage, const Problem& problem) const override {
        const bool few = problem.at("n_q") <= few_queries;
        return stage.starts_with("27") ? few : !few || stage == "14-lcsf";
    }
    /// Without tensor cores it takes a hundred times as long.
    bool takes_long(const Problem& problem, DType dtype) const override {
        return dtype == DType::f32 && problem.at("n_q") > small_n;
    }
    Problem cut_down(const Problem& problem) const override { return cut_down(problem, 2, 2); }
    Problem cut_down_more(const Problem& problem) const override { return cut_down(problem, 1, 1); }
    Problem part_of(const Problem& problem) const override { return with(problem, {{"batch", 1}}); }

    std::vector<CountedProblem> counted() const override {
        std::vector<CountedProblem> all;
        const auto add = [&](const AttentionShape& shape) { all.push_back({problem_of(shape)}); };
        for (const int head_dim : {64, 128}) add(square(1024, head_dim));
        for (const int n : {64, 128, 256, 512}) add(square(n, 64));
        for (const std::size_t kilobytes : {66, 132, 115, 230})  // only rung 02 looks at how much there is
            all.push_back({problem_of(square(1024, 64)), kilobytes * 1024, "02"});
        AttentionShape causal = square(1024, 64), grouped = square(256, 64);
        causal.causal = true;
        grouped.heads = 4;
        add(causal), add(grouped);
        for (const int head_dim : {64, 128}) add(step_of_decoding(1, 16, 2, 4096, head_dim));
        return all;
    }
    std::vector<Problem> counted_of_variants() const override {
        return {problem_of(square(1024, 64)), problem_of(square(1024, 128))};
    }
    std::optional<ClosedForm> closed_form(const std::string& stage, const CountedProblem& counted) const override {
        const Problem& problem = counted.problem;
        return attention::closed_form(stage, shape_of(problem), counted.shared_bytes, problem.extras.contains("lse"));
    }

private:
    /// Many heads of K and V, few of them, one; up to a million keys.
    static std::vector<AttentionShape> steps_of_decoding(int head_dim) {
        return {step_of_decoding(16, 64, 8, 8192, head_dim), step_of_decoding(8, 32, 32, 4096, head_dim),
                step_of_decoding(1, 32, 8, 8192, head_dim), step_of_decoding(1, 32, 8, 65536, head_dim),
                step_of_decoding(1, 8, 1, 1 << 20, head_dim)};
    }
    static Problem cut_down(const Problem& problem, int batch, int kv_heads) {
        const int n = problem.at("n_q") <= few_queries ? 2048 : 256;
        return problem_of(at_most(shape_of(problem), batch, kv_heads, n), problem.extras.contains("lse"));
    }
};

}  // namespace

const Operation& operation() {
    static const Attention attention;
    return attention;
}

Problem problem_of(const AttentionShape& s, bool wants_lse) {
    Problem problem{&operation(),
                    {{"batch", s.batch}, {"heads", s.heads}, {"kv_heads", s.kv_heads}, {"n_q", s.n_q}, {"n_k", s.n_k},
                     {"head_dim", s.head_dim}, {"causal", s.causal}},
                    s.dtype};
    if (wants_lse) problem.extras.insert("lse");
    return problem;
}

AttentionShape shape_of(const Problem& p) {
    const auto size = [&](const char* name) { return static_cast<int>(p.at(name)); };
    return {size("batch"), size("heads"), size("kv_heads"), size("n_q"), size("n_k"), size("head_dim"),
            p.at("causal") != 0, p.dtype};
}

Data data_of(Inputs in, bool wants_lse) {
    return {problem_of(in.shape, wants_lse),
            {{"Q", std::move(in.Q)}, {"K", std::move(in.K)}, {"V", std::move(in.V)}},
            {{"scale", in.scale}}};
}

Inputs inputs_of(Data data) {
    return {shape_of(data.problem), std::move(data.tensors.at("Q")), std::move(data.tensors.at("K")),
            std::move(data.tensors.at("V")), static_cast<float>(data.arguments.at("scale"))};
}

}  // namespace flashladder::attention
