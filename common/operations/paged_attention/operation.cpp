#include "operations/paged_attention/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <stdexcept>

#include "operations/attention/comparison.h"
#include "operations/attention/operation.h"

namespace flashladder::paged_attention {
namespace {

using attention::AttentionRows;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// As attention has it, which has fewer sizes.
Problem in_one_piece(Problem problem) {
    problem.operation = &attention::operation();
    for (const char* size : {"page_size", "pages", "ragged", "draw"}) problem.sizes.erase(size);
    return problem;
}
bool is_ragged(const Problem& problem) { return problem.at("ragged") != 0; }
Sequences sequences_of(const Problem& problem) {
    return draw_sequences(shape_of(problem), pool_of(problem), is_ragged(problem),
                          static_cast<std::uint64_t>(problem.at("draw")));
}
AttentionShape step_of_decoding(int batch, int heads, int kv_heads, int n_k, int head_dim) {
    return {.batch = batch, .heads = heads, .kv_heads = kv_heads, .n_k = n_k, .head_dim = head_dim};
}

class PagedAttention : public Operation {
public:
    std::string name() const override { return "paged_attention"; }

    std::vector<Size> sizes() const override {
        std::vector<Size> all = attention::operation().sizes();
        for (Size& size : all) {
            if (size.name == "batch") size.meaning = "B, sequences";
            if (size.name == "n_q") size.meaning = "N, the number of queries of each sequence", size.value = 1;
            if (size.name == "n_k") size.meaning = "the most keys of a sequence", size.value = 2048, size.same_as = "";
        }
        all.push_back({.name = "page_size", .option = "page-size", .meaning = "keys of a page", .value = 64});
        all.push_back({.name = "pages",
                       .option = "pages",
                       .meaning = "pages in the pool; 0: one more than sequences can need",
                       .value = 0});
        all.push_back({.name = "ragged",
                       .option = "ragged",
                       .meaning = "sequences have lengths that are drawn, from 0 on",
                       .value = 0,
                       .is_flag = true});
        all.push_back({.name = "draw", .option = "draw", .meaning = "the seed of tables and lengths"});
        return all;
    }

    std::string title(const Problem& problem) const override {
        const std::int64_t draw = problem.at("draw");
        return fmt::format("{}, pages of {}{}{}", attention::operation().title(in_one_piece(problem)),
                           problem.at("page_size"),
                           draw == 0            ? ", given sequences"
                           : is_ragged(problem) ? ", lengths drawn"
                                                : "",
                           draw <= 1 ? "" : fmt::format(" (draw {})", draw));
    }

    std::vector<Tensor> all_tensors(const Problem& p) const override {
        const Pool pool = pool_of(p);
        std::vector<Tensor> all = attention::operation().all_tensors(in_one_piece(p));
        for (Tensor& tensor : all)
            if (tensor.name == "K" || tensor.name == "V")
                tensor.extents = {pool.pages, p.at("kv_heads"), pool.page_size, p.at("head_dim")};
        all.insert(all.begin() + 3, {{"block_table", {p.at("batch"), pool.pages_of_sequence}, DType::i32},
                                     {"lengths", {p.at("batch")}, DType::i32}});
        return all;
    }

    double flops(const Problem& problem) const override { return 4 * units(problem) * double(problem.at("head_dim")); }
    double units(const Problem& problem) const override {
        const AttentionShape shape = shape_of(problem);
        return scores(shape, draw_lengths(shape, is_ragged(problem), static_cast<std::uint64_t>(problem.at("draw"))));
    }
    const char* unit() const override { return "score"; }

    Data inputs(const Problem& problem, std::uint64_t seed) const override {
        Data data = make_inputs(shape_of(problem), pool_of(problem), sequences_of(problem), attention::Values::normal,
                                seed, problem.extras.contains("lse"));
        return data.problem = problem, data;
    }

