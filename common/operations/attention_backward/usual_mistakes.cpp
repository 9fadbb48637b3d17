#include "operations/attention_backward/usual_mistakes.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "operations/attention/usual_mistakes.h"

namespace flashladder::attention_backward {
namespace {

constexpr double few_scores = 40'000;  // half a second, for all mistakes of three gradients

/// Of a query and a key.
struct Pair {
    double S, dP, lse, D;  // S is scaled
    double P() const { return std::exp(S - lse); }
    double dS() const { return P() * (dP - D); }
};

/// How a gradient is made: row by row the sum of weights times rows of another tensor.
struct Way {
    std::string sentence;  // after "is what comes out "
    std::function<double(const Pair&)> weight;
    const std::vector<float>* rows;
    attention::VisibleKeys visible;
    attention::VisibleKeys hidden;            // of these the first so many, which are before the window
    std::function<int(int)> kv_head_of = {};  // of a head of Q; as it should be, if there is none
    std::function<bool(int)> counts = {};     // a head of Q; all, if there is none
};

enum class Gradient { dV, dQ, dK };

class Mistakes {
public:
    explicit Mistakes(const Inputs& inputs) : in_(inputs), s_(inputs.shape()), group_(s_.heads / s_.kv_heads) {}

    /// What the mistake makes of a gradient, all rows of it.
    std::vector<double> made(Gradient of, const Way& way) const {
        const std::size_t d = static_cast<std::size_t>(s_.head_dim);
        std::vector<double> sum(of == Gradient::dQ ? s_.q_elements() : s_.kv_elements());
        for (int b = 0; b < s_.batch; ++b)
            for (int h = 0; h < s_.heads; ++h) {
                if (way.counts && !way.counts(h)) continue;
                const int kv_head = way.kv_head_of ? way.kv_head_of(h) : h / group_;
                const std::size_t queries = (std::size_t(b) * s_.heads + h) * s_.n_q,
                                  keys = (std::size_t(b) * s_.kv_heads + kv_head) * s_.n_k;
                for (int i = 0; i < s_.n_q; ++i) {
                    const std::size_t query = queries + i;
                    if (std::isinf(in_.lse[query])) continue;  // it sees no key
                    const double D = dot(in_.dO, query, in_.O, query);
                    const long long last = std::min<long long>(way.visible(i), s_.n_k);
                    for (long long j = std::max(0LL, way.hidden(i)); j < last; ++j) {
                        const std::size_t key = keys + j;
                        const double weight =
                            way.weight({in_.forward.scale * dot(in_.forward.Q, query, in_.forward.K, key),
                                        dot(in_.dO, query, in_.forward.V, key), in_.lse[query], D}) *
                            (of == Gradient::dV ? 1 : in_.forward.scale);
                        const auto [to, from] = of == Gradient::dQ ? std::pair(query, key) : std::pair(key, query);
                        for (std::size_t x = 0; x < d; ++x)
                            sum[to * d + x] += weight * double((*way.rows)[from * d + x]);
                    }
                }
            }
        return sum;
    }

