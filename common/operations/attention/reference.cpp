#include "operations/attention/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "harness/dtype.h"
#include "in_parallel.h"

namespace flashladder::attention {
namespace {

constexpr std::size_t at_once = 8;

/// q times `keys` rows of K, each sum in the order of its d elements.
template <std::size_t keys, class Real>
void find_products(const float* q, const float* K, std::size_t d, Real* sums) {
    Real dots[keys] = {};
    for (std::size_t x = 0; x < d; ++x)
        for (std::size_t k = 0; k < keys; ++k) dots[k] += Real(q[x]) * Real(K[k * d + x]);
    std::copy(dots, dots + keys, sums);
}

/// Attention for one row after another; sums are of type Real, what standard attention would store goes through
/// `round`.
template <class Real, class Round>
AttentionRows attention(const Inputs& in, std::vector<std::size_t> rows, const VisibleKeys& visible, Round round) {
    const AttentionShape& s = in.shape;
    const std::size_t d = s.head_dim, d_v = std::size_t(in.columns_of_V()), n_k = s.n_k;
    AttentionRows out{in.columns_of_V(), std::move(rows), {}, {}};
    out.O.assign(out.rows.size() * d_v, 0);
    out.lse.assign(out.rows.size(), -std::numeric_limits<double>::infinity());
    in_parallel(out.rows.size(), 64, [&](std::size_t first, std::size_t end) {
        std::vector<Real> p(n_k), o(d_v);
        for (std::size_t r = first; r < end; ++r) {
            const std::size_t row = out.rows[r], i = row % s.n_q, h = row / s.n_q % s.heads, b = row / s.n_q / s.heads;
            const std::size_t kv_head = b * s.kv_heads + h / (s.heads / s.kv_heads);
            const float* q = &in.Q[row * d];
            const float* K = &in.K[kv_head * n_k * d];
            const float* V = &in.V[kv_head * n_k * d_v];
            const auto keys = static_cast<std::size_t>(std::clamp<long long>(visible(static_cast<long long>(i)), 0, s.n_k));
            if (keys == 0) continue;

            // Eight keys at once: sums that wait for each other take the processor four times as long.
            for (std::size_t j = 0; j < keys; j += at_once) {
                const std::size_t behind = std::min(at_once, keys - j);
                Real dots[at_once] = {};
                if (behind == at_once)
                    find_products<at_once>(q, K + j * d, d, dots);
                else
                    for (std::size_t k = 0; k < behind; ++k) find_products<1>(q, K + (j + k) * d, d, dots + k);
                for (std::size_t k = 0; k < behind; ++k) p[j + k] = round(dots[k] * Real(in.scale));
            }
            const Real m = *std::max_element(p.begin(), p.begin() + static_cast<std::ptrdiff_t>(keys));
            Real l = 0;
            for (std::size_t j = 0; j < keys; ++j) l += p[j] = std::exp(p[j] - m);
            std::fill(o.begin(), o.end(), Real(0));
            for (std::size_t j = 0; j < keys; ++j) {
                const Real weight = round(p[j] / l);
                for (std::size_t x = 0; x < d_v; ++x) o[x] += weight * Real(V[j * d_v + x]);
            }
            for (std::size_t x = 0; x < d_v; ++x) out.O[r * d_v + x] = round(o[x]);
            out.lse[r] = m + std::log(l);
        }
    });
    return out;
}

}  // namespace

std::vector<std::size_t> rows_to_check(const AttentionShape& shape, std::uint64_t seed) {
    constexpr int all_up_to = 2048, block = 32, sampled_per_head = 64;
    const std::size_t heads = std::size_t(shape.batch) * shape.heads, n_q = shape.n_q;
    std::vector<std::size_t> rows;
    if (shape.n_q <= all_up_to) {
        rows.resize(heads * n_q);
        std::iota(rows.begin(), rows.end(), std::size_t(0));
        return rows;
    }
    std::mt19937_64 random(seed);
    for (std::size_t head = 0; head < heads; ++head) {
        for (std::size_t i = 0; i < n_q; i += block) {
            rows.push_back(head * n_q + i);
            rows.push_back(head * n_q + std::min(i + block, n_q) - 1);
        }
        for (int k = 0; k < sampled_per_head; ++k) rows.push_back(head * n_q + random() % n_q);
    }
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    return rows;
}

VisibleKeys visible_keys(const AttentionShape& shape) {
    if (shape.causal) return [diagonal = shape.n_k - shape.n_q](long long i) { return i + 1 + diagonal; };
    return [n_k = shape.n_k](long long) { return n_k; };
}

AttentionRows reference_attention(const Inputs& inputs, std::vector<std::size_t> rows, const VisibleKeys& visible) {
    return attention<double>(inputs, std::move(rows), visible, [](double x) { return x; });
}
AttentionRows reference_attention(const Inputs& inputs, std::vector<std::size_t> rows) {
    return reference_attention(inputs, std::move(rows), visible_keys(inputs.shape));
}

AttentionRows standard_attention(const Inputs& inputs, std::vector<std::size_t> rows) {
    return attention<float>(inputs, std::move(rows), visible_keys(inputs.shape),
                            [t = inputs.shape.dtype](float x) { return round_to(t, x); });
}

}  // namespace flashladder::attention
