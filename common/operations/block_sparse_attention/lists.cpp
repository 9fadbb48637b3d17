// Lists of blocks: good and bad ones, and those that a pattern makes.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <random>

#include "operations/block_sparse_attention/problem.h"

namespace flashladder::block_sparse_attention {
namespace {

/// The keys at which the queries of a block stand: the first one, and the last one. Below 0 there is none.
struct Places {
    int first, last;
};
Places places(const AttentionShape& s, int block_of_queries) {
    const int i = block_of_queries * block;
    return {i + s.n_k - s.n_q, std::min(i + block, s.n_q) - 1 + s.n_k - s.n_q};
}

int block_of(int key) { return key >= 0 ? key / block : (key + 1) / block - 1; }

/// How many blocks of keys lie between a block of keys and those where the queries stand; 0: it is one of these.
int distance(const Places& p, int block_of_keys) {
    return std::max({block_of(p.first) - block_of_keys, block_of_keys - block_of(p.last), 0});
}

}  // namespace

std::string why_bad(const Lists& lists, const AttentionShape& s) {
    const int T_r = blocks_of(s.n_q), T_c = blocks_of(s.n_k);
    if (lists.block_size != block)
        return fmt::format("block_size is {}, but only {} is supported", lists.block_size, block);
    if (lists.heads != 1 && lists.heads != s.heads)
        return fmt::format("lists are of {} heads, but must be of 1 or of all {}", lists.heads, s.heads);
    const std::size_t number = static_cast<std::size_t>(lists.heads) * static_cast<std::size_t>(T_r);
    if (lists.first.size() != number + 1)
        return fmt::format("first has {} numbers, but {} lists (heads {}, blocks of queries {}) need {}",
                           lists.first.size(), number, lists.heads, T_r, number + 1);
    if (lists.first.front() != 0) return fmt::format("first[0] is {}, but must be 0", lists.first.front());
    for (std::size_t r = 0; r < number; ++r)
        if (lists.first[r + 1] < lists.first[r])
            return fmt::format("first[{}] is {}, less than {} before it", r + 1, lists.first[r + 1], lists.first[r]);
    if (static_cast<std::size_t>(lists.first.back()) != lists.blocks.size())
        return fmt::format("first[{}] is {}, but there are {} blocks", number, lists.first.back(), lists.blocks.size());
    for (std::size_t r = 0; r < number; ++r)
        for (int e = lists.first[r]; e < lists.first[r + 1]; ++e) {
            const int j = lists.blocks[static_cast<std::size_t>(e)];
            if (j < 0 || j >= T_c)
                return fmt::format("blocks[{}] is {}, but blocks of keys are 0 to {}", e, j, T_c - 1);
            if (e > lists.first[r] && j <= lists.blocks[static_cast<std::size_t>(e) - 1])
                return fmt::format("blocks[{}] is {}, but a list ascends, and {} stands before it", e, j,
                                   lists.blocks[static_cast<std::size_t>(e) - 1]);
        }
    return "";
}

Lists make_lists(const AttentionShape& s, const Pattern& pattern) {
    Lists lists{.heads = pattern.per_head ? s.heads : 1, .first = {0}, .blocks = {}};
    std::mt19937_64 random(static_cast<std::uint64_t>(pattern.draw));
    for (int head = 0; head < lists.heads; ++head)
        for (int i = 0; i < blocks_of(s.n_q); ++i) {
            const Places here = places(s, i);
            for (int j = 0; j < blocks_of(s.n_k); ++j) {
                const bool drawn = random() % 100 < static_cast<unsigned>(pattern.density);
                const int away = distance(here, j);
                const bool is_in = drawn || away <= pattern.window ||
                                   (pattern.butterfly && std::has_single_bit(static_cast<unsigned>(away)));
                if (is_in && !(s.causal && j > block_of(here.last))) lists.blocks.push_back(j);
            }
            lists.first.push_back(static_cast<int>(lists.blocks.size()));
        }
    return lists;
}

double scores(const AttentionShape& s, const Lists& lists) {
    double sum = 0;
    const int T_r = blocks_of(s.n_q);
    for (std::size_t r = 0; r + 1 < lists.first.size(); ++r) {
        const int i = static_cast<int>(r) % T_r;
        const Places here = places(s, i);
        for (int e = lists.first[r]; e < lists.first[r + 1]; ++e) {
            const int j = lists.blocks[static_cast<std::size_t>(e)] * block, end = std::min(j + block, s.n_k);
            const double all = double(std::min(block, s.n_q - i * block)) * (end - j);
            if (!s.causal || end - 1 <= here.first)
                sum += all;
            else if (j <= here.last)
                sum += all / 2;
        }
    }
    return sum * s.batch * s.heads / lists.heads;
}

}  // namespace flashladder::block_sparse_attention
