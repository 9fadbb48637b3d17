#include "operations/varlen_attention/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "operations/attention/operation.h"

namespace flashladder::varlen_attention {
namespace {

using attention::AttentionRows;

bool is_drawn(const Problem& problem) { return problem.at("draw") != 0; }
Lengths lengths_of(const Problem& p) {
    const auto size = [&](const char* name) { return static_cast<int>(p.at(name)); };
    return {size("batch"), size("n_q"), size("n_k"), size("others")};
}
Sequences drawn_sequences(const Problem& problem) {
    return draw_sequences(lengths_of(problem), static_cast<std::uint64_t>(problem.at("draw")));
}
Shape heads_of(int heads, int head_dim, bool causal, int value_dim = 0) {
    return {{.heads = heads, .kv_heads = heads, .head_dim = head_dim, .causal = causal}, value_dim};
}

class VarlenAttention : public Operation {
public:
    std::string name() const override { return "varlen_attention"; }

    std::vector<Size> sizes() const override {
        std::vector<Size> all = attention::operation().sizes();
        for (Size& size : all) {
            if (size.name == "batch") size.meaning = "B, sequences", size.value = 8;
            if (size.name == "n_q") size.meaning = "N, the most queries of a sequence", size.value = 512;
            if (size.name == "n_k") size.meaning = "the most keys of a sequence, if they are other ones than queries";
        }
        all.push_back({.name = "others",
                       .option = "others",
                       .meaning = "the most rows of each sequence but the first, which then has N; 0: any has up to N",
                       .value = 0});
        all.push_back({.name = "draw", .option = "draw", .meaning = "the seed of lengths"});
        all.push_back({.name = "total_q",
                       .option = "total-q",
                       .meaning = "queries of all sequences, of somebody's own ones; 0: as they are drawn",
                       .value = 0});
        all.push_back({.name = "total_k", .option = "total-k", .meaning = "the same of keys", .value = 0});
        all.push_back({.name = "value_dim",
                       .option = "value-dim",
                       .meaning = "columns of V and O; 0: as many as Q and K have",
                       .value = 0});
        return all;
    }

    std::string title(const Problem& problem) const override {
        const Shape s = shape_of(problem);
        const std::int64_t draw = problem.at("draw"), others = problem.at("others");
        std::string heads = std::to_string(s.heads);
        if (s.kv_heads != s.heads) heads += fmt::format("/{}", s.kv_heads);
        const auto by = [](std::int64_t n_q, std::int64_t n_k) {
            return n_q == n_k ? std::to_string(n_q) : fmt::format("{}x{}", n_q, n_k);
        };
        const std::string lengths =
            !is_drawn(problem) ? "given sequences"
            : others > 0 ? fmt::format("one of {}, others up to {}", by(problem.at("n_q"), problem.at("n_k")), others)
                         : "up to " + by(problem.at("n_q"), problem.at("n_k"));
        const std::string d = s.columns_of_V() == s.head_dim ? std::to_string(s.head_dim)
                                                             : fmt::format("{}/{}", s.head_dim, s.value_dim);
        return fmt::format("B {} H {} rows {} d {}{}, {}{}", problem.at("batch"), heads, by(s.n_q, s.n_k), d,
                           s.causal ? " causal" : "", lengths, draw <= 1 ? "" : fmt::format(" (draw {})", draw));
    }

    std::vector<Tensor> all_tensors(const Problem& p) const override {
        const Shape s = shape_of(p);
        const std::int64_t d = s.head_dim, d_v = s.columns_of_V(), places = p.at("batch") + 1;
        return {{"Q", {s.n_q, s.heads, d}, p.dtype},
                {"K", {s.n_k, s.kv_heads, d}, p.dtype},
                {"V", {s.n_k, s.kv_heads, d_v}, p.dtype},
                {"cu_seqlens_q", {places}, DType::i32},
                {"cu_seqlens_k", {places}, DType::i32},
                {"O", {s.n_q, s.heads, d_v}, p.dtype, true},
                {"lse", {s.heads, s.n_q}, DType::f32, true, true}};
    }

