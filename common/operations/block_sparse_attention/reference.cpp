#include "operations/block_sparse_attention/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "harness/dtype.h"
#include "in_parallel.h"

namespace flashladder::block_sparse_attention {
namespace {

/// One row after another; sums are of type Real, what standard attention would store goes through `round`.
template <class Real, class Round>
attention::AttentionRows attend(const Inputs& in, std::vector<std::size_t> rows, Round round) {
    const AttentionShape& s = in.shape;
    const std::size_t d = static_cast<std::size_t>(s.head_dim);
    attention::AttentionRows out{s.head_dim, std::move(rows), {}, {}};
    out.O.assign(out.rows.size() * d, 0);
    out.lse.assign(out.rows.size(), -std::numeric_limits<double>::infinity());
    in_parallel(out.rows.size(), 64, [&](std::size_t r, std::size_t end) {
        std::vector<Real> p, o(d);
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
            const std::vector<int> keys = seen_by(s, in.lists, h, i);
            if (keys.empty()) continue;

            p.clear();
            for (const int j : keys) {
                Real score = 0;
                for (std::size_t x = 0; x < d; ++x) score += Real(q[x]) * Real(row_of(in.K, j)[x]);
                p.push_back(round(score * Real(in.scale)));
            }
            const Real m = *std::ranges::max_element(p);
            Real l = 0;
            for (Real& weight : p) l += weight = std::exp(weight - m);
            std::ranges::fill(o, Real(0));
            for (std::size_t n = 0; n < keys.size(); ++n) {
                const Real weight = round(p[n] / l);
                for (std::size_t x = 0; x < d; ++x) o[x] += weight * Real(row_of(in.V, keys[n])[x]);
            }
            for (std::size_t x = 0; x < d; ++x) out.O[r * d + x] = round(o[x]);
            out.lse[r] = m + std::log(l);
        }
    });
    return out;
}

}  // namespace

std::vector<int> seen_by(const AttentionShape& s, const Lists& lists, int head, int i) {
    const int end = s.causal ? std::min(s.n_k, i + 1 + s.n_k - s.n_q) : s.n_k;
    const std::size_t list = static_cast<std::size_t>((lists.heads == 1 ? 0 : head) * blocks_of(s.n_q) + i / block);
    std::vector<int> keys;
    for (int e = lists.first[list]; e < lists.first[list + 1]; ++e) {
        const int j = lists.blocks[static_cast<std::size_t>(e)] * block;
        for (int key = j; key < std::min(j + block, end); ++key) keys.push_back(key);
    }
    return keys;
}

attention::AttentionRows reference_attention(const Inputs& inputs, std::vector<std::size_t> rows) {
    return attend<double>(inputs, std::move(rows), [](double x) { return x; });
}

attention::AttentionRows standard_attention(const Inputs& inputs, std::vector<std::size_t> rows) {
    return attend<float>(inputs, std::move(rows), [t = inputs.shape.dtype](float x) { return round_to(t, x); });
}

}  // namespace flashladder::block_sparse_attention