    std::vector<Way> of(Gradient gradient) const {
        const auto P = [](const Pair& p) { return p.P(); };
        const auto dS = [](const Pair& p) { return p.dS(); };
        const auto &Q = in_.forward.Q, &K = in_.forward.K, &V = in_.forward.V;
        const attention::VisibleKeys sees = attention::visible_keys(s_),
                                     hides = [sees, w = in_.window](long long i) { return sees(i) - w; };
        const Way right = gradient == Gradient::dV   ? Way{"", P, &in_.dO, sees, hides}
                          : gradient == Gradient::dQ ? Way{"", dS, &K, sees, hides}
                                                     : Way{"", dS, &Q, sees, hides};
        std::vector<Way> all;
        const auto add = [&](std::string sentence) -> Way& {
            all.push_back(right);
            all.back().sentence = std::move(sentence);
            return all.back();
        };
        const auto multiplies = [&](std::string sentence, const std::vector<float>& rows) {
            add(std::move(sentence)).rows = &rows;
        };
        const auto weighs = [&](std::string sentence, std::function<double(const Pair&)> weight) {
            add(std::move(sentence)).weight = std::move(weight);
        };
        switch (gradient) {
            case Gradient::dV:
                multiplies("if P^T is multiplied by Q, not by dO", Q);
                multiplies("if P^T is multiplied by O, not by dO", in_.O);
                weighs("if dS stands where P should", dS);
                weighs("if LSE is not subtracted: P = exp(S)", [](const Pair& p) { return std::exp(p.S); });
                weighs("if P is a power of 2, and S - LSE is not multiplied by log2(e)",
                       [](const Pair& p) { return std::exp2(p.S - p.lse); });
                break;
            case Gradient::dQ:
                multiplies("if dS is multiplied by V, not by K", V);
                break;
            case Gradient::dK:
                multiplies("if dS^T is multiplied by dO, not by Q", in_.dO);
                multiplies("if dS^T is multiplied by O, not by Q", in_.O);
                break;
        }
        if (gradient != Gradient::dV) {
            weighs("if D is not subtracted: dS = P dP", [](const Pair& p) { return p.P() * p.dP; });
            weighs("if D is added, not subtracted", [](const Pair& p) { return p.P() * (p.dP + p.D); });
            weighs("if dS is not multiplied by P: dS = dP - D", [](const Pair& p) { return p.dP - p.D; });
            weighs("if P stands where dS should", P);
            weighs("if dP stands where dS should", [](const Pair& p) { return p.dP; });
        }
        for (attention::OtherMask& mask : attention::other_masks(s_))
            add(std::move(mask.sentence)).visible = std::move(mask.visible);
        if (in_.window < s_.n_k) {
            add("if each query sees one key before its window").hidden = [=](long long i) { return hides(i) - 1; };
            add("if the first key of each window is not seen").hidden = [=](long long i) { return hides(i) + 1; };
            add("if windows hide nothing").hidden = [](long long) { return 0; };
            Way& at_key_i = add("if query i stands at key i, and not at i + N_k - N_q");
            at_key_i.visible = [](long long i) { return i + 1; };
            at_key_i.hidden = [w = in_.window](long long i) { return i + 1 - w; };
        }
        if (group_ > 1 && s_.kv_heads > 1)
            add("if head h of Q has head h % kv_heads of K and V, and not head h / (heads / kv_heads)").kv_head_of =
                [of = s_.kv_heads](int h) { return h % of; };
        if (group_ > 1 && gradient != Gradient::dQ) {
            add("if only the last of the heads that share K and V counts, and not their sum").counts =
                [g = group_](int h) { return h % g == g - 1; };
            add("if only the first of the heads that share K and V counts, and not their sum").counts =
                [g = group_](int h) { return h % g == 0; };
        }
        return all;
    }

private:
    double dot(const std::vector<float>& a, std::size_t row_of_a, const std::vector<float>& b,
               std::size_t row_of_b) const {
        const std::size_t d = static_cast<std::size_t>(s_.head_dim);
        double sum = 0;
        for (std::size_t x = 0; x < d; ++x) sum += double(a[row_of_a * d + x]) * double(b[row_of_b * d + x]);
        return sum;
    }

    const Inputs& in_;
    const AttentionShape& s_;
    int group_;
};

/// The distance, in the Frobenius norm, over the rows that are compared.
template <class Found>
double distance(const Found& found, const std::vector<double>& from, const GradientRows& rows, std::size_t d) {
    double squares = 0;
    for (const std::size_t row : rows.rows)
        for (std::size_t x = row * d; x < (row + 1) * d; ++x)
            squares += (double(found[x]) - from[x]) * (double(found[x]) - from[x]);
    return std::sqrt(squares);
}

}  // namespace

void name_usual_mistakes(Comparison& c, const Outputs& outputs, const Inputs& inputs, const Gradients& reference) {
    const AttentionShape& s = inputs.shape();
    if (double(s.batch) * s.heads * s.n_q * s.n_k > few_scores) return;
    const Mistakes mistakes(inputs);
    const std::size_t d = static_cast<std::size_t>(s.head_dim);
    const auto name = [&](Gradient of, GradientComparison& one, const std::vector<float>& found,
                          const GradientRows& right) {
        if (one.passed || one.factor != 1) return;
        std::vector<double> wanted(found.size());
        for (std::size_t r = 0; r < right.rows.size(); ++r)
            for (std::size_t x = 0; x < d; ++x) wanted[right.rows[r] * d + x] = right.values[r * d + x];
        for (const Way& way : mistakes.of(of)) {
            const std::vector<double> made = mistakes.made(of, way);
            const double size = distance(std::vector<double>(made.size()), made, right, d);
            // Far from what is right, beside what rounding may cost; and near to what was found. A NaN is near to
            // nothing.
            if (distance(wanted, made, right, d) > 8 * one.allowed_error * size &&
                distance(found, made, right, d) <= 2 * one.allowed_error * size) {
                one.mistake = way.sentence;
                return;
            }
        }
    };
    name(Gradient::dV, c.dV, outputs.dV, reference.dV);
    name(Gradient::dQ, c.dQ, outputs.dQ, reference.dQ);
    name(Gradient::dK, c.dK, outputs.dK, reference.dK);
}

}  // namespace flashladder::attention_backward
