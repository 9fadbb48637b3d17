// Rung 27b. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "harness/asked.h"
#include "launch.h"
#include "operations/attention/parts.h"
#include "paged_attention_suite.h"

namespace flashladder::paged_attention {
namespace {

using std::size_t;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// Where a row of the pool belongs.
enum class Of { sequence, last_page, no_sequence };

/// Of each row of a page, who has it, for all heads alike.
std::vector<Of> owners(const Case& c) {
    const size_t size = size_t(c.pool.page_size);
    std::vector<Of> all(size_t(c.pool.pages) * size, Of::no_sequence);
    for (int b = 0; b < c.shape.batch; ++b) {
        const std::vector<int> pages = c.pages_of_sequence(b);
        for (size_t x = 0; x < pages.size() * size; ++x) {
            Of& owner = all[size_t(pages[x / size]) * size + x % size];
            if (int(x) < c.sequences.lengths[size_t(b)])
                owner = Of::sequence;
            else if (owner == Of::no_sequence)
                owner = Of::last_page;
        }
    }
    return all;
}

struct Found {
    std::vector<float> O, lse;
    std::string error;  // where the kernel stops
};
/// With K = 0, so that all keys that are seen have the same weight, and V as value(row of a page, page, column) says.
template <class F>
Found with_values(const Case& c, F value) {
    Data data = inputs_of_case(c, Values::normal, test_seed());
    std::ranges::fill(data.tensors.at("K"), 0.0f);
    std::vector<float>& V = data.tensors.at("V");
    const size_t d = size_t(c.shape.head_dim), size = size_t(c.pool.page_size), kv_heads = size_t(c.shape.kv_heads);
    for (size_t x = 0; x < V.size(); ++x) V[x] = value(x / d % size, x / d / size / kv_heads, x % d) ? 1.0f : 0.0f;
    try {
        Data out = run(stage_under_test(), data);
        return {out.tensors.at("O"), out.tensors.at("lse"), ""};
    } catch (const CudaError& error) {
        return {{}, {}, error.what()};
    }
}

/// How many keys of each page, or with each row, sequence b of one query has taken up, by the columns of O.
std::vector<double> taken(const Case& c, const Found& found, int b, int keys) {
    std::vector<double> all;
    for (size_t x = 0; x < size_t(c.shape.head_dim); ++x)
        all.push_back(double(found.O[size_t(b * c.shape.heads) * size_t(c.shape.head_dim) + x]) * keys);
    return all;
}
bool is_about(double found, double expected) { return std::abs(found - expected) <= 0.02 * std::max(expected, 1.0); }

/// What is wrong with the first sequence that has taken up other keys than its own; "" if nothing is. Of one query, and
/// at most d pages.
std::string wrong_keys(const Case& c) {
    const size_t d = size_t(c.shape.head_dim);
    const Found by_page = with_values(c, [&](size_t, size_t page, size_t x) { return x == page; });
    if (!by_page.error.empty()) return by_page.error;
    for (int b = 0; b < c.shape.batch; ++b) {
        const int keys = c.sequences.lengths[size_t(b)];
        const std::vector<int> pages = c.pages_of_sequence(b);
        const std::vector<double> found = taken(c, by_page, b, keys);
        for (int page = 0; page < c.pool.pages; ++page) {
            const double n = found[size_t(page)];
            if (!std::ranges::count(pages, page) && !(n == 0))
                return fmt::format("O of sequence {} has {} of page {}, which is not in its table [{}] ({})", b,
                                   std::isnan(n) ? "NaN, perhaps" : "values", page, fmt::join(pages, " "), c.words());
        }
        for (size_t x = 0; x < pages.size(); ++x) {
            const double n = found[size_t(pages[x])];
            const int expected = std::min(c.pool.page_size, keys - int(x) * c.pool.page_size);
            if (!is_about(n, expected))
                return fmt::format(
                    "sequence {} has taken up {:.3g} keys of page {}, number {} of its table [{}], expected "
                    "{} ({})",
                    b, n, pages[x], x, fmt::join(pages, " "), expected, c.words());
        }
        const double lse = by_page.lse[size_t(b * c.shape.heads)];
        if (keys > 0 && !is_about(std::exp(lse), keys))
            return fmt::format("LSE of sequence {} says that it sees {:.3g} keys, expected {} ({})", b, std::exp(lse),
                               keys, c.words());
    }
    // Which rows: the first half of the columns says it but for a multiple, the other half which multiple.
    const size_t half = d / 2;
    const Found by_row = with_values(
        c, [&](size_t row, size_t, size_t x) { return x < half ? x == row % half : x - half == row / half; });
    if (!by_row.error.empty()) return by_row.error;
    for (int b = 0; b < c.shape.batch; ++b) {
        const int keys = c.sequences.lengths[size_t(b)];
        const std::vector<double> found = taken(c, by_row, b, keys);
        std::vector<int> expected(d);
        for (int j = 0; j < keys; ++j) {
            const size_t row = size_t(j % c.pool.page_size);
            ++expected[row % half], ++expected[half + row / half];
        }
        for (size_t x = 0; x < d; ++x) {
            if (is_about(found[x], expected[x])) continue;
            const std::string rows =
                x >= half ? fmt::format("rows {} to {}", (x - half) * half, (x - half + 1) * half - 1)
                : size_t(c.pool.page_size) > half ? fmt::format("row {}, or a multiple of {} further,", x, half)
                                                  : fmt::format("row {}", x);
            return fmt::format("sequence {} has taken up {:.3g} keys that are {} of their page, expected {} ({})", b,
                               found[x], rows, expected[x], c.words());
        }
    }
    return "";
}

/// The same where rows of V that belong to `whom` are NaN, and nothing else is: which sequence they have reached.
std::string wrong_by_nan(const Case& c, Of whom) {
    Data data = inputs_of_case(c, Values::normal, test_seed());
    const std::vector<Of> all = owners(c);
    const size_t d = size_t(c.shape.head_dim), size = size_t(c.pool.page_size), kv_heads = size_t(c.shape.kv_heads);
    for (const char* name : {"K", "V"}) {
        std::vector<float>& tensor = data.tensors.at(name);
        for (size_t x = 0; x < tensor.size(); ++x) {
            const size_t row = x / d % size, page = x / d / size / kv_heads;
            const Of owner = all[page * size + row];
            if (owner != Of::sequence) tensor[x] = owner == whom ? nan : 0.0f;
        }
    }
    std::vector<float> O;
    try {
        O = run(stage_under_test(), data).tensors.at("O");
    } catch (const CudaError& error) {
        return error.what();
    }
    const size_t of_sequence = O.size() / size_t(c.shape.batch);
    for (int b = 0; b < c.shape.batch; ++b) {
        const auto first = O.begin() + std::ptrdiff_t(size_t(b) * of_sequence);
        if (std::none_of(first, first + std::ptrdiff_t(of_sequence), [](float x) { return std::isnan(x); })) continue;
        const int keys = c.sequences.lengths[size_t(b)];
        const std::vector<int> pages = c.pages_of_sequence(b);
        if (whom == Of::no_sequence || keys == 0)
            return fmt::format("O of sequence {} is NaN, which stands {} ({})", b,
                               whom == Of::no_sequence ? "in pages of no sequence alone"
                                                       : "behind the last keys of other sequences alone",
                               c.words());
        return fmt::format(
            "O of sequence {} is NaN, which stands behind last keys alone: its last key, {}, is row {} of page {}, and "
            "rows behind it have come ({})",
            b, keys - 1, (keys - 1) % c.pool.page_size, pages.back(), c.words());
    }
    return "";
}

bool check_case(const Case& c) {
    std::string wrong = wrong_keys(c);
    if (wrong.empty()) wrong = wrong_by_nan(c, Of::no_sequence);
    if (wrong.empty()) wrong = wrong_by_nan(c, Of::last_page);
    if (wrong.empty()) wrong = fault(stage_under_test(), c, Values::normal, test_seed());
    CHECK_MESSAGE(wrong.empty(), wrong);
    return wrong.empty();
}

TEST_CASE("EXERCISE 27b.1: in which page a key is, and which row of it") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    // A block of keys is a box, of a page, and pages are full, so that nothing stands behind a last key.
    for (const auto& [d, page_size] : {std::pair(64, 256), {128, 128}, {64, 384}, {256, 64}, {128, 256}, {256, 192}}) {
        if (turn++ % 2 && d == 256) continue;
        if (!check_case(case_of(random, {page_size, page_size * (2 + int(random() % 2)), page_size}, page_size, d)))
            return;
    }
    const Case c = case_of(random, {256, 0, 768}, 256, 64, 3, true, 4, 2);
    const std::string wrong = fault(stage_under_test(), c, Values::normal, test_seed());
    CHECK_MESSAGE(wrong.empty(), wrong);
}

TEST_CASE("EXERCISE 27b.2: nothing behind a sequence's last key comes") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const int d : {64, 128, 256}) {
        // Where a block has several boxes: one page, of one box.
        const int few = turn % 2 ? 16 : 32, some = 1 + int(random() % unsigned(few));
        if (!check_case(case_of(random, {1, few - 1, few, some}, few, d))) return;
        // One key of a page, all but one, none too many, anything; in the first block, and behind it.
        const int page_size = std::array{128, 256, 384}[turn++ % 3], rest = 1 + int(random() % unsigned(page_size));
        if (!check_case(case_of(random, {1, page_size - 1, page_size + rest, 0}, page_size, d))) return;
        // Causal: rows see different numbers of keys of the last page.
        const Case c = case_of(random, {rest, 3, page_size + 1}, page_size, d, 5, true, 4, 2);
        const std::string wrong = fault(stage_under_test(), c, Values::normal, test_seed());
        CHECK_MESSAGE(wrong.empty(), wrong);
        if (!wrong.empty()) return;
    }
}

