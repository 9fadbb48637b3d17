// Rung 07. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "launch.h"
#include "rung_suite.h"

#ifndef FLASHLADDER_GPU
#include "harness/counts.h"
#endif

namespace flashladder {
namespace {

constexpr int B_r = 128, B_c = 64;  // of the rung and of its variants
constexpr int stage_counts[] = {1, 2, 3, 4, 6};

const Stage& with_stages(int stages) {
    if (stages == 2) return stage_under_test();
    return find_stage("07-async-copies/" + std::to_string(stages) + (stages == 1 ? " stage" : " stages"));
}

/// Makes each block of keys, and of values if asked for, the same as the one `period` blocks before.
void repeat_blocks(Inputs& in, int period, bool values_too) {
    const std::size_t row = static_cast<std::size_t>(in.shape.head_dim), head = in.shape.n_k * row;
    const std::size_t distance = period * B_c * row;
    for (std::size_t at = 0; at < in.K.size(); ++at) {
        if (at % head < distance) continue;
        in.K[at] = in.K[at - distance];
        if (values_too) in.V[at] = in.V[at - distance];
    }
}

TEST_CASE("EXERCISE 7.1: as many groups under way as there may be, and no more") {
    // All blocks are the same: it does not matter which one a slot holds, if one has come at all.
    for (const int stages : stage_counts)
        for (const int d : {64, 128}) {
            Inputs in = make_inputs(shape_of(2, 50, (2 * stages + 1) * B_c, d), Values::normal, test_seed());
            repeat_blocks(in, 1, true);
            const std::string wrong = fault(with_stages(stages), in);
            CHECK_MESSAGE(wrong.empty(), "stages ", stages, ": ", wrong);
#ifndef FLASHLADDER_GPU
            if (!wrong.empty()) continue;
            const std::uint64_t left = count_stage(with_stages(stages), in).work.launches.at(0).most_groups_left;
            check_count("groups of copies that a wait leaves under way, stages " + std::to_string(stages), left,
                        std::uint64_t(2 * stages - 2));
#endif
        }
}

TEST_CASE("EXERCISE 7.2: the slot of a tile") {
    // LSE alone: it needs K, but not V. Blocks of keys come again after each round, so that the last need not have
    // come.
    for (const int stages : stage_counts)
        for (const int d : {64, 128}) {
            Inputs in = make_inputs(shape_of(3, 50, (2 * stages + 1) * B_c, d), Values::peaky, test_seed());
            repeat_blocks(in, stages, false);
            const std::string wrong = lse_fault(with_stages(stages), in);
            CHECK_MESSAGE(wrong.empty(), "stages ", stages, ": ", wrong);
        }
}

TEST_CASE("EXERCISE 7.3: waits still fit when nothing is left to ask for") {
    // So few blocks that no step asks for a V.
    std::mt19937_64 random(test_seed());
    for (const int stages : stage_counts)
        for (int blocks = 1; blocks < stages; ++blocks) {
            const int n_k = (blocks - 1) * B_c + drawn_length(B_c, 1, B_c, random());
            const Inputs in = make_inputs(shape_of(2, 50, n_k, blocks % 2 ? 64 : 128), Values::normal, random());
            const std::string wrong = fault(with_stages(stages), in);
            CHECK_MESSAGE(wrong.empty(), "stages ", stages, ", blocks ", blocks, ": ", wrong);
        }
    // Who sees no key asks for none, in the first block of queries; Q_i has to come all the same.
    for (const int d : {64, 128}) {
        const Inputs in = inputs(2, B_r + 1, 1, d, true, random());
        const std::string wrong = fault(stage_under_test(), in);
        CHECK_MESSAGE(wrong.empty(), "queries that see no key: ", wrong);
    }
}

TEST_CASE("EXERCISE 7.4: the block of V that comes next") {
    std::mt19937_64 random(test_seed());
    for (const int stages : stage_counts) {
        const int n_k = (stages + 1) * B_c + drawn_length(B_c, 1, 2 * B_c, random());
        const Inputs in = make_inputs(shape_of(2, 50, n_k, 64), Values::normal, random());
        const std::string wrong = fault(with_stages(stages), in);
        CHECK_MESSAGE(wrong.empty(), "stages ", stages, ": ", wrong);
    }
}

TEST_CASE("a tile has come before it is read, and stays until it has been: every number of stages") {
    std::uint64_t seed = test_seed();
    for (const int stages : stage_counts)
        for (const int n_k : {1, 100, 150, 520})
            for (const int d : {64, 128}) {
                const Inputs in = make_inputs(shape_of(2, 100, n_k, d), Values::normal, seed++);
                const std::string wrong = fault(with_stages(stages), in);
                CHECK_MESSAGE(wrong.empty(), "stages ", stages, ", d ", d, ", N_k ", n_k, ": ", wrong);
            }
}

TEST_CASE("the last block of keys is waited for though nothing is asked for behind it") {
    // It was asked for long before, so only the latest of copies are late: the order of events is drawn many times.
    for (int times = 0; times < 20; ++times)
        for (const int stages : {2, 3}) {
            const Inputs in = make_inputs(shape_of(4, 50, 2 * B_c, 64), Values::normal, test_seed() + times);
            const std::string wrong = fault(with_stages(stages), in);
            CHECK_MESSAGE(wrong.empty(), "stages ", stages, ": ", wrong);
        }
}

TEST_CASE("queries that see nothing: O is 0 though Q_i may still be on its way") {
    for (const int d : {64, 128})
        for (int times = 0; times < 8; ++times) {
            Inputs in = make_inputs(shape_of(4, B_r + 1, 1, d), Values::normal, test_seed() + times);
            in.shape.causal = true;
            const std::string wrong = fault(stage_under_test(), in);
            CHECK_MESSAGE(wrong.empty(), wrong);
        }
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
    for (const auto& [n_q, n_k] : {std::pair(300, 300), {512, 512}, {100, 400}, {400, 100}, {192, 128}}) {
        Inputs in = make_inputs(shape_of(1, n_q, n_k, 64), Values::normal, test_seed());
        in.shape.causal = true;
        int keys = 0;  // that blocks of queries ask for, together
        for (int i = 0; i < n_q; i += B_r) {
            const int seen = std::clamp(i + B_r + n_k - n_q, 0, n_k);
            keys += std::min(n_k, (seen + B_c - 1) / B_c * B_c);
        }
        const StageCounts counts = count_stage(stage_under_test(), in);
        for (const char* tensor : {"K", "V"})
            check_count(std::string("bytes asked for of ") + tensor, counts.tensors.at(tensor).read.requested_bytes,
                        std::uint64_t(keys) * 64 * 2);
    }
}

TEST_CASE("counted: tiles come by cp.async and not through registers; two barriers a step") {
    using emulator::Access;
    for (const int stages : stage_counts)
        for (const int d : {64, 128}) {
            const int n_q = 200, n_k = 333, T_r = 2, T_c = 6;
            const auto work =
                count_stage(with_stages(stages), make_inputs(shape_of(1, n_q, n_k, d), Values::normal, test_seed())).work;
            const auto total = work.total();
            const std::string with = ", stages " + std::to_string(stages) + ", d " + std::to_string(d);
            const std::uint64_t row = d * 2;
            const auto copied = total.shared_of(Access::cp_async);
            check_count("bytes of Q, K and V that cp.async reads" + with,
                        total.global_of(Access::cp_async).requested_bytes, (n_q + 2 * T_r * n_k) * row);
            check_count("bytes read into registers" + with, total.global_of(Access::read).requested_bytes, 0);
            // cp.async writes rows past the end too, as 0. What threads store to shared memory is O alone.
            check_count("bytes of Q_i, K_j and V_j that cp.async writes" + with, copied.requested_bytes,
                        T_r * (B_r + 2 * T_c * B_c) * row);
            check_count("bytes of O written to shared memory" + with, total.shared_of(Access::write).requested_bytes,
                        T_r * B_r * row);
            check_count("conflicts of cp.async" + with, copied.conflicts, 0);
            check_barriers("barriers of a block with 6 steps" + with, total.barriers / T_r, 2 * T_c + 2, 2 * T_c + 2);
        }
}

TEST_CASE("counted: shared memory is Q_i and the slots, and all but V's last slot may be under way") {
    for (const int stages : stage_counts)
        for (const int d : {64, 128}) {
            const auto work =
                count_stage(with_stages(stages), make_inputs(shape_of(2, 50, 500, d), Values::normal, test_seed())).work;
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
}  // namespace flashladder
