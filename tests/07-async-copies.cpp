// Rung 07. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "launch.h"
#include "attention_suite.h"

#ifndef FLASHLADDER_GPU
#include "operations/attention/counts.h"
#include "warp_activity.h"
#endif

namespace flashladder::attention {
namespace {

constexpr int B_r = 128, B_c = 64;  // of the rung and of its variants
constexpr int stage_counts[] = {1, 2, 3, 4, 6};

const Stage& with_stages(int stages) {
    if (stages == 2) return stage_under_test();
    return find_stage("07-async-copies/" + std::to_string(stages) + (stages == 1 ? " stage" : " stages"));
}

#ifndef FLASHLADDER_GPU
/// Of the first block, whose copies arrive as late as its waits allow. Nothing where the kernel stops.
std::vector<WarpActivity> activity_of(const Stage& stage, const Inputs& in) {
    try {
        return flashladder::activity_of("async_flash", [&] { run(stage, in); });
    } catch (const CudaError& error) {
        FAIL_CHECK(std::string(error.what()));
        return {};
    }
}

/// With s stages, 2 s - 1 tiles may be on their way while a step computes: all slots but the one that it reads.
void check_under_way(int stages, int d) {
    const int T_c = 2 * stages + 2;
    const std::string with = fmt::format("stages {}, d {}", stages, d);
    const Inputs in = make_inputs(shape_of(1, 50, T_c * B_c, d), Values::normal, test_seed());
    // Products of 16 rows, 8 columns and 16 in between, of a warp's 32 rows: S, P V, and the sum of P's rows.
    const std::size_t of_S = std::size_t(2 * (B_c / 8) * (d / 16)), of_step = 2 * of_S + 2 * (B_c / 16);
    const std::size_t of_tile = std::size_t(B_c * d * 2 / 16 / 128);  // copies of a thread
    std::size_t at_S = 1000, at_softmax = 1000;
    for (const WarpActivity& warp : activity_of(with_stages(stages), in)) {
        check_count(with + ": matrix instructions of a warp", warp.products.size(), T_c * of_step);
        if (warp.products.size() != T_c * of_step) return;
        for (int t = stages; t < T_c - stages; ++t) {  // neither asked for before the loop, nor near its end
            const std::size_t first = t * of_step;
            const auto softmax = std::ranges::upper_bound(warp.exponentials, warp.products[first + of_S - 1]);
            at_S = std::min(at_S, warp.under_way(warp.products[first]) / of_tile);
            if (softmax != warp.exponentials.end())
                at_softmax = std::min(at_softmax, warp.under_way(*softmax) / of_tile);
        }
    }
    check_count("tiles that may be on their way while S is computed, " + with, at_S, std::uint64_t(2 * stages - 1));
    check_count("tiles that may be on their way behind S, " + with, at_softmax, std::uint64_t(2 * stages - 1));
}
#endif

TEST_CASE("EXERCISE 7.1: a tile by cp.async") {
    for (const int d : {64, 128}) {
        const int n_q = 200, n_k = drawn_length(B_c, 130, 330, 0);
        const Inputs in = make_inputs(shape_of(2, n_q, n_k, d), Values::normal, test_seed());
        const std::string wrong = fault(stage_under_test(), in);
        CHECK_MESSAGE(wrong.empty(), wrong);
#ifndef FLASHLADDER_GPU
        if (!wrong.empty()) continue;
        using emulator::Access;
        const auto total = count_stage(stage_under_test(), in).work.total();
        const std::string with = ", d " + std::to_string(d);
        const std::uint64_t row = std::uint64_t(d) * 2;
        check_count("bytes read into registers" + with, total.global_of(Access::read).requested_bytes, 0);
        check_count("bytes of Q, K and V that cp.async reads" + with, total.global_of(Access::cp_async).requested_bytes,
                    2 * std::uint64_t(n_q + 2 * 2 * n_k) * row);
        check_count("bytes of the sectors that this takes" + with, total.global_of(Access::cp_async).sectors * 32,
                    total.global_of(Access::cp_async).requested_bytes);
        check_count("conflicts of cp.async" + with, total.shared_of(Access::cp_async).conflicts, 0);
        // Q_i is two tiles. If each is waited for where it is asked for, there are never more.
        std::size_t most = 0;
        for (const WarpActivity& warp : activity_of(stage_under_test(), in))
            for (const auto& copy : warp.copies) most = std::max(most, warp.under_way(copy.asked) + 1);
        check_count("copies that a thread has under way at most" + with, most, std::uint64_t(d) / 16 * 2 + 1, 1000);
#endif
    }
}

TEST_CASE("EXERCISE 7.2: the ring of slots") {
    std::mt19937_64 random(test_seed());
    const auto check_that = [](const Stage& stage, const Inputs& in) {
        std::string wrong = fault(stage, in);
#ifndef FLASHLADDER_GPU
        if (wrong.empty()) {
            const Late late;
            wrong = fault(stage, in);
        }
#endif
        CHECK_MESSAGE(wrong.empty(), stage.name(), ": ", wrong);
        return wrong.empty();
    };
    for (const int stages : stage_counts) {
        bool right = true;
        // Fewer blocks than slots, as many, and several times as many.
        for (const int n_k : {1, drawn_length(B_c, 2, 2 * B_c + 1, random()), stages * B_c,
                              drawn_length(B_c, stages * B_c, (2 * stages + 2) * B_c, random())})
            for (const int d : {64, 128})
                right =
                    check_that(with_stages(stages), make_inputs(shape_of(2, 100, n_k, d), Values::normal, random())) &&
                    right;
#ifndef FLASHLADDER_GPU
        if (!right) continue;
        for (const int d : {64, 128}) {
            check_under_way(stages, d);
            const int n_q = 200, n_k = 333, T_r = 2, T_c = 6;
            const auto total =
                count_stage(with_stages(stages), make_inputs(shape_of(1, n_q, n_k, d), Values::normal, test_seed()))
                    .work.total();
            const std::string with = fmt::format(", stages {}, d {}", stages, d);
            // cp.async writes rows past the end too, as 0.
            check_count("bytes of Q_i, K_j and V_j that are asked for" + with,
                        total.shared_of(emulator::Access::cp_async).requested_bytes,
                        std::uint64_t(T_r * (B_r + 2 * T_c * B_c)) * d * 2);
            check_barriers("barriers of a block with 6 steps" + with, total.barriers / T_r, 0, 2 * T_c + 2);
        }
#endif
    }
    // Who sees no key asks for none, in the first block of queries; Q_i has to come all the same, and before O.
    for (const int d : {64, 128})
        for (int times = 0; times < 8; ++times)
            if (!check_that(stage_under_test(), inputs(4, B_r + 1, 1, d, true, random()))) break;
}

TEST_CASE("the number of stages does not change a bit of the result") {
    const Inputs in = make_inputs(shape_of(2, 150, 333, 128), Values::growing_maximum, test_seed());
    const Outputs expected = run(stage_under_test(), in, true);
    for (const int stages : stage_counts) {
        const Outputs found = run(with_stages(stages), in, true);
        check_same_bits(found, expected, "with 2 stages", std::to_string(stages) + " stages");
    }
}

TEST_CASE("causal: blocks behind the diagonal reach nobody, whatever they hold") {
    for (const int d : {64, 128}) check_hidden_keys_reach_nobody(shape_of(1, 300, 300, d), B_r, B_r, B_r);
}

#ifndef FLASHLADDER_GPU
TEST_CASE("counted: no block behind the diagonal is asked for, neither of K nor of V") {
    check_no_keys_behind_the_diagonal(64, B_r, B_c);
}

TEST_CASE("counted: shared memory is Q_i and the slots, and all but V's last slot may be under way") {
    for (const int stages : stage_counts)
        for (const int d : {64, 128}) {
            const auto work =
                count_stage(with_stages(stages), make_inputs(shape_of(2, 50, 500, d), Values::normal, test_seed()))
                    .work;
            const auto& launch = work.launches.at(0);
            const std::string with = ", stages " + std::to_string(stages) + ", d " + std::to_string(d);
            const std::size_t Q_bytes = B_r * d * 2, tile_bytes = B_c * d * 2, most = 227 * 1024;
            check_count("bytes of shared memory" + with, launch.dynamic_shared_bytes,
                        std::min(most, Q_bytes + 2 * stages * tile_bytes));
            // How many depends on the order that was drawn.
            check_count("most bytes under way" + with, launch.most_bytes_in_flight, 1,
                        Q_bytes + (2 * stages - 1) * tile_bytes);
        }
}
#endif

TEST_CASE("agrees with the reference: lengths near the edges of tiles, causal too") { check_lengths_near(B_r, B_c); }

TEST_CASE("needs no memory beyond inputs and outputs") {
    check_count("bytes of scratch", stage_under_test().scratch_bytes(shape_of(4, 1000, 1000, 64)), 0);
}

}  // namespace
}  // namespace flashladder::attention
