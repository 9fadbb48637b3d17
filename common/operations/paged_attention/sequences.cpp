// Which keys sequences have, and in which pages.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <stdexcept>

#include "operations/paged_attention/problem.h"

namespace flashladder::paged_attention {

std::vector<int> draw_lengths(const AttentionShape& s, bool ragged, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<int> all(static_cast<std::size_t>(s.batch), s.n_k);
    for (int& length : all)
        if (ragged) length = static_cast<int>(random() % (static_cast<unsigned>(s.n_k) + 1));
    return all;
}

Sequences draw_sequences(const AttentionShape& s, const Pool& pool, bool ragged, std::uint64_t seed) {
    std::mt19937_64 random(seed + 1);  // lengths have those of the seed
    Sequences all{{}, draw_lengths(s, ragged, seed)};
    std::vector<int> pages(static_cast<std::size_t>(pool.pages));
    std::iota(pages.begin(), pages.end(), 0);
    for (std::size_t x = pages.size(); x > 1; --x) std::swap(pages[x - 1], pages[random() % x]);
    for (const int length : all.lengths)
        for (int x = 0; x < pool.pages_of_sequence; ++x) {
            if (x >= pages_of(length, pool.page_size)) {
                const int anything = static_cast<int>(random() % static_cast<unsigned>(pool.pages));
                all.block_table.push_back(std::array{-1, 1 << 23, -(1 << 20), anything}[random() % 4]);
                continue;
            }
            if (pages.empty())
                throw std::invalid_argument(
                    fmt::format("pages is {}, but sequences of {} keys need more", pool.pages, length));
            all.block_table.push_back(pages.back());
            pages.pop_back();
        }
    return all;
}

double scores(const AttentionShape& s, const std::vector<int>& lengths) {
    double sum = 0;
    for (const int length : lengths)
        for (int i = 0; i < s.n_q; ++i) sum += s.causal ? std::max(length - s.n_q + i + 1, 0) : length;
    return sum * s.heads;
}

}  // namespace flashladder::paged_attention
