#include "operations/attention_backward/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <type_traits>
#include <utility>

#include "harness/dtype.h"
#include "harness/random.h"
#include "in_parallel.h"

namespace flashladder::attention_backward {
namespace {

using Row = std::size_t;

/// Which rows belong together.
struct Heads {
    explicit Heads(const Inputs& in)
        : n_q(in.shape().n_q),
          n_k(in.shape().n_k),
          group(in.shape().heads / in.shape().kv_heads),
          window(in.window),
          causal(in.shape().causal) {}

    std::size_t n_q, n_k, group, window;
    bool causal;

    /// Row of K of the first key that a query's head has.
    Row first_key(Row query) const { return query / n_q / group * n_k; }
    /// Row of Q of the first query that sees this head of K; there are group * n_q of them.
    Row first_query(Row key) const { return key / n_k * group * n_q; }
    /// The keys that a query sees, rows of K from `begin` on.
    struct Keys {
        Row begin, end;
        bool contain(Row key) const { return begin <= key && key < end; }
    };
    Keys keys_of(Row query) const {
        const Row first = first_key(query);
        if (!causal) return {first, first + n_k};
        const auto up_to_its_own = static_cast<std::ptrdiff_t>(query % n_q + 1 + n_k) - static_cast<std::ptrdiff_t>(n_q);
        const auto seen = static_cast<std::size_t>(std::max<std::ptrdiff_t>(up_to_its_own, 0));
        return {first + seen - std::min(seen, window), first + seen};
    }
};

/// term(0) + ... + term(n - 1), in four sums: in one, each addition waits for the one before.
template <class Term>
double sum_of(std::size_t n, Term term) {
    double sums[4] = {};
    std::size_t x = 0;
    for (; x + 4 <= n; x += 4)
        for (std::size_t k = 0; k < 4; ++k) sums[k] += term(x + k);
    for (; x < n; ++x) sums[0] += term(x);
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

template <class Real>
Real dot(const float* a, const float* b, std::size_t d) {
    if constexpr (std::is_same_v<Real, double>) return sum_of(d, [&](std::size_t x) { return double(a[x]) * b[x]; });
    Real sum = 0;  // one after the other, as is usual: what is usual is the yardstick for kernels in float
    for (std::size_t x = 0; x < d; ++x) sum += Real(a[x]) * Real(b[x]);
    return sum;
}

/// How large the products of the elements are together, as if they had random signs.
double norm_of_products(const float* a, const float* b, std::size_t d) {
    return std::sqrt(sum_of(d, [&](std::size_t x) { return double(a[x]) * b[x] * a[x] * b[x]; }));
}

/// Of each row, the sum of its elements' squares.
std::vector<double> squares_of_rows(const std::vector<float>& rows, std::size_t d) {
    std::vector<double> squares(rows.size() / d);
    for (Row row = 0; row < squares.size(); ++row) squares[row] = dot<double>(&rows[row * d], &rows[row * d], d);
    return squares;
}

/// LSE and D of each query.
template <class Real>
struct Statistics {
    std::vector<Real> lse, D;
    std::vector<double> size_of_D;
};
std::vector<double> sizes_of_D(const Inputs& in) {
    const std::size_t d = static_cast<std::size_t>(in.shape().head_dim);
    std::vector<double> sizes(in.lse.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) sizes[i] = norm_of_products(&in.dO[i * d], &in.O[i * d], d);
    return sizes;
}

/// Of all queries, by Q, K, V and dO.
Statistics<double> exact_statistics(const Inputs& in) {
    const AttentionShape& s = in.shape();
    const Heads heads(in);
    const std::size_t d = static_cast<std::size_t>(s.head_dim), queries = s.lse_elements();
    const std::vector<float>&Q = in.forward.Q, &K = in.forward.K, &V = in.forward.V;
    Statistics<double> all{std::vector<double>(queries, -std::numeric_limits<double>::infinity()),
                           std::vector<double>(queries), sizes_of_D(in)};
    in_parallel(queries, 16, [&, scale = in.forward.scale](std::size_t i, std::size_t end) {
        std::vector<double> S(heads.n_k);
        for (; i < end; ++i) {
            const auto [begin, end_of_keys] = heads.keys_of(i);
            const std::size_t keys = end_of_keys - begin;
            if (keys == 0) continue;
            const float *K_seen = &K[begin * d], *V_seen = &V[begin * d];
            for (std::size_t j = 0; j < keys; ++j) S[j] = double(scale) * dot<double>(&Q[i * d], K_seen + j * d, d);
            const double m = *std::max_element(S.begin(), S.begin() + static_cast<std::ptrdiff_t>(keys));
            double l = 0, D = 0;
            for (std::size_t j = 0; j < keys; ++j) {
                const double p = std::exp(S[j] - m);
                l += p, D += p * dot<double>(&in.dO[i * d], V_seen + j * d, d);
            }
            all.lse[i] = m + std::log(l), all.D[i] = D / l;
        }
    });
    return all;
}

/// By O and LSE as they are given.
Statistics<float> given_statistics(const Inputs& in) {
    const std::size_t d = static_cast<std::size_t>(in.shape().head_dim);
    Statistics<float> all{in.lse, std::vector<float>(in.lse.size()), sizes_of_D(in)};
    for (std::size_t i = 0; i < all.D.size(); ++i) all.D[i] = dot<float>(&in.dO[i * d], &in.O[i * d], d);
    return all;
}

template <class Real, class Round>
Gradients gradients(const Inputs& in, const RowsToCheck& rows, const Statistics<Real>& statistics, Round round) {
    const AttentionShape& s = in.shape();
    const Heads heads(in);
    const std::size_t d = static_cast<std::size_t>(s.head_dim);
    const float *Q = in.forward.Q.data(), *K = in.forward.K.data(), *V = in.forward.V.data(), *dO = in.dO.data();
    const Real scale = Real(in.forward.scale);
    const std::vector<double> squares_of_Q = squares_of_rows(in.forward.Q, d), squares_of_K = squares_of_rows(in.forward.K, d),
                              squares_of_dO = squares_of_rows(in.dO, d);

    struct Pair {
        Real P, dS;
        double size_of_P, size_of_dS, without_D;  // of what they are made of: rounding is measured by it
    };
    /// Of a query and a key that it sees, by their rows.
    const auto of_pair = [&](Row i, Row j) {
        const Real S = scale * dot<Real>(Q + i * d, K + j * d, d);
        const Real P = round(std::exp(S - statistics.lse[i])), dP = round(dot<Real>(dO + i * d, V + j * d, d));
        // What is lost in S, a sum in float, is lost of P as a part of it. Beside a rounding to another dtype that is little.
        const double of_S = s.dtype == DType::f32 ? double(scale) * norm_of_products(Q + i * d, K + j * d, d) : 0;
        const double of_dP = norm_of_products(dO + i * d, V + j * d, d), difference = double(dP) - double(statistics.D[i]);
        return Pair{P, round(P * (dP - statistics.D[i])), double(P) * std::hypot(1, of_S),
                    double(P) * std::hypot(of_dP, statistics.size_of_D[i], difference * of_S),
                    double(P) * std::hypot(of_dP, difference * of_S)};
    };
    const auto add = [d](std::vector<Real>& sum, Real weight, const float* row) {
        for (std::size_t x = 0; x < d; ++x) sum[x] += weight * Real(row[x]);
    };
    const auto empty = [d](const std::vector<Row>& wanted) {
        return GradientRows{wanted, std::vector<double>(wanted.size() * d), std::vector<double>(wanted.size())};
    };
    const auto finish = [&](GradientRows& out, std::size_t r, Real factor, std::vector<Real>& sum, double& squares) {
        for (std::size_t x = 0; x < d; ++x) out.values[r * d + x] = double(round(factor * sum[x]));
        out.size[r] = std::abs(double(factor)) * std::sqrt(squares);
        std::fill(sum.begin(), sum.end(), Real(0));
        squares = 0;
    };

    Gradients out{empty(rows.queries), empty(rows.keys), empty(rows.keys)};
    in_parallel(rows.queries.size(), 16, [&](std::size_t r, std::size_t end) {
        std::vector<Real> dQ(d), mean(d);
        double squares = 0;
        for (; r < end; ++r) {
            const Row i = rows.queries[r];
            const auto [first, end_of_keys] = heads.keys_of(i);
            for (Row j = first; j < end_of_keys; ++j) {
                const Pair pair = of_pair(i, j);
                add(dQ, pair.dS, K + j * d);
                add(mean, pair.P, K + j * d);
                squares += pair.without_D * pair.without_D * squares_of_K[j];
            }
            // What D has lost, all keys have in common: it stays where their common part would cancel.
            for (Real& x : mean) squares += std::pow(statistics.size_of_D[i] * double(x), 2), x = 0;
            finish(out.dQ, r, scale, dQ, squares);
        }
    });
    in_parallel(rows.keys.size(), 16, [&](std::size_t r, std::size_t end) {
        std::vector<Real> dK(d), dV(d);
        double dK_squares = 0, dV_squares = 0;
        for (; r < end; ++r) {
            const Row j = rows.keys[r], first = heads.first_query(j);
            for (Row i = first; i < first + heads.group * heads.n_q; ++i) {
                if (!heads.keys_of(i).contain(j)) continue;
                const Pair pair = of_pair(i, j);
                add(dK, pair.dS, Q + i * d);
                add(dV, pair.P, dO + i * d);
                dK_squares += pair.size_of_dS * pair.size_of_dS * squares_of_Q[i];
                dV_squares += pair.size_of_P * pair.size_of_P * squares_of_dO[i];
            }
            finish(out.dK, r, scale, dK, dK_squares);
            finish(out.dV, r, Real(1), dV, dV_squares);
        }
    });
    return out;
}

std::vector<Row> some_rows(std::size_t rows_a_head, std::size_t heads, std::uint64_t seed, std::size_t most) {
    std::vector<Row> rows;
    const std::size_t all = rows_a_head * heads;
    if (all <= most) {
        for (Row row = 0; row < all; ++row) rows.push_back(row);
        return rows;
    }
    std::mt19937_64 random(seed);
    for (std::size_t n = 0; n < std::max<std::size_t>(most, 2); ++n) {
        const std::size_t head = n / 2 % heads, last = rows_a_head - 1;
        rows.push_back(head * rows_a_head + (n >= 2 * heads ? random() % rows_a_head : n % 2 ? last : 0));
    }
    std::ranges::sort(rows);
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    return rows;
}

}  // namespace

std::vector<float> fresh_dO(const AttentionShape& shape, std::uint64_t seed) {
    std::vector<float> dO(shape.q_elements());
    fill_with_normal(dO, seed, shape.q_elements() + 2 * shape.kv_elements());  // those before are Q, K and V
    for (float& x : dO) x = round_to(shape.dtype, x);
    return dO;
}

Inputs backward_inputs(const AttentionShape& shape, attention::Values values, std::uint64_t seed) {
    return with_forward_pass(attention::make_inputs(shape, values, seed), fresh_dO(shape, seed));
}

Inputs with_forward_pass(attention::Inputs forward, std::vector<float> dO) {
    std::vector<Row> rows(forward.shape.lse_elements());
    for (Row row = 0; row < rows.size(); ++row) rows[row] = row;
    const attention::AttentionRows passed = attention::reference_attention(forward, std::move(rows));
    return with_passed(std::move(forward), std::move(dO), passed);
}

Inputs with_passed(attention::Inputs forward, std::vector<float> dO, const attention::AttentionRows& passed) {
    Inputs in{std::move(forward), std::move(dO), {}, {passed.lse.begin(), passed.lse.end()}};
    in.O.resize(passed.O.size());
    std::ranges::transform(passed.O, in.O.begin(),
                           [dtype = in.shape().dtype](double x) { return round_to(dtype, static_cast<float>(x)); });
    return in;
}

RowsToCheck rows_to_check(const AttentionShape& s, std::uint64_t seed, std::size_t most) {
    const std::size_t batch = static_cast<std::size_t>(s.batch);
    return {some_rows(static_cast<std::size_t>(s.n_q), batch * static_cast<std::size_t>(s.heads), seed, most),
            some_rows(static_cast<std::size_t>(s.n_k), batch * static_cast<std::size_t>(s.kv_heads), seed + 1, most)};
}

Gradients reference_gradients(const Inputs& inputs, const RowsToCheck& rows) {
    return gradients<double>(inputs, rows, exact_statistics(inputs), [](double x) { return x; });
}

Gradients standard_gradients(const Inputs& inputs, const RowsToCheck& rows) {
    return gradients<float>(inputs, rows, given_statistics(inputs),
                            [dtype = inputs.shape().dtype](float x) { return round_to(dtype, x); });
}

}  // namespace flashladder::attention_backward
