// Capstone 2: scores that are modified where they are, in the registers that tensor cores leave them in.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "harness/run.h"
#include "modified_attention_suite.h"

namespace flashladder::modified_attention {
namespace {

using attention::Values;

[[maybe_unused]] const StrictBarriers strict_barriers;

constexpr int tile = 64;  // queries, and keys, in which targets are counted

Shape with_scores(int heads, int n_q, int n_k, bool alibi, int soft_cap, int head_dim = 64) {
    Shape s = shape_of(heads, n_q, n_k, head_dim);
    s.alibi = alibi, s.soft_cap = soft_cap;
    return s;
}

/// All weights, by shapes of which the first are the simplest. Peaky scores are those that a cap changes.
void check_weights(const std::vector<Shape>& shapes, Values values) {
    std::uint64_t seed = test_seed();
    for (const Shape& shape : shapes) {
        const std::string wrong = wrong_weights(shape, values, seed++);
        CHECK_MESSAGE(wrong.empty(), wrong);
        if (!wrong.empty()) break;  // what is wrong with the next ones is likely the same
    }
}

TEST_CASE("EXERCISE capstone-2.1: nothing is done to the scores: queries see the keys up to their own") {
    std::mt19937_64 random(test_seed());
    check_weights(
        {with_scores(1, 20, 20, false, 0), with_scores(1, 1, 1, false, 0), with_scores(1, 64, 64, false, 0),
         with_scores(1, 130, 128, false, 0),  // in some row of tiles the last query misses the last key alone
         with_scores(1, drawn_length(random, tile, 70, 200), drawn_length(random, tile, 70, 250), false, 0, 128),
         with_scores(1, drawn_length(random, tile, 70, 200), drawn_length(random, tile, 1, 250), false, 0)},
        Values::normal);
}

TEST_CASE("EXERCISE capstone-2.1: a soft cap") {
    check_weights(
        {with_scores(1, 40, 40, false, 5), with_scores(1, 40, 40, false, 1), with_scores(2, 64, 130, false, 30, 128)},
        Values::peaky);
}

TEST_CASE("EXERCISE capstone-2.1: ALiBi, by the slope of each head") {
    std::mt19937_64 random(test_seed());
    check_weights({with_scores(4, 40, 40, true, 0), with_scores(8, 3, 64, true, 0, 128),
                   with_scores(3, drawn_length(random, tile, 1, 100), drawn_length(random, tile, 70, 250), true, 0)},
                  Values::normal);
}

TEST_CASE("EXERCISE capstone-2.1: what a query does not see counts for nothing, however large its score") {
    std::mt19937_64 random(test_seed());
    for (const int head_dim : {64, 128, 64, 128}) {
        const Shape s = with_scores(1, 100, 100, false, 0, head_dim);
        const std::string wrong = fault_with_hidden_scores(s, int(random() % 100), random());
        CHECK_MESSAGE(wrong.empty(), wrong);
    }
}

TEST_CASE("EXERCISE capstone-2.1: both, the cap first; O, and LSE, of heads that share keys") {
    std::mt19937_64 random(test_seed());
    Shape grouped = with_scores(4, 40, 40, true, 5);
    grouped.kv_heads = 2;
    check_weights({with_scores(4, 40, 40, true, 5), grouped, with_scores(4, 90, 130, true, 1)}, Values::peaky);
    for (const int head_dim : {64, 128}) {
        Shape s = with_scores(4, 100, 170, true, 20, head_dim);
        s.batch = 2, s.kv_heads = 2;
        const std::string wrong = fault(s, Values::normal, random());
        CHECK_MESSAGE(wrong.empty(), wrong);
    }
}

TEST_CASE("scores far beyond the cap, on either side, are the cap") {
    for (const int head_dim : {64, 128}) {
        const Shape s = with_scores(2, 70, 130, false, 3, head_dim);
        const std::string wrong = fault(s, Values::large_offset, test_seed());
        CHECK_MESSAGE(wrong.empty(), wrong);
    }
}

TEST_CASE("keys far behind queries reach none of them") {
    constexpr int early = 128, late = 256;  // the first queries, and the keys that are NaN from here on
    for (const int head_dim : {64, 128}) {
        const Shape s = with_scores(2, 400, 400, true, 20, head_dim);
        Data data = make_inputs(s, Values::normal, test_seed());
        const std::vector<float> expected = run(stage_under_test(), data).tensors.at("O");
        for (const char* name : {"K", "V"})
            for (std::size_t x = 0; x < data.tensors.at(name).size(); ++x)
                if (static_cast<int>(x / static_cast<std::size_t>(head_dim)) % s.n_k >= late)
                    data.tensors.at(name)[x] = std::numeric_limits<float>::quiet_NaN();
        const std::vector<float> found = run(stage_under_test(), data).tensors.at("O");
        for (std::size_t x = 0; x < found.size(); ++x) {
            const int query = static_cast<int>(x / static_cast<std::size_t>(head_dim)) % s.n_q;
            const bool same = query >= early || found[x] == expected[x];
            if (!same || x + 1 == found.size())
                CHECK_MESSAGE(
                    same, fmt::format("O of query {} is {} with NaN in the keys from {} on, expected {} as before ({})",
                                      query, found[x], late, expected[x], to_string(s)));
            if (!same) break;
        }
    }
}

TEST_CASE("lengths of every residue, by queries and keys") {
    std::mt19937_64 random(test_seed());
    for (int i = 0; i < 8; ++i) {
        const int n_q = 1 + (int(test_seed() % tile) + 8 * i) % tile + tile * int(random() % 3),
                  n_k = 1 + int(random() % tile) + tile * int(random() % 4);
        const std::string wrong =
            fault(with_scores((31 + n_q) / n_q, n_q, n_k, i % 4 > 0, i % 3 ? 10 : 0, i % 2 ? 64 : 128), Values::normal,
                  random());
        CHECK_MESSAGE(wrong.empty(), wrong);
    }
}

#ifndef FLASHLADDER_GPU
using emulator::Access;

/// Keys that the visited tiles of 64 queries may have: those that they see, in whole tiles, and two tiles more.
double tiles_of_keys(const Shape& s) {
    double keys = 0;
    for (int i = 0; i < s.n_q; i += tile) {
        const int end = std::clamp(std::min(i + tile, s.n_q) + s.n_k - s.n_q, 0, s.n_k);
        keys += (end + tile - 1) / tile * tile + 2 * tile;
    }
    return keys;
}

std::vector<Shape> counted_shapes() {
    std::vector<Shape> all;
    for (const int head_dim : {64, 128})
        for (const int soft_cap : {0, 20}) all.push_back(with_scores(1, 768, 768, true, soft_cap, head_dim));
    all.push_back(with_scores(1, 200, 500, false, 20));
    return all;
}

TEST_CASE("counted: products are the tensor cores', of the tiles that queries see and of no other") {
    for (const Shape& s : counted_shapes()) {
        const double found = double(counts_of(s).work.total().matrix_flops);
        CHECK_MESSAGE((found >= s.flops()),
                      fmt::format("FLOP by tensor cores: found {}, expected at least {}, those of the scores ({})",
                                  found, s.flops(), to_string(s)));
        // And sums of rows by the tensor cores, 8 columns.
        check_at_most("FLOP by tensor cores", found, 2.0 * tile * tiles_of_keys(s) * (2 * s.head_dim + 8), s);
    }
}

TEST_CASE("counted: Q, K and V come by cp.async, K and V of the tiles that queries see, while others are multiplied") {
    for (const Shape& s : counted_shapes()) {
        const StageCounts counts = counts_of(s);
        const emulator::Work work = counts.work.total();
        const double row = 2.0 * s.head_dim;
        check_at_most("bytes that threads read into registers, of slopes alone",
                      double(work.global_of(Access::read).requested_bytes), 4 * 256.0 * ((s.n_q + 31) / 32), s);
        check_at_most("rows of Q, K and V that are asked for",
                      double(work.global_of(Access::cp_async).requested_bytes) / row, s.n_q + 2 * tiles_of_keys(s), s);
        check_at_most("rows of O that are written", double(work.global_of(Access::write).requested_bytes) / row, s.n_q,
                      s);
        check_at_most("sectors that are moved", double(work.all_global().sectors),
                      double(work.all_global().requested_bytes) / 32 + 2 * s.n_q, s);
        std::uint64_t under_products = 0;
        for (const auto& launch : counts.work.launches)
            under_products = std::max(under_products, launch.most_copies_under_products);
        CHECK_MESSAGE((under_products > 0), fmt::format("copies that a warp has asked for and not waited for while it "
                                                        "multiplies: found 0, expected some: whatever "
                                                        "has been asked for is waited for before the next product ({})",
                                                        to_string(s)));
    }
}

TEST_CASE("counted: no bank conflicts, few exponentials and divisions") {
    for (const Shape& s : counted_shapes()) {
        const emulator::Work work = counts_of(s).work.total();
        const double scores = tile * tiles_of_keys(s), most = s.soft_cap ? 2.5 : 1.25;
        check_at_most("bank conflicts of reads, of ldmatrix too", double(work.shared_of(Access::read).conflicts), 0, s);
        check_at_most("bank conflicts, of wavefronts of shared memory", double(work.all_shared().conflicts),
                      0.02 * double(work.all_shared().wavefronts), s);
        check_at_most("exponentials", double(work.exponentials), most * scores, s);
        check_at_most("divisions", double(work.divisions), most * scores, s);
    }
}
#endif

}  // namespace
}  // namespace flashladder::modified_attention
