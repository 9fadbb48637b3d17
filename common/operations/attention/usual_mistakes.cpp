#include "operations/attention/usual_mistakes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <utility>

namespace flashladder::attention {
namespace {

constexpr double few_scores = 100'000;  // a moment, for a dozen of mistakes

/// What was computed instead, in place of what was asked for.
struct Mistake {
    std::string sentence;  // after "this is what comes out "
    Inputs inputs;
    VisibleKeys visible;
};

/// K and V once for each head of Q; `kv_head_of(h)` is where those of head h come from.
template <class KvHeadOf>
Inputs with_heads(const Inputs& in, KvHeadOf kv_head_of) {
    Inputs out = in;
    out.shape.kv_heads = in.shape.heads;
    out.K.clear(), out.V.clear();
    const std::size_t size = std::size_t(in.shape.n_k) * in.shape.head_dim;
    for (int b = 0; b < in.shape.batch; ++b)
        for (int h = 0; h < in.shape.heads; ++h) {
            const std::size_t first = (std::size_t(b) * in.shape.kv_heads + kv_head_of(h)) * size;
            for (const auto& [from, to] : {std::pair(&in.K, &out.K), {&in.V, &out.V}})
                to->insert(to->end(), from->begin() + std::ptrdiff_t(first),
                           from->begin() + std::ptrdiff_t(first + size));
        }
    return out;
}

/// Each head has keys and values of 0 behind its last one, up to a multiple of `tile`.
Inputs with_keys_of_zero(const Inputs& in, int tile) {
    Inputs out = in;
    out.shape.n_k = (in.shape.n_k + tile - 1) / tile * tile;
    const std::size_t d = in.shape.head_dim, size = in.shape.n_k * d, padded = out.shape.n_k * d;
    const std::size_t heads = std::size_t(in.shape.batch) * in.shape.kv_heads;
    for (const auto& [from, to] : {std::pair(&in.K, &out.K), {&in.V, &out.V}}) {
        to->assign(heads * padded, 0);
        for (std::size_t h = 0; h < heads; ++h)
            std::copy_n(from->begin() + std::ptrdiff_t(h * size), size, to->begin() + std::ptrdiff_t(h * padded));
    }
    return out;
}

std::vector<Mistake> usual_mistakes(const Inputs& in) {
    const AttentionShape& s = in.shape;
    std::vector<Mistake> all;
    const auto scaled = [&](std::string sentence, double scale) {
        all.push_back({std::move(sentence), in, visible_keys(s)});
        all.back().inputs.scale = float(scale);
    };
    const auto reads = [&](std::string sentence, Inputs inputs) {
        const VisibleKeys visible = visible_keys(inputs.shape);
        all.push_back({std::move(sentence), std::move(inputs), visible});
    };
    for (OtherMask& mask : other_masks(s)) all.push_back({std::move(mask.sentence), in, std::move(mask.visible)});
    for (const int tile : {8, 16, 32, 64, 128, 256})
        if (!s.causal && s.n_k % tile != 0)
            reads(fmt::format("if keys behind the last one count, as zeros, up to a multiple of {}", tile),
                  with_keys_of_zero(in, tile));
    if (in.scale != 1) {
        scaled("without the scale", 1);
        scaled("if scores are scaled twice", double(in.scale) * in.scale);
    }
    scaled("if weights are powers of 2, and scores are not multiplied by log2(e)", in.scale * std::numbers::ln2);
    scaled("if weights are powers of e, and scores are multiplied by log2(e) as for powers of 2",
           in.scale * std::numbers::log2e);
    if (s.kv_heads > 1 && s.kv_heads < s.heads)
        reads("if head h of Q reads head h % kv_heads of K and V, and not head h / (heads / kv_heads)",
              with_heads(in, [&](int h) { return h % s.kv_heads; }));
    if (s.kv_heads > 1) reads("if all heads read the first one of K and V", with_heads(in, [](int) { return 0; }));
    return all;
}

/// O is what it should be, but for a factor of each row. By what rounding leaves of it, where rows are short.
bool has_wrong_lengths(const Outputs& outputs, const AttentionRows& reference) {
    const std::size_t d = static_cast<std::size_t>(reference.head_dim);
    for (std::size_t r = 0; r < reference.rows.size(); ++r) {
        double product = 0, found = 0, wanted = 0;
        for (std::size_t x = 0; x < d; ++x) {
            const double a = outputs.O[reference.rows[r] * d + x], b = reference.O[r * d + x];
            product += a * b, found += a * a, wanted += b * b;
        }
        if (wanted == 0 && found == 0) continue;                           // it sees no key
        if (!(product > 0.999 * std::sqrt(found * wanted))) return false;  // NaN too
    }
    return true;
}

}  // namespace

std::vector<OtherMask> other_masks(const AttentionShape& s) {
    const long long n_k = s.n_k, diagonal = n_k - s.n_q;
    if (!s.causal)
        return {{"if the last key does not count", [=](long long) { return n_k - 1; }},
                {"with a causal mask, which was not asked for", [=](long long i) { return i + 1 + diagonal; }}};
    return {{"if each query sees one key too many", [=](long long i) { return i + 2 + diagonal; }},
            {"if each query sees one key too few", [=](long long i) { return i + diagonal; }},
            {"if query i sees the keys up to i: the mask's diagonal ends in the lower right corner of S",
             [](long long i) { return i + 1; }},
            {"without the causal mask", [=](long long) { return n_k; }}};
}

std::string usual_mistake(const Outputs& outputs, const Inputs& inputs, const AttentionRows& reference,
                          const AttentionRows& yardstick) {
    const AttentionShape& s = inputs.shape;
    if (double(s.batch) * s.heads * s.n_q * s.n_k > few_scores ||
        std::ranges::any_of(outputs.O, [](float x) { return std::isnan(x); }))
        return "";
    const Outputs O{outputs.O, {}, 0};
    const Comparison asked = compare(O, s, reference, yardstick);
    if (asked.passed) return "";  // LSE is wrong, or something was written between rows
    for (const Mistake& mistake : usual_mistakes(inputs)) {
        const AttentionRows made = reference_attention(mistake.inputs, reference.rows, mistake.visible);
        const Comparison instead = compare(O, s, made, made);
        if (instead.error <= asked.allowed_error && instead.worst_row <= asked.allowed_worst_row)
            return "this is what comes out " + mistake.sentence;
    }
    if (has_wrong_lengths(outputs, reference))
        return "each row is what it should be, but for a factor: is it divided by l, is it rescaled as l is?";
    return "";
}

}  // namespace flashladder::attention
