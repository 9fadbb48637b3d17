#include "operations/gated_product/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "harness/dtype.h"
#include "harness/random.h"
#include "in_parallel.h"

namespace flashladder::gated_product {
namespace {

constexpr double of_float =
    0x1p-20;  // of the sizes that are summed: a tensor core drops digits where float arithmetic rounds

/// Rows of C, and by how much sums in float may be off.
struct Rows {
    std::vector<std::size_t> rows;
    std::vector<double> C, off;  // (rows, N)
};

Rows gated(const Data& in, std::vector<std::size_t> rows) {
    const Shape s = shape_of(in.problem);
    const std::vector<float>&A = in.tensors.at("A"), &B = in.tensors.at("B"), &G = in.tensors.at("G");
    const std::size_t N = static_cast<std::size_t>(s.N), K = static_cast<std::size_t>(s.K);
    Rows out{std::move(rows), {}, {}};
    out.C.assign(out.rows.size() * N, 0), out.off.assign(out.rows.size() * N, 0);
    in_parallel(out.rows.size(), 4, [&](std::size_t r, std::size_t end) {
        struct Sum {
            double sum = 0, size = 0;  // of the products, and of their absolute values
            void add(double x) { sum += x, size += std::fabs(x); }
        };
        for (; r < end; ++r) {
            std::vector<Sum> u(N), g(N);
            for (std::size_t k = 0; k < K; ++k) {
                const double a = A[out.rows[r] * K + k];
                for (std::size_t j = 0; j < N; ++j) u[j].add(a * B[k * N + j]), g[j].add(a * G[k * N + j]);
            }
            for (std::size_t j = 0; j < N; ++j) {
                const double silu = g[j].sum / (1 + std::exp(-g[j].sum));
                out.C[r * N + j] = u[j].sum * silu;
                // The slope of silu is 1.1 at most.
                out.off[r * N + j] = of_float * (std::fabs(silu) * u[j].size + 1.1 * std::fabs(u[j].sum) * g[j].size);
            }
        }
    });
    return out;
}

class GatedProduct : public Operation {
public:
    std::string name() const override { return "gated_product"; }

    std::vector<Size> sizes() const override {
        return {{.name = "M", .option = "m", .meaning = "M, rows of A and C", .value = 256},
                {.name = "N", .option = "n", .meaning = "N, columns of B, G and C", .value = 256},
                {.name = "K", .option = "k", .meaning = "K, columns of A, rows of B and G", .value = 256}};
    }
    std::string title(const Problem& problem) const override { return to_string(shape_of(problem)); }

    std::vector<Tensor> all_tensors(const Problem& p) const override {
        return {{"A", {p.at("M"), p.at("K")}, p.dtype},
                {"B", {p.at("K"), p.at("N")}, p.dtype},
                {"G", {p.at("K"), p.at("N")}, p.dtype},
                {"C", {p.at("M"), p.at("N")}, p.dtype, true}};
    }
    double flops(const Problem& problem) const override { return shape_of(problem).flops(); }
    double units(const Problem& p) const override { return double(p.at("M")) * double(p.at("N")); }
    const char* unit() const override { return "element"; }

    /// Normal numbers, of which those of B and G are so small that products are near 1, where a gate does something.
    Data inputs(const Problem& problem, std::uint64_t seed) const override {
        Data data{problem};
        std::size_t drawn = 0;
        const float small = 1 / std::sqrt(float(problem.at("K")));
        for (const Tensor& tensor : tensors(problem)) {
            if (tensor.is_output) continue;
            std::vector<float>& values = data.tensors[tensor.name];
            values.resize(tensor.elements());
            fill_with_normal(values, seed, drawn);
            for (float& x : values) x = round_to(problem.dtype, tensor.name == "A" ? x : x * small);
            drawn += values.size();
        }
        return data;
    }

    /// Each element by itself: half a unit in the last place of the dtype, once, and what sums in float lose.
    Reference reference(const Data& in, std::uint64_t, std::size_t most) const override {
        const Shape s = shape_of(in.problem);
        const std::size_t M = static_cast<std::size_t>(s.M), N = static_cast<std::size_t>(s.N);
        std::vector<std::size_t> rows;
        for (std::size_t i = 0; i < M; i += std::max<std::size_t>(1, M / std::max<std::size_t>(1, most)))
            rows.push_back(i);
        const auto expected = std::make_shared<const Rows>(gated(in, rows));
        return [s, N, expected, dtype = in.problem.dtype](const Data& outputs) {
            const std::vector<float>& C = outputs.tensors.at("C");
            constexpr double least = std::numeric_limits<double>::min();
            double difference = 0, norm = 0;
            Judgement j;
            j.allowed_worst_row = 2 * allowed_error(dtype);
            std::string where;
            for (std::size_t r = 0; r < expected->rows.size(); ++r) {
                double row_difference = 0, row_norm = 0;
                for (std::size_t x = 0; x < N; ++x) {
                    const double found = C.at(expected->rows[r] * N + x), wanted = expected->C[r * N + x];
                    const double off =
                        std::isnan(found - wanted) ? std::numeric_limits<double>::infinity() : found - wanted;
                    row_difference += off * off, row_norm += wanted * wanted;
                    const double of_sums = expected->off[r * N + x];
                    const double allowed = one_rounding(dtype, std::fabs(wanted) + of_sums) + of_sums;
                    if (where.empty() && !(std::fabs(off) <= allowed))
                        where = "; " + element_text(fmt::format("C[{}][{}]", expected->rows[r], x), dtype, found, wanted, allowed);
                }
                difference += row_difference, norm += row_norm;
                j.worst_row = std::max(j.worst_row, std::sqrt(row_difference / std::max(row_norm, least)));
            }
            j.error = std::sqrt(difference / std::max(norm, least));
            j.passed = where.empty() && j.error <= allowed_error(dtype) && j.worst_row <= j.allowed_worst_row;
            j.description = fmt::format(
                "{} {}{}; C's relative error is {:.2e} (allowed {:.0e}), its worst row's {:.2e} (allowed {:.2e})",
                to_string(s), flashladder::to_string(dtype), where, j.error, allowed_error(dtype), j.worst_row,
                j.allowed_worst_row);
            return j;
        };
    }

    std::vector<std::pair<std::string, Data>> checks(DType dtype, std::uint64_t seed) const override {
        std::vector<std::pair<std::string, Data>> all;
        for (const Shape& s : {Shape{256, 256, 256}, Shape{200, 264, 72}})
            all.emplace_back(fmt::format("random, {}", to_string(s)), inputs(problem_of(s).in(dtype), seed));
        return all;
    }
    std::vector<Problem> benched(const GivenSizes& given) const override {
        return {with(problem_of({8192, 8192, 4096}), given)};
    }
    Problem cut_down(const Problem& problem) const override {
        const Shape s = shape_of(problem);
        return problem_of({std::min(s.M, 256), std::min(s.N, 256), std::min(s.K, 256)}).in(problem.dtype);
    }
    std::vector<CountedProblem> counted() const override { return {}; }  // no rung is compared with a capstone
};

}  // namespace

const Operation& operation() {
    static const GatedProduct gated_product;
    return gated_product;
}

Problem problem_of(const Shape& s) { return {&operation(), {{"M", s.M}, {"N", s.N}, {"K", s.K}}, DType::bf16}; }

Shape shape_of(const Problem& p) {
    return {static_cast<int>(p.at("M")), static_cast<int>(p.at("N")), static_cast<int>(p.at("K"))};
}

std::string to_string(const Shape& s) { return fmt::format("{} x {} x {}", s.M, s.N, s.K); }

}  // namespace flashladder::gated_product
