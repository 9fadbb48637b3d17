#include "operations/block_sparse_attention/operation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "operations/attention/comparison.h"
#include "operations/attention/operation.h"

namespace flashladder::block_sparse_attention {
namespace {

using attention::AttentionRows;

/// As attention has it, which has fewer sizes.
Problem dense(Problem problem) {
    problem.operation = &attention::operation();
    for (const char* size : {"density", "window", "butterfly", "per_head", "draw"}) problem.sizes.erase(size);
    return problem;
}
AttentionShape square(int heads, int n, int head_dim, bool causal = false) {
    return {.heads = heads, .kv_heads = heads, .n_q = n, .n_k = n, .head_dim = head_dim, .causal = causal};
}

class BlockSparseAttention : public Operation {
public:
    std::string name() const override { return "block_sparse_attention"; }

    std::vector<Size> sizes() const override {
        std::vector<Size> all = attention::operation().sizes();
        all.push_back({.name = "density",
                       .option = "density",
                       .meaning = "percent of the blocks of keys that are drawn for a list; 100: all",
                       .value = 25});
        all.push_back({.name = "window",
                       .option = "window",
                       .meaning = "blocks of keys beside the diagonal, on either side, in every list",
                       .value = 0});
        all.push_back({.name = "butterfly",
                       .option = "butterfly",
                       .meaning = "blocks at distances that are powers of two too",
                       .value = 0,
                       .is_flag = true});
        all.push_back({.name = "per_head",
                       .option = "per-head",
                       .meaning = "each head draws lists of its own",
                       .value = 0,
                       .is_flag = true});
        all.push_back({.name = "draw", .option = "draw", .meaning = "the seed of the lists"});
        return all;
    }

    std::string title(const Problem& problem) const override {
        const Pattern p = shape_of(problem).second;
        if (p.draw == 0) return fmt::format("{}, given lists", attention::operation().title(dense(problem)));
        std::vector<std::string> parts;
        if (p.density > 0) parts.push_back(fmt::format("{}%", p.density));
        if (p.window > 0) parts.push_back(fmt::format("window {}", p.window));
        if (p.butterfly) parts.emplace_back("butterfly");
        if (parts.empty()) parts.emplace_back("diagonal");
        return fmt::format("{}, {}{}{}", attention::operation().title(dense(problem)), fmt::join(parts, " + "),
                           p.per_head ? " by head" : "", p.draw == 1 ? "" : fmt::format(" (draw {})", p.draw));
    }

    /// `blocks` has room for lists of all blocks.
    std::vector<Tensor> all_tensors(const Problem& problem) const override {
        const auto [s, pattern] = shape_of(problem);
        const std::int64_t T_r = blocks_of(s.n_q), T_c = blocks_of(s.n_k), heads = pattern.per_head ? s.heads : 1;
        std::vector<Tensor> all = attention::operation().all_tensors(dense(problem));
        all.insert(all.begin() + 3,
                   {{"first", {heads * T_r + 1}, DType::i32}, {"blocks", {heads, T_r, T_c}, DType::i32}});
        return all;
    }

    double flops(const Problem& problem) const override { return 4 * units(problem) * double(problem.at("head_dim")); }
    double units(const Problem& problem) const override {
        const auto [shape, pattern] = shape_of(problem);
        return scores(shape, make_lists(shape, pattern));
    }
    const char* unit() const override { return "score"; }

    Data inputs(const Problem& problem, std::uint64_t seed) const override {
        const auto [shape, pattern] = shape_of(problem);
        Data data = make_inputs(shape, make_lists(shape, pattern), attention::Values::normal, seed);
        return data.problem = problem, data;
    }

    Reference reference(const Data& data, std::uint64_t seed, std::size_t most) const override {
        const Inputs inputs = inputs_of(data);
        const std::vector<std::size_t> all = rows_to_check(inputs.shape, seed);
        std::vector<std::size_t> rows;
        for (std::size_t i = 0; i < all.size(); i += std::max<std::size_t>(1, all.size() / most))
            rows.push_back(all[i]);
        const auto reference = std::make_shared<const AttentionRows>(reference_attention(inputs, rows)),
                   standard = std::make_shared<const AttentionRows>(standard_attention(inputs, rows));
        return [shape = inputs.shape, title = to_string(data.problem), reference, standard](const Data& outputs) {
            attention::Outputs typed{outputs.tensors.at("O"), {}};
            if (const auto lse = outputs.tensors.find("lse"); lse != outputs.tensors.end()) typed.lse = lse->second;
            const attention::Comparison c = compare(typed, shape, *reference, *standard);
            return Judgement{c.passed, c.error, c.worst_row, c.allowed_worst_row, c.describe(shape, title)};
        };
    }

