// Rung 10. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>

#include "launch.h"
#include "rung_suite.h"

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#include "harness/counts.h"
#endif

namespace flashladder {
namespace {

/// The rung, without a name, and its variants. `blocks` share a multiprocessor.
struct Configuration {
    const char* name;
    int d, consumers, B_c, stages, blocks;

    int B_r() const { return 64 * consumers; }
    const Stage& stage() const {
        return *name ? find_stage(std::string("10-warp-specialization/") + name) : stage_under_test();
    }
    std::string name_and_d() const { return std::string(*name ? name : "the rung") + ", d " + std::to_string(d); }
    std::string describe() const { return name_and_d() + ": "; }
};
constexpr Configuration best_of_64{"", 64, 2, 64, 2, 2}, best_of_128{"", 128, 3, 128, 2, 1};
constexpr Configuration configurations[] = {best_of_64,
                                            {"1 stage", 64, 2, 64, 1, 2},
                                            {"3 stages", 64, 2, 64, 3, 2},
                                            {"4 stages", 64, 2, 64, 4, 2},
                                            {"1 block of 2, 128 keys", 64, 2, 128, 2, 1},
                                            {"1 block of 3, 128 keys", 64, 3, 128, 2, 1},
                                            {"1 block of 4", 64, 4, 64, 2, 1},
                                            best_of_128,
                                            {"1 stage", 128, 3, 128, 1, 1},
                                            {"64 keys", 128, 3, 64, 2, 1},
                                            {"64 keys, 4 stages", 128, 3, 64, 4, 1},
                                            {"2 consumers, 1 stage", 128, 2, 128, 1, 1},
                                            {"2 consumers", 128, 2, 128, 2, 1},
                                            {"2 consumers, 3 stages", 128, 2, 128, 3, 1}};

/// The same of LSE alone: it needs K, but neither V nor the way of O to device memory.
std::string fault_of_lse(const Stage& stage, const Inputs& in) {
    try {
        const Comparison result = check(stage, in, Judge::both_rules, true);
        return result.lse_error <= result.allowed_lse_error ? "" : result.describe(in.shape);
    } catch (const CudaError& error) {
        return error.what();
    }
}

TEST_CASE("EXERCISE 10.1: the producer waits for the round before, and in round 0 for nobody") {
    for (const Configuration& c : configurations) {
        const Inputs in = make_inputs(shape_of(4, 50, (4 * c.stages + 1) * c.B_c, c.d), Values::peaky, test_seed());
        const std::string wrong = fault_of_lse(c.stage(), in);
        CHECK_MESSAGE(wrong.empty(), c.describe(), wrong);
    }
}

TEST_CASE("EXERCISE 10.2: each consumer meets at a barrier of its own") {
    // A single block of keys: no slot is filled again. The consumers come to their ends at nearly the same time.
    for (const Configuration& c : configurations)
        for (int times = 0; times < 4; ++times) {
            const Inputs in = make_inputs(shape_of(3, c.B_r(), 40, c.d), Values::normal, test_seed() + times);
            const std::string wrong = fault(c.stage(), in);
            CHECK_MESSAGE(wrong.empty(), c.describe(), wrong);
        }
}

TEST_CASE("EXERCISE 10.3: the slot of V_j is given back when the product has read it") {
    for (const Configuration& c : configurations) {
        const Inputs in = make_inputs(shape_of(4, 50, 9 * c.B_c, c.d), Values::normal, test_seed());
        const std::string wrong = fault(c.stage(), in);
        CHECK_MESSAGE(wrong.empty(), c.describe(), wrong);
    }
#ifndef FLASHLADDER_GPU
    for (const Configuration& c : {best_of_64, best_of_128}) {
        const Inputs in = make_inputs(shape_of(1, 50, 4 * c.B_c, c.d), Values::normal, test_seed());
        const std::string report = emulator::find_race([&] { run(c.stage(), in, true); });
        CHECK_MESSAGE(report.empty(), c.describe(), report);
    }
#endif
}

TEST_CASE("a tile has come before it is read, and stays until all have read it: every number of slots, of consumers") {
    std::mt19937_64 random(test_seed());
    for (const Configuration& c : configurations)
        for (const int n_k :
             {drawn_length(c.B_c, 1, c.B_c + 1, random()), c.B_c + drawn_length(c.B_c, 1, c.B_c + 1, random()),
              c.stages * c.B_c, 3 * c.stages * c.B_c + drawn_length(c.B_c, 1, c.B_c + 1, random())}) {
            const int n_q = std::max(c.B_r() - 64 + drawn_length(64, 1, 64 + 1, random()), 16);
            const Inputs in = make_inputs(shape_of(2, n_q, n_k, c.d), Values::normal, random());
            const std::string wrong = fault(c.stage(), in);
            CHECK_MESSAGE(wrong.empty(), c.describe(), wrong);
        }
}

TEST_CASE("agrees with the reference: lengths near multiples of the tiles") {
    for (const Configuration& c : {best_of_64, best_of_128}) check_lengths_near(c.B_r(), c.B_c, c.d);
}

TEST_CASE("queries that see nothing: O is 0 though Q_i may still be on its way") {
    for (const Configuration& c : {best_of_64, best_of_128})
        for (int times = 0; times < 8; ++times) {
            Inputs in = make_inputs(shape_of(4, c.B_r() + 1, 1, c.d), Values::normal, test_seed() + times);
            in.shape.causal = true;
            const std::string wrong = fault(c.stage(), in);
            CHECK_MESSAGE(wrong.empty(), c.describe(), wrong);
        }
}

TEST_CASE("neither the slots nor the other consumers change a bit of the result") {
    for (const int d : {64, 128}) {
        const Inputs in = make_inputs(shape_of(2, 150, 333, d), Values::growing_maximum, test_seed());
        std::map<int, Outputs> expected;  // by B_c, which does: the maximum is another in between
        for (const Configuration& c : configurations) {
            if (c.d != d) continue;
            const Outputs found = run(c.stage(), in, true);
            const Outputs& first = expected.try_emplace(c.B_c, found).first->second;
            check_same_bits(found, first, "with other slots or consumers", c.describe());
        }
    }
}

TEST_CASE("causal: blocks behind the diagonal reach nobody, whatever they hold") {
    for (const Configuration& c : {best_of_64, best_of_128}) {
        const int seen = (c.B_r() + c.B_c - 1) / c.B_c * c.B_c;  // by the first block, in whole tiles
        check_hidden_keys_reach_nobody(shape_of(1, 400, 400, c.d), seen, c.B_r(), seen);
    }
}

#ifndef FLASHLADDER_GPU
TEST_CASE("no races where each slot is filled three times and more: every number of slots, of consumers") {
    for (const Configuration& c : configurations) {
        const Inputs in =
            make_inputs(shape_of(1, c.B_r() - 3, (2 * c.stages + 1) * c.B_c - 5, c.d), Values::normal, test_seed());
        const std::string report = emulator::find_race([&] { run(c.stage(), in, true); });
        CHECK_MESSAGE(report.empty(), c.describe(), report);
    }
}

TEST_CASE("counted: no block behind the diagonal is asked for, neither of K nor of V") {
    for (const Configuration& c : {best_of_64, best_of_128})
        for (const auto& [n_q, n_k] : {std::pair(300, 300), {512, 512}, {100, 400}, {400, 100}, {256, 128}}) {
            Inputs in = make_inputs(shape_of(1, n_q, n_k, c.d), Values::normal, test_seed());
            in.shape.causal = true;
            int keys = 0;  // that blocks of queries ask for, together
            for (int i = 0; i < n_q; i += c.B_r()) {
                const int seen = std::clamp(i + c.B_r() + n_k - n_q, 0, n_k);
                keys += std::min(n_k, (seen + c.B_c - 1) / c.B_c * c.B_c);
            }
            const StageCounts counts = count_stage(c.stage(), in);
            for (const char* tensor : {"K", "V"})
                check_count(std::string("bytes asked for of ") + tensor, counts.tensors.at(tensor).read.requested_bytes,
                            std::uint64_t(keys) * c.d * 2, to_string(in.shape));
        }
}

TEST_CASE("counted: K and V come once for all consumers of a block, by TMA; no barrier of all threads in the loop") {
    for (const Configuration& c : configurations) {
        const int n_q = 200, n_k = 333, T_r = (n_q + c.B_r() - 1) / c.B_r(), T_c = (n_k + c.B_c - 1) / c.B_c;
        const auto total =
            count_stage(c.stage(), make_inputs(shape_of(1, n_q, n_k, c.d), Values::normal, test_seed())).work.total();
        const std::uint64_t row = c.d * 2;
        // One barrier of a block, after the mbarriers have been made, however many steps there are.
        check_by_tma(total, (n_q + 2 * T_r * n_k) * row, n_q * row, T_r, c.name_and_d());
        check_count("matrix instructions", total.matrix_instructions,
                    std::uint64_t(T_r) * c.consumers * T_c * (c.d + c.B_c) / 16, c.name_and_d());
    }
}

TEST_CASE("counted: shared memory is Q_i, the slots and their barriers; all slots may be under way, and no more") {
    for (const Configuration& c : configurations) {
        const auto work =
            count_stage(c.stage(), make_inputs(shape_of(2, 50, 700, c.d), Values::normal, test_seed())).work;
        const auto& launch = work.launches.at(0);
        INFO(c.name_and_d());
        const std::size_t tiles = (c.B_r() + 2 * c.stages * c.B_c) * c.d * 2;
        const std::size_t barriers = (c.consumers + 4 * c.stages) * 8;
        check_count("bytes of shared memory", launch.dynamic_shared_bytes, (tiles + barriers + 1023) / 1024 * 1024,
                    c.name_and_d());
        CHECK(c.blocks * (launch.dynamic_shared_bytes + 1024) <= 228 * 1024);
        CHECK(launch.block.x == 128 * (1 + c.consumers));
        CHECK(launch.most_bytes_in_flight <= tiles);
        CHECK(launch.most_bytes_in_flight > 0);  // how many depends on the order that was drawn
    }
}
#endif

TEST_CASE("needs no memory beyond inputs and outputs") {
    CHECK(stage_under_test().scratch_bytes(shape_of(4, 1000, 1000, 64)) == 0);
}

}  // namespace
}  // namespace flashladder