TEST_CASE("EXERCISE 27b.3: a block of keys is loaded from its pages") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const int d : {64, 128, 256})
        for (const int page_size : {16, std::array{32, 128, 256, 48}[turn++ % 4]}) {
            // A block alone, one that is not full, several; entries behind the last page are followed by nobody.
            const int B_c = attention::block_of_keys, some = 1 + int(random() % 250);
            if (!check_case(case_of(random, {B_c}, page_size, d))) return;
            if (!check_case(case_of(random, {some, 0, B_c - 1, B_c + 1}, page_size, d))) return;
            const Case c = case_of(random, {some, 5}, page_size, d, 3, true, 6, 2);
            const std::string wrong = fault(stage_under_test(), c, Values::normal, test_seed());
            CHECK_MESSAGE(wrong.empty(), wrong);
            if (!wrong.empty()) return;
        }
#ifndef FLASHLADDER_GPU
    for (const int d : {64, 128, 256}) {
        // The second sequence ends with a page, so there is no box for the key behind its last one; nor for any of the third.
        const Case c = case_of(random, {400, 96, 0, 77}, 32, d, 1, false, 4, 2);
        const Data data = inputs_of_case(c, Values::normal, test_seed());
        const std::string race = emulator::find_race([&] { run(stage_under_test(), data); });
        CHECK_MESSAGE(race.empty(), race);
        if (!race.empty()) return;
        StageCounts counts = count_stage(stage_under_test(), data);
        for (const char* name : {"K", "V"})
            check_count(
                fmt::format("bytes of {} that are read: rows of the boxes that have keys, once ({})", name, c.words()),
                counts.tensors[name].read.requested_bytes, loaded_rows(c) * std::uint64_t(d) * 2);
        check_count(
            fmt::format("numbers of the block table that are read: of boxes that have keys, once for K and once "
                        "for V ({})",
                        c.words()),
            counts.tensors["block_table"].read.requested_bytes / 4, 1, 2 * boxes_with_keys(c));
    }
#endif
}

}  // namespace
}  // namespace flashladder::paged_attention
