#include "operations/varlen_attention/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace flashladder::varlen_attention {
namespace {

using attention::AttentionRows;

std::size_t number(int n) { return static_cast<std::size_t>(n); }

/// Which sequence has this query.
int sequence_with(const Sequences& s, int query) {
    const auto behind = std::upper_bound(s.cu_seqlens_q.begin(), s.cu_seqlens_q.end(), query);
    return static_cast<int>(behind - s.cu_seqlens_q.begin()) - 1;
}

/// `attend` does a sequence that has keys.
template <class Attend>
AttentionRows by_sequences(const Inputs& in, const std::vector<std::size_t>& rows, Attend attend) {
    const attention::AttentionShape& s = in.shape;
    const std::size_t d = number(in.columns_of_V()), total_q = number(s.n_q);
    AttentionRows all{in.columns_of_V(), rows, std::vector<double>(rows.size() * d, 0),
                      std::vector<double>(rows.size(), -std::numeric_limits<double>::infinity())};
    const std::size_t sequences = number(in.sequences.count());
    std::vector<std::vector<std::size_t>> own(sequences), places(sequences);  // rows of each, and where they are in all
    for (std::size_t r = 0; r < rows.size(); ++r) {
        const int query = static_cast<int>(rows[r] % total_q), b = sequence_with(in.sequences, query);
        own[number(b)].push_back(rows[r] / total_q * number(in.sequences.n_q(b)) +
                                 number(query - in.sequences.first_q(b)));
        places[number(b)].push_back(r);
    }
    for (std::size_t b = 0; b < sequences; ++b) {
        if (own[b].empty() || in.sequences.n_k(static_cast<int>(b)) == 0) continue;
        const AttentionRows found = attend(sequence_of(in, static_cast<int>(b)), std::move(own[b]));
        for (std::size_t r = 0; r < places[b].size(); ++r) {
            all.lse[places[b][r]] = found.lse[r];
            std::copy_n(found.O.begin() + static_cast<std::ptrdiff_t>(r * d), d,
                        all.O.begin() + static_cast<std::ptrdiff_t>(places[b][r] * d));
        }
    }
    return all;
}

}  // namespace

attention::Inputs sequence_of(const Inputs& in, int b) {
    attention::AttentionShape s = in.shape;
    s.n_q = in.sequences.n_q(b), s.n_k = in.sequences.n_k(b);
    attention::Inputs out{s, {}, {}, {}, in.scale, in.value_dim};
    /// From (rows, heads, d) to (heads, rows, d).
    const auto take = [&](const std::vector<float>& from, std::vector<float>& to, int d, int heads, int first, int rows) {
        for (int head = 0; head < heads; ++head)
            for (int i = 0; i < rows; ++i) {
                const auto row =
                    from.begin() + static_cast<std::ptrdiff_t>((number(first + i) * number(heads) + number(head)) * number(d));
                to.insert(to.end(), row, row + d);
            }
    };
    take(in.Q, out.Q, s.head_dim, s.heads, in.sequences.first_q(b), s.n_q);
    take(in.K, out.K, s.head_dim, s.kv_heads, in.sequences.first_k(b), s.n_k);
    take(in.V, out.V, in.columns_of_V(), s.kv_heads, in.sequences.first_k(b), s.n_k);
    return out;
}

std::string place_of_row(const Sequences& s, std::size_t row) {
    const std::size_t total_q = number(s.total_q());
    const int query = static_cast<int>(row % total_q), b = sequence_with(s, query);
    return fmt::format("sequence {} head {} query {}", b, row / total_q, query - s.first_q(b));
}

std::size_t place_in_O(const Shape& s, std::size_t row, std::size_t x) {
    const std::size_t head = row / number(s.n_q), query = row % number(s.n_q);
    return (query * number(s.heads) + head) * number(s.columns_of_V()) + x;
}

AttentionRows reference_attention(const Inputs& inputs, const std::vector<std::size_t>& rows) {
    return by_sequences(inputs, rows, [](const attention::Inputs& in, std::vector<std::size_t> own) {
        return attention::reference_attention(in, std::move(own));
    });
}

AttentionRows standard_attention(const Inputs& inputs, const std::vector<std::size_t>& rows) {
    return by_sequences(inputs, rows, [](const attention::Inputs& in, std::vector<std::size_t> own) {
        return attention::standard_attention(in, std::move(own));
    });
}

}  // namespace flashladder::varlen_attention
