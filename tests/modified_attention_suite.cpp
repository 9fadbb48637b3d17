// The checks that every kernel of attention with modified scores passes, whatever its idea: it computes what
// operations/modified_attention/problem.h says, for every shape it accepts, and it refuses the others in words.
#include "modified_attention_suite.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "harness/dtype.h"
#include "harness/run.h"
#include "launch.h"
#include "operations/attention/comparison.h"

namespace flashladder::modified_attention {
namespace {

using attention::Values;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> row(const std::vector<float>& tensor, std::size_t number, int head_dim) {
    const auto first = tensor.begin() + static_cast<std::ptrdiff_t>(number) * head_dim;
    return {first, first + head_dim};
}

// ---- which keys a query sees, and what their scores are

/// The keys that a query sees: first to last; none if last < first.
struct Seen {
    int first, last;
    bool operator()(int key) const { return first <= key && key <= last; }
    std::string text() const { return last < first ? "no key" : fmt::format("keys {} to {}", first, last); }
};
Seen seen_by(const Shape& s, int query) {
    const int own = query + s.n_k - s.n_q;
    return {std::max(0, own - std::min(s.window, s.n_k) + 1), own};
}

/// Another way to score, and what somebody has done who comes to it.
struct Way {
    const char* as_if;
    std::function<double(double dot, double scale, double cap, double slope, int distance)> score;
};
double capped(double s, double cap) { return cap > 0 ? cap * std::tanh(s / cap) : s; }
const Way right = {
    "", [](double dot, double scale, double cap, double slope, int n) { return capped(scale * dot, cap) - slope * n; }};
const Way wrong_ways[] = {
    {"there were no soft cap",
     [](double dot, double scale, double, double slope, int n) { return scale * dot - slope * n; }},
    {"0 were a soft cap, and not none",  // s / 0 is infinite, and 0 tanh(s / 0) is 0
     [](double dot, double scale, double cap, double slope, int n) {
         return (cap > 0 ? capped(scale * dot, cap) : 0) - slope * n;
     }},
    {"there were no ALiBi", [](double dot, double scale, double cap, double, int) { return capped(scale * dot, cap); }},
    {"nothing were done to the scores", [](double dot, double scale, double, double, int) { return scale * dot; }},
    {"the soft cap came before the scale",
     [](double dot, double scale, double cap, double slope, int n) { return scale * capped(dot, cap) - slope * n; }},
    {"scores were scaled twice", [](double dot, double scale, double cap, double slope,
                                    int n) { return capped(scale * scale * dot, cap) - slope * n; }},
    {"scores were not scaled",
     [](double dot, double, double cap, double slope, int n) { return capped(dot, cap) - slope * n; }},
    {"the soft cap came behind ALiBi",
     [](double dot, double scale, double cap, double slope, int n) { return capped(scale * dot - slope * n, cap); }},
    {"what tanh returns were not multiplied by the cap",
     [](double dot, double scale, double cap, double slope, int n) {
         return (cap > 0 ? std::tanh(scale * dot / cap) : scale * dot) - slope * n;
     }},
    {"tanh were taken of the score, not of the score by the cap",
     [](double dot, double scale, double cap, double slope, int n) {
         return (cap > 0 ? cap * std::tanh(scale * dot) : scale * dot) - slope * n;
     }},
    {"ALiBi were added, not subtracted",
     [](double dot, double scale, double cap, double slope, int n) { return capped(scale * dot, cap) + slope * n; }},
    {"ALiBi were scaled too", [](double dot, double scale, double cap, double slope,
                                 int n) { return capped(scale * dot, cap) - scale * slope * n; }},
    {"2 to a power were taken for e to a power",
     [](double dot, double scale, double cap, double slope, int n) {
         return (capped(scale * dot, cap) - slope * n) * std::log(2.0);
     }},
    {"ALiBi were in base e where the scores are in base 2",
     [](double dot, double scale, double cap, double slope, int n) {
         return capped(scale * dot, cap) - slope * n * std::log(2.0);
     }},
};

/// Whose slope a head takes, and which kv head's keys.
struct Heads {
    int slope_of, kv_head;
};
Heads right_heads(const Shape& s, int head) { return {head, head / (s.heads / s.kv_heads)}; }

/// The weights that a query gives to the keys that it sees.
std::vector<double> weights(const Inputs& in, const Shape& s, std::size_t query_row, const Way& way, Heads heads) {
    const int query = static_cast<int>(query_row) % s.n_q, batch = static_cast<int>(query_row) / s.n_q / s.heads;
    const std::size_t kv_head = static_cast<std::size_t>(batch * s.kv_heads + heads.kv_head);
    const Seen seen = seen_by(s, query);
    const double slope = in.slopes.empty() ? 0 : in.slopes[static_cast<std::size_t>(heads.slope_of)];
    const std::vector<float> q = row(in.Q, query_row, s.head_dim);
    std::vector<double> all;
    for (int key = seen.first; key <= seen.last; ++key) {
        const std::vector<float> k =
            row(in.K, kv_head * static_cast<std::size_t>(s.n_k) + static_cast<std::size_t>(key), s.head_dim);
        double dot = 0;
        for (std::size_t x = 0; x < q.size(); ++x) dot += double(q[x]) * double(k[x]);
        all.push_back(way.score(dot, in.scale, in.soft_cap, slope, seen.last - key));
    }
    const double most = all.empty() ? 0 : *std::ranges::max_element(all);
    double sum = 0;
    for (double& x : all) sum += x = std::exp(x - most);
    for (double& x : all) x /= sum;
    return all;
}

bool agree(double found, double expected, DType dtype) {
    return std::abs(found - expected) <= (dtype == DType::f32 ? 1e-4 * expected + 1e-6 : 2e-2 * expected + 1e-3);
}

/// Whether these are the weights of a row's keys from `first_key` on if it is scored this way.
bool looks_like(const Inputs& in, const Shape& s, std::size_t r, const std::vector<float>& found, int first_key,
                const Way& way, Heads heads) {
    const Seen seen = seen_by(s, static_cast<int>(r) % s.n_q);
    const std::vector<double> all = weights(in, s, r, way, heads);
    for (int x = 0; x < s.head_dim && first_key + x < s.n_k; ++x) {
        const int key = first_key + x;
        const double expected = seen(key) ? all[static_cast<std::size_t>(key - seen.first)] : 0;
        if (!agree(found[static_cast<std::size_t>(x)], expected, s.dtype)) return false;
    }
    return true;
}

/// What all of O looks like that is wrong; "" if like nothing that is known.
std::string as_if(const Inputs& in, const Shape& s, const std::vector<float>& O, int first_key) {
    const auto all_rows = [&](auto looks) {
        for (std::size_t r = 0; r < O.size() / static_cast<std::size_t>(s.head_dim); ++r)
            if (!looks(r, row(O, r, s.head_dim), static_cast<int>(r) / s.n_q % s.heads)) return false;
        return true;
    };
    for (const Way& way : wrong_ways)
        if (all_rows([&](std::size_t r, const std::vector<float>& found, int head) {
                return looks_like(in, s, r, found, first_key, way, right_heads(s, head));
            }))
            return fmt::format(", as if {}", way.as_if);
    const auto with_heads = [&](auto heads_of) {
        return all_rows([&](std::size_t r, const std::vector<float>& found, int head) {
            return looks_like(in, s, r, found, first_key, right, heads_of(head));
        });
    };
    if (s.alibi && with_heads([&](int head) {
            return Heads{head / (s.heads / s.kv_heads), right_heads(s, head).kv_head};
        }))
        return ", as if each head had the slope of its kv head's number";
    if (with_heads([&](int head) { return Heads{head, head % s.kv_heads}; }))
        return fmt::format(", as if head h had the keys of kv head h mod {}, and not of h / {}", s.kv_heads,
                           s.heads / s.kv_heads);
    for (int other = 0; s.alibi && other < s.heads; ++other)
        if (with_heads([&](int head) { return Heads{other, right_heads(s, head).kv_head}; }))
            return fmt::format(", as if all heads had the slope of head {}", other);
    return "";
}

/// ALiBi's distance counted from i instead of i + N_k - N_q: all weights are right, as softmax does not see it; LSE is
/// not.
std::string distance_as_if(const Data& data) {
    const Inputs in = inputs_of(data);
    const Shape s = shape_of(data.problem);
    if (!s.alibi || s.n_q == s.n_k || !stage_under_test().supports.attention.lse) return "";
    const std::vector<float> lse = run(stage_under_test(), data).tensors.at("lse");
    std::vector<std::size_t> rows(lse.size());
    std::iota(rows.begin(), rows.end(), 0u);
    const attention::AttentionRows expected = reference_attention(in, rows);
    bool differs = false;
    for (std::size_t r = 0; r < lse.size(); ++r) {
        const int head = static_cast<int>(r) / s.n_q % s.heads;
        const double by = double(in.slopes[static_cast<std::size_t>(head)]) * (s.n_k - s.n_q),
                     is = lse[r] - expected.lse[r];
        if (std::isinf(expected.lse[r])) continue;
        if (!(std::abs(is - by) <= 2e-2 + 2e-2 * std::abs(by))) return "";
        differs = true;
    }
    return differs ? "; LSE is off by slope (N_k - N_q), as if the distance were i - j, and not i + N_k - N_q - j" : "";
}

/// What is wrong with the first weight of a row that is; or with the first that is 0 and should not be, or should be 0.
struct Wrong {
    std::string text, where = "";
    bool is_of_seen = false;
};
Wrong wrong_of_row(const Inputs& in, const Shape& s, std::size_t r, const std::vector<float>& found, int first_key) {
    const int query = static_cast<int>(r) % s.n_q, head = static_cast<int>(r) / s.n_q % s.heads;
    const int end = std::min(s.n_k, first_key + s.head_dim);  // of the keys whose weights are in the row
    const Seen seen = seen_by(s, query);
    const auto found_of = [&](int key) { return double(found[static_cast<std::size_t>(key - first_key)]); };
    const auto of_key = [&](const std::vector<double>& all, int key) {
        return seen(key) ? all[static_cast<std::size_t>(key - seen.first)] : 0;
    };
    const std::string who = fmt::format("query {} of head {}", query, head),
                      where = fmt::format(" ({}; it sees {})", to_string(s), seen.text());
    const std::vector<double> expected = weights(in, s, r, right, right_heads(s, head));
    std::string weight;
    double sum = 0;
    for (int key = first_key; key < end; ++key) {
        const double is = found_of(key), wanted = of_key(expected, key);
        sum += is;
        if (agree(is, wanted, s.dtype)) continue;
        if (std::isnan(is)) return {fmt::format("O of {} is {}", who, found_text(is)), where, true};
        if (!seen(key))
            return {fmt::format("{} sees key {}, which is {}: weight {:.4g}", who, key,
                                key > seen.last ? "behind its own" : "before its window", is),
                    where, true};
        if (is == 0) return {fmt::format("{} does not see key {}", who, key), where, true};
        if (weight.empty())
            weight = fmt::format("{} gives key {} the weight {:.4g}, expected {:.4g}", who, key, is, wanted);
    }
    if (!weight.empty() && first_key == 0 && end == s.n_k && !agree(sum, 1, s.dtype))
        weight += fmt::format("; the weights of all keys add up to {:.4g}, not 1", sum);
    return {weight, where};
}

}  // namespace

const Stage& stage_under_test() { return find_stage(stages().front().get().name()); }

Shape shape_of(int heads, int n_q, int n_k, int head_dim) {
    attention::AttentionShape s{.heads = heads, .kv_heads = heads, .n_q = n_q, .n_k = n_k, .head_dim = head_dim};
    s.dtype = stage_under_test().dtypes().front();
    return modified(s, n_k);
}

int drawn_length(std::mt19937_64& random, int tile, int least, int most) {
    const int any = least + static_cast<int>(random() % static_cast<unsigned>(most - least + 1)),
              kind = static_cast<int>(random() % 4);
    const int near = (any + tile / 2) / tile * tile + kind - 1;
    return kind == 3 || near < least || near > most ? any : near;
}

std::string wrong_weight(const Shape& s, Values values, int first_key, std::uint64_t seed) {
    Data data = make_inputs(s, values, seed);
    std::vector<float>& V = data.tensors.at("V");
    for (std::size_t x = 0; x < V.size(); ++x) {
        const int key = static_cast<int>(x / static_cast<std::size_t>(s.head_dim)) % s.n_k,
                  column = static_cast<int>(x) % s.head_dim;
        V[x] = key - first_key == column ? 1.0f : 0.0f;
    }
    const auto nothing_written = [&] {
        return fmt::format(
            "O is NaN in every place, as nobody has written it: launch() is yours to write, and the kernel that it "
            "starts; chapters/{}/README.md says what they must do ({})",
            stage_under_test().folder(), to_string(s));
    };
    std::vector<float> O;
    try {
        O = run(stage_under_test(), data).tensors.at("O");
    } catch (const CudaError& error) {
        return last_launch.entry ? error.what() : nothing_written();
    }
    if (std::ranges::all_of(O, [](float x) { return std::isnan(x); })) return nothing_written();
    const Inputs in = inputs_of(data);
    Wrong weight;
    for (std::size_t r = 0; r < O.size() / static_cast<std::size_t>(s.head_dim); ++r) {
        const Wrong wrong = wrong_of_row(in, s, r, row(O, r, s.head_dim), first_key);
        if (wrong.is_of_seen) return wrong.text + wrong.where;  // this says more than how much a key weighs
        if (weight.text.empty()) weight = wrong;
    }
    return weight.text.empty() ? "" : weight.text + as_if(in, s, O, first_key) + weight.where;
}

std::string wrong_weights(const Shape& s, Values values, std::uint64_t seed) {
    for (int first_key = 0; first_key < s.n_k; first_key += s.head_dim)
        if (std::string wrong = wrong_weight(s, values, first_key, seed); !wrong.empty()) return wrong;
    return "";
}

std::string fault(const Shape& shape, Values values, std::uint64_t seed) {
    return fault(make_inputs(shape, values, seed, stage_under_test().supports.attention.lse));
}

std::string fault(const Data& data) {
    try {
        const Judgement j = check(stage_under_test(), data);
        return j.passed ? "" : j.description + distance_as_if(data);
    } catch (const CudaError& error) {
        return error.what();
    }
}

std::string fault_with_hidden_scores(const Shape& s, int query, std::uint64_t seed) {
    const Seen seen = seen_by(s, query);
    const std::size_t d = static_cast<std::size_t>(s.head_dim);
    Data data = make_inputs(s, Values::normal, seed, true);
    std::vector<float>&Q = data.tensors.at("Q"), &K = data.tensors.at("K");
    const std::vector<float>& V = data.tensors.at("V");
    // The score of a key is the first number of its row.
    std::ranges::fill(Q, 0.0f);
    for (std::size_t i = 0; i < static_cast<std::size_t>(s.n_q); ++i)
        Q[i * d] = round_to(s.dtype, static_cast<float>(1 / data.arguments.at("scale")));
    for (int j = 0; j < s.n_k; ++j) K[static_cast<std::size_t>(j) * d] = seen(j) ? 0 : 200;
    Data found;
    try {
        found = run(stage_under_test(), data);
    } catch (const CudaError& error) {
        return error.what();
    }
    const double keys = seen.last + 1 - seen.first, allowed = s.dtype == DType::f32 ? 1e-5 : 1e-2;
    const auto wrong = [&](const char* name, double is, double expected) {
        if (std::abs(is - expected) <= allowed) return std::string();
        return fmt::format(
            "{} of query {} is {:.6g}, expected {:.6g}: it sees keys {} to {}, whose scores are 0; those of all "
            "other keys are 200, but nothing may depend on them ({})",
            name, query, is, expected, seen.first, seen.last, to_string(s));
    };
    for (std::size_t x = 0; x < d; ++x) {
        double sum = 0;
        for (int j = seen.first; j <= seen.last; ++j) sum += V[static_cast<std::size_t>(j) * d + x];
        const std::string of_O = wrong("O", found.tensors.at("O")[static_cast<std::size_t>(query) * d + x], sum / keys);
        if (!of_O.empty()) return of_O;
    }
    return wrong("LSE", found.tensors.at("lse")[static_cast<std::size_t>(query)], std::log(keys));
}

#ifndef FLASHLADDER_GPU
StageCounts counts_of(const Shape& shape, bool wants_lse) {
    try {
        return count_stage(stage_under_test(), make_inputs(shape, Values::normal, test_seed(), wants_lse));
    } catch (const CudaError& error) {
        FAIL_CHECK(std::string(error.what()));
        return {};
    }
}

void check_at_most(const std::string& what, double found, double most, const Shape& where) {
    CHECK_MESSAGE((found <= most),
                  fmt::format("{}: found {}, expected at most {} ({})", what, found, most, to_string(where)));
}

std::uint64_t keys_of_blocks(const Shape& s, int queries) {
    std::uint64_t keys = 0;
    for (int i = 0; i < s.n_q; i += queries) {
        const int first = seen_by(s, i).first, last = seen_by(s, std::min(i + queries, s.n_q) - 1).last;
        keys += static_cast<std::uint64_t>(std::max(0, last - first + 1));
    }
    return keys;
}
#endif

namespace {

/// What the stage supports of windows, ALiBi and caps, drawn.
Shape drawn_scores(std::mt19937_64& random, Shape s) {
    const Support& supports = stage_under_test().supports;
    if (supports.window)
        s.window = random() % 3 ? drawn_length(random, 16 << random() % 4, 1, s.n_k) : 1 + int(random() % 20);
    s.alibi = supports.alibi && random() % 3;
    if (supports.soft_cap && random() % 3) s.soft_cap = std::array{1, 5, 30}[random() % 3];
    const std::vector<DType>& dtypes = supports.attention.dtypes;
    s.dtype = dtypes[random() % dtypes.size()];
    return s;
}

void check_agrees(const Shape& shape, Values values, std::uint64_t seed) {
    const std::string wrong = fault(shape, values, seed);
    CHECK_MESSAGE(wrong.empty(), wrong);
}

/// Fresh shapes whose lengths divide nothing.
void check_shapes(Values values, int times) {
    std::mt19937_64 random(test_seed());
    for (const int head_dim : stage_under_test().supports.attention.head_dims)
        for (int i = 0; i < times; ++i) {
            Shape s = shape_of(1 + int(random() % 3), drawn_length(random, 64, 32, 300),
                               drawn_length(random, 64, 1, 300), head_dim);
            s.batch = 1 + int(random() % 2);
            check_agrees(drawn_scores(random, s), values, random());
        }
}

TEST_CASE("agrees with the reference: normal values, lengths that divide nothing") { check_shapes(Values::normal, 8); }
TEST_CASE("agrees with the reference: peaky rows") { check_shapes(Values::peaky, 3); }
TEST_CASE("agrees with the reference: a maximum that grows with j") { check_shapes(Values::growing_maximum, 3); }

TEST_CASE("agrees with the reference: whatever the scale, 0 and below 0 too") {
    std::mt19937_64 random(test_seed());
    for (const int head_dim : stage_under_test().supports.attention.head_dims)
        for (const double scale : {0.5, -0.125, 0.0}) {
            Data data = make_inputs(drawn_scores(random, shape_of(1, 70, 130, head_dim)), Values::normal, random(),
                                    stage_under_test().supports.attention.lse);
            data.arguments.at("scale") = scale;
            const std::string wrong = fault(data);
            CHECK_MESSAGE(wrong.empty(), fmt::format("args.scale is {}: {}", scale, wrong));
        }
}

TEST_CASE("agrees with the reference: scores whose exponentials no float can hold") {
    std::mt19937_64 random(test_seed());
    for (const int head_dim : stage_under_test().supports.attention.head_dims)
        for (const int sign : {1, -1}) {
            Shape s = drawn_scores(random, shape_of(1, 70, 130, head_dim));
            s.soft_cap = 0;
            Data data = make_inputs(s, Values::normal, random(), stage_under_test().supports.attention.lse);
            std::vector<float>&Q = data.tensors.at("Q"), &K = data.tensors.at("K");
            const std::size_t d = static_cast<std::size_t>(head_dim);
            std::ranges::fill(Q, 0.0f);
            for (std::size_t i = 0; i < Q.size(); i += d) Q[i] = 1;
            for (std::size_t j = 0; j < K.size(); j += d) K[j] = static_cast<float>(sign * (180 + int(random() % 64)));
            data.arguments.at("scale") = 1;
            const std::string wrong = fault(data);
            CHECK_MESSAGE(wrong.empty(), fmt::format("scores are {}, and exp of that is {} in a float: {}",
                                                     sign > 0 ? "180 and more" : "-180 and less", sign > 0 ? "infinite" : "0",
                                                     wrong));
        }
}

TEST_CASE("agrees with the reference: few keys, few queries, many") {
    std::mt19937_64 random(test_seed());
    for (const int head_dim : stage_under_test().supports.attention.head_dims)
        for (const auto& [n_q, n_k] : {std::pair(1, 1), {1, 300}, {300, 1}, {64, 64}, {65, 63}, {3, 700}})
            check_agrees(drawn_scores(random, shape_of((31 + n_q) / n_q, n_q, n_k, head_dim)), Values::normal,
                         random());
}

TEST_CASE("agrees with the reference: queries that see no key give 0 and an LSE of -infinity") {
    std::mt19937_64 random(test_seed());
    for (const int head_dim : stage_under_test().supports.attention.head_dims) {
        const int n_k = drawn_length(random, 32, 20, 130);
        check_agrees(drawn_scores(random, shape_of(1, n_k + drawn_length(random, 64, 1, 200), n_k, head_dim)),
                     Values::normal, random());
    }
}

TEST_CASE("agrees with the reference: grouped queries") {
    if (!stage_under_test().supports.attention.grouped_query) return;
    std::mt19937_64 random(test_seed());
    for (const int head_dim : stage_under_test().supports.attention.head_dims)
        for (const auto& [heads, kv_heads] : {std::pair(6, 3), {6, 2}, {5, 1}}) {
            Shape s = shape_of(heads, 70, 90, head_dim);
            s.batch = 2, s.kv_heads = kv_heads;
            check_agrees(drawn_scores(random, s), Values::normal, random());
        }
}

TEST_CASE("NaN in a query is NaN in its rows of O and LSE, and in no other") {
    std::mt19937_64 random(test_seed());
    constexpr std::size_t ill = 3;
    for (const int head_dim : stage_under_test().supports.attention.head_dims) {
        const Shape s = drawn_scores(random, shape_of(1, 70, 90, head_dim));
        Data data = make_inputs(s, Values::normal, random(), stage_under_test().supports.attention.lse);
        data.tensors.at("Q").at(ill * static_cast<std::size_t>(head_dim) + 5) = nan;
        const Data out = run(stage_under_test(), data);
        for (std::size_t r = 0; r < static_cast<std::size_t>(s.n_q); ++r) {
            const bool O_is_nan =
                std::ranges::any_of(row(out.tensors.at("O"), r, head_dim), [](float x) { return std::isnan(x); });
            CHECK_MESSAGE((O_is_nan == (r == ill)),
                          fmt::format("query {} alone has a NaN, but O of query {} has {} ({})", ill, r,
                                      O_is_nan ? "one" : "none", to_string(s)));
            if (const auto lse = out.tensors.find("lse"); lse != out.tensors.end())
                CHECK_MESSAGE((std::isnan(lse->second[r]) == (r == ill)),
                              fmt::format("query {} alone has a NaN, but LSE of query {} is {} ({})", ill, r,
                                          lse->second[r], to_string(s)));
        }
    }
}

TEST_CASE("NaN in a query that sees no key is nowhere: its O is 0, its LSE -infinity") {
    std::mt19937_64 random(test_seed());
    constexpr std::size_t ill = 3;  // others of its block see keys
    for (const int head_dim : stage_under_test().supports.attention.head_dims) {
        Data data = make_inputs(drawn_scores(random, shape_of(1, 70, 50, head_dim)), Values::normal, random(),
                                stage_under_test().supports.attention.lse);
        data.tensors.at("Q").at(ill * static_cast<std::size_t>(head_dim) + 5) = nan;
        const Data out = run(stage_under_test(), data);
        const auto check_all = [&](const char* name, const std::vector<float>& found, float expected) {
            for (const float x : found) {
                CHECK_MESSAGE((x == expected), fmt::format("query {} has a NaN, but sees no key: its {} is {}, expected {} ({})",
                                                           ill, name, x, expected, to_string(shape_of(data.problem))));
                if (!(x == expected)) break;
            }
        };
        check_all("O", row(out.tensors.at("O"), ill, head_dim), 0);
        if (const auto lse = out.tensors.find("lse"); lse != out.tensors.end())
            check_all("LSE", {lse->second[ill]}, -std::numeric_limits<float>::infinity());
    }
}

TEST_CASE("gives the same bits again") {
    std::mt19937_64 random(test_seed());
    const Shape s = drawn_scores(random, shape_of(2, 100, 257, 64));
    const Data data = make_inputs(s, Values::normal, test_seed());
    const std::vector<float> first = run(stage_under_test(), data).tensors.at("O"),
                             second = run(stage_under_test(), data).tensors.at("O");
    const auto [a, b] = std::ranges::mismatch(second, first);
    CHECK_MESSAGE((a == second.end()), "O has other bits than in the run before: element ", a - second.begin(), " (",
                  to_string(s), ")");
}

TEST_CASE("refuses what it does not support, naming stage, limit and value") {
    const Stage& stage = stage_under_test();
    const Support& supports = stage.supports;
    const Shape s = shape_of(2, 8, 8, 64);
    const Data data = make_inputs(s, Values::normal, 1);
    const DeviceProblem problem(stage, data);
    const DeviceData device = problem.data();
    const auto at = [&](const char* name) { return device.tensors.at(name); };
    const auto check_refusal = check_refusal_of(
        stage, Args{{.shape = s, .Q = at("Q"), .K = at("K"), .V = at("V"), .O = at("O")}, s.window});
    check_refusal([](Args& a) { a.shape.head_dim = 80; }, "head_dim 80");
    check_refusal([](Args& a) { a.shape.n_q = 0; }, "n_q is 0");
    check_refusal([](Args& a) { a.shape.kv_heads = 3; }, "kv_heads 3");
    check_refusal([](Args& a) { a.shape.causal = false; }, "causal is false");
    check_refusal([](Args& a) { a.window = 0; }, "window is 0, but must be at least 1");
    check_refusal([](Args& a) { a.V = nullptr; }, "V is a null pointer");
    check_refusal([](Args& a) { a.K = static_cast<const char*>(a.K) + 4; }, "not aligned to 16 bytes");
    check_refusal([](Args& a) { a.scale = nan; }, "scale is nan");
    check_refusal([](Args& a) { a.soft_cap = -1; }, "soft_cap is -1");
    check_refusal([](Args& a) { a.soft_cap = nan; }, "soft_cap is nan");
    check_refusal([](Args& a) { a.Q_strides = {2 * 8 * 64, 64, 2 * 64}; }, "Q is not contiguous");
    if (!supports.window) check_refusal([](Args& a) { a.window = 7; }, "window is 7, but windows are not supported");
    if (!supports.alibi)
        check_refusal([](Args& a) { a.slopes = static_cast<const float*>(a.Q); }, "alibi is not supported");
    if (!supports.soft_cap)
        check_refusal([](Args& a) { a.soft_cap = 30; }, "soft_cap is 30, but soft caps are not supported");
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
        if (!std::ranges::count(supports.attention.dtypes, dtype))
            check_refusal([=](Args& a) { a.shape.dtype = dtype; }, fmt::format("dtype {}", to_string(dtype)));
    CHECK_THROWS_WITH_AS(find_stage("99"), "99 is not in this program", std::invalid_argument);
}

#ifndef FLASHLADDER_GPU
TEST_CASE("has no races") {
    std::mt19937_64 random(test_seed());
    for (const int head_dim : stage_under_test().supports.attention.head_dims)
        for (const auto& [n_q, n_k] : {std::pair(40, 530), {300, 100}}) {
            const Data data =
                make_inputs(drawn_scores(random, shape_of(2, n_q, n_k, head_dim)), Values::normal, random(), true);
            const std::string report = emulator::find_race([&] { run(stage_under_test(), data); });
            CHECK_MESSAGE(report.empty(), report);
        }
}

TEST_CASE("counted: no memory beyond inputs and outputs") {
    std::mt19937_64 random(test_seed());
    const Shape s = drawn_scores(random, shape_of(2, 200, 300, 64));
    const StageCounts counts = counts_of(s);
    CHECK_MESSAGE(counts.peak_scratch_bytes == 0,
                  "device memory beyond inputs and outputs: ", counts.peak_scratch_bytes, " bytes, expected none (",
                  to_string(s), ")");
}
#endif

}  // namespace
}  // namespace flashladder::modified_attention
