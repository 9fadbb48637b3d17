#include "operations/modified_attention/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "harness/dtype.h"
#include "in_parallel.h"

namespace flashladder::modified_attention {
namespace {

/// One row after another; sums are of type Real, what standard attention would store goes through `round`.
template <class Real, class Round>
attention::AttentionRows attend(const Inputs& in, std::vector<std::size_t> rows, Round round) {
    const attention::AttentionShape& s = in.shape;
    const std::size_t d = static_cast<std::size_t>(s.head_dim);
    attention::AttentionRows out{s.head_dim, std::move(rows), {}, {}};
    out.O.assign(out.rows.size() * d, 0);
    out.lse.assign(out.rows.size(), -std::numeric_limits<double>::infinity());
    in_parallel(out.rows.size(), 64, [&](std::size_t r, std::size_t end) {
        std::vector<Real> p(static_cast<std::size_t>(s.n_k)), o(d);
        for (; r < end; ++r) {
            const int row = static_cast<int>(out.rows[r]), i = row % s.n_q, h = row / s.n_q % s.heads,
                      b = row / s.n_q / s.heads;
            const int kv_head = b * s.kv_heads + h / (s.heads / s.kv_heads);
            const auto row_of = [&](const std::vector<float>& tensor, int j) {
                return &tensor[(static_cast<std::size_t>(kv_head) * static_cast<std::size_t>(s.n_k) +
                                static_cast<std::size_t>(j)) *
                               d];
            };
            const float* q = &in.Q[out.rows[r] * d];
            const int own = i + s.n_k - s.n_q, first = std::max(0, own - std::min(in.window, s.n_k) + 1);
            if (own < first) continue;

            Real m = -std::numeric_limits<Real>::infinity(), l = 0;
            const auto weight = [&](int j) -> Real& { return p[static_cast<std::size_t>(j - first)]; };
            for (int j = first; j <= own; ++j) {
                Real score = 0;
                for (std::size_t x = 0; x < d; ++x) score += Real(q[x]) * Real(row_of(in.K, j)[x]);
                score *= Real(in.scale);
                if (const Real c = static_cast<Real>(in.soft_cap); c > 0) score = c * std::tanh(score / c);
                if (!in.slopes.empty()) score -= Real(in.slopes[static_cast<std::size_t>(h)]) * Real(own - j);
                m = std::max(m, weight(j) = round(score));
            }
            for (int j = first; j <= own; ++j) l += weight(j) = std::exp(weight(j) - m);
            std::fill(o.begin(), o.end(), Real(0));
            for (int j = first; j <= own; ++j) {
                const Real w = round(weight(j) / l);
                for (std::size_t x = 0; x < d; ++x) o[x] += w * Real(row_of(in.V, j)[x]);
            }
            for (std::size_t x = 0; x < d; ++x) out.O[r * d + x] = round(o[x]);
            out.lse[r] = m + std::log(l);
        }
    });
    return out;
}

}  // namespace

attention::AttentionRows reference_attention(const Inputs& inputs, std::vector<std::size_t> rows) {
    return attend<double>(inputs, std::move(rows), [](double x) { return x; });
}

attention::AttentionRows standard_attention(const Inputs& inputs, std::vector<std::size_t> rows) {
    return attend<float>(inputs, std::move(rows), [t = inputs.shape.dtype](float x) { return round_to(t, x); });
}

}  // namespace flashladder::modified_attention
