// Rung 03. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "rung_suite.h"

#ifndef FLASHLADDER_GPU
#include "harness/counts.h"
#endif

namespace flashladder {
namespace {

[[maybe_unused]] const StrictBarriers strict_barriers;

constexpr int B_r = 64;
constexpr int keys_a_block(int head_dim) { return head_dim == 64 ? 64 : 32; }

TEST_CASE("EXERCISE 3.1: causal, where the keys of a block end") {
    // The first block of queries, 0 to 63, where N_k - N_q is beside a multiple of a block of keys. Q is 0, so that no
    // maximum ever changes.
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
                if (query == B_r - 1)
                    CHECK_MESSAGE(!(found == 0), what, ", but the value of key ", last, " did not reach it");
            }
        }
    }
}

TEST_CASE("EXERCISE 3.2: rescaling l and O") {
    // With 3.3 open, a row is off by one factor: its direction tells.
    for (const int head_dim : {64, 128}) {
        const std::string wrong = wrong_directions(make_inputs(shape_of(1, 33, drawn_length(64, 200, 330, 0), head_dim),
                                                               Values::growing_maximum, test_seed()));
        CHECK_MESSAGE(wrong.empty(), wrong);
    }
    Inputs in = make_inputs(shape_of(1, 100, 60, 64), Values::normal, test_seed());
    in.shape.causal = true;
    const Outputs out = run(stage_under_test(), in);
    const auto not_zero =
        std::find_if(out.O.begin(), out.O.begin() + 40 * 64, [](float x) { return x != 0; }) - out.O.begin();
    CHECK_MESSAGE((not_zero == 40 * 64), "causal, N_q 100, N_k 60: queries 0 to 39 see no key, but O[query ",
                  not_zero / 64, "][", not_zero % 64, "] is ", out.O[static_cast<std::size_t>(not_zero)],
                  ", expected 0");
}

TEST_CASE("EXERCISE 3.3: the one division, and LSE") {
    Inputs in = make_inputs(shape_of(1, 33, 300, 64), Values::normal, test_seed());
    const Comparison result = check(stage_under_test(), in, Judge::both_rules, true);
    CHECK_MESSAGE(result.passed, result.describe(in.shape));
    in = make_inputs(shape_of(1, 100, 60, 64), Values::normal, test_seed());
    in.shape.causal = true;
    const Comparison some_see_nothing = check(stage_under_test(), in, Judge::both_rules, true);
    CHECK_MESSAGE(some_see_nothing.passed, "queries 0 to 39 see no key; ", some_see_nothing.describe(in.shape));
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
}  // namespace flashladder
