#include "operations/attention_backward/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "harness/dtype.h"

namespace flashladder::attention_backward {
namespace {

/// Of a row's size: what sums of float cost even where nothing is left of their summands; and what rounding these costs.
constexpr double floor_of_float = 0x1p-19;
double floor_of(DType dtype) { return dtype == DType::f32 ? floor_of_float : epsilon(dtype); }

struct RowErrors {
    double difference = 0, norm = 0;  // sums of squares over all rows
    double worst = 0;
    std::size_t worst_index = 0;
    attention::Wrong furthest;  // in the worst row
};

/// `value(r, x)` is element x of compared row r. A NaN difference counts as infinite.
template <class Value>
RowErrors row_errors(const GradientRows& reference, std::size_t d, double floor, Value value) {
    RowErrors errors;
    for (std::size_t r = 0; r < reference.rows.size(); ++r) {
        double difference = 0, norm = 0, furthest = -1;
        attention::Wrong wrong;
        for (std::size_t x = 0; x < d; ++x) {
            const double wanted = reference.values[r * d + x], found = value(r, x), delta = found - wanted;
            difference += delta * delta;
            norm += wanted * wanted;
            if (!std::isnan(furthest) && !(std::abs(delta) <= furthest)) furthest = std::abs(delta), wrong = {x, found, wanted};
        }
        if (std::isnan(difference)) difference = std::numeric_limits<double>::infinity();
        errors.difference += difference;
        errors.norm += norm;
        const double unexplained = std::sqrt(difference) - floor * reference.size[r];
        if (unexplained <= 0) continue;
        const double error = norm > 0 ? unexplained / std::sqrt(norm) : std::numeric_limits<double>::infinity();
        if (error > errors.worst) errors.worst = error, errors.worst_index = reference.rows[r], errors.furthest = wrong;
    }
    return errors;
}

/// What the gradient was multiplied with, if that is all that is wrong with it; else 1.
double factor_of(const std::vector<float>& found, const GradientRows& reference, std::size_t d, double allowed) {
    double product = 0, norm = 0, difference = 0;
    const auto for_each = [&](auto visit) {
        for (std::size_t r = 0; r < reference.rows.size(); ++r)
            for (std::size_t x = 0; x < d; ++x) visit(double(found[reference.rows[r] * d + x]), reference.values[r * d + x]);
    };
    for_each([&](double is, double wanted) { product += is * wanted, norm += wanted * wanted; });
    const double factor = norm > 0 ? product / norm : 1;
    for_each([&](double is, double wanted) { difference += (is - factor * wanted) * (is - factor * wanted); });
    const bool explains = std::sqrt(difference) <= 2 * allowed * std::abs(factor) * std::sqrt(norm);  // not for a NaN
    return explains && std::abs(factor - 1) > 4 * allowed ? factor : 1;
}

/// Who multiplies with it, or forgets to.
std::string words_for(double factor, int head_dim) {
    const double root = std::sqrt(double(head_dim));
    const auto is = [&](double wanted) { return std::abs(factor / wanted - 1) < 0.01; };
    if (is(root)) return "sqrt(d): is the scale missing?";
    if (is(1 / root)) return "1 / sqrt(d): is it scaled twice?";
    if (is(-1)) return "the sign";
    if (is(std::numbers::log2e) || is(std::numbers::ln2)) return "log2(e), or 1 / log2(e)";
    return "";
}

GradientComparison compare_one(const std::vector<float>& found, std::size_t d, DType dtype, const GradientRows& reference,
                               const GradientRows& yardstick, attention::Judge judge) {
    const double floor = floor_of(dtype);
    const RowErrors got =
        row_errors(reference, d, floor, [&](std::size_t r, std::size_t x) { return double(found.at(reference.rows[r] * d + x)); });
    const RowErrors standard =
        row_errors(reference, d, floor, [&](std::size_t r, std::size_t x) { return yardstick.values.at(r * d + x); });
    double size = 0;
    for (const double of_row : reference.size) size += of_row * of_row;
    GradientComparison c;
    // All rows may be 0, exactly: with one key dQ and dK are. Then an error of the floor is just allowed.
    const double least = std::sqrt(size) * floor_of_float / allowed_gradient_error(dtype);
    const double norm = std::max({std::sqrt(got.norm), least, std::numeric_limits<double>::min()});
    c.error = std::sqrt(got.difference) / norm;
    // Where one key has nearly all the weight, dP - D loses what O lost when it was rounded: nobody's fault.
    c.allowed_error = std::max(allowed_gradient_error(dtype), 1.1 * std::sqrt(standard.difference) / norm);
    c.worst_row = got.worst;
    c.allowed_worst_row = std::max(2 * standard.worst, floor);  // the standard way can be lucky
    c.worst_row_index = got.worst_index;
    c.furthest = got.furthest;
    c.passed = (judge == attention::Judge::worst_row_only || c.error <= c.allowed_error) &&
               c.worst_row <= c.allowed_worst_row;
    if (!c.passed) c.factor = factor_of(found, reference, d, c.allowed_error);
    return c;
}

}  // namespace

double allowed_gradient_error(DType dtype) {
    switch (dtype) {
        case DType::f32: return 1e-5;
        case DType::bf16: return 4e-3;
        case DType::f16: return 6e-4;
        case DType::i32: break;
    }
    return 0;
}

Comparison compare(const Outputs& outputs, const AttentionShape& shape, const Gradients& reference, const Gradients& yardstick,
                   attention::Judge judge) {
    const std::size_t d = static_cast<std::size_t>(shape.head_dim);
    Comparison c{compare_one(outputs.dQ, d, shape.dtype, reference.dQ, yardstick.dQ, judge),
                 compare_one(outputs.dK, d, shape.dtype, reference.dK, yardstick.dK, judge),
                 compare_one(outputs.dV, d, shape.dtype, reference.dV, yardstick.dV, judge),
                 outputs.written_gap_bytes};
    c.passed = c.dQ.passed && c.dK.passed && c.dV.passed && c.written_gap_bytes == 0;
    return c;
}

std::string Comparison::describe(const AttentionShape& shape) const { return describe(shape, attention::to_string(shape)); }

std::string Comparison::describe(const AttentionShape& shape, const std::string& title) const {
    std::string text = title;
    const char* in_front = ": ";
    const auto add = [&](const char* name, const GradientComparison& c, int heads, int rows, const char* row_name) {
        const std::size_t row = c.worst_row_index, head = row / static_cast<std::size_t>(rows);
        if (c.passed && !(dQ.passed && dK.passed && dV.passed)) return;  // others are what is to be told
        text += std::exchange(in_front, "\n");
        if (c.factor != 1) {
            const std::string words = words_for(c.factor, shape.head_dim);
            text += fmt::format("all of {} is {:.3g} times what it should be{}; ", name, c.factor, words.empty() ? "" : ", " + words);
        }
        if (!c.mistake.empty()) text += fmt::format("{} is what comes out {}; ", name, c.mistake);
        if (!c.passed)
            text += fmt::format("{}[batch {} head {} {} {}][{}] is {}, expected {:.6g}; ", name,
                                head / static_cast<std::size_t>(heads), head % static_cast<std::size_t>(heads), row_name,
                                row % static_cast<std::size_t>(rows), c.furthest.index, found_text(c.furthest.found),
                                c.furthest.expected);
        text += fmt::format("{}'s relative error is {:.2e} (allowed {:.2g}), its worst row's {:.2e} (allowed {:.2e})", name, c.error,
                            c.allowed_error, c.worst_row, c.allowed_worst_row);
    };
    if (written_gap_bytes > 0)
        text += fmt::format("{}{} bytes written between rows of gradients", std::exchange(in_front, "\n"), written_gap_bytes);
    add("dV", dV, shape.kv_heads, shape.n_k, "key");  // in the order in which they are found: what is wrong first says most
    add("dQ", dQ, shape.heads, shape.n_q, "query");
    add("dK", dK, shape.kv_heads, shape.n_k, "key");
    return text;
}

}  // namespace flashladder::attention_backward
