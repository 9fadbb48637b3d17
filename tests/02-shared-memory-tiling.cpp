// Rung 02. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "attention_suite.h"

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#include "operations/attention/counts.h"
#endif

namespace flashladder::attention {
namespace {

[[maybe_unused]] const StrictBarriers strict_barriers;

/// Two blocks of queries and of keys, in any number, with both head dimensions.
void check_results() {
    for (const int head_dim : {64, 128}) {
        const int B_c = head_dim == 64 ? 256 : 128;
        const int n_q = drawn_length(64, 65, 128, 0), n_k = drawn_length(B_c, B_c + 1, B_c + 100, 1);
        const Inputs in = make_inputs(shape_of(1, n_q, n_k, head_dim), Values::normal, test_seed());
        const Comparison result = check(stage_under_test(), in);
        CHECK_MESSAGE(result.passed, result.describe(in.shape));
    }
}

#ifndef FLASHLADDER_GPU
emulator::Work work_of_tiles(int head_dim) {
    return count_stage(stage_under_test(), make_inputs(shape_of(1, 128, 512, head_dim), Values::normal, 1)).work.total();
}
#endif

TEST_CASE("EXERCISE 2.1: loads of 16 bytes") {
    check_results();
#ifndef FLASHLADDER_GPU
    using emulator::Access;
    for (const char* tensor : {"Q", "K", "V"}) {
        const auto counted = count_stage(stage_under_test(), make_inputs(shape_of(1, 128, 512, 64), Values::normal, 1));
        const emulator::GlobalWork read = counted.tensors.at(tensor).read;
        check_count(fmt::format("{}: bytes that a warp asks for at a time", tensor),
                    read.requested_bytes / std::max<std::uint64_t>(read.accesses, 1), 512);
        check_count(fmt::format("{}: bytes of the sectors that this takes", tensor), read.sectors * 32,
                    read.requested_bytes);
    }
#endif
}

TEST_CASE("EXERCISE 2.2: threads that own a piece of a tile") {
    check_results();
    const AttentionShape shape = shape_of(1, 70, 600, 64);
    for (const bool grow : {true, false}) {
        const Comparison result =
            check(stage_under_test(),
                  inputs_with_scores(shape, [=](int key) { return (grow ? 100 : -100) * (key / 128); }, test_seed()),
                  Judge::worst_row_only);
        CHECK_MESSAGE(result.passed, (grow ? "scores grow" : "scores fall"), " by 100 every 128 keys; ",
                      result.describe(shape));
    }
#ifndef FLASHLADDER_GPU
    for (const std::uint64_t d : {64, 128}) {
        const emulator::Work work = work_of_tiles(static_cast<int>(d));
        const emulator::SharedWork shared = work.all_shared();
        const std::uint64_t multiply_adds = 2 * 128 * 512 * d / 32;  // of a warp: S and P V
        if (!emulator::optimised_by_clang) {  // a learner's kernel is not
            check_count(fmt::format("d {}: wavefronts of shared memory for each 100 multiply-adds of a warp", d),
                        100 * shared.wavefronts / multiply_adds, 0, 45);
            check_count(fmt::format("d {}: conflicts in each 100 wavefronts", d),
                        100 * shared.conflicts / shared.wavefronts, 0, 4);
        }
        check_barriers(fmt::format("d {}: barriers of a block for each pair of blocks", d),
                       work.barriers / (2 * (512 / (d == 64 ? 256 : 128))), 0, 2);
    }
#endif
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
}  // namespace flashladder::attention
