// Rung 03. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "attention_suite.h"

#ifndef FLASHLADDER_GPU
#include "operations/attention/counts.h"
#endif

namespace flashladder::attention {
namespace {

[[maybe_unused]] const StrictBarriers strict_barriers;

constexpr int B_r = 64;
constexpr int keys_a_block(int head_dim) { return head_dim == 64 ? 64 : 32; }

/// The first block of queries, 0 to 63, sees what it is to see and nothing else, where N_k - N_q is beside a multiple of a
/// block of keys. Q is 0, so that no maximum ever changes.
void check_first_block() {
    for (const int head_dim : {64, 128}) {
        const int B_c = keys_a_block(head_dim);
        for (const int diagonal : {0, 1, -1, drawn_length(B_c, -50, 150, 0)}) {
            Inputs in = make_inputs(shape_of(1, 200, 200 + diagonal, head_dim), Values::normal, test_seed());
            in.shape.causal = true;
            std::ranges::fill(in.Q, 0.0f);
            const int last = B_r - 1 + diagonal;  // the key that query 63 sees and no other query before it
            const int behind = (last / B_c + 1) * B_c;
            const std::string what =
                fmt::format("N_q 200, N_k {}, d {}: query {} sees keys 0 to {}", in.shape.n_k, head_dim, B_r - 1, last);
            // Values of the blocks behind are NaN. A weight of 0 does not help against NaN: only a kernel that never
            // looks at them keeps them out. And of the others only that of the last key is not 0.
            const auto value = [&](int key) {
                return in.V.begin() + std::min(key, in.shape.n_k) * std::ptrdiff_t(head_dim);
            };
            std::fill(in.V.begin(), in.V.end(), 0.0f);
            std::fill(value(last), value(last + 1), 1.0f);
            std::fill(value(behind), in.V.end(), std::numeric_limits<float>::quiet_NaN());
            const Outputs out = run(stage_under_test(), in);
            for (int query = 0; query < B_r; ++query) {
                const float found = out.O[static_cast<std::size_t>(query * head_dim)];
                CHECK_MESSAGE(!std::isnan(found), what, ", but values of keys from ", behind, " on reached query ",
                              query);
                if (std::isnan(found)) break;  // the others tell the same
                if (query == B_r - 1)
                    CHECK_MESSAGE(!(found == 0), what, ", but the value of key ", last, " did not reach it");
            }
        }
    }
}

TEST_CASE("EXERCISE 3.1: causal, where the keys of a block end") { check_first_block(); }

TEST_CASE("EXERCISE 3.2: the one division, and LSE") {
    // With 3.3 open, small scores, whole blocks of keys and no mask are right.
    Inputs in = make_inputs(shape_of(1, 33, 320, 64), Values::normal, test_seed());
    const Comparison result = check(stage_under_test(), in, Judge::both_rules, true);
    CHECK_MESSAGE(result.passed, result.describe(in.shape));
    // The first block of queries sees no key, and does not look at any.
    constexpr int n_q = 164, n_k = 64, d = 64;
    in = make_inputs(shape_of(1, n_q, n_k, d), Values::normal, test_seed());
    in.shape.causal = true;
    const Outputs out = run(stage_under_test(), in, true);
    for (std::size_t query = 0; query < B_r; ++query) {
        const float O = out.O[query * d], lse = out.lse[query];
        const bool right = O == 0 && lse == -std::numeric_limits<float>::infinity();
        CHECK_MESSAGE(right, "causal, N_q ", n_q, ", N_k ", n_k, ": query ", query, " sees no key, but O is ", O,
                      ", expected 0, and LSE ", lse, ", expected -inf");
        if (!right) break;  // the others tell the same
    }
}

TEST_CASE("EXERCISE 3.3: a block of keys enters the rows") {
    check_first_block();
    const auto check_that = [](const Inputs& in) {
        const std::string wrong = fault(stage_under_test(), in);
        CHECK_MESSAGE(wrong.empty(), wrong);
    };
    for (const int head_dim : {64, 128}) {
        const int B_c = keys_a_block(head_dim), n_k = drawn_length(B_c, 150, 330, 0);
        const int ragged = 2 * B_c + 1 + static_cast<int>(test_seed() % static_cast<std::uint64_t>(B_c - 1));
        check_that(make_inputs(shape_of(1, 33, ragged, head_dim), Values::normal, test_seed()));
        for (const Values values : {Values::normal, Values::growing_maximum})
            check_that(make_inputs(shape_of(1, 33, n_k, head_dim), values, test_seed()));
        for (const int more : more_keys_near(B_c, test_seed())) {
            const int n_q = std::max(70, 1 - more);
            check_that(inputs(1, n_q, n_q + more, head_dim, true, test_seed()));
        }
    }
    check_that(inputs(1, 100, 60, 64, true, test_seed()));  // queries 0 to 39 see no key
}

#ifndef FLASHLADDER_GPU
TEST_CASE("Q is read once and O written once; K and V once a block of queries, about half of that if causal") {
    for (const int head_dim : {64, 128}) {
        Inputs in = make_inputs(shape_of(2, 1024, 1024, head_dim), Values::normal, test_seed());
        const StageCounts all = count_stage(stage_under_test(), in);
        in.shape.causal = true;
        const StageCounts causal = count_stage(stage_under_test(), in);
        const std::uint64_t bytes_of_Q = in.Q.size() * sizeof(float);
        const auto check_requested = [&](const char* what, std::uint64_t found, std::uint64_t expected) {
            CHECK_MESSAGE((found == expected), fmt::format("B 1 H 2 N 1024 d {}: {} {} bytes, expected {}", head_dim,
                                                           what, found, expected));
        };
        for (const StageCounts* c : {&all, &causal}) {
            check_requested("Q is read:", c->tensors.at("Q").read.requested_bytes, bytes_of_Q);
            check_requested("O is written:", c->tensors.at("O").written.requested_bytes, bytes_of_Q);
            check_requested("O is read:", c->tensors.at("O").read.requested_bytes, 0);
        }
        constexpr std::uint64_t blocks = 1024 / B_r;  // K and V are as large as Q
        for (const char* tensor : {"K", "V"}) {
            check_requested(fmt::format("{} is read:", tensor).c_str(), all.tensors.at(tensor).read.requested_bytes,
                            blocks * bytes_of_Q);
            check_requested(fmt::format("causal, {} is read:", tensor).c_str(),
                            causal.tensors.at(tensor).read.requested_bytes, (blocks + 1) * bytes_of_Q / 2);
        }
    }
}
#endif

TEST_CASE("needs no memory beyond inputs and outputs") {
    CHECK(stage_under_test().scratch_bytes(shape_of(4, 1000, 1000, 64)) == 0);
}

}  // namespace
}  // namespace flashladder::attention
