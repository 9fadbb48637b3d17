// Rung 02. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "rung_suite.h"

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#include "harness/counts.h"
#endif

namespace flashladder {
namespace {

[[maybe_unused]] const StrictBarriers strict_barriers;

TEST_CASE("EXERCISE 2.1: loads of 16 bytes") {
    // Q is 0, and so is every score, whatever 2.2 makes of K: O is the mean of V.
    for (const int head_dim : {64, 128}) {
        Inputs in = make_inputs(shape_of(2, 33, drawn_length(64, 260, 330, 0), head_dim), Values::normal, test_seed());
        std::ranges::fill(in.Q, 0.0f);
        const Comparison result = check(stage_under_test(), in);
        // One error of l moves a whole row, so the worst row is judged where rows are not that alike.
        CHECK_MESSAGE((result.error <= result.allowed_error), "Q is 0, so O is the mean of V; ",
                      result.describe(in.shape));
    }
}

TEST_CASE("EXERCISE 2.2: a piece of S in registers") {
    for (const int head_dim : {64, 128}) {
        const int n_q = drawn_length(64, 33, 70, 0), n_k = drawn_length(head_dim == 64 ? 256 : 128, 120, 330, 1);
        const Inputs in = make_inputs(shape_of(1, n_q, n_k, head_dim), Values::normal, test_seed());
        const Comparison result = check(stage_under_test(), in);
        CHECK_MESSAGE(result.passed, result.describe(in.shape));
    }
}

#ifndef FLASHLADDER_GPU
TEST_CASE("twice the shared memory: half the blocks of keys, and Q, O, l and m travel half as often; K and V once") {
    struct Doubling {
        int head_dim;
        std::size_t kilobytes;
        int B_c;  // with so much; twice that with twice as much
    };
    for (const auto& [head_dim, kilobytes, B_c] :
         {Doubling{64, 66, 64}, {64, 115, 128}, {128, 74, 32}, {128, 114, 64}}) {
        const Inputs in = make_inputs(shape_of(1, 100, 1024, head_dim), Values::normal, test_seed());
        const auto counts = [&](std::size_t M) {
            const std::size_t before = std::exchange(emulator::settings().shared_bytes_per_block, M);
            const StageCounts result = count_stage(stage_under_test(), in);
            emulator::settings().shared_bytes_per_block = before;
            return result;
        };
        const StageCounts small = counts(kilobytes * 1024), large = counts(2 * kilobytes * 1024);
        const auto check_requested = [&](const StageCounts& c, const char* tensor, std::uint64_t expected) {
            const TensorWork& work = c.tensors.at(tensor);
            const std::uint64_t found = work.read.requested_bytes + work.written.requested_bytes;
            CHECK_MESSAGE((found == expected),
                          fmt::format("d {}, {} KB of shared memory: {} is asked for {} bytes, expected {}", head_dim,
                                      &c == &small ? kilobytes : 2 * kilobytes, tensor, found, expected));
        };
        const std::uint64_t bytes_of_Q = in.Q.size() * sizeof(float), bytes_of_K = in.K.size() * sizeof(float);
        const auto T_c = static_cast<std::uint64_t>(1024 / B_c);
        check_requested(small, "Q", T_c * bytes_of_Q);
        check_requested(large, "Q", T_c / 2 * bytes_of_Q);
        check_requested(small, "O", (2 * T_c - 1) * bytes_of_Q);  // the first block has nothing to read yet
        check_requested(large, "O", (T_c - 1) * bytes_of_Q);
        check_requested(small, "scratch", (4 * T_c - 2) * 100 * sizeof(float));
        check_requested(large, "scratch", (2 * T_c - 2) * 100 * sizeof(float));
        for (const StageCounts* c : {&small, &large})
            for (const char* tensor : {"K", "V"}) check_requested(*c, tensor, bytes_of_K);
    }
}
#endif

TEST_CASE("needs memory in proportion to N, not to N^2") {
    const auto bytes = [](int n) { return stage_under_test().scratch_bytes(shape_of(1, n, n, 64)); };
    CHECK(bytes(2000) == 2 * bytes(1000));
}

}  // namespace
}  // namespace flashladder