    double flops(const Problem& problem) const override {
        const Shape s = shape_of(problem);
        return 2 * units(problem) * (s.head_dim + s.columns_of_V());
    }
    double units(const Problem& problem) const override {
        if (is_drawn(problem)) return scores(shape_of(problem), drawn_sequences(problem));
        // Nobody knows who has them: as if all had as many.
        const Shape s = shape_of(problem);
        return double(s.heads) * s.n_q * s.n_k / double(problem.at("batch"));
    }
    const char* unit() const override { return "score"; }

    Data inputs(const Problem& problem, std::uint64_t seed) const override {
        if (!is_drawn(problem)) throw std::invalid_argument("draw is 0, but whose lengths, nobody has said");
        Data data = make_inputs(shape_of(problem), drawn_sequences(problem), attention::Values::normal, seed,
                                problem.extras.contains("lse"));
        return data.problem = problem, data;
    }

    Reference reference(const Data& data, std::uint64_t seed, std::size_t most) const override {
        const auto inputs = std::make_shared<const Inputs>(inputs_of(data));
        const std::vector<std::size_t> all = rows_to_check(*inputs, seed);
        std::vector<std::size_t> rows;
        for (std::size_t i = 0; i < all.size(); i += std::max<std::size_t>(1, all.size() / most))
            rows.push_back(all[i]);
        const auto reference = std::make_shared<const AttentionRows>(reference_attention(*inputs, rows)),
                   standard = std::make_shared<const AttentionRows>(standard_attention(*inputs, rows));
        return [inputs, title = to_string(data.problem), reference, standard](const Data& outputs) {
            attention::Outputs typed{outputs.tensors.at("O"), {}};
            if (const auto lse = outputs.tensors.find("lse"); lse != outputs.tensors.end()) typed.lse = lse->second;
            const attention::Comparison c = compare(std::move(typed), *inputs, *reference, *standard);
            const auto place = [&](std::size_t row) { return place_of_row(inputs->sequences, row); };
            return Judgement{c.passed, c.error, c.worst_row, c.allowed_worst_row, c.describe(title, place)};
        };
    }

