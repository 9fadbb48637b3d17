// Rung 09. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "launch.h"
#include "attention_suite.h"

#ifndef FLASHLADDER_GPU
#include "emulator/activity.h"
#include "operations/attention/counts.h"
#endif

namespace flashladder::attention {
namespace {

/// What the stage and its variants differ in. "" is the stage itself, whose tiles depend on d.
struct Tiles {
    std::string variant;
    int warpgroups, keys, stages;
};
std::vector<Tiles> all_tiles(int d) {
    return {{"", 1, d == 64 ? 128 : 64, 1},
            {"64 keys, 2 stages", 1, 64, 2},
            {"128 keys", 1, 128, 1},
            {"128 keys, 2 stages", 1, 128, 2},
            {"176 keys", 1, 176, 1},
            {"2 warpgroups, 64 keys", 2, 64, 1},
            {"2 warpgroups, 128 keys, 2 stages", 2, 128, 2},
            {"3 warpgroups, 128 keys, 2 stages", 3, 128, 2}};
}
const Stage& stage_with(const Tiles& tiles) {
    return tiles.variant.empty() ? stage_under_test() : find_stage("09-warpgroup-mma/" + tiles.variant);
}

#ifndef FLASHLADDER_GPU
/// What a stage does, counted, with LSE; nothing where the kernel stops, and then the test has failed.
emulator::CountedWork counted(const Stage& stage, const Inputs& in) {
    try {
        return count_stage(stage, in, true).work;
    } catch (const CudaError& error) {
        FAIL_CHECK(std::string(error.what()));
        return {};
    }
}

/// The keys of the stage's tiles, by what causal blocks of 64 queries ask for: all tiles up to the diagonal. 0 if by
/// that no number of keys can be told.
int keys_of_a_tile(int d) {
    constexpr int n_q = 512, n_k = n_q + 16;  // no multiple of a tile is a multiple of all
    const auto asked = [&](int keys) {
        int sum = 0;
        for (int seen = 80; seen <= n_k; seen += 64) sum += std::min(n_k, (seen + keys - 1) / keys * keys);
        return sum;
    };
    const StageCounts counts = count_stage(stage_under_test(), inputs(1, n_q, n_k, d, true, test_seed()));
    const std::uint64_t rows = counts.tensors.at("K").read.requested_bytes / (std::uint64_t(d) * 2);
    for (int keys = 16; keys <= 256; keys += 16)
        if (std::uint64_t(asked(keys)) == rows) return keys;
    return 0;
}
#endif

TEST_CASE("EXERCISE 9.1: how large a block is") {
    for (const int d : {64, 128}) {
        const std::string wrong = fault(stage_under_test(), inputs(2, 100, 300, d, false, test_seed()));
        CHECK_MESSAGE(wrong.empty(), "d ", d, ": ", wrong);
#ifndef FLASHLADDER_GPU
        const auto work = counted(stage_under_test(), inputs(1, 64, 128, d, false, test_seed()));
        if (work.launches.empty()) return;
        const std::string with_d = "d " + std::to_string(d) + ": ", of_four = ", where four are on a multiprocessor";
        const auto& launch = work.launches.at(0);
        check_count(with_d + "threads of a block" + of_four + " with 128 registers a thread", launch.block.x, 128);
        // Each block has 1 KB more for the system.
        check_count(with_d + "bytes of shared memory of a block" + of_four, launch.dynamic_shared_bytes, 0,
                    228 * 1024 / 4 - 1024);
        if (launch.block.x != 128) return;
        check_count(with_d + "keys of a tile, with at most 96 registers for S and O", keys_of_a_tile(d),
                    d == 64 ? 128 : 64);
#endif
    }
}

#ifndef FLASHLADDER_GPU
/// Products are wgmma's: with Q_i, K_j and V_j from shared memory, and two waits a step for what they make.
void check_products(const Tiles& tiles, int d) {
    using emulator::Access, emulator::Doing;
    const int n_q = 64 * tiles.warpgroups, T_c = 3;
    const Inputs in = inputs(1, n_q, T_c * tiles.keys - 5, d, false, test_seed());
    const auto work = counted(stage_with(tiles), in);
    if (work.launches.empty()) return;
    const auto total = work.total();
    const std::uint64_t steps = std::uint64_t(tiles.warpgroups) * T_c;
    const std::string of = stage_with(tiles).name() + ", d " + std::to_string(d) + ": ";
    check_count(of + "bytes of Q_i, K_j and V_j in shared memory that wgmma reads",
                total.shared_of(Access::wgmma_operand).requested_bytes, steps * (64 + 2 * tiles.keys) * d * 2);
    check_count(of + "bytes of shared memory that threads read", total.shared_of(Access::read).requested_bytes, 0);
    check_count(of + "matrix instructions, of 16 columns of Q_i and K_j and of 16 rows of V_j",
                total.matrix_instructions, steps * (d + tiles.keys) / 16);
    const auto launches = emulator::record_activity(0, [&] { run(stage_with(tiles), in, true); });
    std::uint64_t waits = 0;
    for (const auto& activity : launches.at(0).activities)
        waits += activity.warp == 0 && activity.what == Doing::wait && activity.counts;
    check_count(of + "times that a warp waits: in each step for K_j, S, V_j and O, once for Q_i and for the end", waits,
                2 + 4 * T_c);
}
#endif

TEST_CASE("EXERCISE 9.2: products of a warpgroup") {
#ifndef FLASHLADDER_GPU
    for (const int d : {64, 128})
        for (const std::size_t of_all : {0, 4, 5}) check_products(all_tiles(d)[of_all], d);
    const std::string report = race(stage_under_test(), inputs(1, 60, 150, 64, false, test_seed()));
    CHECK_MESSAGE(report.empty(), report);
#endif
    std::mt19937_64 random(test_seed());
    for (const int d : {64, 128})
        for (const Tiles& tiles : all_tiles(d))
            for (const int n_k :
                 {1, drawn_length(tiles.keys, 1, 200, random()), drawn_length(tiles.keys, 1, 400, random())}) {
                const std::string wrong = fault(stage_with(tiles), inputs(2, 70, n_k, d, false, random()));
                CHECK_MESSAGE(wrong.empty(), stage_with(tiles).name(), ": ", wrong);
            }
}

TEST_CASE("a product has what it reads until it ends, and then somebody reads it: the stage and its variants") {
    std::uint64_t seed = test_seed();
    for (const int d : {64, 128})
        for (const Tiles& tiles : all_tiles(d))
            for (const int n_k : {1, 100, 200, 600}) {
                const Inputs in = make_inputs(shape_of(2, 100, n_k, d), Values::normal, seed++);
                const std::string wrong = fault(stage_with(tiles), in);
                CHECK_MESSAGE(wrong.empty(), stage_with(tiles).name(), ": ", wrong);
            }
}

TEST_CASE("queries that see nothing: O is 0, and Q_i has come before O takes its place") {
    for (const int d : {64, 128})
        for (const Tiles& tiles : {all_tiles(d)[0], all_tiles(d)[7]})
            for (int times = 0; times < 8; ++times) {
                // Variants know no causal mask, so theirs are queries with one key.
                Inputs in = make_inputs(shape_of(4, 65, 1, d), Values::normal, test_seed() + times);
                in.shape.causal = tiles.variant.empty();
                const std::string wrong = fault(stage_with(tiles), in);
                CHECK_MESSAGE(wrong.empty(), stage_with(tiles).name(), ": ", wrong);
            }
}

TEST_CASE("warpgroups and stages change no bit of the result: only the keys of a tile do") {
    for (const int d : {64, 128}) {
        const Inputs in = make_inputs(shape_of(2, 150, 333, d), Values::growing_maximum, test_seed());
        for (const int keys : {64, 128}) {
            const Outputs* first = nullptr;
            std::vector<Outputs> found;
            found.reserve(8);
            for (const Tiles& tiles : all_tiles(d)) {
                if (tiles.keys != keys) continue;
                found.push_back(run(stage_with(tiles), in, true));
                if (!first) first = &found.front();
                check_same_bits(found.back(), *first, "with other warpgroups or stages", stage_with(tiles).name());
            }
            REQUIRE(found.size() >= 2);
        }
    }
}

TEST_CASE("causal: blocks behind the diagonal reach nobody, whatever they hold") {
    for (const int d : {64, 128}) {
        const int keys = all_tiles(d)[0].keys;  // of a tile, all of which the product meets
        check_hidden_keys_reach_nobody(shape_of(1, 300, 300, d), keys, keys, keys);
    }
}

#ifndef FLASHLADDER_GPU
TEST_CASE("counted: tiles come and go by TMA, and no block behind the diagonal is asked for") {
    using emulator::Access;
    for (const auto& [n_q, n_k] : {std::pair(300, 300), {512, 512}, {100, 400}, {400, 100}, {192, 128}})
        for (const int d : {64, 128}) {
            Inputs in = make_inputs(shape_of(1, n_q, n_k, d), Values::normal, test_seed());
            in.shape.causal = true;
            const int B_c = all_tiles(d)[0].keys;
            int keys = 0;  // that blocks of queries ask for, together
            for (int i = 0; i < n_q; i += 64) {
                const int seen = std::clamp(i + 64 + n_k - n_q, 0, n_k);
                keys += std::min(n_k, (seen + B_c - 1) / B_c * B_c);
            }
            const StageCounts counts = count_stage(stage_under_test(), in);
            const auto total = counts.work.total();
            const std::uint64_t row = d * 2;
            for (const char* tensor : {"K", "V"})
                check_count(std::string("bytes asked for of ") + tensor, counts.tensors.at(tensor).read.requested_bytes,
                            keys * row);
            check_count("bytes that TMA loads, of Q, K and V", total.global_of(Access::tma_load).requested_bytes,
                        (n_q + 2 * keys) * row);
            check_count("bytes that TMA stores, of O", total.global_of(Access::tma_store).requested_bytes, n_q * row);
            check_count("bytes of device memory", total.all_global().requested_bytes, (2 * n_q + 2 * keys) * row);
        }
}

TEST_CASE("counted: wgmma alone multiplies, from shared memory, with no conflicts; two barriers a step") {
    using emulator::Access;
    const int n_q = 200, n_k = 333;
    for (const int d : {64, 128})
        for (const Tiles& tiles : all_tiles(d)) {
            const auto work =
                count_stage(stage_with(tiles), make_inputs(shape_of(1, n_q, n_k, d), Values::normal, test_seed())).work;
            const auto total = work.total();
            const int B_r = 64 * tiles.warpgroups;
            const std::uint64_t T_r = (n_q + B_r - 1) / B_r, T_c = (n_k + tiles.keys - 1) / tiles.keys;
            const std::uint64_t steps = T_r * tiles.warpgroups * T_c;
            const auto check_total = [&](const char* what, std::uint64_t found, std::uint64_t expected) {
                check_count(stage_with(tiles).name() + ", d " + std::to_string(d) + ": " + what, found, expected);
            };
            // A product is 64 x keys x 16 or 64 x d x 16; there is none for the row sums.
            check_total("matrix instructions", total.matrix_instructions, steps * (d + tiles.keys) / 16);
            check_total("operations of matrix instructions", total.matrix_flops, steps * 4 * 64 * tiles.keys * d);
            // Q_i and K_j for S, V_j for O; P is in registers. A wavefront is 128 bytes.
            const std::uint64_t operands = steps * (64 + 2 * tiles.keys) * d * 2;
            const auto read = total.shared_of(Access::wgmma_operand);
            check_total("bytes of operands in shared memory", read.requested_bytes, operands);
            check_total("wavefronts of operands", read.wavefronts, operands / 128);
            check_total("conflicts in shared memory", total.all_shared().conflicts, 0);
            check_total("bytes of shared memory that threads read", total.shared_of(Access::read).requested_bytes, 0);
            check_total("bytes of O written to shared memory", total.shared_of(Access::write).requested_bytes,
                        T_r * B_r * d * 2);
            check_barriers(stage_with(tiles).name() + ", d " + std::to_string(d) + ": barriers", total.barriers,
                           T_r * (2 * T_c + 2), T_r * (2 * T_c + 2));
        }
}

TEST_CASE("counted: shared memory is Q_i, the slots and their barriers; all but V's last slot may be under way") {
    for (const int d : {64, 128})
        for (const Tiles& tiles : all_tiles(d)) {
            const auto work =
                count_stage(stage_with(tiles), make_inputs(shape_of(2, 50, 900, d), Values::normal, test_seed())).work;
            const auto& launch = work.launches.at(0);
            const std::size_t Q_bytes = 64 * tiles.warpgroups * d * 2, tile_bytes = tiles.keys * d * 2;
            const std::size_t bytes = Q_bytes + 2 * tiles.stages * tile_bytes + 8 * (1 + 2 * tiles.stages);
            const std::size_t aligned = (bytes + 1023) / 1024 * 1024, most = 227 * 1024;
            const std::string of = stage_with(tiles).name() + ", d " + std::to_string(d) + ": ";
            check_count(of + "bytes of shared memory", launch.dynamic_shared_bytes, std::min(most, aligned));
            // How many depends on the order that was drawn.
            check_count(of + "most bytes under way", launch.most_bytes_in_flight, 1,
                        Q_bytes + (2 * tiles.stages - 1) * tile_bytes);
        }
}

TEST_CASE("counted: four blocks of the stage fit on a multiprocessor") {
    for (const int d : {64, 128}) {
        const auto work =
            count_stage(stage_under_test(), make_inputs(shape_of(1, 64, 128, d), Values::normal, test_seed())).work;
        const auto& launch = work.launches.at(0);
        check_count("threads of a block", launch.block.x, 128);
        // Each block has 1 KB more for the system.
        check_count("bytes of shared memory", launch.dynamic_shared_bytes, 1, 228 * 1024 / 4 - 1024);
    }
}
#endif

TEST_CASE("agrees with the reference: lengths near the edges of tiles, causal too") { check_lengths_near(64, 64); }

TEST_CASE("needs no memory beyond inputs and outputs") {
    check_count("bytes of scratch", stage_under_test().scratch_bytes(shape_of(4, 1000, 1000, 64)), 0);
}

}  // namespace
}  // namespace flashladder::attention
