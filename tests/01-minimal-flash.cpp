// Rung 01. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdint>

#include "attention_suite.h"

#ifndef FLASHLADDER_GPU
#include "operations/attention/counts.h"
#endif

namespace flashladder::attention {
namespace {

[[maybe_unused]] const StrictBarriers strict_barriers;

void check_exercise(const Inputs& inputs, Judge judge, const std::string& what) {
    const Comparison result = check(stage_under_test(), inputs, judge);
    CHECK_MESSAGE(result.passed, what, "; ", result.describe(inputs.shape));
}

TEST_CASE("EXERCISE 1.1: P of one block") {
    // One block of keys: nothing to merge.
    for (const int n_k : {27, drawn_length(32, 2, 32, 0)}) {
        const AttentionShape shape = shape_of(1, 33, n_k, 64);
        const int one = n_k - 1 - static_cast<int>(test_seed() % n_k) / 2;  // of the last half
        check_exercise(make_inputs(shape, Values::large_offset, test_seed()), Judge::worst_row_only,
                       "one block of keys, scores near 200 and -200");
        check_exercise(inputs_with_scores(shape, [=](int key) { return key == one ? 288 : 0; }, test_seed()),
                       Judge::worst_row_only,
                       fmt::format("one block of keys, the score of key {} is 200, the others near 0", one));
    }
}

TEST_CASE("EXERCISE 1.2: merging a block with those before it") {
    // First l alone: V is 0 in all blocks but the last, so that there is no O to rescale, and l still counts every key.
    check_exercise(make_inputs(shape_of(1, 33, 96, 64), Values::zero_values_first, test_seed()), Judge::both_rules,
                   "three blocks of keys, V is 0 for the first two");
    check_exercise(make_inputs(shape_of(1, 33, drawn_length(32, 64, 130, 0), 64), Values::normal, test_seed()),
                   Judge::both_rules, "several blocks of keys");
    const AttentionShape shape = shape_of(1, 40, 96, 64);
    for (const bool grow : {true, false})
        check_exercise(inputs_with_scores(shape, [=](int key) { return (grow ? 100 : -100) * (key / 32); }, test_seed()),
                       Judge::worst_row_only,
                       grow ? "scores grow by 100 from block to block" : "scores fall by 100 from block to block");
#ifndef FLASHLADDER_GPU
    constexpr std::uint64_t N_q = 40, blocks = 3, d = 64, bytes = sizeof(float);
    const StageCounts counted = count_stage(stage_under_test(), make_inputs(shape_of(1, N_q, 96, d), Values::normal, 1));
    const auto check_times = [&](const char* name, const char* tensor, std::uint64_t bytes_of_it) {
        const TensorWork& work = counted.tensors.at(tensor);
        check_count(fmt::format("{}: bytes read, of a tensor of {} and {} blocks of keys", name, bytes_of_it, blocks),
                    work.read.requested_bytes, 0, blocks * bytes_of_it);
        // Line 2 has written them once before.
        check_count(fmt::format("{}: bytes written, of a tensor of {} and {} blocks of keys", name, bytes_of_it, blocks),
                    work.written.requested_bytes, 0, (blocks + 1) * bytes_of_it);
    };
    check_times("O", "O", N_q * d * bytes);
    check_times("l and m", "scratch", 2 * N_q * bytes);
#endif
}

TEST_CASE("needs memory in proportion to N, not to N^2") {
    const auto bytes = [](int n) { return stage_under_test().scratch_bytes(shape_of(1, n, n, 64)); };
    CHECK(bytes(2000) == 2 * bytes(1000));
}

}  // namespace
}  // namespace flashladder::attention
