#include "operations/gemm/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>

#include "harness/dtype.h"
#include "harness/random.h"
#include "in_parallel.h"

namespace flashladder::gemm {
namespace {

/// Rows of C, and what errors of a row are measured by: the sums of absolute values, in which rounding of float is lost.
struct Rows {
    std::vector<std::size_t> rows;
    std::vector<double> sum, size;  // (rows, N)
};

Rows product(const Data& in, std::vector<std::size_t> rows) {
    const Shape s = shape_of(in.problem);
    const std::vector<float>&A = in.tensors.at("A"), &B = in.tensors.at("B");
    const std::size_t N = static_cast<std::size_t>(s.N), K = static_cast<std::size_t>(s.K);
    Rows C{std::move(rows), {}, {}};
    C.sum.assign(C.rows.size() * N, 0), C.size.assign(C.rows.size() * N, 0);
    in_parallel(C.rows.size(), 4, [&](std::size_t r, std::size_t end) {
        for (; r < end; ++r)
            for (std::size_t k = 0; k < K; ++k) {
                const double a = A[C.rows[r] * K + k];
                for (std::size_t j = 0; j < N; ++j) {
                    const double x = a * B[k * N + j];
                    C.sum[r * N + j] += x, C.size[r * N + j] += std::fabs(x);
                }
            }
    });
    return C;
}

class Gemm : public Operation {
public:
    std::string name() const override { return "gemm"; }

    std::vector<Size> sizes() const override {
        return {{.name = "M", .option = "m", .meaning = "M, rows of A and C", .value = 256},
                {.name = "N", .option = "n", .meaning = "N, columns of B and C", .value = 256},
                {.name = "K", .option = "k", .meaning = "K, columns of A and rows of B", .value = 256}};
    }
    std::string title(const Problem& problem) const override { return to_string(shape_of(problem)); }

    std::vector<Tensor> all_tensors(const Problem& p) const override {
        return {{"A", {p.at("M"), p.at("K")}, p.dtype},
                {"B", {p.at("K"), p.at("N")}, p.dtype},
                {"C", {p.at("M"), p.at("N")}, p.dtype, true}};
    }
    double flops(const Problem& problem) const override { return shape_of(problem).flops(); }

    Data inputs(const Problem& problem, std::uint64_t seed) const override {
        Data data{problem};
        std::size_t drawn = 0;
        for (const Tensor& tensor : tensors(problem)) {
            if (tensor.is_output) continue;
            std::vector<float>& values = data.tensors[tensor.name];
            values.resize(tensor.elements());
            fill_with_normal(values, seed, drawn);
            for (float& x : values) x = round_to(problem.dtype, x);
            drawn += values.size();
        }
        return data;
    }

    /// A row is as far off as its worst element, against half a unit in the last place of the dtype and what float loses.
    Reference reference(const Data& in, std::uint64_t, std::size_t most) const override {
        const Shape s = shape_of(in.problem);
        std::vector<std::size_t> rows;
        const std::size_t M = static_cast<std::size_t>(s.M), N = static_cast<std::size_t>(s.N);
        for (std::size_t i = 0; i < M; i += std::max<std::size_t>(1, M / std::max<std::size_t>(1, most))) rows.push_back(i);
        const auto expected = std::make_shared<const Rows>(product(in, rows));
        return [s, N, expected, dtype = in.problem.dtype](const Data& outputs) {
            constexpr double of_float = 0x1p-20;  // a tensor core drops digits where float arithmetic rounds
            const std::vector<float>& C = outputs.tensors.at("C");
            double difference = 0, norm = 0, worst = 0;
            std::string where;
            for (std::size_t r = 0; r < expected->rows.size(); ++r) {
                double row_difference = 0, row_norm = 0;
                for (std::size_t j = 0; j < N; ++j) {
                    const double found = C.at(expected->rows[r] * N + j), wanted = expected->sum[r * N + j];
                    const double off = std::isnan(found - wanted) ? std::numeric_limits<double>::infinity() : found - wanted;
                    row_difference += off * off, row_norm += wanted * wanted;
                    const double of_sums = expected->size[r * N + j] * of_float;
                    const double allowed = one_rounding(dtype, std::fabs(wanted) + of_sums) + of_sums;
                    if (where.empty() && !(std::fabs(off) <= allowed))
                        where = "; " + element_text(fmt::format("C[{}][{}]", expected->rows[r], j), dtype, found, wanted, allowed);
                }
                difference += row_difference, norm += row_norm;
                worst = std::max(worst, std::sqrt(row_difference / std::max(row_norm, std::numeric_limits<double>::min())));
            }
            Judgement j;
            j.error = std::sqrt(difference / std::max(norm, std::numeric_limits<double>::min()));
            j.worst_row = worst;
            j.allowed_worst_row = 2 * flashladder::allowed_error(dtype);
            j.passed = where.empty() && j.error <= flashladder::allowed_error(dtype) && j.worst_row <= j.allowed_worst_row;
            j.description = fmt::format("{} {}{}; C's relative error is {:.2e} (allowed {:.0e}), its worst row's {:.2e} "
                                        "(allowed {:.2e})",
                                        to_string(s), flashladder::to_string(dtype), where, j.error,
                                        flashladder::allowed_error(dtype), j.worst_row, j.allowed_worst_row);
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
        std::vector<Problem> all;
        for (const std::int64_t n : {4096, 8192}) {
            const Problem square = with(problem_of({}), {{"M", n}, {"N", n}, {"K", n}});
            if (const Problem p = with(square, given); std::ranges::find(all, p) == all.end()) all.push_back(p);
        }
        return all;
    }
    Problem cut_down(const Problem& problem) const override {
        const Shape s = shape_of(problem);
        return problem_of({std::min(s.M, 256), std::min(s.N, 512), std::min(s.K, 256)}).in(problem.dtype);
    }
    std::vector<CountedProblem> counted() const override {
        return {{problem_of({1024, 1024, 1024})}, {problem_of({200, 264, 328})}};
    }
};

}  // namespace

const Operation& operation() {
    static const Gemm gemm;
    return gemm;
}

Problem problem_of(const Shape& s) {
    return {&operation(), {{"M", s.M}, {"N", s.N}, {"K", s.K}}, DType::bf16};
}

Shape shape_of(const Problem& p) {
    return {static_cast<int>(p.at("M")), static_cast<int>(p.at("N")), static_cast<int>(p.at("K"))};
}

std::string to_string(const Shape& s) { return fmt::format("{} x {} x {}", s.M, s.N, s.K); }

}  // namespace flashladder::gemm
