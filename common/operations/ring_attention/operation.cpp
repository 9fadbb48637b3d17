#include "operations/ring_attention/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "operations/attention/comparison.h"
#include "operations/attention/operation.h"

namespace flashladder::ring_attention {
namespace {

using attention::AttentionRows;

/// As attention has it.
Problem in_one_piece(Problem problem) {
    problem.operation = &attention::operation();
    problem.sizes.erase("ranks");
    problem.sizes["n_k"] = problem.sizes.at("n_q");
    return problem;
}

/// Calls f(row of the whole, row of the shards) for all of so many heads.
template <class F>
void for_rows(const AttentionShape& s, int heads, int ranks, F f) {
    const int n = s.n_q / ranks;
    std::size_t row = 0;
    for (int g = 0; g < ranks; ++g)
        for (int b = 0; b < s.batch; ++b)
            for (int head = 0; head < heads; ++head)
                for (int i = 0; i < n; ++i) {
                    const std::size_t of_head = static_cast<std::size_t>(b) * static_cast<std::size_t>(heads) +
                                                static_cast<std::size_t>(head);
                    f(of_head * static_cast<std::size_t>(s.n_q) +
                          static_cast<std::size_t>(position_of(i, g, ranks, n, s.causal)),
                      row++);
                }
}
/// Numbers of a row, of so many numbers.
std::ptrdiff_t width_of(const std::vector<float>& tensor, const AttentionShape& s, int heads) {
    return static_cast<std::ptrdiff_t>(tensor.size()) /
           (static_cast<std::ptrdiff_t>(s.batch) * heads * static_cast<std::ptrdiff_t>(s.n_q));
}

/// "query 70 is row 6 of rank 1"
std::string place_of(std::size_t row, const AttentionShape& s, int ranks) {
    const int query = static_cast<int>(row % static_cast<std::size_t>(s.n_q)), n = s.n_q / ranks;
    for (int g = 0; g < ranks; ++g)
        for (int i = 0; i < n; ++i)
            if (position_of(i, g, ranks, n, s.causal) == query)
                return fmt::format("query {} is row {} of rank {}'s {}", query, i, g, n);
    return "";
}

class RingAttention : public Operation {
public:
    std::string name() const override { return "ring_attention"; }

    std::vector<Size> sizes() const override {
        std::vector<Size> all = attention::operation().sizes();
        std::erase_if(all, [](const Size& size) { return size.name == "n_k"; });
        for (Size& size : all)
            if (size.name == "n_q") size.meaning = "N, the length of the whole sequence", size.value = 1024;
        all.push_back({.name = "ranks", .option = "ranks", .meaning = "G, between which it is spread", .value = 2});
        return all;
    }

    std::string title(const Problem& problem) const override {
        return fmt::format("{} on {} rank{}", attention::operation().title(in_one_piece(problem)), problem.at("ranks"),
                           problem.at("ranks") == 1 ? "" : "s");
    }

    std::vector<Tensor> all_tensors(const Problem& p) const override {
        std::vector<Tensor> all = attention::operation().all_tensors(in_one_piece(p));
        const std::int64_t ranks = std::max<std::int64_t>(p.at("ranks"), 1);
        for (Tensor& tensor : all) {
            tensor.extents[2] /= ranks;
            tensor.extents.insert(tensor.extents.begin(), ranks);
        }
        return all;
    }

    double flops(const Problem& problem) const override { return shape_of(problem).flops(); }
    double units(const Problem& problem) const override { return flops(problem) / (4.0 * double(problem.at("head_dim"))); }
    const char* unit() const override { return "score"; }

    Data inputs(const Problem& problem, std::uint64_t seed) const override {
        return data_of(attention::make_inputs(shape_of(problem), attention::Values::normal, seed), ranks_of(problem),
                       problem.extras.contains("lse"));
    }

    Reference reference(const Data& data, std::uint64_t seed, std::size_t most) const override {
        const attention::Inputs inputs = inputs_of(data);
        const std::vector<std::size_t> all = attention::rows_to_check(inputs.shape, seed);
        std::vector<std::size_t> rows;
        for (std::size_t i = 0; i < all.size(); i += std::max<std::size_t>(1, all.size() / most))
            rows.push_back(all[i]);
        const auto reference = std::make_shared<const AttentionRows>(reference_attention(inputs, rows)),
                   standard = std::make_shared<const AttentionRows>(standard_attention(inputs, rows));
        return [shape = inputs.shape, ranks = ranks_of(data.problem), title = to_string(data.problem), reference,
                standard](const Data& outputs) {
            attention::Outputs typed{from_shards(outputs.tensors.at("O"), shape, shape.heads, ranks), {}};
            if (const auto lse = outputs.tensors.find("lse"); lse != outputs.tensors.end())
                typed.lse = from_shards(lse->second, shape, shape.heads, ranks);
            const attention::Comparison c = compare(typed, shape, *reference, *standard);
            return Judgement{c.passed, c.error, c.worst_row, c.allowed_worst_row,
                             fmt::format("{}; {}", c.describe(shape, title), place_of(c.worst_row_index, shape, ranks))};
        };
    }

