// Rung 04. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>

#include "attention_suite.h"

#ifndef FLASHLADDER_GPU
#include "operations/attention/counts.h"
#endif

namespace flashladder::attention {
namespace {

/// LSE alone: it needs S, the maximum and the sum, but neither P as a matrix nor V.
void check_lse(const Inputs& in, const char* what) {
    const Comparison result = check(stage_under_test(), in, Judge::both_rules, true);
    CHECK_MESSAGE((result.lse_error <= result.allowed_lse_error),
                  fmt::format("{}: {}: LSE[query {}] is {}, expected {:.6g}", what, to_string(in.shape),
                              result.furthest_lse.index, found_text(result.furthest_lse.found),
                              result.furthest_lse.expected));
}

/// An element of V that no other one equals, exact in this dtype. Elements of a column are of one sign and one power of
/// 4, so a sum of two of them is no element.
float element_of_V(DType dtype, std::size_t key, std::size_t column) {
    const std::size_t mantissas = dtype == DType::bf16 ? 128 : 1024, index = column * 64 + key;
    const int power = int(index / mantissas), powers = dtype == DType::bf16 ? 32 : 4;  // of 4, each with two signs
    const int exponent = 2 * ((power / 2 + powers / 2) % powers - powers / 2);         // the first columns are near 1
    const double size = std::ldexp(1 + double(index % mantissas) / double(mantissas), exponent);
    return float(power % 2 ? -size : size);
}

/// Which element of such a V a number is that stands in O for V[key][column]; or of which two of that column it may be
/// the sum. Of the pairs whose rounded sum it is, the first: with `key` itself, and eight keys apart as parts of A are.
std::string element_text(DType dtype, std::size_t d, float found, std::size_t key, std::size_t column) {
    const auto V = [&](std::size_t j, std::size_t x) { return element_of_V(dtype, j, x); };
    if (std::isnan(found)) return found_text(found);
    for (std::size_t x = 0; x < d; ++x)
        for (std::size_t j = 0; j < 64; ++j)
            if (V(j, x) == found) return fmt::format("V[key {}][{}] ({:.6g})", j, x, found);
    for (std::size_t with = 0; with < 64; ++with)
        for (std::size_t apart = 0; apart < 64; ++apart) {
            const std::size_t j = key ^ with, other = j ^ 8 ^ apart;
            if (round_to(dtype, V(j, column) + V(other, column)) == found)
                return fmt::format("{:.6g}, no element of V, maybe the sum V[key {}][{}] + V[key {}][{}]", found, j,
                                   column, other, column);
        }
    return fmt::format("{:.6g}, no element of V", found);
}

/// Each query finds its own key, and its row of O is that key's row of V. Says where an element went, where the norms
/// of errors only say that something is wrong.
void check_one_hot(DType dtype, int d) {
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
        for (std::size_t x = 0; x < width; ++x) in.V[i * width + x] = element_of_V(dtype, i, x);
    }
    const Outputs out = run(stage_under_test(), in);
    for (std::size_t j = 0; j < 64; ++j)
        for (std::size_t x = 0; x < width; ++x) {
            const float got = out.O[5 * j % 64 * width + x], wanted = in.V[j * width + x];
            if (got == wanted) continue;
            CHECK_MESSAGE((got == wanted),
                          fmt::format("{}: query {} finds key {} alone; O[query {}][{}] is {}, expected V[key {}][{}] "
                                      "({:.6g})",
                                      to_string(shape), 5 * j % 64, j, 5 * j % 64, x,
                                      element_text(dtype, width, got, j, x), j, x, wanted));
            return;  // one says enough
        }
}

void check_that(const Inputs& in) {
    const std::string wrong = fault(stage_under_test(), in);
    CHECK_MESSAGE(wrong.empty(), wrong);
}

#ifndef FLASHLADDER_GPU
using Count = std::uint64_t;
using emulator::Access;

constexpr int B_r = 32;  // queries of a block
constexpr int keys_a_block(int d) { return d == 64 ? 32 : 16; }

emulator::Work work_on(const AttentionShape& shape) {
    return count_stage(stage_under_test(), make_inputs(shape, Values::normal, test_seed())).work.total();
}
#endif

TEST_CASE("EXERCISE 4.1: Q_i as the operand A") {
    for (const int d : {64, 128}) check_lse(make_inputs(shape_of(1, 33, 48, d), Values::peaky, test_seed()), "scores");
}

TEST_CASE("EXERCISE 4.2: P as the operand A") {
    check_one_hot(DType::bf16, 64);
    check_that(make_inputs(shape_of(1, 33, 300, 64), Values::normal, test_seed()));
}

TEST_CASE("EXERCISE 4.3: O leaves in whole rows") {
    for (const int d : {64, 128}) check_that(inputs(1, drawn_length(32, 33, 80, 0), 40, d, false, test_seed()));
    check_that(inputs(1, 100, 60, 64, true, test_seed()));  // queries 0 to 39 see no key
#ifndef FLASHLADDER_GPU
    for (const int d : {64, 128}) {
        const auto O =
            count_stage(stage_under_test(), make_inputs(shape_of(1, 64, 16, d), Values::normal, 1)).tensors.at("O");
        check_count(fmt::format("d {}: bytes of O that a warp stores at a time", d),
                    O.written.requested_bytes / std::max<Count>(O.written.accesses, 1), 512);
        check_count(fmt::format("d {}: bytes of the sectors that this takes", d), O.written.sectors * 32,
                    O.written.requested_bytes);
    }
    AttentionShape idle = shape_of(1, 2 * B_r, B_r, 64);  // the first block sees no key, and fetches none
    idle.causal = true;
    for (const AttentionShape& shape : {shape_of(1, 40, 70, 64), idle}) {
        const std::string report = race(stage_under_test(), make_inputs(shape, Values::normal, test_seed()));
        CHECK_MESSAGE(report.empty(), report);
    }
#endif
}

TEST_CASE("EXERCISE 4.4: both products in matrix instructions") {
    for (const int d : {64, 128})
        check_lse(make_inputs(shape_of(1, 33, 48, d), Values::peaky, test_seed()), "Q_i K_j^T");
    for (const DType dtype : stage_under_test().supports.dtypes)
        for (const int d : stage_under_test().supports.head_dims) check_one_hot(dtype, d);
    for (const int d : {64, 128})
        check_that(make_inputs(shape_of(1, 33, drawn_length(16, 50, 120, 0), d), Values::normal, test_seed()));
#ifndef FLASHLADDER_GPU
    for (const int d : stage_under_test().supports.head_dims) {
        const AttentionShape shape = shape_of(2, 128, 192, d);
        const Count blocks = 2 * 128 / B_r, steps = 192 / Count(keys_a_block(d)), width = Count(d);
        const emulator::Work work = work_on(shape);
        check_count("operations of matrix instructions", work.matrix_flops, Count(shape.flops()), to_string(shape));
        check_count("matrix instructions of 16 x 8 x 16", work.matrix_instructions,
                    work.matrix_flops / (16 * 8 * 16 * 2), to_string(shape));
        // Each 8 x 8 matrix of K_j and V_j comes once a step. A of Q_i is four for each 16 x 16, and O is stored by
        // rows.
        const Count per_step = 2 * width / 8 * Count(keys_a_block(d)) / 8, of_Q = 8 * width / 16, of_O = width / 8;
        check_count(
            fmt::format("{}: reads of shared memory by a block of queries, {} matrices of K_j and V_j in each of {} "
                        "steps and {} of Q_i",
                        to_string(shape), per_step, steps, of_Q),
            work.shared_of(Access::read).accesses / blocks, steps * per_step + of_Q, steps * per_step + of_Q + of_O);
        // Shared memory is written when Q_i, K_j and V_j come and when O leaves, 2 bytes an element: never with P.
        check_count(
            fmt::format("{}: bytes that a block writes to shared memory, of Q_i, K_j, V_j and O", to_string(shape)),
            work.shared_of(Access::write).requested_bytes / blocks, 2 * width * (B_r + 2 * 192),
            2 * width * (2 * B_r + 2 * 192));
    }
#endif
}

TEST_CASE("the elements of V that say where they have gone differ, and are what the dtype holds") {
    for (const DType dtype : {DType::bf16, DType::f16}) {
        std::set<float> all;
        for (std::size_t x = 0; x < 128; ++x)
            for (std::size_t j = 0; j < 64; ++j) all.insert(round_to(dtype, element_of_V(dtype, j, x)));
        CHECK(all.size() == 64 * 128);
        const auto text = [=](float found) { return element_text(dtype, 128, found, 3, 5); };
        CHECK(text(element_of_V(dtype, 8, 127)).starts_with("V[key 8][127] ("));
        CHECK(text(round_to(dtype, element_of_V(dtype, 3, 5) + element_of_V(dtype, 11, 5)))
                  .ends_with(", no element of V, maybe the sum V[key 3][5] + V[key 11][5]"));
        CHECK(text(0) == "0, no element of V");
    }
}

#ifndef FLASHLADDER_GPU
TEST_CASE("counted: 32 keys a block at d = 64, 16 at d = 128") {
    // A row takes an exponential for each key of its block, and one in each of four lanes for the rescale.
    for (const int d : stage_under_test().supports.head_dims) {
        const AttentionShape shape = shape_of(1, 64, 192, d);
        const auto steps = Count(192 / keys_a_block(d));
        check_count("exponentials", work_on(shape).exponentials, 64 * (192 + 4 * steps), to_string(shape));
    }
}
#endif

TEST_CASE("needs no memory beyond inputs and outputs") {
    CHECK(stage_under_test().scratch_bytes(shape_of(4, 1000, 1000, 64)) == 0);
}

}  // namespace
}  // namespace flashladder::attention
