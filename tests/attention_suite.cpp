// The checks that every rung passes, whatever its idea: it computes attention, for every shape it accepts, and it
// refuses the others in words.
#include "attention_suite.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <set>
#include <stdexcept>
#include <string>

#include "launch.h"

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#include "operations/attention/counts.h"
#endif

namespace flashladder::attention {
namespace {

constexpr std::array counts{1, 3, 5};

/// Tiles are 16 to 256 rows.
std::array<int, 7> lengths() {
    return {1, 31, 32, 33, drawn_length(64, 60, 140, 0), drawn_length(128, 200, 260, 1), 1000};
}

/// The dtypes that the stage supports, over and over.
DType dtype_number(std::size_t i) {
    const auto& dtypes = stage_under_test().supports.dtypes;
    return dtypes[i % dtypes.size()];
}

/// Every pair of lengths, each with dtypes, head dimensions, batches and heads such that all pairs of those occur too.
/// Large problems get one head, and the three largest take turns by the seed: they alone are half of the work, and the
/// emulator has to finish.
std::vector<AttentionShape> shapes() {
    constexpr double most_scores = 100'000;
    const auto& dims = stage_under_test().supports.head_dims;
    const auto lengths = attention::lengths();
    std::vector<AttentionShape> all;
    std::size_t largest = 0;
    for (std::size_t a = 0; a < lengths.size(); ++a)
        for (std::size_t b = 0; b < lengths.size(); ++b) {
            if (double(lengths[a]) * lengths[b] > 2 * most_scores && largest++ != test_seed() % 3) continue;
            if (!takes_combination(a * lengths.size() + b)) continue;
            AttentionShape s = shape_of(counts[(a + 2 * b) % 3], lengths[a], lengths[b], dims[(a + b) % dims.size()]);
            s.batch = counts[(2 * a + b) % 3];
            s.dtype = dtype_number(a / 2 + b);
            if (double(s.n_q) * s.n_k * s.batch * s.heads > most_scores) s.batch = 1;
            if (double(s.n_q) * s.n_k * s.batch * s.heads > most_scores) s.heads = s.kv_heads = 1;
            all.push_back(with_enough_rows(s));
        }
    return all;
}

void check_values(Values values, Judge judge = Judge::both_rules) {
    std::uint64_t seed = test_seed();
    std::uint64_t unequal = 0;
    for (const AttentionShape& shape : shapes()) {
        // Lengths in every combination matter for normal values; for the others a few unequal ones do, half of them a run.
        // One query costs the emulator a whole tile for each of the heads that with_enough_rows gives it.
        if (values != Values::normal && ((shape.n_q == 1000) == (shape.n_k == 1000) || shape.n_q == 1 ||
                                         unequal++ % 2 != test_seed() % 2))
            continue;
        const Comparison result = check(stage_under_test(), make_inputs(shape, values, seed++), judge);
        CHECK_MESSAGE(result.passed, result.describe(shape));
    }
}

TEST_CASE("agrees with the reference: normal values, lengths that divide nothing") { check_values(Values::normal); }
TEST_CASE("agrees with the reference: peaky rows") { check_values(Values::peaky); }
TEST_CASE("agrees with the reference: a maximum that grows with j") { check_values(Values::growing_maximum); }
TEST_CASE("agrees with the reference: a large common offset") {
    check_values(Values::large_offset, Judge::worst_row_only);
}

TEST_CASE("agrees with the reference: Q, K, V of a real transformer") {
    for (const int head_dim : stage_under_test().supports.head_dims) {
        if (head_dim > 64) continue;
        for (const DType dtype : stage_under_test().supports.dtypes) {
            const Inputs inputs = real_inputs(head_dim, dtype);
            const Comparison result = check(stage_under_test(), inputs);
            CHECK_MESSAGE(result.passed, result.describe(inputs.shape));
        }
    }
}

// Features that not every rung has. That a stage without one refuses it is checked further down. Head dimensions and
// dtypes take turns in such a way that each of the other parameters meets all of both.

void check_feature(const AttentionShape& asked, Values values, bool lse, Layout layout = Layout::heads_first) {
    const AttentionShape shape = with_enough_rows(asked);
    if (!why_unsupported(stage_under_test(), shape, lse).empty()) return;
    const Comparison result =
        check(stage_under_test(), make_inputs(shape, values, test_seed()), Judge::both_rules, lse, layout);
    CHECK_MESSAGE(result.passed, fmt::format("{}, {}", to_string(layout), result.describe(shape)));
}

TEST_CASE("agrees with the reference: whatever the scale") {
    const Support& supports = stage_under_test().supports;
    const std::vector<float> scales = supports.positive_scale ? std::vector{0.5f, 0.01f} : std::vector{0.5f, -0.125f, 0.0f};
    std::size_t turn = test_seed();
    for (const int head_dim : supports.head_dims)
        for (const float scale : scales) {
            AttentionShape shape = shape_of(1, drawn_length(64, 40, 140, turn), drawn_length(64, 40, 140, turn / 4), head_dim);
            shape.dtype = dtype_number(turn++);
            Inputs in = make_inputs(shape, Values::normal, test_seed());
            in.scale = scale;
            const Comparison result = check(stage_under_test(), in);
            CHECK_MESSAGE(result.passed, fmt::format("args.scale is {}: {}", scale, result.describe(shape)));
        }
}

TEST_CASE("agrees with the reference: causal, also where queries see nothing") {
    std::size_t turn = 0;
    for (const int head_dim : stage_under_test().supports.head_dims) {
        ++turn;
        // The keys that a block of queries sees end at a multiple of a tile, one before, or one behind, by N_k - N_q.
        const int tile = 16 << (test_seed() / 4 + turn) % 4;
        const int more = drawn_length(tile, 1, 200, turn), fewer = drawn_length(tile, 1, 200, turn + 1);
        const int n = drawn_length(64, 63, 200, turn + 2);
        for (const auto& [n_q, n_k] : {std::pair(1, 1),
                                       {n, n},
                                       {65, 65},
                                       {64, 64 + more},
                                       {n, n + more},
                                       {40 + fewer, 40},
                                       {300, 1},
                                       {1, 300}}) {
            AttentionShape shape = shape_of(2, n_q, n_k, head_dim);
            shape.dtype = dtype_number(turn++);
            shape.causal = true;
            check_feature(shape, (turn + test_seed()) % 2 ? Values::normal : Values::growing_maximum, true);
        }
    }
}

TEST_CASE("agrees with the reference: LSE") {
    std::size_t turn = 0;
    for (const int head_dim : stage_under_test().supports.head_dims)
        for (const auto& [n_q, n_k] : {std::pair(1, 1), {31, 100}, {100, 257}}) {
            AttentionShape shape = shape_of(3, n_q, n_k, head_dim);
            shape.dtype = dtype_number(turn++);
            check_feature(shape, Values::normal, true);
            check_feature(shape, Values::peaky, true);
        }
}

TEST_CASE("agrees with the reference: grouped queries") {
    std::size_t turn = 0;
    for (const int head_dim : stage_under_test().supports.head_dims)
        for (const auto& [heads, kv_heads] : {std::pair(6, 3), {6, 2}, {5, 1}}) {
            AttentionShape shape = shape_of(heads, 70, 90, head_dim);
            shape.dtype = dtype_number(turn++);
            if (!takes_combination(turn)) continue;
            shape.batch = 2;
            shape.kv_heads = kv_heads;
            check_feature(shape, Values::normal, false);
            shape.causal = true;
            check_feature(shape, Values::normal, true);
        }
}

TEST_CASE("agrees with the reference: any strides") {
    const Support& supports = stage_under_test().supports;
    if (!supports.strides) return;
    std::size_t turn = 0;
    for (const Layout layout : {Layout::sequence_first, Layout::padded})
        for (const int head_dim : supports.head_dims) {
            ++turn;
            for (const auto& [n_q, n_k] : {std::pair(1, 1), {64, 64}, {100, 257}, {200, 33}, {8, 300}}) {
                AttentionShape shape = shape_of(n_q * n_k < 10000 ? 4 : 2, n_q, n_k, head_dim);
                shape.batch = 2;
                if (supports.grouped_query) shape.kv_heads = shape.heads / 2;
                shape.dtype = dtype_number(turn++);
                shape.causal = (turn / 2 + test_seed()) % 2;
                if (takes_combination(turn)) check_feature(shape, Values::normal, supports.lse, layout);
            }
        }
}

TEST_CASE("NaN in a query is NaN in its rows of O and LSE, and in no other") {
    const Support& supports = stage_under_test().supports;
    for (const int d : supports.head_dims)
        for (const DType dtype : supports.dtypes) {
            AttentionShape shape = shape_of(1, 40, 70, d);
            shape.dtype = dtype;
            Inputs in = make_inputs(shape, Values::normal, test_seed());
            constexpr std::size_t row = 3;
            const std::size_t width = static_cast<std::size_t>(d);
            in.Q.at(row * width + width / 2) = std::numeric_limits<float>::quiet_NaN();
            const Outputs out = run(stage_under_test(), in, supports.lse);
            for (std::size_t x = 0; x < out.O.size(); ++x)
                CHECK_MESSAGE(
                    (std::isnan(out.O[x]) == (x / width == row)),
                    fmt::format("{}: query {} alone has a NaN; O[query {}][{}] is {}, expected {}", to_string(shape),
                                row, x / width, x % width, out.O[x], x / width == row ? "nan" : "a number"));
            for (std::size_t i = 0; i < out.lse.size(); ++i)
                CHECK_MESSAGE((std::isnan(out.lse[i]) == (i == row)),
                              fmt::format("{}: query {} alone has a NaN; LSE[query {}] is {}, expected {}",
                                          to_string(shape), row, i, out.lse[i], i == row ? "nan" : "a number"));
        }
}

TEST_CASE("NaN in a query that sees no key is nowhere: its O is 0, its LSE -infinity") {
    const Support& supports = stage_under_test().supports;
    if (!supports.causal) return;
    for (const int d : supports.head_dims) {
        AttentionShape shape = shape_of(1, 70, 50, d);
        shape.causal = true;
        shape.dtype = dtype_number(test_seed());
        Inputs in = make_inputs(shape, Values::normal, test_seed());
        constexpr std::size_t row = 3;  // others of its block see keys
        const std::size_t width = static_cast<std::size_t>(d);
        in.Q.at(row * width + width / 2) = std::numeric_limits<float>::quiet_NaN();
        const Outputs out = run(stage_under_test(), in, supports.lse);
        for (std::size_t x = row * width; x < (row + 1) * width; ++x) {
            CHECK_MESSAGE((out.O[x] == 0), fmt::format("{}: query {} has a NaN, but sees no key: O[query {}][{}] is {}, expected 0",
                                                       to_string(shape), row, row, x % width, out.O[x]));
            if (!(out.O[x] == 0)) break;
        }
        if (!out.lse.empty())
            CHECK_MESSAGE((out.lse[row] == -std::numeric_limits<float>::infinity()),
                          fmt::format("{}: query {} has a NaN, but sees no key: its LSE is {}, expected -inf", to_string(shape),
                                      row, out.lse[row]));
    }
}

TEST_CASE("gives the same bits again") {
    const Inputs inputs = make_inputs(shape_of(2, 100, 257, 64), Values::normal, test_seed());
    const Outputs first = run(stage_under_test(), inputs), second = run(stage_under_test(), inputs);
    check_same_bits(second, first, "in the run before", to_string(inputs.shape));
}

TEST_CASE("variants agree with the reference") {
    std::size_t turn = 0;
    for (const flashladder::Stage& form : variants()) {
        const Stage& variant = find_stage(form.name());
        for (const int head_dim : variant.supports.head_dims) {
            AttentionShape shape = shape_of(2, 150, 200, head_dim);
            shape.dtype = variant.supports.dtypes[turn++ % variant.supports.dtypes.size()];
            const Inputs inputs = make_inputs(shape, turn % 2 ? Values::normal : Values::peaky, test_seed());
            const Comparison result = check(variant, inputs, Judge::both_rules, variant.supports.lse);
            CHECK_MESSAGE(result.passed, variant.name(), ": ", result.describe(shape));
        }
    }
}

TEST_CASE("refuses what it does not support, naming stage, limit and value") {
    const Stage& stage = stage_under_test();
    const Inputs inputs = make_inputs(shape_of(2, 8, 8, 64), Values::normal, 1);
    const DeviceProblem problem(stage, inputs, false);
    const auto check_refusal = check_refusal_of(stage, problem.args());
    check_refusal([](auto& a) { a.shape.head_dim = 80; }, "head_dim 80");
    check_refusal([](auto& a) { a.shape.batch = 0; }, "batch is 0");
    check_refusal([](auto& a) { a.shape.heads = -1; }, "heads is -1");
    check_refusal([](auto& a) { a.shape.n_q = 0; }, "n_q is 0");
    check_refusal([](auto& a) { a.shape.n_k = -5; }, "n_k is -5");
    check_refusal([](auto& a) { a.shape.batch = a.shape.heads = a.shape.kv_heads = 1 << 20; },
                  "batch * heads is 1099511627776");
    check_refusal([](auto& a) { a.shape.kv_heads = 3; }, "kv_heads 3");
    check_refusal([](auto& a) { a.Q = nullptr; }, "Q is a null pointer");
    check_refusal([](auto& a) { a.K = nullptr; }, "K is a null pointer");
    check_refusal([](auto& a) { a.V = nullptr; }, "V is a null pointer");
    check_refusal([](auto& a) { a.O = nullptr; }, "O is a null pointer");
    check_refusal([](auto& a) { a.scale = std::numeric_limits<float>::quiet_NaN(); }, "scale is nan");
    if (stage.supports.positive_scale) {
        check_refusal([](auto& a) { a.scale = 0; }, "scale is 0");
        check_refusal([](auto& a) { a.scale = -0.125f; }, "scale is -0.125");
    }
    if (stage.scratch_bytes(inputs.shape) > 0)
        check_refusal([](auto& a) { a.scratch = nullptr; }, "scratch is a null pointer");
    if (stage.supports.max_n_k > 0) check_refusal([](auto& a) { a.shape.n_k = 2000000000; }, "n_k is 2000000000");
    if (!stage.supports.causal) check_refusal([](auto& a) { a.shape.causal = true; }, "causal");
    if (!stage.supports.grouped_query) check_refusal([](auto& a) { a.shape.kv_heads = 1; }, "grouped queries");
    if (!stage.supports.lse) {
        float lse = 0;
        check_refusal([&](auto& a) { a.lse = &lse; }, "lse");
    }
    if (!stage.supports.strides) {
        const Strides sequence_first{2 * 8 * 64, 64, 2 * 64};
        check_refusal([=](auto& a) { a.Q_strides = sequence_first; }, "Q is not contiguous");
        check_refusal([=](auto& a) { a.K_strides = sequence_first; }, "K is not contiguous");
        check_refusal([=](auto& a) { a.V_strides = sequence_first; }, "V is not contiguous");
        check_refusal([=](auto& a) { a.O_strides = sequence_first; }, "O is not contiguous");
    } else {
        const auto moved = [](const void* p, int bytes) { return static_cast<const unsigned char*>(p) + bytes; };
        check_refusal([=](auto& a) { a.Q_strides = {1024, 512, 65}; }, "Q has a row stride of 65 elements");
        check_refusal([=](auto& a) { a.K_strides = {1024, 514, 64}; }, "K has a head stride of 514 elements");
        check_refusal([=](auto& a) { a.V_strides = {1024, -512, 64}; }, "V has a negative head stride");
        check_refusal([=](auto& a) { a.V_strides = {1024, 512, 56}; }, "V has a row stride of 56, less than");
        check_refusal([=](auto& a) { a.O_strides = {1024, 0, 64}; }, "O overlaps itself");
        check_refusal([=](auto& a) { a.Q = moved(a.Q, 8); }, "not aligned to 16 bytes");
        check_refusal([=](auto& a) { a.K = moved(a.K, 4); }, "not aligned to 16 bytes");
        check_refusal([=](auto& a) { a.V = moved(a.V, 2); }, "not aligned to 16 bytes");
        check_refusal([=](auto& a) { a.O = const_cast<unsigned char*>(moved(a.O, 8)); }, "not aligned to 16 bytes");
    }
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
        if (std::find(stage.supports.dtypes.begin(), stage.supports.dtypes.end(), dtype) == stage.supports.dtypes.end())
            check_refusal([=](auto& a) { a.shape.dtype = dtype; }, to_string(dtype));
}

#ifndef FLASHLADDER_GPU
void check_races(const AttentionShape& shape) {
    const Inputs inputs = make_inputs(shape, Values::normal, test_seed());
    const std::string report =
        emulator::find_race([&] { run(stage_under_test(), inputs, stage_under_test().supports.lse); });
    CHECK_MESSAGE(report.empty(), report);
}

// Looking for races takes several times as long, so not every case does. These shapes have several blocks of queries,
// lengths that divide nothing, and so many keys that two stages of 64 are used four times and more.
TEST_CASE("has no races") {
    const Support& supports = stage_under_test().supports;
    for (const int head_dim : supports.head_dims) {
        AttentionShape shape = shape_of(2, 40, 530, head_dim);
        if (supports.grouped_query) shape.kv_heads = 1;
        check_races(shape);
        if (!supports.causal) continue;
        shape = shape_of(1, 300, 100, head_dim);  // whole blocks of queries see nothing
        shape.causal = true;
        check_races(shape);
    }
}
#endif

#ifdef FLASHLADDER_GPU
// Takes 18 GB here and there, and a minute: run it with --no-skip.
TEST_CASE("Q and O of more than 2^31 elements" * doctest::skip()) {
    const Inputs inputs = make_inputs(shape_of(1, (1 << 24) + 37, 3, 128), Values::normal, test_seed());
    REQUIRE(inputs.Q.size() > std::size_t(1) << 31);
    const Outputs outputs = run(stage_under_test(), inputs);
    std::vector<std::size_t> rows;
    for (std::size_t row = 0; row < (std::size_t(1) << 24) + 37; row += 12345) rows.push_back(row);
    rows.push_back((std::size_t(1) << 24) + 36);
    const Comparison result =
        compare(outputs, inputs.shape, reference_attention(inputs, rows), standard_attention(inputs, rows));
    CHECK_MESSAGE(result.passed, result.describe(inputs.shape));
}
#endif

}  // namespace

const Stage& stage_under_test() { return find_stage(stages().front().get().name()); }

const Stage& variant(std::string_view name) {
    if (variants().empty()) throw std::logic_error("compiled without variants");
    return find_stage(fmt::format("{}/{}", stage_under_test().name(), name));
}

AttentionShape with_enough_rows(AttentionShape shape) {
    const int rows = shape.batch * shape.heads * shape.n_q, times = (32 + rows - 1) / rows;
    shape.heads *= times;
    shape.kv_heads *= times;
    return shape;
}

Inputs inputs(int heads, int n_q, int n_k, int d, bool causal, std::uint64_t seed, Values values) {
    Inputs in = make_inputs(shape_of(heads, n_q, n_k, d), values, seed);
    in.shape.causal = causal;
    return in;
}

Inputs inputs_with_scores(const AttentionShape& shape, const std::function<double(int key)>& score_log2,
                          std::uint64_t seed, double spread) {
    Inputs in = make_inputs(shape, Values::normal, seed);
    const double scale_log2 = in.scale * std::log2(std::exp(1.0));
    const int d = shape.head_dim;
    const auto rounded = [&](double x) { return round_to(shape.dtype, float(x)); };
    for (std::size_t x = 0; x < in.Q.size(); ++x)
        in.Q[x] = x % d == 0 ? 4.0f : rounded(in.Q[x] * spread / (std::sqrt(d) * scale_log2));
    for (std::size_t x = 0; x < in.K.size(); x += d)
        in.K[x] = rounded(score_log2(int(x / d) % shape.n_k) / (4 * scale_log2));
    return in;
}

std::vector<Scores> adverse_scores() {
    return {
        {"grow slowly", [](int block, int) { return 3.0 * block; }},
        {"grow fast", [](int block, int) { return 60.0 * block; }},
        {"grow by just under 24", [](int block, int) { return 23.9 * block; }},
        {"grow by just over 24", [](int block, int) { return 24.1 * block; }},
        {"grow by just under 8", [](int block, int) { return 7.9 * block; }},
        {"grow by just over 8", [](int block, int) { return 8.1 * block; }},
        {"fall", [](int block, int) { return -9.0 * block; }},
        {"are all negative", [](int block, int key) { return -300 + 5.0 * block + key % 3; }},
        {"are all negative and grow fast", [](int block, int) { return -900 + 150.0 * block; }},
        {"begin negative and end positive", [](int block, int) { return -30 + 14.0 * block; }},
        {"are huge once, late", [](int block, int key) { return block == 4 && key == 17 ? 1000.0 : 0.0; }},
        {"are huge once, early", [](int block, int key) { return block == 0 && key == 17 ? 1000.0 : 0.0; }},
        {"are near 10000", [](int block, int key) { return 1e4 + 30 * block - key % 2; }},
        {"are near -10000", [](int block, int key) { return -1e4 + 30 * block - key % 2; }},
        {"are 10000 or -10000", [](int block, int key) { return (block + key) % 2 ? 1e4 : -1e4; }},
    };
}

Inputs adverse_inputs(const Scores& scores, int n_q, int B_c, int d, DType dtype, bool causal, std::uint64_t seed) {
    AttentionShape shape = shape_of(1, n_q, adverse_blocks * B_c - 5, d);
    shape.dtype = dtype, shape.causal = causal;
    return inputs_with_scores(
        shape, [&](int key) { return scores.log2(adverse_blocks - 1 - key / B_c, key % B_c); }, seed);
}

void check_adverse(const Inputs& inputs, const Scores& scores) {
    try {
        const Comparison result = check(stage_under_test(), inputs, Judge::worst_row_only, true);
        // Sums of 10000 are floats, and off by 0.001.
        const double allowed = result.allowed_error * (std::abs(scores.log2(4, 0)) > 5000 ? 3 : 1);
        CHECK_MESSAGE((result.passed && result.error <= allowed), result.describe(inputs.shape));
    } catch (const CudaError& error) {
        FAIL_CHECK(std::string(error.what()));
    }
}

#ifndef FLASHLADDER_GPU
emulator::Work work_of(const Stage& stage, const Inputs& inputs) {
    try {
        return count_stage(stage, inputs, true).work.total();
    } catch (const CudaError& error) {
        FAIL_CHECK(std::string(error.what()));
        return {};
    }
}

void check_by_tma(const emulator::Work& work, std::uint64_t loaded_bytes, std::uint64_t stored_bytes,
                  std::uint64_t barriers, const std::string& where) {
    using emulator::Access;
    check_count("bytes loaded by TMA", work.global_of(Access::tma_load).requested_bytes, loaded_bytes, where);
    check_count("bytes stored by TMA", work.global_of(Access::tma_store).requested_bytes, stored_bytes, where);
    check_count("bytes loaded by threads", work.global_of(Access::read).requested_bytes, 0, where);
    check_count("bytes stored by threads", work.global_of(Access::write).requested_bytes, 0, where);
    check_count("bank conflicts", work.all_shared().conflicts, 0, where);
    check_count("barriers of all threads", work.barriers, barriers, where);  // no more: rung 10 is about that
}

void check_no_keys_behind_the_diagonal(int d, int B_r, int B_c) {
    for (const auto& [n_q, n_k] : {std::pair(300, 300), {512, 512}, {100, 400}, {400, 100}, {192, 128}}) {
        const Inputs in = inputs(1, n_q, n_k, d, true, test_seed());
        int keys = 0;  // that blocks of queries ask for, together
        for (int i = 0; i < n_q; i += B_r) {
            const int seen = std::clamp(i + B_r + n_k - n_q, 0, n_k);
            keys += std::min(n_k, (seen + B_c - 1) / B_c * B_c);
        }
        const StageCounts counts = count_stage(stage_under_test(), in);
        for (const char* tensor : {"K", "V"})
            check_count(fmt::format("bytes of {} that are asked for, no block of keys behind the diagonal", tensor),
                        counts.tensors.at(tensor).read.requested_bytes, std::uint64_t(keys) * unsigned(d) * 2,
                        to_string(in.shape));
    }
}

std::string race(const Stage& stage, const Inputs& inputs) {
    return emulator::find_race([&] { run(stage, inputs, true); });
}
#endif

namespace {

/// Which half of a step is to be looked at: LSE is made of S alone, O of S and of V.
const char* where_to_look(const Comparison& result) {
    const bool O_is_right = result.worst_row <= result.allowed_worst_row && result.error <= result.allowed_error,
               lse_is_right = result.lse_error <= result.allowed_lse_error;
    if (lse_is_right && !O_is_right)
        return std::isfinite(result.error)
                   ? "; LSE is right, so S is: look at O += P V, at what rescales O, and how it is stored"
                   : "; LSE is right, so S is: is a P infinite, in the type that it is rounded to? Else look at O += P V, at what "
                     "rescales O, and how it is stored";
    if (!lse_is_right && !O_is_right) return "; LSE is wrong too: look at S first, then at m and l";
    if (!lse_is_right) return "; O is right, so S is: look at how LSE is made of m and l, and stored";
    return "";
}

}  // namespace

std::string fault(const Stage& stage, const Inputs& inputs, Layout layout) {
    try {
        const Comparison result = check(stage, inputs, Judge::both_rules, true, layout);
        return result.passed ? "" : result.describe(inputs.shape) + where_to_look(result);
    } catch (const CudaError& error) {
        return error.what();
    }
}

std::string lse_fault(const Stage& stage, const Inputs& inputs) {
    try {
        const Comparison result = check(stage, inputs, Judge::both_rules, true);
        if (result.lse_error <= result.allowed_lse_error) return "";
        const std::size_t row = result.furthest_lse.index, n_q = std::size_t(inputs.shape.n_q);
        return fmt::format("LSE[head {} query {}] is {}, expected {:.6g}: off by {:.1e}, allowed {:.0e}", row / n_q,
                           row % n_q, found_text(result.furthest_lse.found), result.furthest_lse.expected, result.lse_error,
                           result.allowed_lse_error);
    } catch (const CudaError& error) {
        return error.what();
    }
}

void check_same_bits(const Outputs& found, const Outputs& expected, const std::string& than, const std::string& where) {
    const auto check_one = [&](const char* name, const std::vector<float>& now, const std::vector<float>& before) {
        REQUIRE(now.size() == before.size());
        const auto [a, b] = std::ranges::mismatch(now, before);  // a NaN differs from itself
        CHECK_MESSAGE((a == now.end()),
                      fmt::format("{} has other bits than {}: element {} is {:.9g}, expected {:.9g} ({})", name, than,
                                  a - now.begin(), a == now.end() ? 0 : *a, b == before.end() ? 0 : *b, where));
    };
    check_one("O", found.O, expected.O);
    check_one("LSE", found.lse, expected.lse);
}

void check_barriers(const std::string& what, std::uint64_t found, std::uint64_t least, std::uint64_t most) {
    check_count(what, std::min(found, most), least, most);
    WARN_MESSAGE((found <= most), fmt::format("{}: found {}, needed {}", what, found, most));
}

std::vector<int> more_keys_near(int tile, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<int> all;
    for (const int off : {0, 1, -1, -2}) all.push_back(tile * int(off < 0 ? 1 + random() % 2 : random() % 3) + off);
    all.push_back(int(random() % unsigned(3 * tile)));
    all.push_back(-1 - int(random() % unsigned(3 * tile)));
    return all;
}

void check_lengths_near(int B_r, int B_c, int head_dim) {
    std::mt19937_64 random(test_seed());
    const Support& supports = stage_under_test().supports;
    for (const int d : supports.head_dims)
        for (const bool causal : {false, true, true}) {
            if (head_dim > 0 && d != head_dim) continue;
            AttentionShape shape =
                shape_of(2, drawn_length(B_r, 1, 2 * B_r + 1, random()), drawn_length(B_c, 1, 300, random()), d);
            shape.dtype = dtype_number(random());
            shape.causal = causal;
            if (supports.grouped_query) shape.kv_heads = 1;
            if (!why_unsupported(stage_under_test(), shape, supports.lse).empty()) continue;
            const std::string wrong =
                fault(stage_under_test(), make_inputs(with_enough_rows(shape), Values::normal, random()));
            CHECK_MESSAGE(wrong.empty(), wrong);
        }
}

void check_many_tasks(int head_dim, int B_c, const std::vector<int>& blocks, const std::vector<int>& units) {
    constexpr int unit = 64, least = 10;  // few rows have a worst one by luck
    std::mt19937_64 random(test_seed());
    for (const int multiprocessors : {1, 2})
        for (const int whole_blocks : blocks)
            for (const int whole_units : units) {
                const VirtualGpu gpu(multiprocessors);
                const int n_q = std::max(least, whole_units * unit + drawn_length(unit, 1, unit + 1, random())),
                          n_k = whole_blocks * B_c + drawn_length(B_c, 1, B_c + 1, random());
                const std::string wrong = fault(stage_under_test(), inputs(5, n_q, n_k, head_dim, false, random()));
                CHECK_MESSAGE(wrong.empty(), multiprocessors, " multiprocessors, ", wrong);
            }
}

void check_ignores_scratch(const Inputs& inputs) {
    const Outputs expected = run(stage_under_test(), inputs, true);
    DeviceProblem problem(stage_under_test(), inputs, true);
    for (const int garbage : {0xFF, 0x7F, 0x01}) {
        problem.scratch.fill(garbage);
        for (int times = 0; times < 2; ++times) {
            problem.O.fill(0xFF), problem.lse.fill(0xFF);
            stage_under_test().launch(problem.args());
            check_cuda(cudaDeviceSynchronize(), "launch");
            const Outputs found = problem.outputs();
            check_same_bits(found, expected, "with other scratch",
                            fmt::format("scratch was filled with {:#x}, launch {}", garbage, times));
        }
    }
}

void check_hidden_keys_reach_nobody(AttentionShape shape, int seen, int rows, int later) {
    shape.causal = true;
    const std::ptrdiff_t d = shape.head_dim;
    Inputs in = make_inputs(shape, Values::normal, test_seed());
    try {
        const Outputs expected = run(stage_under_test(), in, true);
        for (auto* tensor : {&in.K, &in.V})
            std::fill(tensor->begin() + seen * d, tensor->end(), std::numeric_limits<float>::quiet_NaN());
        const Outputs found = run(stage_under_test(), in, true);
        // A NaN is not what it was either.
        const auto changed = [](const auto& now, const auto& before, std::ptrdiff_t elements) {
            return std::mismatch(now.begin(), now.begin() + elements, before.begin()).first - now.begin();
        };
        const std::ptrdiff_t in_O = changed(found.O, expected.O, rows * d),
                             in_lse = changed(found.lse, expected.lse, rows);
        constexpr const char* message =
            "{} of query {} is {} with NaN in K and V from key {} on, expected {} as before: the query sees none of "
            "these";
        if (in_O < rows * d)
            FAIL_CHECK(
                fmt::format(message, "O", in_O / d, found.O[std::size_t(in_O)], seen, expected.O[std::size_t(in_O)]));
        if (in_lse < rows)
            FAIL_CHECK(fmt::format(message, "LSE", in_lse, found.lse[std::size_t(in_lse)], seen,
                                   expected.lse[std::size_t(in_lse)]));
        CHECK_MESSAGE(
            std::isnan(found.O.at(std::size_t(later * d))),
            fmt::format("O of query {} is {} with NaN in K and V from key {} on, expected NaN: it sees that key", later,
                        found.O.at(std::size_t(later * d)), seen));
    } catch (const CudaError& error) {
        FAIL_CHECK(std::string(error.what()));
    }
}

AttentionShape shape_of(int heads, int n_q, int n_k, int head_dim) {
    AttentionShape shape;
    shape.heads = shape.kv_heads = heads;
    shape.n_q = n_q;
    shape.n_k = n_k;
    shape.head_dim = head_dim;
    shape.dtype = stage_under_test().supports.dtypes.front();
    return shape;
}

}  // namespace flashladder::attention