    std::vector<std::pair<std::string, Data>> checks(DType dtype, std::uint64_t seed) const override {
        std::vector<std::pair<std::string, Data>> all;
        for (const GivenSizes& given : {GivenSizes{{"batch", 40}, {"n_q", 150}, {"causal", 1}},
                                        {{"batch", 30}, {"n_q", 500}, {"n_k", 600}, {"others", 40}},
                                        {{"batch", 12}, {"n_q", 200}, {"n_k", 400}, {"causal", 1}}}) {
            const Problem some = with(problem(given, dtype), {{"heads", 6}, {"kv_heads", 2}});
            all.emplace_back(fmt::format("random, {}", title(some)), inputs(some, seed));
        }
        return all;
    }
    std::vector<TimedProblem> timed() const override {
        std::vector<TimedProblem> all;
        for (const auto& [head_dim, value_dim] : {std::pair(64, 0), {80, 0}, {128, 0}, {192, 128}, {256, 0}})
            for (const bool causal : {false, true})
                for (const Lengths& lengths : usual_lengths())
                    all.push_back({"sequences", problem_of(heads_of(16, head_dim, causal, value_dim), lengths), ""});
        return all;
    }
    std::vector<Problem> benched(const GivenSizes& given) const override {
        for (const Size& size : sizes())
            if (const auto said = given.find(size.name);
                said != given.end() && !size.is_flag && size.name != "others" && said->second < 1)
                throw std::invalid_argument(
                    fmt::format("--{} is {}, but must be at least 1", size.option, said->second));
        for (const char* total : {"total_q", "total_k"})
            if (given.contains(total)) throw std::invalid_argument("totals are those of the sequences that are drawn");
        std::vector<Problem> all;
        for (const int head_dim : {64, 128})
            for (const int causal : {0, 1})
                for (const Lengths& lengths : usual_lengths()) {
                    GivenSizes sizes = problem_of(heads_of(16, head_dim, causal != 0), lengths).sizes;
                    if (given.contains("heads")) sizes.erase("kv_heads");
                    if (given.contains("n_q")) sizes.erase("n_k");
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
        const auto at_most = [&](const char* name, std::int64_t most) { return std::min(problem.at(name), most); };
        return with(problem, {{"batch", at_most("batch", 8)},
                              {"kv_heads", kv_heads},
                              {"heads", problem.at("heads") / problem.at("kv_heads") * kv_heads},
                              {"n_k", at_most("n_k", 512)},
                              {"n_q", at_most("n_q", 512)}});
    }

    std::vector<CountedProblem> counted() const override {
        std::vector<CountedProblem> all;
        for (const int head_dim : {64, 128})
            for (const bool causal : {false, true})
                for (const Lengths& lengths : {Lengths{.sequences = 4, .n_q = 512, .n_k = 512},
                                               {.sequences = 12, .n_q = 900, .n_k = 900, .others = 80}})
                    all.push_back({problem_of(heads_of(2, head_dim, causal), lengths)});
        for (const auto& [head_dim, value_dim] : {std::pair(80, 0), {192, 128}})
            all.push_back({problem_of(heads_of(2, head_dim, false, value_dim), {.sequences = 4, .n_q = 512, .n_k = 512})});
        return all;
    }

private:
    /// Some that are much alike; many that are short; a long one among short ones.
    static std::vector<Lengths> usual_lengths() {
        return {{.sequences = 8, .n_q = 2048, .n_k = 2048},
                {.sequences = 32, .n_q = 512, .n_k = 512},
                {.sequences = 64, .n_q = 16384, .n_k = 16384, .others = 256}};
    }
};

Problem problem_with(const Shape& s, const Lengths& lengths, bool wants_lse) {
    Problem problem{&operation(),
                    {{"batch", lengths.sequences},
                     {"heads", s.heads},
                     {"kv_heads", s.kv_heads},
                     {"n_q", lengths.n_q},
                     {"n_k", lengths.n_k},
                     {"head_dim", s.head_dim},
                     {"causal", s.causal},
                     {"others", lengths.others},
                     {"draw", 0},
                     {"total_q", 0},
                     {"total_k", 0},
                     {"value_dim", s.value_dim}},
                    s.dtype};
    if (wants_lse) problem.extras.insert("lse");
    return problem;
}

}  // namespace

const Operation& operation() {
    static const VarlenAttention varlen_attention;
    return varlen_attention;
}

Problem problem_of(const Shape& shape, const Lengths& lengths, int draw, bool wants_lse) {
    return Operation::with(problem_with(shape, lengths, wants_lse), {{"draw", draw}});
}
Problem problem_of(const Shape& shape, const Sequences& sequences, bool wants_lse) {
    Lengths longest{.sequences = sequences.count(), .n_q = 0, .n_k = 0};
    for (int b = 0; b < sequences.count(); ++b) {
        longest.n_q = std::max(longest.n_q, sequences.n_q(b));
        longest.n_k = std::max(longest.n_k, sequences.n_k(b));
    }
    return Operation::with(problem_with(shape, longest, wants_lse),
                           {{"total_q", sequences.total_q()}, {"total_k", sequences.total_k()}});
}
Shape shape_of(const Problem& p) {
    const auto size = [&](const char* name) { return static_cast<int>(p.at(name)); };
    Shape s({.batch = 1,
             .heads = size("heads"),
             .kv_heads = size("kv_heads"),
             .n_q = size("total_q"),
             .n_k = size("total_k"),
             .head_dim = size("head_dim"),
             .causal = p.at("causal") != 0,
             .dtype = p.dtype},
            size("value_dim"));
    if (is_drawn(p)) {
        const Sequences drawn = drawn_sequences(p);
        s.n_q = drawn.total_q(), s.n_k = drawn.total_k();
    }
    return s;
}

Data make_inputs(const Shape& shape, const Sequences& sequences, attention::Values values, std::uint64_t seed,
                 bool wants_lse) {
    Data data{problem_of(shape, sequences, wants_lse), {}, {}};
    /// From (heads, rows, d), behind what is there.
    const auto append = [](std::vector<float>& to, const std::vector<float>& from, int heads, int rows, int d) {
        for (int i = 0; i < rows; ++i)
            for (int head = 0; head < heads; ++head) {
                const auto row = from.begin() + static_cast<std::ptrdiff_t>(head * rows + i) * d;
                to.insert(to.end(), row, row + d);
            }
    };
    for (const char* name : {"Q", "K", "V"}) data.tensors[name] = {};
    for (int b = 0; b < sequences.count(); ++b) {
        Shape s = shape;
        s.n_q = sequences.n_q(b), s.n_k = sequences.n_k(b);
        constexpr std::uint64_t apart = 0x9E3779B97F4A7C15;  // seeds of sequences
        const attention::Inputs in = attention::make_inputs(s, values, seed + apart * static_cast<std::uint64_t>(b), s.value_dim);
        append(data.tensors["Q"], in.Q, s.heads, s.n_q, s.head_dim);
        append(data.tensors["K"], in.K, s.kv_heads, s.n_k, s.head_dim);
        append(data.tensors["V"], in.V, s.kv_heads, s.n_k, s.columns_of_V());
        data.arguments["scale"] = in.scale;
    }
    data.tensors["cu_seqlens_q"].assign(sequences.cu_seqlens_q.begin(), sequences.cu_seqlens_q.end());
    data.tensors["cu_seqlens_k"].assign(sequences.cu_seqlens_k.begin(), sequences.cu_seqlens_k.end());
    return data;
}

Inputs inputs_of(const Data& data) {
    const auto places = [&](const char* name) {
        std::vector<int> all;
        for (const float x : data.tensors.at(name)) all.push_back(static_cast<int>(x));
        return all;
    };
    return {{shape_of(data.problem), data.tensors.at("Q"), data.tensors.at("K"), data.tensors.at("V"),
             static_cast<float>(data.arguments.at("scale")), shape_of(data.problem).value_dim},
            {places("cu_seqlens_q"), places("cu_seqlens_k")}};
}

std::vector<std::size_t> rows_to_check(const Inputs& in, std::uint64_t seed) {
    if (in.shape.n_q == 0) return {};
    std::vector<std::size_t> rows = attention::rows_to_check(in.shape, seed);
    for (int head = 0; head < in.shape.heads; ++head)
        for (int b = 0; b < in.sequences.count(); ++b) {
            if (in.sequences.n_q(b) == 0) continue;
            const std::size_t first = static_cast<std::size_t>(head) * static_cast<std::size_t>(in.shape.n_q);
            rows.push_back(first + static_cast<std::size_t>(in.sequences.first_q(b)));
            rows.push_back(first + static_cast<std::size_t>(in.sequences.first_q(b + 1)) - 1);
        }
    std::ranges::sort(rows);
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    return rows;
}

attention::Comparison compare(attention::Outputs outputs, const Inputs& in, const AttentionRows& reference,
                              const AttentionRows& yardstick, attention::Judge judge) {
    const std::size_t d = static_cast<std::size_t>(in.columns_of_V());
    std::vector<float> by_heads(outputs.O.size());
    for (std::size_t row = 0; row < by_heads.size() / d; ++row)
        std::copy_n(outputs.O.begin() + static_cast<std::ptrdiff_t>(place_in_O({in.shape, in.value_dim}, row, 0)), d,
                    by_heads.begin() + static_cast<std::ptrdiff_t>(row * d));
    outputs.O = std::move(by_heads);
    return attention::compare(outputs, in.shape, reference, yardstick, judge);
}

}  // namespace flashladder::varlen_attention
