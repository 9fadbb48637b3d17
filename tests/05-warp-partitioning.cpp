// Rung 05. 5.1 concerns split-K alone, and is judged by LSE, which needs maxima and sums, but not O. 5.2 is split-Q.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <string>

#include "attention_suite.h"

#ifndef FLASHLADDER_GPU
#include "operations/attention/closed_forms.h"
#include "operations/attention/counts.h"
#endif

namespace flashladder::attention {
namespace {

const Stage& split_q() { return stage_under_test(); }
const Stage& split_k() { return find_stage("05-warp-partitioning/split-K"); }

#ifndef FLASHLADDER_GPU
using Count = std::uint64_t;

/// A problem in tiles, in the letters of the lesson.
struct Tiles {
    Count blocks, T_c, B_r, B_c, d;
};
Tiles tiles_of(const AttentionShape& s, int B_r, int B_c) {
    const auto up = [](int n, int tile) { return Count(n + tile - 1) / Count(tile); };
    return {Count(s.batch) * Count(s.heads) * up(s.n_q, B_r), up(s.n_k, B_c), Count(B_r), Count(B_c),
            Count(s.head_dim)};
}
Tiles split_q_tiles(const AttentionShape& s) { return tiles_of(s, 128, s.head_dim == 64 ? 64 : 16); }
Tiles split_k_tiles(const AttentionShape& s) { return tiles_of(s, 32, 64); }

emulator::Work work_of(const Stage& stage, const AttentionShape& shape) {
    return count_stage(stage, make_inputs(shape, Values::normal, test_seed())).work.total();
}

std::vector<AttentionShape> counted_shapes() {
    return {shape_of(1, 128, 128, 64), shape_of(2, 150, 200, 64), shape_of(1, 150, 200, 128)};
}

void check_no_keys_behind_the_diagonal() {
    for (const int d : {64, 128}) attention::check_no_keys_behind_the_diagonal(d, 128, d == 64 ? 64 : 16);
}

constexpr Count warps = 4, element_bytes = 2, float_bytes = 4;
#endif

TEST_CASE("EXERCISE 5.1: a row's values from all warps") {
    // 40 keys: the third warp has 8, the last one none that counts. Up to 200: up to four steps.
    std::mt19937_64 random(test_seed());
    for (const int n_k : {40, 64, drawn_length(16, 1, 64, random()), drawn_length(64, 1, 200, random())}) {
        const Inputs in =
            make_inputs(shape_of(1, 32 + drawn_length(32, 1, 33, random()), n_k, 64), Values::peaky, random());
        const std::string wrong = lse_fault(split_k(), in);
        CHECK_MESSAGE(wrong.empty(), "split-K: ", wrong);
    }
#ifndef FLASHLADDER_GPU
    const std::string report = race(split_k(), make_inputs(shape_of(1, 33, 200, 64), Values::normal, random()));
    CHECK_MESSAGE(report.empty(), report);
#endif
}

TEST_CASE("EXERCISE 5.2: each warp owns its rows") {
    std::mt19937_64 random(test_seed());
    const auto check_that = [&](int n_q, int n_k, int d, bool causal) {
        const std::string wrong = fault(split_q(), inputs(1, n_q, n_k, d, causal, random()));
        CHECK_MESSAGE(wrong.empty(), wrong);
    };
    for (const int d : {64, 128}) {
        // More than a warp's 32 rows, in more than one block; the diagonal goes through tiles at any place.
        check_that(64 + drawn_length(32, 1, 160, random()), 32 + drawn_length(64, 1, 200, random()), d, false);
        for (const int more : more_keys_near(d == 64 ? 64 : 16, random())) {
            const int n_q = std::max(40 + drawn_length(32, 1, 120, random()), 1 - more);
            check_that(n_q, n_q + more, d, true);
        }
    }
    check_that(260, 100, 64, true);  // the first block sees no key; of the second, all but the last rows
#ifndef FLASHLADDER_GPU
    for (const bool causal : {false, true}) {
        const std::string report = race(
            split_q(), causal ? inputs(1, 260, 100, 64, true, random()) : inputs(1, 130, 140, 64, false, random()));
        CHECK_MESSAGE(report.empty(), report);
    }
    for (const AttentionShape& shape : counted_shapes()) {
        const emulator::Work work = work_of(split_q(), shape);
        const auto& [blocks, T_c, B_r, B_c, d] = split_q_tiles(shape);
        const std::string where = to_string(shape);
        // Sums of rows are 8 more columns of O.
        const Count flops = blocks * T_c * 2 * B_r * B_c * (d + d + 8);
        check_count("operations of matrix instructions", work.matrix_flops, flops, where);
        check_count("matrix instructions", work.matrix_instructions, flops / (2 * 16 * 8 * 16), where);
        const StageCounts counts = count_stage(split_q(), make_inputs(shape, Values::normal, test_seed()));
        for (const char* tensor : {"K", "V"})
            check_count(fmt::format("{}: bytes of {} that are asked for, once for 128 queries", where, tensor),
                        counts.tensors.at(tensor).read.requested_bytes, blocks * element_bytes * Count(shape.n_k) * d);
        // Q_i comes, O leaves; in each step K_j and V_j come.
        check_count("bytes written to shared memory, of Q_i, K_j, V_j and O",
                    work.shared_of(emulator::Access::write).requested_bytes,
                    blocks * element_bytes * d * (2 * B_r + T_c * 2 * B_c), where);
        // Each warp reads its rows of Q_i once, and K_j and V_j once a step; O leaves without the rows past the end.
        const Count rows_of_O = Count(shape.batch) * Count(shape.heads) * Count(shape.n_q);
        check_count("bytes read from shared memory, of Q_i, O, and K_j and V_j by four warps",
                    work.shared_of(emulator::Access::read).requested_bytes,
                    element_bytes * d * (blocks * (B_r + T_c * 2 * warps * B_c) + rows_of_O), where);
        // The first step may do with less: Q_i and the first tiles can come together.
        check_barriers(fmt::format("{}: barriers of a block, steps {}", where, T_c), work.barriers / blocks, 2 * T_c,
                       2 * T_c + 2);
    }
    check_no_keys_behind_the_diagonal();
#endif
}

TEST_CASE("agrees with the reference: lengths near the edges of tiles, causal too") { check_lengths_near(128, 64); }

TEST_CASE("split-K computes attention too: one key alone, a maximum that grows, a large offset") {
    for (const auto& [n_q, n_k] : {std::pair(1, 1), {31, 17}, {65, 257}, {200, 100}})
        for (const Values values : {Values::normal, Values::growing_maximum, Values::large_offset}) {
            AttentionShape shape = shape_of(n_q > 100 ? 4 : 32, n_q, n_k, 64);
            shape.kv_heads = shape.heads / 4;
            const Inputs in = make_inputs(shape, values, test_seed());
            const Judge judge = values == Values::large_offset ? Judge::worst_row_only : Judge::both_rules;
            const Comparison result = check(split_k(), in, judge, true);
            CHECK_MESSAGE(result.passed, "split-K: ", result.describe(in.shape));
        }
}

#ifndef FLASHLADDER_GPU
TEST_CASE("counted: split-K moves four parts of O through shared memory in every step") {
    for (const AttentionShape& shape : counted_shapes()) {
        const Tiles k = split_k_tiles(shape);
        // And in each step every warp's maxima, at the end its sums.
        check_count("split-K: bytes written to shared memory, of Q_i, K_j, V_j, O and in each step the warps' parts",
                    work_of(split_k(), shape).shared_of(emulator::Access::write).requested_bytes,
                    k.blocks * element_bytes * k.d * (2 * k.B_r + k.T_c * 2 * k.B_c) +
                        k.blocks * float_bytes * warps * k.B_r * (k.T_c * (k.d + 1) + 1));
    }
}

TEST_CASE("counted: three barriers a step of split-K, and two more a block") {
    for (const AttentionShape& shape : counted_shapes()) {
        const Tiles k = split_k_tiles(shape);
        check_barriers(fmt::format("split-K: barriers of a block, three in each of {} steps and two more", k.T_c),
                       work_of(split_k(), shape).barriers / k.blocks, 3 * k.T_c + 2, 3 * k.T_c + 2);
    }
}

TEST_CASE(
    "counted: both products of split-K are in matrix instructions, and the sums of rows are 8 more columns of O") {
    for (const AttentionShape& shape : counted_shapes()) {
        const auto& [blocks, T_c, B_r, B_c, d] = split_k_tiles(shape);
        const emulator::Work work = work_of(split_k(), shape);
        const Count flops = blocks * T_c * 2 * B_r * B_c * (d + d + 8);
        check_count("split-K: operations of matrix instructions", work.matrix_flops, flops);
        check_count("split-K: matrix instructions", work.matrix_instructions, flops / (2 * 16 * 8 * 16));
    }
}

TEST_CASE("counted: K and V are fetched once for 128 queries, a quarter of rung 04's sectors") {
    for (const int d : split_q().supports.head_dims) {
        const AttentionShape shape = shape_of(2, 256, 192, d);
        const StageCounts counts = count_stage(split_q(), make_inputs(shape, Values::normal, test_seed()));
        const Count sectors = counts.tensors.at("K").read.sectors + counts.tensors.at("V").read.sectors;
        const Count T_r = 256 / 128;
        check_count("sectors of K and V", sectors, shape.heads * T_r * 2 * 192 * Count(d) * element_bytes / 32);
        const auto below = closed_form("04-tensor-cores", shape, 0, false);
        REQUIRE(below);
        const Count Q_and_O = 2 * shape.heads * 256 * Count(d) * element_bytes;
        check_count("bytes of K and V, four times", 4 * 32 * sectors, Count(below->requested_bytes) - Q_and_O);
    }
}

TEST_CASE("counted: no block of keys behind the diagonal is loaded, neither of K nor of V") {
    check_no_keys_behind_the_diagonal();
}
#endif

TEST_CASE("needs no memory beyond inputs and outputs") {
    for (const Stage* stage : {&split_q(), &split_k()})
        check_count(stage->name() + ": bytes of scratch", stage->scratch_bytes(shape_of(4, 1000, 1000, 64)), 0);
}

}  // namespace
}  // namespace flashladder::attention
