// Rung 19. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "attention_backward_suite.h"
#include "launch.h"

#ifndef FLASHLADDER_GPU
#include "warp_activity.h"
#endif

namespace flashladder::attention_backward {
namespace {

[[maybe_unused]] const StrictBarriers strict_barriers;

constexpr int B_r = 64;                                            // queries of a step
constexpr int keys_of_a_block(int d) { return d == 64 ? 128 : 64; }  // B_c

#ifndef FLASHLADDER_GPU
using emulator::Access;

constexpr std::uint64_t bytes = 2, of_statistics = 8;

/// Of the first block's warps, with copies as late as its waits allow. Nothing where the kernel stops.
std::vector<WarpActivity> activity_of_first_block(const Inputs& in) {
    try {
        return activity_of("staged_queries", [&] { run(stage_under_test(), in); });
    } catch (const CudaError& error) {
        FAIL_CHECK(std::string(error.what()));
        return {};
    }
}

/// Copies of a thread for so many rows of d elements, 16 bytes each.
std::size_t copies_of(int rows, int d) { return static_cast<std::size_t>(rows * d) * bytes / 16 / 128; }

/// Behind a step's barrier the tiles of the next two are in the slots or on their way: those of the next one until the next
/// barrier's wait, those of the one behind it as long.
void check_under_way(int d) {
    constexpr int T_r = 6;
    const Inputs in = backward_inputs(shape_of(1, T_r * B_r, 40, d), Values::normal, test_seed());
    const std::size_t rows = static_cast<std::size_t>(keys_of_a_block(d)) / 4, width = static_cast<std::size_t>(d);
    // Products of 16 rows, 8 columns and 16 in between: four of a warp's keys with 64 queries, then dQ of 16 queries.
    const std::size_t of_keys = 4 * (rows / 16) * (B_r / 8) * (width / 16), of_dQ = width / 8 * (4 * rows / 16);
    const std::size_t of_tiles = copies_of(2 * B_r, d);
    std::size_t at_scores = 1, at_dQ = 1;  // or more
    for (const WarpActivity& warp : activity_of_first_block(in)) {
        check_count(fmt::format("matrix instructions of a warp (d {})", d), warp.products.size(), T_r * (of_keys + of_dQ));
        if (warp.products.size() != T_r * (of_keys + of_dQ)) return;
        for (std::size_t t = 2; t < T_r - 2; ++t) {  // neither asked for before the loop, nor near its end
            const std::size_t first = t * (of_keys + of_dQ);
            for (const std::size_t product : {first, first + of_keys - 1})
                at_scores = std::min(at_scores, warp.under_way(warp.products[product]) / of_tiles);
            at_dQ = std::min(at_dQ, warp.under_way(warp.products[first + of_keys]) / of_tiles);
        }
    }
    check_count("steps whose tiles may be on their way while dK and dV of a step are found", at_scores, 1,
                fmt::format("d {}", d));
    check_count("steps whose tiles may be on their way while dQ of a step is found", at_dQ, 1, fmt::format("d {}", d));
}

/// Barriers of a block that has so many steps.
std::uint64_t barriers_of(int T_r, int d) {
    const auto counts =
        count_stage(stage_under_test(), backward_inputs(shape_of(1, T_r * B_r, 40, d), Values::normal, test_seed()));
    return work_of(counts, "staged_queries").barriers;
}
#endif

/// No race, right gradients, also with copies that arrive as late as the waits allow. False if not.
bool check_that(const Inputs& in, const std::string& what) {
#ifndef FLASHLADDER_GPU
    const std::string race = emulator::find_race([&] { run(stage_under_test(), in); });
    CHECK_MESSAGE(race.empty(), race);
    if (!race.empty()) return false;
#endif
    std::string wrong = fault(in);
#ifndef FLASHLADDER_GPU
    if (wrong.empty()) {
        const Late late;
        wrong = fault(in);
    }
#endif
    CHECK_MESSAGE(wrong.empty(), what, "; ", wrong);
    return wrong.empty();
}

TEST_CASE("EXERCISE 19.1: what a step brings in") {
    for (const int d : {64, 128}) {
        int queries = drawn_length(B_r, 1, 150, 0);
        if (queries % static_cast<int>(B_r) == 0) ++queries;
        AttentionShape shape = grouped(shape_of(2, queries, drawn_length(64, 100, 200, 1), d));
        shape.dtype = test_seed() % 2 ? DType::f16 : DType::bf16;
        const Inputs in = backward_inputs(shape, Values::normal, test_seed());
        if (!check_that(in, "two heads, and a step with queries past the end")) return;
#ifndef FLASHLADDER_GPU
        const std::uint64_t n_q = 200, n_k = 100, width = static_cast<std::uint64_t>(d);
        const Inputs counted_in = backward_inputs(shape_of(1, n_q, n_k, d), Values::normal, test_seed());
        const emulator::Work work = work_of(count_stage(stage_under_test(), counted_in), "staged_queries");
        const std::string with = fmt::format(" (d {})", d);
        const std::uint64_t blocks = d == 64 ? 1 : 2;
        check_count("bytes read into registers" + with, work.global_of(Access::read).requested_bytes, 0);
        const emulator::GlobalWork copied = work.global_of(Access::cp_async);
        check_count("bytes that cp.async reads: K and V once, Q, dO and the statistics for each block of keys" + with,
                    copied.requested_bytes, 2 * n_k * width * bytes + blocks * n_q * (2 * width * bytes + of_statistics));
        check_count("bytes of the sectors that this takes" + with, copied.sectors * 32, copied.requested_bytes);
        check_count("conflicts of cp.async" + with, work.shared_of(Access::cp_async).conflicts, 0);
        // The ring waits once a step, and perhaps once before; who asks does not.
        std::size_t waits = 0;
        for (const WarpActivity& warp : activity_of_first_block(counted_in)) waits = std::max(waits, warp.waits.size());
        check_count("waits of a thread for four steps" + with, waits, 0, 4 + 1);
#endif
    }
    // The rows behind this head's are none: what is there may be infinite.
    check_gradients(backward_inputs(shape_of(3, 33, 70, 64), Values::large_offset, test_seed()),
                    "33 queries a head, so that a step goes beyond it; scores with a large offset");
}

TEST_CASE("EXERCISE 19.2: the ring of steps") {
    // One step alone, two, several; heads one after the other; blocks of keys that not all queries see.
    for (const int d : {64, 128})
        for (const AttentionShape& shape :
             {shape_of(2, drawn_length(B_r, 1, B_r, 0), 70, d), grouped(shape_of(2, drawn_length(B_r, 1, B_r, 1), 70, d)),
              shape_of(1, drawn_length(B_r, B_r + 1, 4 * B_r, 2), drawn_length(64, 100, 200, 3), d),
              grouped(causal(shape_of(3, drawn_length(B_r, 100, 200, 4), drawn_length(64, 40, 200, 5), d)))}) {
            const int heads = shape.heads / shape.kv_heads, steps = heads * ((shape.n_q + B_r - 1) / B_r);
            if (!check_that(backward_inputs(shape, Values::normal, test_seed()), fmt::format("up to {} steps", steps))) return;
        }
#ifndef FLASHLADDER_GPU
    for (const int d : {64, 128}) {
        check_under_way(d);
        const std::uint64_t width = static_cast<std::uint64_t>(d), B_c = static_cast<std::uint64_t>(keys_of_a_block(d));
        const std::uint64_t T_r = 4, blocks = 2;  // two heads, of two steps each
        const auto counts = count_stage(
            stage_under_test(),
            backward_inputs(grouped(shape_of(2, 100, static_cast<int>(B_c) + 10, d)), Values::normal, test_seed()));
        // cp.async writes rows past the end too, as 0.
        check_count(fmt::format("bytes that are asked for: K_j and V_j once, Q_i, dO_i and statistics for each step (d {})", d),
                    work_of(counts, "staged_queries").shared_of(Access::cp_async).requested_bytes,
                    blocks * (2 * B_c * width * bytes + T_r * B_r * (2 * width * bytes + of_statistics)));
        const std::uint64_t few = barriers_of(2, d), many = barriers_of(6, d);
        check_count(fmt::format("barriers of four steps more (d {})", d), many - few, 4);
        WARN_MESSAGE((d != 64 || few <= 2 + 3),
                     fmt::format("barriers of two steps, and before them: found {}, needed {}", few - 2, 2 + 1));
    }
#endif
}

TEST_CASE("agrees with the reference: lengths near the edges of steps and of blocks of keys") {
    check_lengths_near_edges([](int) { return B_r; }, keys_of_a_block, 3 * B_r + 1);
}

TEST_CASE("causal: keys that no query of a step sees reach nobody, whatever they hold") {
    for (const int d : {64, 128}) check_hidden_keys_reach_nobody(shape_of(1, 300, 300, d), 128, 128);
}

#ifndef FLASHLADDER_GPU
TEST_CASE("in whatever order blocks run, dK and dV have the same bits, and dQ is within the rule") { check_whatever_order(); }

TEST_CASE("no kernel has a bank conflict, and sums of dQ are whole sectors") {
    for (const int d : {64, 128}) {
        const auto counted =
            count_stage(stage_under_test(), backward_inputs(shape_of(1, 100, 150, d), Values::normal, test_seed()));
        for (const auto& launch : counted.work.launches) {
            check_count("bank conflicts of " + launch.kernel, launch.total.all_shared().conflicts, 0);
            const auto& adds = launch.total.global_of(Access::atomic);
            check_count("bytes of sectors that the sums take", adds.sectors * 32, adds.requested_bytes);
        }
        const std::uint64_t blocks = static_cast<std::uint64_t>((150 + keys_of_a_block(d) - 1) / keys_of_a_block(d));
        check_count("additions: one for each element of dQ, of whole steps, and block of keys",
                    counted.work.total().global_of(Access::atomic).requested_bytes / 4,
                    2 * B_r * static_cast<std::uint64_t>(d) * blocks);
    }
}

TEST_CASE("counted: five products, an exponential a score, dS alone is stored, and a step's tiles are under way") {
    for (const int d : {64, 128}) {
        const std::uint64_t N = 256, width = static_cast<std::uint64_t>(d),
                            B_c = static_cast<std::uint64_t>(keys_of_a_block(d));
        const auto counts = count_stage(stage_under_test(), backward_inputs(shape_of(1, N, N, d), Values::normal, test_seed()));
        const emulator::Work& work = work_of(counts, "staged_queries");
        const std::uint64_t blocks = N / B_c, T_r = N / B_r;
        const std::string with = fmt::format(" (d {})", d);
        check_count("matrix instructions: five products" + with, work.matrix_instructions, 5 * N * N * width / (16 * 8 * 16));
        check_count("exponentials" + with, work.exponentials, N * N);
        check_count("bytes that threads write to shared memory: dS, and dK and dV at the end" + with,
                    work.shared_of(Access::write).requested_bytes, N * N * bytes + 2 * N * width * bytes);
        check_count("barriers: one a step, and three a block" + with, work.barriers, blocks * (T_r + 3));
        for (const auto& launch : counts.work.launches) {
            if (launch.kernel.find("staged_queries") == std::string::npos) continue;
            const std::uint64_t a_step = B_r * (2 * width * bytes + of_statistics), K_and_V = 2 * B_c * width * bytes;
            check_count("bytes of shared memory" + with, launch.dynamic_shared_bytes,
                        K_and_V + 2 * a_step + 2 * B_c * B_r * bytes);
            check_count("most bytes under way" + with, launch.most_bytes_in_flight, 1, K_and_V + 2 * a_step);
        }
    }
}
#endif

TEST_CASE("needs a float for each element of dQ, of whole steps, and the statistics of each query") {
    AttentionShape shape = shape_of(6, 999, 1, 64);
    shape.batch = 2;
    CHECK(stage_under_test().scratch_bytes(shape) == 2 * 6 * (4 * 1024 * 64 + 8 * 999));
    shape.head_dim = 128;
    shape.n_q = 960;
    CHECK(stage_under_test().scratch_bytes(shape) == 2 * 6 * (4 * 960 * 128 + 8 * 960));
}

}  // namespace
}  // namespace flashladder::attention_backward
