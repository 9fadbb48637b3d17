// Rung 18. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "attention_backward_suite.h"
#include "launch.h"

namespace flashladder::attention_backward {
namespace {

[[maybe_unused]] const StrictBarriers strict_barriers;

constexpr int B_c = 64;
constexpr int queries_of_a_step(int d) { return d == 64 ? 64 : 32; }

#ifndef FLASHLADDER_GPU
using emulator::Access;
#endif

TEST_CASE("EXERCISE 18.1: the mask of transposed scores") {
    for (const int d : {64, 128})
        for (const auto& [n_q, n_k] :
             {std::pair(64, 64), {70, 70 + drawn_length(32, 1, 90, 0)}, {40 + drawn_length(32, 1, 90, 1), 40}})
            check_gradient("dV", backward_inputs(causal(shape_of(1, n_q, n_k, d)), Values::normal, test_seed()),
                           "a causal mask, where row r of S^T is a key and column c a query");
}

TEST_CASE("EXERCISE 18.2: dS as an operand, of the tile that has dS^T") {
    for (const int d : {64, 128})
        for (const bool is_causal : {false, true}) {
            AttentionShape shape = shape_of(1, drawn_length(64, 33, 150, 2), drawn_length(64, 33, 150, 3), d);
            shape.causal = is_causal;
            check_gradient("dQ", backward_inputs(shape, Values::normal, test_seed()),
                           "dQ = dS K, and the tile has keys as its rows");
        }
}

TEST_CASE("EXERCISE 18.3: a step of transposed scores") {
    for (const int d : {64, 128})
        for (AttentionShape shape : shapes_of_several_blocks(d, static_cast<std::uint64_t>(d))) {
            if (!shape.causal) shape.dtype = DType::f16;
            const Inputs in = backward_inputs(shape, Values::normal, test_seed());
            if (d == 64) check_no_race(in);
            check_gradients(in, shape.causal ? "a step, with a causal mask" : "a step, two heads that share K and V");
        }
    check_gradients(backward_inputs(causal(shape_of(1, 130, 40, 64)), Values::normal, test_seed()),
                    "causal, and queries that see no key");
    for (const int d : {64, 128})
        check_gradients(backward_inputs(causal(shape_of(1, 64, 64 + B_c - 2, d)), Values::normal, test_seed()),
                        "causal, and a step in which one key is hidden, from one query");
    // Of keys behind the last one LSE says nothing: 0 minus an LSE of -10000 is a weight of infinity.
    check_gradients(backward_inputs(shape_of(1, 70, 70, 64), Values::large_offset, test_seed()),
                    "70 keys, so that rows past the end are in the last block; scores with a large offset");
#ifndef FLASHLADDER_GPU
    for (const int d : {64, 128}) {
        const std::uint64_t N = 128, B_r = static_cast<std::uint64_t>(queries_of_a_step(d)),
                            width = static_cast<std::uint64_t>(d);
        const auto counted = count_stage(stage_under_test(), backward_inputs(shape_of(1, N, N, d), Values::normal, 1));
        const emulator::Work& work = work_of(counted, "transposed_scores");
        const std::uint64_t blocks = N / B_c, steps = blocks * (N / B_r);
        check_count(
            fmt::format("bytes written to shared memory: K and V, Q, dO, LSE and D in each step, dS once, P never; "
                        "dK and dV at the end (d {})",
                        d),
            work.shared_of(Access::write).requested_bytes, 0,
            blocks * 4 * B_c * width * 2 + steps * (2 * B_r * width * 2 + 2 * B_r * 4 + B_r * B_c * 2));
        // A warp's product of 16 rows: A once, B whole, (16, 16) of B for two instructions.
        check_count(fmt::format("matrix instructions: five products (d {})", d), work.matrix_instructions,
                    5 * N * N * width / (16 * 8 * 16));
        check_count("exponentials: one a score", work.exponentials, 0, N * N);
        const emulator::SharedWork shared = work.all_shared();
        check_count("conflicts in each 100 wavefronts of shared memory",
                    100 * shared.conflicts / std::max<std::uint64_t>(shared.wavefronts, 1), 0, 5);
        WARN_MESSAGE((work.barriers <= 2 * steps + 2 * blocks),
                     fmt::format("barriers: found {}, needed {} at most", work.barriers, 2 * steps + 2 * blocks));
    }
#endif
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
        const std::uint64_t B_r = static_cast<std::uint64_t>(queries_of_a_step(d));
        check_count("additions: one for each element of dQ, of whole steps, and block of keys",
                    counted.work.total().global_of(Access::atomic).requested_bytes / 4,
                    (100 + B_r - 1) / B_r * B_r * static_cast<std::uint64_t>(d) * 3);
    }
}
#endif

TEST_CASE("needs a float for each element of dQ, of whole steps, and one a query beyond inputs and outputs") {
    AttentionShape shape = shape_of(6, 999, 1, 64);
    shape.batch = 2;
    CHECK(stage_under_test().scratch_bytes(shape) == 4 * 2 * 6 * (1024 * 64 + 999));
    shape.head_dim = 128;
    shape.n_q = 1000;
    CHECK(stage_under_test().scratch_bytes(shape) == 4 * 2 * 6 * (1024 * 128 + 1000));
}

}  // namespace
}  // namespace flashladder::attention_backward