    std::vector<std::pair<std::string, Data>> checks(DType dtype, std::uint64_t seed) const override {
        std::vector<std::pair<std::string, Data>> all;
        for (const GivenSizes& given : {GivenSizes{{"n_q", 1000}, {"per_head", 1}},
                                        {{"n_q", 1000}, {"density", 0}, {"window", 1}, {"causal", 1}},
                                        {{"n_q", 300}, {"n_k", 1500}, {"density", 0}, {"butterfly", 1}}}) {
            Problem some = problem(given, dtype);
            some = with(some, {{"heads", 2}, {"kv_heads", 2}});
            all.emplace_back(fmt::format("random, {}", title(some)), inputs(some, seed));
        }
        return all;
    }
    std::vector<TimedProblem> timed() const override {
        std::vector<TimedProblem> all;
        for (const int head_dim : {64, 128})
            for (const int causal : {0, 1}) {
                const auto add = [&](const Pattern& pattern) {
                    AttentionShape shape = square(16, 16384, head_dim, causal != 0);
                    all.push_back({"grid", problem_of(shape, pattern), ""});
                };
                for (const int density : {5, 10, 25, 50, 100}) add({.density = density});
                add({.density = 0, .window = 4});
                add({.density = 0, .butterfly = true});
            }
        return all;
    }
    std::vector<Problem> benched(const GivenSizes& given) const override {
        std::vector<Problem> all;
        for (const int density : {10, 25, 100})
            for (const int causal : {0, 1}) {
                GivenSizes sizes{
                    {"heads", 16}, {"n_q", 8192}, {"head_dim", 128}, {"density", density}, {"causal", causal}};
                for (const auto& [name, value] : given) sizes[name] = value;
                const Problem p = problem(sizes);
                if (p.at("density") < 0 || p.at("density") > 100)
                    throw std::invalid_argument(
                        fmt::format("--density is {}, but must be 0 to 100 percent", p.at("density")));
                if (std::ranges::find(all, p) == all.end()) all.push_back(p);
            }
        return all;
    }
    Problem cut_down(const Problem& problem) const override {
        Problem small = problem;
        for (const auto& [name, value] : attention::operation().cut_down(dense(problem)).sizes)
            small.sizes[name] = value;
        small = with(small, {{"n_q", std::min<std::int64_t>(problem.at("n_q"), 1024)},
                             {"n_k", std::min<std::int64_t>(problem.at("n_k"), 1024)}});  // 8 blocks of keys
        return small;
    }
    Problem part_of(const Problem& problem) const override { return with(problem, {{"batch", 1}}); }

    std::vector<CountedProblem> counted() const override {
        std::vector<CountedProblem> all;
        for (const int head_dim : {64, 128})
            for (const Pattern& pattern : {Pattern{.density = 25}, {.density = 100}, {.density = 0, .butterfly = true}})
                all.push_back({problem_of(square(1, 1024, head_dim), pattern)});
        all.push_back({problem_of(square(2, 1024, 64, true), {.density = 25, .per_head = true})});
        return all;
    }
};

}  // namespace

const Operation& operation() {
    static const BlockSparseAttention block_sparse_attention;
    return block_sparse_attention;
}

Problem problem_of(const AttentionShape& shape, const Pattern& p, bool wants_lse) {
    Problem problem = attention::problem_of(shape, wants_lse);
    problem.operation = &operation();
    problem.sizes["density"] = p.density, problem.sizes["window"] = p.window, problem.sizes["butterfly"] = p.butterfly;
    problem.sizes["per_head"] = p.per_head, problem.sizes["draw"] = p.draw;
    return problem;
}

std::pair<AttentionShape, Pattern> shape_of(const Problem& problem) {
    const auto size = [&](const char* name) { return static_cast<int>(problem.at(name)); };
    return {attention::shape_of(problem),
            {size("density"), size("window"), size("butterfly") != 0, size("per_head") != 0, size("draw")}};
}

Data make_inputs(const AttentionShape& shape, const Lists& lists, attention::Values values, std::uint64_t seed,
                 bool wants_lse) {
    if (const std::string why = why_bad(lists, shape); !why.empty()) throw std::invalid_argument(why);
    Data data = attention::data_of(attention::make_inputs(shape, values, seed), wants_lse);
    data.problem = problem_of(shape, {.per_head = lists.heads > 1, .draw = 0}, wants_lse);
    data.tensors["first"].assign(lists.first.begin(), lists.first.end());
    data.tensors["blocks"].assign(lists.blocks.begin(), lists.blocks.end());
    return data;
}

Inputs inputs_of(Data data) {
    const auto [shape, pattern] = shape_of(data.problem);
    Lists lists{.heads = pattern.per_head ? shape.heads : 1, .first = {}, .blocks = {}};
    for (const float x : data.tensors.at("first")) lists.first.push_back(static_cast<int>(x));
    for (const float x : data.tensors.at("blocks")) lists.blocks.push_back(static_cast<int>(x));
    data.problem = dense(std::move(data.problem));
    return {attention::inputs_of(std::move(data)), std::move(lists)};
}

}  // namespace flashladder::block_sparse_attention
