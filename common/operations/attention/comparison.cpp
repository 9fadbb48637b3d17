#include "operations/attention/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>


namespace flashladder::attention {
namespace {

struct RowErrors {
    double difference = 0, norm = 0;  // sums of squares over all rows
    double worst = 0;
    std::size_t worst_index = 0;
    Wrong furthest;  // in the worst row
};

/// `value(r, x)` is element x of compared row r. A NaN difference counts as infinite.
template <class Value>
RowErrors row_errors(const AttentionRows& reference, Value value) {
    RowErrors errors;
    const std::size_t d = static_cast<std::size_t>(reference.head_dim);
    for (std::size_t r = 0; r < reference.rows.size(); ++r) {
        double difference = 0, norm = 0, furthest = -1;
        Wrong wrong;
        for (std::size_t x = 0; x < d; ++x) {
            const double wanted = reference.O[r * d + x], found = value(r, x), delta = found - wanted;
            difference += delta * delta;
            norm += wanted * wanted;
            if (!std::isnan(furthest) && !(std::abs(delta) <= furthest)) furthest = std::abs(delta), wrong = {x, found, wanted};
        }
        if (std::isnan(difference)) difference = std::numeric_limits<double>::infinity();
        errors.difference += difference;
        errors.norm += norm;
        // A row that must be zero is judged by its absolute error.
        const double error = std::sqrt(norm > 0 ? difference / norm : difference);
        if (error > errors.worst) {
            errors.worst = error;
            errors.worst_index = reference.rows[r];
            errors.furthest = wrong;
        }
    }
    return errors;
}

}  // namespace

Comparison compare(const Outputs& outputs, const AttentionShape& shape, const AttentionRows& reference,
                   const AttentionRows& yardstick, Judge judge) {
    const std::size_t d = static_cast<std::size_t>(reference.head_dim);
    const RowErrors got = row_errors(
        reference, [&](std::size_t r, std::size_t x) { return double(outputs.O.at(reference.rows[r] * d + x)); });
    const RowErrors standard =
        row_errors(reference, [&](std::size_t r, std::size_t x) { return yardstick.O.at(r * d + x); });

    Comparison result;
    result.error = std::sqrt(got.difference / std::max(got.norm, std::numeric_limits<double>::min()));
    result.allowed_error = flashladder::allowed_error(shape.dtype);
    result.worst_row = got.worst;
    result.worst_row_index = got.worst_index;
    result.furthest = got.furthest;
    // Standard attention can be exact where there is little to add up (one key), and lucky where few rows see any.
    // Nobody need be better than the last place of O, and of scores in float: what these are off, weights are in relation
    // to themselves. LSE is about the largest score of a row.
    double score = 0;
    for (const double lse : reference.lse)
        if (std::isfinite(lse)) score = std::max(score, std::abs(lse));
    result.allowed_worst_row =
        2 * std::max(standard.worst, 2 * epsilon(shape.dtype) + score * epsilon(DType::f32));
    result.allowed_lse_error = shape.dtype == DType::f32 ? 1e-5 : flashladder::allowed_error(shape.dtype);
    for (std::size_t r = 0; r < outputs.lse.size() && r < reference.rows.size(); ++r) {
        const double wanted = reference.lse[r], value = outputs.lse.at(reference.rows[r]);
        const double off = value == wanted ? 0 : std::abs(value - wanted) / std::max(1.0, std::abs(wanted));
        const double error = std::isnan(off) ? std::numeric_limits<double>::infinity() : off;
        if (error <= result.lse_error) continue;
        result.lse_error = error;
        result.furthest_lse = {reference.rows[r], value, wanted};
    }
    result.with_lse = !outputs.lse.empty();
    result.written_gap_bytes = outputs.written_gap_bytes;
    result.passed = (judge == Judge::worst_row_only || result.error <= result.allowed_error) &&
                    result.worst_row <= result.allowed_worst_row && result.lse_error <= result.allowed_lse_error &&
                    result.written_gap_bytes == 0;
    return result;
}

std::string Comparison::describe(const AttentionShape& shape) const { return describe(shape, to_string(shape)); }

std::string Comparison::describe(const AttentionShape& shape, const std::string& title) const {
    return describe(title, [&](std::size_t row) {
        const std::size_t head = row / static_cast<std::size_t>(shape.n_q);
        return fmt::format("batch {} head {} query {}", head / static_cast<std::size_t>(shape.heads),
                           head % static_cast<std::size_t>(shape.heads), row % static_cast<std::size_t>(shape.n_q));
    });
}

std::string Comparison::describe(const std::string& title,
                                 const std::function<std::string(std::size_t row)>& place) const {
    std::string text = mistake.empty() ? title : title + ": " + mistake;
    // The first of these says what is wrong, with numbers that the kernel's author can follow.
    const char* between = ": ";
    const auto add = [&](const std::string& fault) { text += std::exchange(between, "; ") + fault; };
    if (!(worst_row <= allowed_worst_row) || !(error <= allowed_error))
        add(fmt::format("O[{}][{}] is {}, expected {:.6g}", place(worst_row_index), furthest.index,
                        found_text(furthest.found), furthest.expected));
    if (!(lse_error <= allowed_lse_error))
        add(fmt::format("LSE[{}] is {}, expected {:.6g}", place(furthest_lse.index), found_text(furthest_lse.found),
                        furthest_lse.expected));
    if (written_gap_bytes > 0) add(fmt::format("{} bytes written between rows of O", written_gap_bytes));
    text += fmt::format("; O's relative error is {:.2e} (allowed {:.0e}), its worst row's {:.2e} (allowed {:.2e})", error,
                        allowed_error, worst_row, allowed_worst_row);
    return with_lse ? text + fmt::format(", LSE's {:.1e} (allowed {:.0e})", lse_error, allowed_lse_error) : text;
}

}  // namespace flashladder::attention
