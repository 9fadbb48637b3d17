// Capstone 4: gradients of attention through a window: who counts for whom, what must not be read, and what is paid for
// it.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "harness/dtype.h"
#include "harness/run.h"
#include "launch.h"
#include "operations/attention_backward/run.h"
#include "operations/windowed_backward/operation.h"
#include "operations/windowed_backward/stage.h"
#include "suite.h"
#include "test_seed.h"

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#include "harness/counts.h"
#endif

namespace flashladder::windowed_backward {
namespace {

using attention::Judge;
using attention::Values;
using attention_backward::Comparison;
using attention_backward::Gradients;
using attention_backward::Outputs;

[[maybe_unused]] const StrictBarriers strict_barriers;

constexpr int block = 64;  // queries, and keys, in which targets are counted
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

const Stage& stage_under_test() { return find_stage(stages().front().get().name()); }

/// One head.
Shape shape_of(int n_q, int n_k, int window, int head_dim = 64) {
    return windowed({.n_q = n_q, .n_k = n_k, .head_dim = head_dim}, window);
}
Shape shape_of(const Inputs& in) { return windowed(in.shape(), in.window); }
/// The same with so many heads, of which each `heads / kv_heads` share one of K and V.
Shape with_heads(Shape s, int batch, int heads, int kv_heads) {
    s.batch = batch, s.heads = heads, s.kv_heads = kv_heads;
    return s;
}

/// The keys that a query sees, and the queries that see a key: first to last; none if last < first.
struct Seen {
    int first, last;
    bool contains(int x) const { return first <= x && x <= last; }
    int count() const { return std::max(0, last - first + 1); }
};
Seen keys_of(const Shape& s, int query) {
    const int own = query + s.n_k - s.n_q;
    return {std::max(0, own - std::min(s.window, s.n_k) + 1), own};
}
Seen queries_of(const Shape& s, int key) {
    const int own = key - (s.n_k - s.n_q);
    return {std::max(0, own), std::min(s.n_q, own + std::min(s.window, s.n_k)) - 1};
}

// ---- running

/// Runs the stage under test. What has ended it, or that there is nothing, in words; "" if it has left gradients.
std::string run_on(const Inputs& in, Outputs& outputs) {
    const auto nothing_written = [&] {
        return fmt::format(
            "dQ, dK and dV are NaN in every place, as nobody has written them: launch() is yours to write, and the "
            "kernels "
            "that it starts; chapters/{}/README.md says what they must do ({})",
            stage_under_test().folder(), to_string(shape_of(in)));
    };
    try {
        Data out = run(stage_under_test(), windowed_backward::data_of(in));
        outputs = {std::move(out.tensors.at("dQ")), std::move(out.tensors.at("dK")), std::move(out.tensors.at("dV"))};
    } catch (const CudaError& error) {
        return last_launch.entry ? error.what() : nothing_written();
    }
    for (const auto* gradient : {&outputs.dQ, &outputs.dK, &outputs.dV})
        if (!std::ranges::all_of(*gradient, [](float x) { return std::isnan(x); })) return "";
    return nothing_written();
}
Outputs run_on(const Inputs& in) {
    Outputs outputs;
    const std::string wrong = run_on(in, outputs);
    REQUIRE_MESSAGE(wrong.empty(), wrong);
    return outputs;
}

/// What is wrong with the gradients, in words; "" if nothing is.
std::string fault(const Inputs& in, Judge judge = Judge::both_rules) {
    Outputs outputs;
    if (const std::string wrong = run_on(in, outputs); !wrong.empty()) return wrong;
    const Comparison c = attention_backward::judged(outputs, in, judge);
    return c.passed ? "" : c.describe(in.shape(), to_string(shape_of(in)));
}
void check_agrees(const Shape& shape, std::uint64_t seed, Values values = Values::normal,
                  Judge judge = Judge::both_rules) {
    const std::string wrong = fault(windowed_inputs(shape, values, seed), judge);
    CHECK_MESSAGE(wrong.empty(), wrong);
}

// ---- pairs of a query and a key

/// Rows of 1 at column r - first, for d rows r from `first` on; the others are 0.
void make_unit_rows(std::vector<float>& rows, int first, int head_dim) {
    for (std::size_t x = 0; x < rows.size(); ++x)
        rows[x] = static_cast<int>(x) / head_dim - first == static_cast<int>(x) % head_dim ? 1.0f : 0.0f;
}

/// A gradient of one head, as P or scale * dS: what each pair of a query and a key adds to it stands in an element of
/// its own.
struct Pairs {
    const char* name;
    std::vector<float> Outputs::*found;
    attention_backward::GradientRows Gradients::*expected;
    attention_backward::GradientComparison Comparison::*judgement;
    bool of_queries;  // its rows are; its columns are the others
    // Whose rows are unit vectors then: P^T dO, dS K, dS^T Q
    std::vector<float>& (*unit)(attention::Inputs& forward, std::vector<float>& dO);
};
const Pairs in_dV{"dV",           &Outputs::dV,
                  &Gradients::dV, &Comparison::dV,
                  false,          [](attention::Inputs&, std::vector<float>& dO) -> std::vector<float>& { return dO; }};
const Pairs in_dQ{
    "dQ",           &Outputs::dQ,
    &Gradients::dQ, &Comparison::dQ,
    true,           [](attention::Inputs& in, std::vector<float>&) -> std::vector<float>& { return in.K; }};
const Pairs in_dK{
    "dK",           &Outputs::dK,
    &Gradients::dK, &Comparison::dK,
    false,          [](attention::Inputs& in, std::vector<float>&) -> std::vector<float>& { return in.Q; }};

/// What is wrong with the first pair that is, of d queries, or of keys, from `first` on: who counts for whom, and
/// should not, or how much, and which usual mistake it is; "" if nothing is.
std::string wrong_pair(const Pairs& pairs, const Shape& s, int first, std::uint64_t seed) {
    attention::Inputs forward = attention::make_inputs(s, Values::normal, seed);
    std::vector<float> dO = attention_backward::fresh_dO(s, seed);
    make_unit_rows(pairs.unit(forward, dO), first, s.head_dim);
    const Inputs in = with_forward_pass(std::move(forward), std::move(dO), s.window);
    Outputs outputs;
    if (const std::string wrong = run_on(in, outputs); !wrong.empty()) return wrong;
    Comparison c = attention_backward::judged(outputs, in);
    if ((c.*pairs.judgement).passed) return "";
    for (const auto other : {&Comparison::dV, &Comparison::dQ, &Comparison::dK})
        if (other != pairs.judgement) c.*other = {}, (c.*other).passed = true;  // what is said is about this one

    const Gradients reference = reference_gradients(in, attention_backward::rows_to_check(s, 1, std::size_t(1) << 20));
    const std::size_t d = static_cast<std::size_t>(s.head_dim);
    const std::string mistake = (c.*pairs.judgement).mistake,
                      what = std::string(pairs.name) + (mistake.empty() ? "" : " is what comes out " + mistake);
    const int columns = std::min(s.head_dim, (pairs.of_queries ? s.n_k : s.n_q) - first);
    for (int row = 0; row < (pairs.of_queries ? s.n_q : s.n_k); ++row)
        for (int column = 0; column < columns; ++column) {
            const std::size_t at = static_cast<std::size_t>(row) * d + static_cast<std::size_t>(column);
            const double found = (outputs.*pairs.found)[at], expected = (reference.*pairs.expected).values[at];
            if (std::abs(found - expected) <= 1e-4 * std::abs(expected) + 1e-5 || std::isnan(found)) continue;
            const auto [query, key] =
                pairs.of_queries ? std::pair(row, first + column) : std::pair(first + column, row);
            const Seen seen = keys_of(s, query);
            const std::string where =
                fmt::format(" ({}; it sees {})", to_string(s),
                            seen.count() ? fmt::format("keys {} to {}", seen.first, seen.last) : "no key");
            if (!seen.contains(key))
                return fmt::format("{}: query {} counts for key {}, which is {}{}", what, query, key,
                                   key > seen.last ? "behind its own" : "before its window", where);
            if (found == 0) return fmt::format("{}: query {} does not count for key {}{}", what, query, key, where);
        }
    return c.describe(s, to_string(s));
}

/// All pairs, by shapes of which the first are the simplest.
void check_pairs(const std::vector<Pairs>& gradients, const std::vector<Shape>& shapes) {
    std::uint64_t seed = test_seed();
    for (const Pairs& pairs : gradients)
        for (const Shape& s : shapes)
            for (int first = 0; first < (pairs.of_queries ? s.n_k : s.n_q); first += s.head_dim) {
                const std::string wrong = wrong_pair(pairs, s, first, seed++);
                CHECK_MESSAGE(wrong.empty(), wrong);
                if (!wrong.empty()) return;  // what is wrong with the next ones is likely the same
            }
}

// ---- the exercise

const std::vector<Shape> by_a_window_of_all = {shape_of(20, 20, 20), shape_of(64, 64, 64), shape_of(100, 100, 100, 128),
                                               shape_of(70, 150, 150)};

TEST_CASE("EXERCISE capstone-4.1: dV, by a window of all keys") { check_pairs({in_dV}, by_a_window_of_all); }

TEST_CASE("EXERCISE capstone-4.1: dQ and dK, by a window of all keys") {
    check_pairs({in_dQ, in_dK}, by_a_window_of_all);
}

TEST_CASE("EXERCISE capstone-4.1: no key before a window counts, wherever it begins") {
    std::vector<Shape> shapes = {shape_of(20, 20, 5), shape_of(64, 64, 7), shape_of(150, 150, 65)};
    for (std::uint64_t i = 0; i < 2; ++i) {  // any residue of the window, and of the keys before the first query
        const int n_q = drawn_length(block, 2, 150, i), n_k = drawn_length(block, 2, 200, i + 5);
        shapes.push_back(shape_of(n_q, n_k, drawn_length(block, 2, n_k, i + 9), i % 2 ? 128 : 64));
    }
    check_pairs({in_dV, in_dQ, in_dK}, shapes);
}

TEST_CASE("EXERCISE capstone-4.1: with a window of one key P is 1, dQ and dK are 0, and dV is dO") {
    std::mt19937_64 random(test_seed());
    for (const int head_dim : {64, 128}) check_agrees(shape_of(100, 130, 1, head_dim), random());
}

TEST_CASE("EXERCISE capstone-4.1: 0 for queries that see no key, and for keys that no query sees") {
    std::mt19937_64 random(test_seed());
    for (const int head_dim : {64, 128}) {
        const int few = drawn_length(32, 20, 80, std::uint64_t(head_dim)), window = 1 + int(random() % 20);
        for (const Shape& s : {shape_of(few + 90, few, window, head_dim), shape_of(few, few + 150, window, head_dim)}) {
            Outputs out;
            const Inputs in = windowed_inputs(s, Values::normal, random());
            const std::string stopped = run_on(in, out);
            REQUIRE_MESSAGE(stopped.empty(), stopped);
            const auto check_zero = [&](const char* name, const std::vector<float>& found, const char* what,
                                        auto count) {
                for (std::size_t x = 0; x < found.size(); ++x) {
                    const int row = static_cast<int>(x) / head_dim;
                    if (count(row) > 0 || found[x] == 0) continue;
                    FAIL_CHECK(fmt::format("{} of {} {} is {}, expected 0 ({})", name, what, row, found_text(found[x]),
                                           to_string(s)));
                    return;
                }
            };
            check_zero("dQ", out.dQ, "a query that sees no key,", [&](int i) { return keys_of(s, i).count(); });
            check_zero("dK", out.dK, "a key that no query sees,", [&](int j) { return queries_of(s, j).count(); });
            check_zero("dV", out.dV, "a key that no query sees,", [&](int j) { return queries_of(s, j).count(); });
            const std::string wrong = fault(in);
            CHECK_MESSAGE(wrong.empty(), wrong);
        }
    }
}

TEST_CASE("EXERCISE capstone-4.1: heads that share keys add up in dK and dV") {
    std::mt19937_64 random(test_seed());
    check_agrees(with_heads(shape_of(40, 40, 30), 1, 4, 2), random());
    for (const int head_dim : {64, 128})
        check_agrees(
            with_heads(shape_of(100, 140, drawn_length(block, 1, 140, std::uint64_t(head_dim)), head_dim), 2, 6, 2),
            random(), Values::growing_maximum);
}

// ---- all sizes, all numbers

TEST_CASE("lengths that divide nothing, few of them, many") {
    std::mt19937_64 random(test_seed());
    for (const int head_dim : {64, 128}) {
        for (std::uint64_t i = 0; i < 4; ++i) {
            const int n_q = drawn_length(block, 32, 250, i), n_k = drawn_length(block, 32, 250, i + 1);
            check_agrees(with_heads(shape_of(n_q, n_k, 1 + int(random() % 150), head_dim), 1 + int(random() % 2),
                                    1 + int(random() % 2), 1),
                         random());
        }
        for (const auto& [n_q, n_k] : {std::pair(1, 300), {300, 20}, {65, 63}, {3, 500}})
            check_agrees(
                with_heads(shape_of(n_q, n_k, 1 + int(random() % 80), head_dim), 1, (31 + n_q) / n_q, (31 + n_q) / n_q),
                random());
    }
}

TEST_CASE("windows of every residue, and larger than all keys") {
    std::mt19937_64 random(test_seed());
    for (int i = 0; i < 8; ++i) {
        const int window = 1 + (int(test_seed() % 64) + 8 * i + int(random() % 8)) % 64 + block * int(random() % 3);
        check_agrees(shape_of(130, 200, window, i % 2 ? 64 : 128), random());
    }
    for (const int window : {200, 201, std::numeric_limits<int>::max()})
        check_agrees(shape_of(130, 200, window), random());
}

TEST_CASE("peaky rows, a maximum that grows with j, a large common offset") {
    std::mt19937_64 random(test_seed());
    for (const auto& [values, judge] : {std::pair(Values::peaky, Judge::both_rules),
                                        {Values::growing_maximum, Judge::both_rules},
                                        {Values::large_offset, Judge::worst_row_only}})
        for (const int head_dim : {64, 128})
            check_agrees(shape_of(100, 170, 20 + int(random() % 100), head_dim), random(), values, judge);
}

TEST_CASE("whatever the scale, 0 and below 0 too") {
    std::mt19937_64 random(test_seed());
    for (const float scale : {0.3f, -0.125f, 0.0f}) {
        Inputs in = windowed_inputs(shape_of(70, 130, 50), Values::normal, random());
        in.forward.scale = scale;
        const std::string wrong = fault(with_forward_pass(in.forward, in.dO, in.window));
        CHECK_MESSAGE(wrong.empty(), fmt::format("args.scale is {}: {}", scale, wrong));
    }
}

// ---- what reaches nobody

/// The first element in which two runs differ, in words; "" if there is none. `all`: of rows for which this is true.
template <class Counts>
std::string difference(const char* name, const std::vector<float>& found, const std::vector<float>& expected,
                       int head_dim, Counts counts) {
    for (std::size_t x = 0; x < found.size(); ++x) {
        const int row = static_cast<int>(x) / head_dim;
        if (counts(row) && !(found[x] == expected[x]))
            return fmt::format("{}[row {}][{}] is {}, expected {} as before", name, row, static_cast<int>(x) % head_dim,
                               found_text(found[x]), expected[x]);
    }
    return "";
}
const auto each_row = [](int) { return true; };

TEST_CASE("NaN in a key that no query sees, or in a query that sees no key, reaches nobody") {
    std::mt19937_64 random(test_seed());
    for (const int head_dim : {64, 128}) {
        const int few = 20 + int(random() % 60);
        for (const Shape& s : {shape_of(few, few + 150, 1 + int(random() % 50), head_dim),
                               shape_of(few + 70, few, 1 + int(random() % 50), head_dim)}) {
            Inputs in = windowed_inputs(s, Values::normal, random());
            const Outputs expected = run_on(in);
            const auto spoil = [&](std::vector<float>& tensor, auto count) {
                for (std::size_t x = 0; x < tensor.size(); ++x)
                    if (count(s, static_cast<int>(x) / head_dim).count() == 0) tensor[x] = nan;
            };
            spoil(in.forward.K, queries_of), spoil(in.forward.V, queries_of);
            spoil(in.forward.Q, keys_of), spoil(in.O, keys_of), spoil(in.dO, keys_of);
            const Outputs found = run_on(in);
            for (const std::string& wrong : {difference("dQ", found.dQ, expected.dQ, head_dim, each_row),
                                             difference("dK", found.dK, expected.dK, head_dim, each_row),
                                             difference("dV", found.dV, expected.dV, head_dim, each_row)})
                CHECK_MESSAGE(wrong.empty(),
                              fmt::format("{}, when {}: 0 times NaN is NaN, so these rows have to stay out of "
                                          "sums ({})",
                                          wrong,
                                          s.n_q < s.n_k ? "K and V are NaN of keys that no query sees"
                                                        : "Q, O and dO are NaN of queries that see no key",
                                          to_string(s)));
        }
    }
}

TEST_CASE("NaN in a row of dO is in that row of dQ, in dK and dV of the keys that it sees, and not far from there") {
    constexpr int ill = 150, n = 400, window = 40;
    for (const int head_dim : {64, 128}) {
        const Shape s = shape_of(n, n, window, head_dim);
        Inputs in = windowed_inputs(s, Values::normal, test_seed());
        std::fill_n(in.dO.begin() + ill * head_dim, head_dim, nan);
        const Outputs out = run_on(in);
        const auto check = [&](const char* name, const std::vector<float>& found, auto must, auto may) {
            for (int row = 0; row < n; ++row) {
                const bool is = std::isnan(found[static_cast<std::size_t>(row * head_dim + 5)]);
                if (is == must(row) || (is && may(row))) continue;
                FAIL_CHECK(fmt::format("dO of query {} alone is NaN, but {}[row {}][5] is {} ({})", ill, name, row,
                                       is ? "nan" : "a number", to_string(s)));
                return;
            }
        };
        const auto seen = [&](int j) { return keys_of(s, ill).contains(j); };
        const auto near = [&](int j) {
            return std::abs(j - ill) < window + 2 * block;
        };  // of a tile in which there is one
        check(
            "dQ", out.dQ, [](int i) { return i == ill; }, [](int) { return false; });
        check("dK", out.dK, seen, near);
        check("dV", out.dV, seen, near);
    }
}

TEST_CASE("gives the same bits again, whatever scratch and gradients hold, also in a launch behind another one") {
    const Shape s = with_heads(shape_of(100, 150, 70), 1, 8, 2);  // a + b is b + a: two heads of a group are too few
    const Inputs in = windowed_inputs(s, Values::normal, test_seed());
    const Outputs expected = run_on(in);
    const Data data = windowed_backward::data_of(in);
    const DeviceProblem problem(stage_under_test(), data);
    const DeviceData device = problem.data();
    for (const int garbage : {0x00, 0x7F, 0x01}) {
        for (const char* name : {"dQ", "dK", "dV"}) {
            const std::size_t bytes = sizeof(float) * (name == std::string("dQ") ? s.q_elements() : s.kv_elements());
            check_cuda(cudaMemset(device.tensors.at(name), garbage, bytes), name);
        }
        check_cuda(cudaMemset(device.scratch, garbage, stage_under_test().scratch_bytes(data.problem)), "scratch");
        for (int launched = 0; launched < 2; ++launched) {
            stage_under_test().launch(device);
            check_cuda(cudaDeviceSynchronize(), "launch");
            const Data found = problem.outputs();
            for (const auto& [name, before] :
                 {std::pair("dQ", &expected.dQ), {"dK", &expected.dK}, {"dV", &expected.dV}}) {
                const auto [now, then] = std::ranges::mismatch(found.tensors.at(name), *before);
                const bool same = now == found.tensors.at(name).end();
                CHECK_MESSAGE(
                    same,
                    fmt::format("{}[{}] is {:.9g}, and {:.9g} the first time: other bits. Does the order of a sum "
                                "follow that of blocks? Scratch and gradients were filled with {:#x}, launch {} ({})",
                                name, now - found.tensors.at(name).begin(), same ? 0 : *now, same ? 0 : *then, garbage,
                                launched, to_string(s)));
            }
        }
    }
}

TEST_CASE("refuses what it does not support, naming stage, limit and value") {
    const Stage& stage = stage_under_test();
    const Shape s = with_heads(shape_of(8, 8, 8), 1, 2, 2);
    const DeviceProblem problem(stage, windowed_backward::data_of(windowed_inputs(s, Values::normal, 1)));
    const DeviceData device = problem.data();
    const auto check_refusal = check_refusal_of(stage, Args{attention_backward::args_of(device, s), s.window});
    check_refusal([](Args& a) { a.shape.head_dim = 80; }, "head_dim 80");
    check_refusal([](Args& a) { a.shape.n_q = 0; }, "n_q is 0");
    check_refusal([](Args& a) { a.shape.kv_heads = 3; }, "kv_heads 3");
    check_refusal([](Args& a) { a.shape.causal = false; }, "causal is false");
    check_refusal([](Args& a) { a.shape.dtype = DType::bf16; }, "dtype bf16");
    check_refusal([](Args& a) { a.window = 0; }, "window is 0, but must be at least 1");
    check_refusal([](Args& a) { a.V = nullptr; }, "V is a null pointer");
    check_refusal([](Args& a) { a.dK = nullptr; }, "dK is a null pointer");
    check_refusal([](Args& a) { a.lse = nullptr; }, "lse is a null pointer");
    check_refusal([](Args& a) { a.scratch = nullptr; }, "scratch is a null pointer, but 64 bytes are needed");
    check_refusal([](Args& a) { a.K = static_cast<const char*>(a.K) + 4; }, "not aligned to 16 bytes");
    check_refusal([](Args& a) { a.scale = nan; }, "scale is nan");
    check_refusal([](Args& a) { a.dQ_strides = {2 * 8 * 64, 64, 2 * 64}; }, "dQ is not contiguous");
    CHECK_THROWS_WITH_AS(find_stage("99"), "99 is not in this program", std::invalid_argument);
}

#ifndef FLASHLADDER_GPU
TEST_CASE("has no races") {
    std::mt19937_64 random(test_seed());
    for (const int head_dim : {64, 128})
        for (const auto& [n_q, n_k] : {std::pair(40, 230), {200, 100}}) {
            const Data data = windowed_backward::data_of(windowed_inputs(
                with_heads(shape_of(n_q, n_k, 1 + int(random() % 120), head_dim), 1, 2, 1), Values::normal, random()));
            const std::string report = emulator::find_race([&] { run(stage_under_test(), data); });
            CHECK_MESSAGE(report.empty(), report);
        }
}

// ---- what is counted

StageCounts counts_of(const Shape& shape) {
    try {
        return count_stage(stage_under_test(),
                           windowed_backward::data_of(windowed_inputs(shape, Values::normal, test_seed())));
    } catch (const CudaError& error) {
        FAIL_CHECK(std::string(error.what()));
        return {};
    }
}

void check_at_most(const std::string& what, double found, double most, const Shape& where) {
    CHECK_MESSAGE((found <= most),
                  fmt::format("{}: found {}, expected at most {} ({})", what, found, most, to_string(where)));
}

/// Keys that blocks of 64 queries see, each block for itself, and how many such blocks there are; or of keys, and
/// queries.
struct Visited {
    double rows = 0, blocks = 0;
};
Visited visited(const Shape& s, int all, Seen (*of)(const Shape&, int)) {
    Visited v;
    for (int first = 0; first < all; first += block, ++v.blocks)
        v.rows += Seen{of(s, first).first, of(s, std::min(first + block, all) - 1).last}.count();
    return v;
}
Visited keys_of_blocks(const Shape& s) { return visited(s, s.n_q, keys_of); }
Visited queries_of_blocks(const Shape& s) { return visited(s, s.n_k, queries_of); }

/// Windows that are narrow, that end at tiles, that are all; keys that no query sees, and queries that see no key.
std::vector<Shape> counted_shapes() {
    std::mt19937_64 random(test_seed());
    std::vector<Shape> all;
    for (const int head_dim : {64, 128})
        for (const int window : {1, 64, 100 + int(random() % 50), 256})
            all.push_back(shape_of(256, 256, window, head_dim));
    all.push_back(shape_of(drawn_length(block, 100, 300, 1), 400, 1 + int(random() % 200)));
    all.push_back(shape_of(300, 100, 30));
    return all;
}

TEST_CASE(
    "counted: what passes by 64 queries, or 64 keys, is what they see; O is read once, gradients are written once") {
    for (const Shape& s : counted_shapes()) {
        const StageCounts counts = counts_of(s);
        const auto rows = [&](const char* tensor, bool written = false) {
            const auto found = counts.tensors.find(tensor);
            if (found == counts.tensors.end()) return 0.0;
            return double((written ? found->second.written : found->second.read).requested_bytes) / double(s.head_dim) /
                   4;
        };
        const double Q = rows("Q"), dO = rows("dO"), K_and_V = rows("K") + rows("V"), O = rows("O");
        // Once for the blocks that own them, and what passes by; dO once more for D, which may have a kernel of its
        // own.
        const double queries = s.n_q + queries_of_blocks(s).rows, keys = s.n_k + keys_of_blocks(s).rows;
        if (s.n_q % block == 0 &&
            s.n_k % block == 0) {  // else counts may take what few lanes ask of one tensor for the other's
            check_at_most("rows of Q that are asked for", Q, queries, s);
            check_at_most("rows of dO that are asked for", dO, queries + s.n_q, s);
            check_at_most(
                fmt::format("rows of K and V that are asked for ({:.0f} of K, {:.0f} of V)", rows("K"), rows("V")),
                K_and_V, 2 * keys, s);
            check_at_most("rows of O that are asked for", O, s.n_q, s);
        }
        check_at_most("rows of Q, K, V, O and dO that are asked for", Q + dO + K_and_V + O,
                      2 * (queries + keys + s.n_q), s);
        for (const auto& [gradient, all] : {std::pair("dQ", s.n_q), {"dK", s.n_k}, {"dV", s.n_k}}) {
            check_at_most(fmt::format("rows of {} that are written", gradient), rows(gradient, true), all, s);
            check_at_most(fmt::format("rows of {} that are read", gradient), rows(gradient), 0, s);
        }
    }
}

TEST_CASE("counted: exponentials of the tiles that are visited, no divisions, few bank conflicts, whole sectors") {
    for (const Shape& s : counted_shapes()) {
        const StageCounts counts = counts_of(s);
        const emulator::Work work = counts.work.total();
        // Tiles of 64 x 64, and two more, for a window need not begin or end with one.
        double pairs = 0;
        for (const Visited& v : {keys_of_blocks(s), queries_of_blocks(s)})
            pairs += block * (v.rows + 2 * block * v.blocks);
        check_at_most("exponentials", double(work.exponentials), pairs, s);
        check_at_most("divisions", double(work.divisions), 0, s);
        if (emulator::optimised_by_clang)
            continue;  // it copies a float4 part by part; a learner's kernel is not optimised
        const emulator::SharedWork shared = work.all_shared();
        check_at_most("wavefronts of shared memory that are bank conflicts", double(shared.conflicts),
                      0.1 * double(shared.wavefronts), s);
        for (const char* tensor : {"Q", "K", "V", "O", "dO", "dQ", "dK", "dV"})
            if (const auto found = counts.tensors.find(tensor); found != counts.tensors.end())
                check_at_most(fmt::format("sectors of {} that are moved", tensor),
                              double(found->second.read.sectors + found->second.written.sectors),
                              double(found->second.read.requested_bytes + found->second.written.requested_bytes) / 32,
                              s);
    }
}

TEST_CASE("counted: twice as many queries and keys with the same window are twice the work, not four times") {
    const auto wavefronts = [](int n) {
        return double(counts_of(shape_of(n, n, 64)).work.total().all_shared().wavefronts);
    };
    check_at_most("wavefronts of shared memory, where N = 256 has half as many queries", wavefronts(512),
                  2.5 * wavefronts(256), shape_of(512, 512, 64));
}

TEST_CASE(
    "counted: no memory beyond scratch, and a block of threads for every 128 keys, or queries, of a head, or more") {
    const Shape s = shape_of(512, 512, 100);
    const StageCounts counts = counts_of(s);
    check_at_most("bytes of device memory beyond inputs and outputs", double(counts.peak_scratch_bytes), 4.0 * s.n_q,
                  s);
    double blocks = 0;
    for (const auto& launch : counts.work.launches)
        blocks = std::max(blocks, double(launch.grid.x) * launch.grid.y * launch.grid.z);
    CHECK_MESSAGE((blocks >= 4),
                  fmt::format("blocks of threads: found {}, expected at least 4, one for every 128 queries ({})",
                              blocks, to_string(s)));
}
#endif

}  // namespace
}  // namespace flashladder::windowed_backward
