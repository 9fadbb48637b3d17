// Block-sparse attention: its lists, and its specification against attention's own with the mask written out.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "operations/block_sparse_attention/operation.h"
#include "test_seed.h"

namespace flashladder::block_sparse_attention {
namespace {

using attention::AttentionRows;
using attention::Values;

AttentionShape some_shape(int n_q, int n_k, bool causal = false) {
    return {.batch = 2, .heads = 4, .kv_heads = 2, .n_q = n_q, .n_k = n_k, .head_dim = 32, .causal = causal};
}
std::vector<std::vector<int>> rows_of(const Lists& lists) {
    std::vector<std::vector<int>> rows;
    for (std::size_t r = 0; r + 1 < lists.first.size(); ++r)
        rows.emplace_back(lists.blocks.begin() + lists.first[r], lists.blocks.begin() + lists.first[r + 1]);
    return rows;
}
using Rows = std::vector<std::vector<int>>;

TEST_CASE("block lists: the diagonal, a window, a butterfly, all, by hand") {
    const AttentionShape s = some_shape(6 * block, 6 * block);
    const auto rows = [](const AttentionShape& shape, const Pattern& pattern) {
        return rows_of(make_lists(shape, pattern));
    };
    CHECK(rows(s, {.density = 0}) == Rows{{0}, {1}, {2}, {3}, {4}, {5}});
    CHECK(rows(s, {.density = 0, .window = 1}) == Rows{{0, 1}, {0, 1, 2}, {1, 2, 3}, {2, 3, 4}, {3, 4, 5}, {4, 5}});
    CHECK(rows(s, {.density = 0, .butterfly = true}) ==
          Rows{{0, 1, 2, 4}, {0, 1, 2, 3, 5}, {0, 1, 2, 3, 4}, {1, 2, 3, 4, 5}, {0, 2, 3, 4, 5}, {1, 3, 4, 5}});
    CHECK(rows(s, {}) == Rows(6, {0, 1, 2, 3, 4, 5}));
    // Causal, with more keys than queries: these stand at keys 57 to 184 and 185 to 256, of three blocks each.
    const AttentionShape ragged = some_shape(200, 257, true);
    CHECK(rows(ragged, {.density = 0}) == Rows{{0, 1}, {1, 2}});
    CHECK(rows(ragged, {}) == Rows{{0, 1}, {0, 1, 2}});
    // With fewer keys than queries: the first queries stand before the first key.
    CHECK(rows(some_shape(300, 100, true), {}) == Rows{{}, {0}, {0}});
    CHECK(rows(some_shape(300, 100), {.density = 0}) == Rows{{}, {0}, {0}});
}

TEST_CASE("block lists: what is drawn is of the density, by the seed, for each head if it is asked for") {
    const AttentionShape s = some_shape(40 * block, 50 * block);
    for (const int density : {5, 25, 60}) {
        const Pattern pattern{.density = density, .per_head = true, .draw = int(test_seed() % 1000)};
        const Lists lists = make_lists(s, pattern);
        CHECK(why_bad(lists, s).empty());
        CHECK(lists.heads == s.heads);
        CHECK(lists == make_lists(s, pattern));
        Pattern other = pattern;
        ++other.draw;
        CHECK_FALSE(lists == make_lists(s, other));
        const Rows rows = rows_of(lists);
        REQUIRE(rows.size() == 160);
        CHECK(std::vector(rows.begin(), rows.begin() + 40) != std::vector(rows.begin() + 40, rows.begin() + 80));
        for (int i = 0; i < 160; ++i)  // the last query at the last key
            CHECK(std::ranges::count(rows[std::size_t(i)], i % 40 + 10) == 1);
        const double share = double(lists.blocks.size()) / (160 * 50),
                     expected = density / 100.0 + (1 - density / 100.0) / 50;
        CHECK(std::abs(share - expected) < 0.03);  // 5 standard deviations
    }
}

TEST_CASE("block lists: bad ones are refused by place and value") {
    const AttentionShape s = some_shape(300, 200);  // three blocks of queries, two of keys
    const Lists good{.heads = 1, .first = {0, 2, 2, 3}, .blocks = {0, 1, 1}};
    REQUIRE(why_bad(good, s).empty());
    const auto told = [&](auto change) {
        Lists lists = good;
        change(lists);
        const std::string why = why_bad(lists, s);
        CHECK_THROWS_WITH_AS(make_inputs(s, lists, Values::normal, 1), why.c_str(), std::invalid_argument);
        return why;
    };
    CHECK(told([](Lists& l) { l.block_size = 64; }) == "block_size is 64, but only 128 is supported");
    CHECK(told([](Lists& l) { l.heads = 3; }) == "lists are of 3 heads, but must be of 1 or of all 4");
    CHECK(told([](Lists& l) { l.heads = 4; }) ==
          "first has 4 numbers, but 12 lists (heads 4, blocks of queries 3) need 13");
    CHECK(told([](Lists& l) { l.first[0] = 1; }) == "first[0] is 1, but must be 0");
    CHECK(told([](Lists& l) { l.first[2] = 1; }) == "first[2] is 1, less than 2 before it");
    CHECK(told([](Lists& l) { l.first[3] = 4; }) == "first[3] is 4, but there are 3 blocks");
    CHECK(told([](Lists& l) { l.blocks[2] = 2; }) == "blocks[2] is 2, but blocks of keys are 0 to 1");
    CHECK(told([](Lists& l) { l.blocks[0] = -1; }) == "blocks[0] is -1, but blocks of keys are 0 to 1");
    CHECK(told([](Lists& l) { l.blocks[1] = 0; }) == "blocks[1] is 0, but a list ascends, and 0 stands before it");
}

double furthest(const AttentionRows& a, const AttentionRows& b) {
    REQUIRE(a.O.size() == b.O.size());
    double most = 0;
    for (std::size_t x = 0; x < a.O.size(); ++x) most = std::max(most, std::abs(a.O[x] - b.O[x]));
    for (std::size_t r = 0; r < a.lse.size(); ++r)
        if (a.lse[r] != b.lse[r]) most = std::max(most, std::abs(a.lse[r] - b.lse[r]));  // -infinity is itself
    return most;
}

TEST_CASE("block-sparse attention: with all blocks it is attention, in double and as the yardstick") {
    for (const bool causal : {false, true})
        for (const auto& [n_q, n_k] : {std::pair(130, 130), {20, 300}, {300, 20}}) {
            const AttentionShape s = some_shape(n_q, n_k, causal);
            const Inputs in = inputs_of(make_inputs(s, make_lists(s, {}), Values::normal, test_seed()));
            const auto rows = rows_to_check(s, 1);
            CHECK(furthest(reference_attention(in, rows), attention::reference_attention(in, rows)) <= 1e-12);
            CHECK(furthest(standard_attention(in, rows), attention::standard_attention(in, rows)) <= 1e-5);
        }
}

TEST_CASE("block-sparse attention: it is attention with a mask of all scores, written out") {
    for (const bool causal : {false, true})
        for (const bool per_head : {false, true}) {
            const AttentionShape s = some_shape(300, 450, causal);
            const Lists lists = make_lists(s, {.density = 40, .per_head = per_head, .draw = int(test_seed() % 1000)});
            const Inputs in = inputs_of(make_inputs(s, lists, Values::normal, test_seed()));
            CHECK(in.lists == lists);
            const auto rows = rows_to_check(s, 1);
            AttentionRows dense{s.head_dim, rows, {}, {}};
            const Rows of_block = rows_of(lists);
            std::set<std::tuple<int, int, int>> mask;  // head, block of queries, block of keys
            for (int h = 0; h < s.heads; ++h)
                for (int i = 0; i < 3; ++i)
                    for (const int j : of_block[std::size_t(per_head ? 3 * h + i : i)]) mask.insert({h, i, j});
            for (const std::size_t row : rows) {
                const int i = int(row) % s.n_q, h = int(row) / s.n_q % s.heads, b = int(row) / s.n_q / s.heads;
                const std::size_t kv = std::size_t(b * s.kv_heads + h / 2) * std::size_t(s.n_k);
                std::vector<double> o(32), weights;
                double l = 0;
                for (int j = 0; j < s.n_k; ++j) {
                    double dot = 0;
                    for (std::size_t x = 0; x < 32; ++x)
                        dot += double(in.Q[row * 32 + x]) * in.K[(kv + std::size_t(j)) * 32 + x];
                    const bool seen = mask.contains({h, i / block, j / block}) && !(causal && j > i + s.n_k - s.n_q);
                    l += weights.emplace_back(seen ? std::exp(dot * in.scale) : 0);
                    for (std::size_t x = 0; x < 32; ++x) o[x] += weights.back() * in.V[(kv + std::size_t(j)) * 32 + x];
                }
                for (const double x : o) dense.O.push_back(l > 0 ? x / l : 0);
                dense.lse.push_back(std::log(l));
            }
            CHECK(furthest(reference_attention(in, rows), dense) <= 1e-12);
        }
}

TEST_CASE(
    "block-sparse attention: scores are those of listed blocks; words, types, and NaN is far from the reference") {
    const AttentionShape s = some_shape(300, 450), masked = some_shape(300, 300, true);
    CHECK(scores(s, make_lists(s, {})) == 8.0 * 300 * 450);
    CHECK(scores(s, {.heads = 1, .first = {0, 1, 1, 3}, .blocks = {0, 1, 3}}) == 8.0 * (128 * 128 + 44 * (128 + 66)));
    CHECK(scores(masked, make_lists(masked, {})) == 8.0 * (2 * 128 * 128 + 44 * 256 + 44 * 44 / 2));
    const Lists all{.heads = 1, .first = {0, 3, 6, 9}, .blocks = {0, 1, 2, 0, 1, 2, 0, 1, 2}};
    CHECK(scores(masked, all) == scores(masked, make_lists(masked, {})));  // what causal hides as a whole is nothing

    const Pattern pattern{.density = 10, .window = 2, .butterfly = true, .per_head = true, .draw = 5};
    const Problem problem = problem_of(s, pattern, true);
    CHECK(to_string(problem) == "B 2 H 4/2 N 300x450 d 32, 10% + window 2 + butterfly by head (draw 5) f32");
    CHECK(to_string(problem_of(masked, {.density = 0})) == "B 2 H 4/2 N 300 d 32 causal, diagonal f32");
    CHECK(shape_of(problem) == std::pair(s, pattern));
    CHECK(to_string(make_inputs(masked, all, Values::normal, 1).problem) ==
          "B 2 H 4/2 N 300 d 32 causal, given lists f32");

    const Data data = operation().inputs(problem, test_seed());
    const Inputs in = inputs_of(data);
    CHECK(in.lists == make_lists(s, pattern));
    Data right{data.problem};
    for (const double x : reference_attention(in, rows_to_check(s, 1)).O) right.tensors["O"].push_back(float(x));
    const Reference reference = operation().reference(data, 1, 1 << 20);
    CHECK(reference(right).passed);
    right.tensors["O"][70] = std::numeric_limits<float>::quiet_NaN();
    CHECK_FALSE(reference(right).passed);
    CHECK(reference(right).description.find("O[batch 0 head 0 query 2][6] is nan") != std::string::npos);
}

}  // namespace
}  // namespace flashladder::block_sparse_attention