    std::vector<std::pair<std::string, Data>> checks(DType dtype, std::uint64_t seed) const override {
        std::vector<std::pair<std::string, Data>> all;
        for (const GivenSizes& given : {GivenSizes{{"ranks", 3}, {"n_q", 726}, {"causal", 1}},
                                        {{"ranks", 2}, {"n_q", 500}, {"batch", 2}},
                                        {{"ranks", 8}, {"n_q", 1040}, {"causal", 1}}}) {
            const Problem some = with(problem(given, dtype), {{"heads", 4}, {"kv_heads", 2}});
            all.emplace_back(fmt::format("random, {}", title(some)), inputs(some, seed));
        }
        return all;
    }
    std::vector<TimedProblem> timed() const override {
        std::vector<TimedProblem> all;
        for (const int ranks : {1, 2, 4, 8})
            for (const bool causal : {false, true}) all.push_back({"ring", problem_of(long_sequence(causal), ranks), ""});
        return all;
    }
    std::vector<Problem> benched(const GivenSizes& given) const override {
        for (const Size& size : sizes())
            if (const auto said = given.find(size.name);
                said != given.end() && !size.is_flag && said->second < 1)
                throw std::invalid_argument(
                    fmt::format("--{} is {}, but must be at least 1", size.option, said->second));
        std::vector<Problem> all;
        for (const int ranks : {1, 2, 4})
            for (const int causal : {0, 1}) {
                GivenSizes sizes{{"heads", 16}, {"n_q", 16384}, {"head_dim", 128}, {"causal", causal}, {"ranks", ranks}};
                for (const auto& [name, value] : given) sizes[name] = value;
                const Problem p = problem(sizes);
                if (p.at("heads") % p.at("kv_heads") != 0)
                    throw std::invalid_argument(
                        fmt::format("heads {} is not a multiple of kv-heads {}", p.at("heads"), p.at("kv_heads")));
                if (std::ranges::find(all, p) == all.end()) all.push_back(p);
            }
        return all;
    }
    Problem cut_down(const Problem& problem) const override {
        const std::int64_t kv_heads = std::min<std::int64_t>(problem.at("kv_heads"), 2);
        const std::int64_t multiple = chunks(ranks_of(problem), true);
        return with(problem, {{"batch", std::min<std::int64_t>(problem.at("batch"), 2)},
                              {"kv_heads", kv_heads},
                              {"heads", problem.at("heads") / problem.at("kv_heads") * kv_heads},
                              {"n_q", std::min(problem.at("n_q"), std::max<std::int64_t>(1, 512 / multiple) * multiple)}});
    }

    std::vector<CountedProblem> counted() const override {
        std::vector<CountedProblem> all;
        for (const int head_dim : {64, 128})
            for (const int ranks : {1, 2, 4})
                for (const bool causal : {false, true}) {
                    AttentionShape s{.heads = 2, .kv_heads = 1, .n_q = 1024, .n_k = 1024, .head_dim = head_dim};
                    s.causal = causal;
                    all.push_back({problem_of(s, ranks)});
                }
        return all;
    }

private:
    static AttentionShape long_sequence(bool causal) {
        return {.heads = 16, .kv_heads = 16, .n_q = 65536, .n_k = 65536, .head_dim = 128, .causal = causal};
    }
};

}  // namespace

const Operation& operation() {
    static const RingAttention ring_attention;
    return ring_attention;
}

Problem problem_of(const AttentionShape& shape, int ranks, bool wants_lse) {
    Problem problem = attention::problem_of(shape, wants_lse);
    problem.operation = &operation();
    problem.sizes.erase("n_k");
    problem.sizes["ranks"] = ranks;
    return problem;
}
AttentionShape shape_of(const Problem& problem) { return attention::shape_of(in_one_piece(problem)); }
int ranks_of(const Problem& problem) { return static_cast<int>(problem.at("ranks")); }

std::vector<float> to_shards(const std::vector<float>& whole, const AttentionShape& s, int heads, int ranks) {
    const std::ptrdiff_t d = width_of(whole, s, heads);
    std::vector<float> shards(whole.size());
    for_rows(s, heads, ranks, [&](std::size_t row, std::size_t of_shards) {
        std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(row) * d, d,
                    shards.begin() + static_cast<std::ptrdiff_t>(of_shards) * d);
    });
    return shards;
}
std::vector<float> from_shards(const std::vector<float>& shards, const AttentionShape& s, int heads, int ranks) {
    const std::ptrdiff_t d = width_of(shards, s, heads);
    std::vector<float> whole(shards.size());
    for_rows(s, heads, ranks, [&](std::size_t row, std::size_t of_shards) {
        std::copy_n(shards.begin() + static_cast<std::ptrdiff_t>(of_shards) * d, d,
                    whole.begin() + static_cast<std::ptrdiff_t>(row) * d);
    });
    return whole;
}

Data data_of(const attention::Inputs& in, int ranks, bool wants_lse) {
    const AttentionShape& s = in.shape;
    return {problem_of(s, ranks, wants_lse),
            {{"Q", to_shards(in.Q, s, s.heads, ranks)},
             {"K", to_shards(in.K, s, s.kv_heads, ranks)},
             {"V", to_shards(in.V, s, s.kv_heads, ranks)}},
            {{"scale", in.scale}}};
}
attention::Inputs inputs_of(const Data& data) {
    const AttentionShape s = shape_of(data.problem);
    const int ranks = ranks_of(data.problem);
    return {s, from_shards(data.tensors.at("Q"), s, s.heads, ranks),
            from_shards(data.tensors.at("K"), s, s.kv_heads, ranks),
            from_shards(data.tensors.at("V"), s, s.kv_heads, ranks), static_cast<float>(data.arguments.at("scale"))};
}

double sent_bytes(const AttentionShape& s, int ranks) {
    return 2.0 * double(s.kv_elements()) * double(bytes_per_element(s.dtype)) * (ranks - 1);
}

}  // namespace flashladder::ring_attention
