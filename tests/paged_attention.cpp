// Paged attention: its tables, and its specification against attention's own of each sequence by itself.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <stdexcept>
#include <string>

#include "operations/paged_attention/operation.h"
#include "test_seed.h"

#ifndef FLASHLADDER_GPU
#include "tile/divisor.h"
#endif

namespace flashladder::paged_attention {
namespace {

using attention::AttentionRows;
using attention::Values;

AttentionShape some_shape(int batch, int n_q, int n_k, bool causal = false) {
    return {.batch = batch, .heads = 4, .kv_heads = 2, .n_q = n_q, .n_k = n_k, .head_dim = 32, .causal = causal};
}

#ifndef FLASHLADDER_GPU  // g++ compiles this, and knows no device functions
TEST_CASE("a divisor of a launch gives what / gives, for all numbers, as far as 2^31 - 1") {
    std::mt19937 engine(static_cast<unsigned>(test_seed()));
    const auto random = [&] { return static_cast<unsigned>(engine()); };
    std::vector<unsigned> numbers = {1, 2, 3, 5, 7, 8, 24, 63, 64, 65, 1000, 1u << 20, (1u << 30) - 1, 1u << 30, 0x7FFFFFFF};
    for (int times = 0; times < 500; ++times) numbers.push_back(1 + (random() >> (1 + random() % 31)));
    for (const unsigned number : numbers) {
        const Divisor divisor(number);
        std::vector<unsigned> dividends = {0, number - 1, number, 0x7FFFFFFF, 0x7FFFFFFE};
        for (int times = 0; times < 50; ++times) {
            const unsigned multiple = (random() >> 1) / number * number;  // and its neighbours
            dividends.insert(dividends.end(), {multiple, multiple > 0 ? multiple - 1 : 0, random() >> 1});
        }
        for (const unsigned x : dividends)
            REQUIRE_MESSAGE((divisor.quotient(int(x)) == int(x / number)), x, " / ", number);
    }
}
#endif

TEST_CASE("sequences: pages are used once, lengths are 0 to n_k, and a pool may be too small") {
    const AttentionShape s = some_shape(9, 1, 100);
    const Pool pool{.page_size = 16, .pages = 64, .pages_of_sequence = 7};
    const Sequences full = draw_sequences(s, pool, false, test_seed());
    CHECK(full.lengths == std::vector(9, 100));
    CHECK(std::set(full.block_table.begin(), full.block_table.end()).size() == 63);
    CHECK(*std::ranges::min_element(full.block_table) >= 0);
    CHECK(*std::ranges::max_element(full.block_table) <= 63);
    CHECK(full == draw_sequences(s, pool, false, test_seed()));
    CHECK_FALSE(full == draw_sequences(s, pool, false, test_seed() + 1));
    const Sequences ragged = draw_sequences(s, pool, true, test_seed());
    CHECK(*std::ranges::min_element(ragged.lengths) >= 0);
    CHECK(*std::ranges::max_element(ragged.lengths) <= 100);
    std::set<int> used;
    int uses = 0;
    for (std::size_t b = 0; b < 9; ++b)
        for (int x = 0; x < pages_of(ragged.lengths[b], 16); ++x, ++uses)
            used.insert(ragged.block_table[b * 7 + std::size_t(x)]);
    CHECK(int(used.size()) == uses);
    CHECK_THROWS_WITH_AS(draw_sequences(s, {.page_size = 16, .pages = 62, .pages_of_sequence = 7}, false, 1),
                         "pages is 62, but sequences of 100 keys need more", std::invalid_argument);
}

TEST_CASE("paged attention: each sequence is attention of its own keys, in double and as the yardstick") {
    for (const bool causal : {false, true}) {
        const AttentionShape s = some_shape(5, 3, 70, causal);
        const Pool pool{.page_size = 8, .pages = 50, .pages_of_sequence = 9};
        Sequences sequences = draw_sequences(s, pool, true, test_seed());
        sequences.lengths[2] = 0;
        const Inputs in = inputs_of(make_inputs(s, pool, sequences, Values::normal, test_seed()));
        CHECK(in.sequences == sequences);
        CHECK(in.pool == pool);
        const auto rows = rows_to_check(s, 1);
        const AttentionRows found = reference_attention(in, rows), yardstick = standard_attention(in, rows);
        // The keys as they were before they went into pages: sequences have no page in common.
        const attention::Inputs side_by_side = attention::make_inputs(s, Values::normal, test_seed());
        for (std::size_t r = 0; r < rows.size(); ++r) {
            const std::size_t b = rows[r] / 12;
            const int length = sequences.lengths[b];
            const AttentionRows one = attention::reference_attention(side_by_side, {rows[r]}, [&](long long i) {
                return std::clamp<long long>(causal ? i + 1 + length - s.n_q : length, 0, length);
            });
            CHECK((one.lse[0] == found.lse[r] || std::abs(one.lse[0] - found.lse[r]) <= 1e-12));
            CHECK((found.lse[r] == yardstick.lse[r] || std::abs(found.lse[r] - yardstick.lse[r]) <= 1e-4));
            for (std::size_t x = 0; x < 32; ++x) {
                CHECK(std::abs(one.O[x] - found.O[r * 32 + x]) <= 1e-12);
                CHECK(std::abs(yardstick.O[r * 32 + x] - found.O[r * 32 + x]) <= 1e-4);
            }
        }
    }
}

TEST_CASE("paged attention: scores, words, types, and NaN is far from the reference") {
    CHECK(scores(some_shape(3, 1, 50), {50, 0, 7}) == 4.0 * 57);
    CHECK(scores(some_shape(2, 3, 50, true), {50, 2}) == 4.0 * (48 + 49 + 50 + 1 + 2));
    const AttentionShape s = some_shape(2, 3, 50);
    const Problem problem = problem_of(s, {.page_size = 16, .pages = 0}, true, 5, true);
    CHECK(to_string(problem) == "B 2 H 4/2 N 3x50 d 32, pages of 16, lengths drawn (draw 5) f32");
    CHECK(pool_of(problem) == Pool{.page_size = 16, .pages = 9, .pages_of_sequence = 4});
    CHECK(shape_of(problem) == s);
    const Data data = operation().inputs(problem, test_seed());
    const Inputs in = inputs_of(data);
    Data right{data.problem};
    for (const double x : reference_attention(in, rows_to_check(s, 1)).O) right.tensors["O"].push_back(float(x));
    const Reference reference = operation().reference(data, 1, 1 << 20);
    CHECK(reference(right).passed);
    right.tensors["O"][70] = std::numeric_limits<float>::quiet_NaN();
    CHECK_FALSE(reference(right).passed);
}

}  // namespace
}  // namespace flashladder::paged_attention
