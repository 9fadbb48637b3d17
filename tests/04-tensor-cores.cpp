// Rung 04. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "rung_suite.h"

#ifndef FLASHLADDER_GPU
#include "harness/counts.h"
#endif

namespace flashladder {
namespace {

/// LSE alone: it needs S, the maximum and the sum, but neither P as a matrix nor V.
void check_lse(const Inputs& in) {
    const Comparison result = check(stage_under_test(), in, Judge::both_rules, true);
    CHECK_MESSAGE((result.lse_error <= result.allowed_lse_error),
                  fmt::format("{}: LSE[query {}] is {:.6g}, expected {:.6g}", to_string(in.shape),
                              result.furthest_lse.index, result.furthest_lse.found, result.furthest_lse.expected));
}

TEST_CASE("EXERCISE 4.1: the row maximum over a quad") {
    // Of every 16 keys the last 8 repeat the first 8, and of their elements too: then it does not matter to 4.2 which
    // of the four 8 x 8 matrices comes first. One row's maximum must not be another's: by turns they are near 200 and
    // -200.
    for (const Values values : {Values::peaky, Values::large_offset}) {
        Inputs in = make_inputs(shape_of(1, 33, 48, 64), values, test_seed());
        const std::size_t d = 64;
        for (std::size_t at = 0; at < in.K.size(); ++at) {
            const std::size_t key = at / d, x = at % d;
            in.K[at] = in.K[(key / 16 * 16 + key % 8) * d + x / 16 * 16 + x % 8];
        }
        if (values == Values::large_offset)
            for (std::size_t at = 8; at < in.Q.size(); at += d) in.Q[at] = 0;  // the element that repeats the offset
        check_lse(in);
    }
}

TEST_CASE("EXERCISE 4.2: the rows of K_j that lanes point to") {
    check_lse(make_inputs(shape_of(1, 33, 48, 64), Values::peaky, test_seed()));
    check_lse(make_inputs(shape_of(1, 33, 48, 128), Values::peaky, test_seed()));
}

TEST_CASE("EXERCISE 4.3: P as the operand A") {
    const Inputs in = make_inputs(shape_of(1, 33, 300, 64), Values::normal, test_seed());
    const Comparison result = check(stage_under_test(), in, Judge::both_rules, true);
    CHECK_MESSAGE(result.passed, result.describe(in.shape));
}

TEST_CASE("one hot: each query finds its own key, and its row of O is that key's row of V") {
    // Says where an element went, where the norms of errors only say that something is wrong.
    for (const DType dtype : stage_under_test().supports.dtypes)
        for (const int d : stage_under_test().supports.head_dims) {
            AttentionShape shape = shape_of(1, 64, 64, d);
            shape.dtype = dtype;
            Inputs in = make_inputs(shape, Values::normal, test_seed());
            const std::size_t width = static_cast<std::size_t>(d);
            std::fill(in.Q.begin(), in.Q.end(), 0.0f);
            std::fill(in.K.begin(), in.K.end(), 0.0f);
            // Query i is 64 e_i, key j is 64 e_(5 j mod 64): where they meet the score is 4096 / sqrt(d), else 0.
            for (std::size_t i = 0; i < 64; ++i) {
                in.Q[i * width + i] = 64;
                in.K[i * width + 5 * i % 64] = 64;
            }
            const Outputs out = run(stage_under_test(), in);
            for (std::size_t j = 0; j < 64; ++j)
                for (std::size_t x = 0; x < width; ++x) {
                    const float got = out.O[5 * j % 64 * width + x], wanted = in.V[j * width + x];
                    if (got == wanted) continue;
                    CHECK_MESSAGE((got == wanted),
                                  fmt::format("{}: query {} finds key {} alone; O[query {}][{}] is {:.6g}, "
                                              "expected {:.6g}, as V[key {}][{}] is",
                                              to_string(shape), 5 * j % 64, j, 5 * j % 64, x, got, wanted, j, x));
                    return;  // one says enough
                }
        }
}

#ifndef FLASHLADDER_GPU
TEST_CASE("every multiply-add of both products is in a matrix instruction, and P does not touch memory") {
    for (const int d : stage_under_test().supports.head_dims) {
        const AttentionShape shape = shape_of(2, 128, 192, d);
        const auto work = count_stage(stage_under_test(), make_inputs(shape, Values::normal, test_seed())).work.total();
        CHECK_MESSAGE((double(work.matrix_flops) == shape.flops()),
                      fmt::format("{}: {} operations in matrix instructions, expected {}", to_string(shape),
                                  work.matrix_flops, shape.flops()));
        CHECK_MESSAGE((work.matrix_instructions * 16 * 8 * 16 * 2 == work.matrix_flops),
                      fmt::format("{}: {} matrix instructions, expected {} of 16 x 8 x 16", to_string(shape),
                                  work.matrix_instructions, work.matrix_flops / (16 * 8 * 16 * 2)));
        // Shared memory is written when Q_i, K_j and V_j come and when O leaves: (2 N_q + 2 T_r N_k) d elements of 2
        // bytes a head, with T_r = N_q / 32.
        const std::uint64_t bytes = work.shared_of(emulator::Access::write).requested_bytes;
        const std::uint64_t expected = 2 * std::uint64_t(2 * 128 + 2 * 128 / 32 * 192) * std::uint64_t(d) * 2;
        CHECK_MESSAGE((bytes == expected), fmt::format("{}: {} bytes are written to shared memory, expected {}",
                                                       to_string(shape), bytes, expected));
    }
}
#endif

TEST_CASE("needs no memory beyond inputs and outputs") {
    CHECK(stage_under_test().scratch_bytes(shape_of(4, 1000, 1000, 64)) == 0);
}

}  // namespace
}  // namespace flashladder
