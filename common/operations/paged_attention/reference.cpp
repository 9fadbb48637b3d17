#include "operations/paged_attention/reference.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace flashladder::paged_attention {
namespace {

using attention::AttentionRows;

/// `attend` does a sequence that has keys.
template <class Attend>
AttentionRows by_sequences(const Inputs& in, const std::vector<std::size_t>& rows, Attend attend) {
    const AttentionShape& s = in.shape;
    const std::size_t d = static_cast<std::size_t>(s.head_dim);
    const std::size_t of_sequence = static_cast<std::size_t>(s.heads) * static_cast<std::size_t>(s.n_q);
    AttentionRows all{s.head_dim, rows, std::vector<double>(rows.size() * d, 0),
                      std::vector<double>(rows.size(), -std::numeric_limits<double>::infinity())};
    for (int b = 0; b < s.batch; ++b) {
        if (in.sequences.lengths[static_cast<std::size_t>(b)] == 0) continue;
        std::vector<std::size_t> own, places;  // rows of this sequence, and where they are among all
        for (std::size_t r = 0; r < rows.size(); ++r)
            if (rows[r] / of_sequence == static_cast<std::size_t>(b))
                own.push_back(rows[r] % of_sequence), places.push_back(r);
        const AttentionRows found = attend(sequence_of(in, b), std::move(own));
        for (std::size_t r = 0; r < places.size(); ++r) {
            all.lse[places[r]] = found.lse[r];
            std::copy_n(found.O.begin() + static_cast<std::ptrdiff_t>(r * d), d,
                        all.O.begin() + static_cast<std::ptrdiff_t>(places[r] * d));
        }
    }
    return all;
}

}  // namespace

attention::Inputs sequence_of(const Inputs& in, int b) {
    AttentionShape s = in.shape;
    s.batch = 1, s.n_k = in.sequences.lengths[static_cast<std::size_t>(b)];
    attention::Inputs out{s, {}, {}, {}, in.scale};
    const auto q = in.Q.begin() + static_cast<std::ptrdiff_t>(s.q_elements()) * b;
    out.Q.assign(q, q + static_cast<std::ptrdiff_t>(s.q_elements()));
    for (const auto& [pool, tensor] : {std::pair(&in.K, &out.K), {&in.V, &out.V}})
        for (int head = 0; head < s.kv_heads; ++head)
            for (int j = 0; j < s.n_k; ++j) {
                const int page =
                    in.sequences
                        .block_table[static_cast<std::size_t>(b * in.pool.pages_of_sequence + j / in.pool.page_size)];
                const std::ptrdiff_t row =
                    (static_cast<std::ptrdiff_t>(page) * s.kv_heads + head) * in.pool.page_size + j % in.pool.page_size;
                const auto first = pool->begin() + row * s.head_dim;
                tensor->insert(tensor->end(), first, first + s.head_dim);
            }
    return out;
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

}  // namespace flashladder::paged_attention
