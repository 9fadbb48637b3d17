// Which rows sequences have.
#include <algorithm>
#include <random>

#include "operations/varlen_attention/problem.h"

namespace flashladder::varlen_attention {

Sequences sequences_of(const std::vector<int>& n_q, const std::vector<int>& n_k) {
    Sequences all{{0}, {0}};
    for (const int n : n_q) all.cu_seqlens_q.push_back(all.total_q() + n);
    for (const int n : n_k) all.cu_seqlens_k.push_back(all.total_k() + n);
    return all;
}

Sequences draw_sequences(const Lengths& lengths, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto draw = [&](int most) { return 1 + static_cast<int>(random() % static_cast<unsigned>(most)); };
    std::vector<int> n_q, n_k;
    for (int b = 0; b < lengths.sequences; ++b) {
        const bool is_given = lengths.others > 0 && b == 0;
        const auto most = [&](int n) { return lengths.others > 0 ? std::min(lengths.others, n) : n; };
        n_q.push_back(is_given ? lengths.n_q : draw(most(lengths.n_q)));
        const bool as_many = lengths.n_q == lengths.n_k;
        n_k.push_back(as_many ? n_q.back() : is_given ? lengths.n_k : draw(most(lengths.n_k)));
    }
    return sequences_of(n_q, n_k);
}

double scores(const Shape& shape, const Sequences& sequences) {
    double sum = 0;
    for (int b = 0; b < sequences.count(); ++b) {
        const int n_q = sequences.n_q(b), n_k = sequences.n_k(b);
        for (int i = 0; i < n_q; ++i) sum += shape.causal ? std::max(i + 1 + n_k - n_q, 0) : n_k;
    }
    return sum * shape.heads;
}

}  // namespace flashladder::varlen_attention