    Reference reference(const Data& data, std::uint64_t seed, std::size_t most) const override {
        const Inputs inputs = inputs_of(data);
        const std::vector<std::size_t> all = attention::rows_to_check(inputs.shape, seed);
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
        for (const GivenSizes& given : {GivenSizes{{"batch", 40}, {"n_k", 900}, {"page_size", 16}, {"ragged", 1}},
                                        {{"batch", 12}, {"n_q", 7}, {"n_k", 600}, {"page_size", 128}, {"causal", 1}},
                                        {{"batch", 20}, {"n_q", 2}, {"n_k", 700}, {"page_size", 256}, {"ragged", 1}}}) {
            const Problem some = with(problem(given, dtype), {{"heads", 6}, {"kv_heads", 2}});
            all.emplace_back(fmt::format("random, {}", title(some)), inputs(some, seed));
        }
        return all;
    }
    std::vector<TimedProblem> timed() const override {
        std::vector<TimedProblem> all;
        for (const int head_dim : {64, 128}) {
            const AttentionShape one = step_of_decoding(1, 32, 8, 65536, head_dim),
                                 many = step_of_decoding(16, 32, 8, 8192, head_dim);
            for (const int page_size : {16, 64, 256})
                for (const AttentionShape& s : {one, many})
                    all.push_back({"pages", problem_of(s, {.page_size = page_size, .pages = 0}, false), ""});
            all.push_back({"pages", problem_of(many, {.page_size = 64, .pages = 0}, true), ""});
        }
        return all;
    }
    std::vector<Problem> benched(const GivenSizes& given) const override {
        for (const Size& size : sizes())
            if (const auto said = given.find(size.name);
                said != given.end() && !size.is_flag && size.name != "pages" && said->second < 1)
                throw std::invalid_argument(
                    fmt::format("--{} is {}, but must be at least 1", size.option, said->second));
        std::vector<Problem> all;
        for (const int page_size : {16, 64, 256})
            for (const int ragged : {0, 1}) {
                GivenSizes sizes{{"batch", 16},     {"heads", 32},     {"kv_heads", 8},
                                 {"n_k", 8192},     {"head_dim", 128}, {"page_size", page_size},
                                 {"ragged", ragged}};
                if (given.contains("heads")) sizes.erase("kv_heads");
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
        return with(problem, {{"batch", std::min<std::int64_t>(problem.at("batch"), 3)},
                              {"kv_heads", kv_heads},
                              {"heads", problem.at("heads") / problem.at("kv_heads") * kv_heads},
                              {"n_k", std::min<std::int64_t>(problem.at("n_k"), 1024)},
                              {"n_q", std::min<std::int64_t>(problem.at("n_q"), 256)},
                              {"pages", 0}});
    }

    std::vector<CountedProblem> counted() const override {
        std::vector<CountedProblem> all;
        for (const int head_dim : {64, 128})
            for (const int page_size : {16, 64, 256})
                all.push_back({problem_of(step_of_decoding(2, 16, 2, 2048, head_dim),
                                          {.page_size = page_size, .pages = 0}, page_size == 64)});
        return all;
    }
};

}  // namespace

const Operation& operation() {
    static const PagedAttention paged_attention;
    return paged_attention;
}

Problem problem_of(const AttentionShape& shape, const Pool& pool, bool ragged, int draw, bool wants_lse) {
    Problem problem = attention::problem_of(shape, wants_lse);
    problem.operation = &operation();
    problem.sizes["page_size"] = pool.page_size, problem.sizes["pages"] = pool.pages;
    problem.sizes["ragged"] = ragged, problem.sizes["draw"] = draw;
    return problem;
}
AttentionShape shape_of(const Problem& problem) { return attention::shape_of(problem); }
Pool pool_of(const Problem& problem) {
    const int page_size = static_cast<int>(problem.at("page_size")), pages = static_cast<int>(problem.at("pages"));
    const int of_sequence = pages_of(static_cast<int>(problem.at("n_k")), page_size);
    return {page_size, pages == 0 ? static_cast<int>(problem.at("batch")) * of_sequence + 1 : pages, of_sequence};
}

Data make_inputs(const AttentionShape& shape, const Pool& pool, const Sequences& sequences, attention::Values values,
                 std::uint64_t seed, bool wants_lse) {
    attention::Inputs in = attention::make_inputs(shape, values, seed);
    const std::size_t d = static_cast<std::size_t>(shape.head_dim), rows = static_cast<std::size_t>(pool.pages) *
                                                                           static_cast<std::size_t>(shape.kv_heads) *
                                                                           static_cast<std::size_t>(pool.page_size);
    for (std::vector<float>* tensor : {&in.K, &in.V}) {
        std::vector<float> paged(rows * d, nan);
        for (int b = 0; b < shape.batch; ++b)
            for (int head = 0; head < shape.kv_heads; ++head)
                for (int j = 0; j < sequences.lengths[static_cast<std::size_t>(b)]; ++j) {
                    const int page =
                        sequences
                            .block_table[static_cast<std::size_t>(b * pool.pages_of_sequence + j / pool.page_size)];
                    const std::ptrdiff_t from =
                        (static_cast<std::ptrdiff_t>(b) * shape.kv_heads + head) * shape.n_k + j;
                    const std::ptrdiff_t to =
                        (static_cast<std::ptrdiff_t>(page) * shape.kv_heads + head) * pool.page_size +
                        j % pool.page_size;
                    std::copy_n(tensor->begin() + from * shape.head_dim, d, paged.begin() + to * shape.head_dim);
                }
        *tensor = std::move(paged);
    }
    Data data = attention::data_of(std::move(in), wants_lse);
    data.problem = problem_of(shape, pool, true, 0, wants_lse);
    data.tensors["block_table"].assign(sequences.block_table.begin(), sequences.block_table.end());
    data.tensors["lengths"].assign(sequences.lengths.begin(), sequences.lengths.end());
    return data;
}

Inputs inputs_of(Data data) {
    const auto numbers = [&](const char* name) {
        std::vector<int> all;
        for (const float x : data.tensors.at(name)) all.push_back(static_cast<int>(x));
        return all;
    };
    const Pool pool = pool_of(data.problem);
    Sequences sequences{numbers("block_table"), numbers("lengths")};
    data.problem = in_one_piece(std::move(data.problem));
    return {attention::inputs_of(std::move(data)), pool, std::move(sequences)};
}

}  // namespace flashladder::paged_attention
