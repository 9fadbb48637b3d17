// Rung 00. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "attention_suite.h"

#ifndef FLASHLADDER_GPU
#include "operations/attention/counts.h"
#endif

namespace flashladder::attention {
namespace {

[[maybe_unused]] const StrictBarriers strict_barriers;

TEST_CASE("EXERCISE 0.1: the sum over a warp") {
    // Every score is 0, and so is every maximum, whatever 0.2 does. Some lanes have a key more than others.
    Inputs in = make_inputs(shape_of(1, 33, 65 + static_cast<int>(test_seed() % 31), 64), Values::normal, test_seed());
    std::ranges::fill(in.Q, 0.0f);
    const Comparison result = check(stage_under_test(), in);
    CHECK_MESSAGE(result.passed, "Q is 0, so every weight of P is 1 / ", in.shape.n_k, " and O the mean of V; ",
                  result.describe(in.shape));
}

TEST_CASE("EXERCISE 0.2: scores too large for exp") {
    // With few keys there are lanes that have none.
    for (const int n_k : {100, drawn_length(32, 2, 97, 0)}) {
        const AttentionShape shape = shape_of(1, 33, n_k, 64);
        const int one = n_k - 1 - static_cast<int>(test_seed() % n_k) / 2;  // of the last half
        const auto check_scores = [](const std::string& which, const Inputs& in) {
            const Comparison result = check(stage_under_test(), in, Judge::worst_row_only);
            CHECK_MESSAGE(result.passed, which, "; ", result.describe(in.shape));
        };
        check_scores("scores near 200 and -200", make_inputs(shape, Values::large_offset, test_seed()));
        check_scores(fmt::format("the score of key {} is 200, the others near 0", one),
                     inputs_with_scores(shape, [=](int key) { return key == one ? 288 : 0; }, test_seed()));
    }
}

/// One product at a time, so that a number says which of the two is wrong.
void check_each_product() {
    const auto check_it = [](const std::string& which, const Inputs& in) {
        const Comparison result = check(stage_under_test(), in);
        CHECK_MESSAGE(result.passed, which, "; ", result.describe(in.shape));
    };
    const int N_q = drawn_length(16, 1, 70, 2), N_k = drawn_length(16, 1, 96, 3), d = 96;
    Inputs in = make_inputs(shape_of(1, N_q, N_k, d), Values::normal, test_seed());
    std::ranges::fill(in.Q, 0.0f);
    check_it(fmt::format("P V alone: Q is 0, so P is 1 / {} and O the mean of V", N_k), in);
    in = make_inputs(in.shape, Values::normal, test_seed());
    for (int j = 0; j < N_k; ++j)
        for (int x = 0; x < d; ++x) in.V[static_cast<std::size_t>(j * d + x)] = x == j;
    check_it("Q K^T alone: V is the unit matrix, so O is P, the softmax of scale Q K^T", in);
}

TEST_CASE("EXERCISE 0.3: the product, tile by tile") {
    check_each_product();
    for (const int head_dim : {32, 96}) {
        // M, N and K of both products: of N_q and N_k every residue of a tile comes sooner or later.
        const AttentionShape shape = shape_of(2, drawn_length(16, 1, 70, 0), drawn_length(16, 1, 100, 1), head_dim);
        const Comparison result = check(stage_under_test(), make_inputs(shape, Values::normal, test_seed()));
        CHECK_MESSAGE(result.passed, result.describe(shape));
    }
#ifndef FLASHLADDER_GPU
    using emulator::Access;
    constexpr std::uint64_t N_q = 96, N_k = 80, d = 64, tile = 16, T_q = N_q / tile, T_k = N_k / tile;
    const auto counted = count_stage(stage_under_test(), make_inputs(shape_of(1, N_q, N_k, d), Values::normal, 1));
    const auto check_product = [&](const char* name, std::size_t launch, std::uint64_t elements, std::uint64_t steps) {
        const emulator::Work work = counted.work.launches.at(launch).total;
        check_count(fmt::format("{}: bytes that threads ask device memory for", name),
                    work.global_of(Access::read).requested_bytes, 0, 4 * elements);
        const std::uint64_t moved = work.global_of(Access::read).sectors * 32;
        check_count(fmt::format("{}: bytes of the sectors that this takes", name), moved, 0, 4 * elements);
        const emulator::SharedWork shared = work.all_shared();
        check_count(fmt::format("{}: conflicts in each 100 wavefronts of shared memory", name),
                    100 * shared.conflicts / std::max<std::uint64_t>(shared.wavefronts, 1), 0, 5);
        check_barriers(fmt::format("{}: barriers of a block in a step", name), work.barriers / steps, 0, 2);
    };
    check_product("S = Q K^T", 0, T_k * N_q * d + T_q * N_k * d, T_q * T_k * (d / tile));
    check_product("O = P V", 2, d / tile * N_q * N_k + T_q * N_k * d, T_q * (d / tile) * T_k);
#endif
}

}  // namespace
}  // namespace flashladder::attention
