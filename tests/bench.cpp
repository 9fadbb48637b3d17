// `ladder bench` without its clock: which problems, who takes part and who is compared with whom, turns, quartiles and
// ratios.
#include "bench.h"

#include <doctest/doctest.h>

#include <chrono>
#include <limits>
#include <thread>

#include "operations/attention/inputs.h"
#include "harness/timing.h"
#include "test_seed.h"

namespace flashladder {
namespace {

Stage stage(const char* name, DType dtype, bool causal = true, std::vector<int> head_dims = {64, 128}) {
    return {{.stage = name, .head_dims = std::move(head_dims), .dtypes = {dtype}, .causal = causal, .grouped_query = causal},
            nullptr,
            nullptr};
}

const std::vector<Stage> all = {stage("00-a", DType::f32, false), stage("01-b", DType::f32, false),
                                stage("03-c", DType::f32),        stage("04-d", DType::bf16),
                                stage("05-e", DType::bf16),       stage("06-f", DType::bf16, true, {64, 256})};

/// "00 01<00 03<01": each with whom it is compared.
std::string text(const std::vector<Entrant>& entrants) {
    std::string result;
    for (const Entrant& e : entrants) {
        if (!result.empty()) result += ' ';
        result += e.name().substr(0, 2);
        if (e.below >= 0) (result += '<') += entrants.at(std::size_t(e.below)).name().substr(0, 2);
    }
    return result;
}

AttentionShape problem(int n, int head_dim = 64, bool causal = false) {
    AttentionShape s;
    s.n_q = s.n_k = n, s.head_dim = head_dim, s.causal = causal;
    return s;
}

TEST_CASE("median and quartiles lie between the samples that they are between") {
    CHECK(quantile({5, 1, 3}, 0.5) == 3);
    CHECK(quantile({4, 1, 2, 3}, 0.5) == 2.5);
    CHECK(quantile({1, 2, 3, 4, 5}, 0.25) == 2);
    CHECK(quantile({1, 2, 3, 4}, 0.75) == doctest::Approx(3.25));
    CHECK(quantile({7}, 0.25) == 7);
    CHECK(quantile({}, 0.5) == 0);
    const Timing t = timing_of({9, 1, 2, 3, 4});
    CHECK(t.ms == 3);
    CHECK(t.ms_q1 == 2);
    CHECK(t.ms_q3 == 4);
    CHECK(t.ms_min == 1);
    CHECK(t.ms_max == 9);
    CHECK(t.samples == 5);
}

TEST_CASE("a ratio is of the same round: a card at half its clock changes none") {
    CHECK(speed_ratio({1, 2, 4, 4, 1}, {3, 6, 12, 12, 3}) == 3);  // of medians: 6 / 2
    CHECK(speed_ratio({1, 2, 2}, {2, 2, 6}) == 2);                // of medians: 1
    CHECK(speed_ratio({1, 1, 1, 5, 5}, {2}) == 2);                // the other left after one round
    CHECK(speed_ratio({1, 1}, {}) == 0);
}

TEST_CASE("so many sets of inputs that the cache has seen twice its size") {
    CHECK(sets_past_l2(10, 50) == 10);
    CHECK(sets_past_l2(11, 50) == 10);
    CHECK(sets_past_l2(1000, 50) == 2);
    CHECK(sets_past_l2(1, 5000) == 256);
}

TEST_CASE("the sets have the values of one batch in each, and are not the same memory") {
    AttentionShape one = problem(17, 64), many = one;
    one.dtype = many.dtype = DType::bf16;
    many.batch = 3;
    const Inputs inputs = make_inputs(one, Values::normal, test_seed());
    const InputSets sets(inputs, many);
    const ForwardArgs first = sets.args(0, nullptr, nullptr), last = sets.args(std::size_t(sets.count()) - 1, nullptr, nullptr);
    CHECK(sets.args(std::size_t(sets.count()), nullptr, nullptr).Q == first.Q);
    CHECK(last.shape == many);
    const std::size_t bytes = 2 * many.q_elements();
    for (const auto& [a, b] : {std::pair(first.Q, last.Q), {first.K, last.K}, {first.V, last.V}, {first.O, last.O}})
        CHECK(static_cast<const char*>(b) == static_cast<const char*>(a) + bytes * std::size_t(sets.count() - 1));
    for (const auto& [memory, values] : {std::pair(last.Q, &inputs.Q), {last.K, &inputs.K}, {last.V, &inputs.V}})
        for (int b = 0; b < many.batch; ++b) {
            DeviceBuffer copy(2 * values->size());
            cudaMemcpy(copy.data(), static_cast<const char*>(memory) + std::size_t(b) * copy.bytes(), copy.bytes(),
                       cudaMemcpyDeviceToDevice);
            CHECK(copy.download(values->size(), DType::bf16) == *values);
        }
}

TEST_CASE("turns: each in every round, slow ones in fewer, on other inputs each time; short ones in a row") {
    constexpr int sets = 40;
    std::vector<std::size_t> of_short, of_long;
    std::vector<int> order;
    const auto note = [&](int who) {
        if (order.empty() || order.back() != who) order.push_back(who);
    };
    const Launch is_short = [&](std::size_t i, cudaStream_t) { of_short.push_back(i), note(0); };
    const Launch is_long = [&](std::size_t i, cudaStream_t) {
        of_long.push_back(i % sets), note(1);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    };
    const auto samples = take_turns({is_short, is_long, is_long}, sets, {.max_samples = 12, .min_samples = 4, .seconds = 0.01});
    CHECK(samples[0].ms.size() == 12);
    CHECK(samples[1].ms.size() == 4);
    CHECK(samples[1].in_a_graph == 1);
    CHECK(samples[1].ms[0] >= 5);
    const std::size_t in_a_row = std::size_t(samples[0].in_a_graph);
    REQUIRE(in_a_row % sets == 0);
    REQUIRE(of_short.size() == 1 + 12 * (1 + in_a_row));
    for (std::size_t k = 1; k < of_short.size(); ++k) {  // one that is not timed, then all sets one after the other
        const std::size_t place = (k - 1) % (1 + in_a_row);
        CHECK(of_short[k] == (place == 0 ? in_a_row : place) - 1);
    }
    CHECK(samples[0].ms[0] < 0.05);  // a launch, not all of them
    for (std::size_t k = 0; k + 1 < of_long.size(); ++k) CHECK(of_long[k + 1] == (of_long[k] + 1) % sets);
    CHECK(of_long.size() == 2 * (1 + 4));
    // Random order: two rounds with the short one first and last, or the other way round, make fewer switches than turns.
    CHECK(order.size() > 4);
}

TEST_CASE("the grid: 16384 tokens, a model width of 2048") {
    const auto grid = bench_problems({});
    CHECK(grid.size() == 8);
    for (const AttentionShape& s : grid) {
        CHECK(s.batch * s.n_q == 16384);
        CHECK(s.heads * s.head_dim == 2048);
        CHECK(s.kv_heads == s.heads);
        CHECK(s.n_k == s.n_q);
    }
    BenchOptions options;
    options.n = 333, options.head_dim = 128, options.causal = true, options.kv_heads = 4, options.batch = 2;
    const auto one = bench_problems(options);
    REQUIRE(one.size() == 1);
    AttentionShape wanted = problem(333, 128, true);
    wanted.batch = 2, wanted.heads = 16, wanted.kv_heads = 4;
    CHECK(one[0] == wanted);
    options = {};
    options.n = 100000;
    CHECK(bench_problems(options)[0].batch == 1);
    options.n = 0;
    CHECK_THROWS_WITH(bench_problems(options), "--n is 0, but must be at least 1");
    options.n = {}, options.kv_heads = 5;
    CHECK_THROWS_WITH(bench_problems(options), "heads 32 is not a multiple of kv-heads 5");
}

TEST_CASE("who takes part, and with whom each is compared") {
    BenchOptions options;
    CHECK(text(entrants(all, problem(1024), options)) == "00 01<00 03<01 04<03 05<04 06<05");
    CHECK(text(entrants(all, problem(1024, 64, true), options)) == "03 04<03 05<04 06<05");
    CHECK(text(entrants(all, problem(4096), options)) == "04 05<04 06<05");
    CHECK(text(entrants(all, problem(1024, 256), options)) == "06");
    options.n = 4096;
    CHECK(text(entrants(all, problem(4096), options)) == "04 05<04 06<05");
    options.rungs = {"04-d"};
    CHECK(text(entrants(all, problem(4096), options)) == "03 04<03");  // asked for at this N
    options.n = {};
    CHECK(text(entrants(all, problem(4096), options)) == "04");
    options.rungs = {"06-f", "04-d"};
    CHECK(text(entrants(all, problem(1024), options)) == "03 04<03 06<04");
    options.rungs = {"00-a"};
    CHECK(text(entrants(all, problem(1024), options)) == "00");
    CHECK(text(entrants(all, problem(1024, 64, true), options)) == "");
    options.rungs = {}, options.dtype = "bf16";
    const auto in_bf16 = entrants(all, problem(1024), options);
    CHECK(text(in_bf16) == "04 05<04 06<05");
    CHECK(in_bf16[0].shape.dtype == DType::bf16);
}

TEST_CASE("nobody, or not all who were named, can do it: one line says why") {
    BenchOptions options;
    CHECK(why_no_bench(all, {problem(1024)}, options) == "");
    CHECK(why_no_bench(all, {problem(1024, 80)}, options) ==
          "head_dim 80 is supported by no rung (only 64, 128, 256)");
    options.rungs = {"06-f", "01-b"};
    CHECK(why_no_bench(all, {problem(1024), problem(1024, 64, true)}, options) == "");  // one of them is enough
    CHECK(why_no_bench(all, {problem(1024, 64, true)}, options).starts_with("01-b: causal is not supported"));
    options.rungs = {}, options.dtype = "f16";
    CHECK(why_no_bench(all, {problem(1024)}, options) == "06-f: dtype f16 is not supported (only bf16)");
    options.dtype = "f32", options.n = 4096;
    CHECK(why_no_bench(all, {problem(4096)}, options) ==
          "rungs without tensor cores take part above N = 1024 only if they are named: ./ladder bench 03 --n 4096");
    CHECK(why_no_bench(all, {problem(1024), problem(4096)}, options) == "");
    options.rungs = {"01-b"};
    CHECK(why_no_bench(all, {problem(4096)}, options) == "");
}

TEST_CASE("a problem is cut down to one of its kind") {
    AttentionShape s = problem(4096, 128, true);
    s.batch = 4, s.heads = 16, s.kv_heads = 4;
    const AttentionShape small = cut_down(s, 1, 2, 256);
    s.batch = 1, s.heads = 8, s.kv_heads = 2, s.n_q = s.n_k = 256;
    CHECK(small == s);
    CHECK(cut_down(problem(100), 2, 2, 256) == problem(100));
}

TEST_CASE("a learner's kernel beside the solution is not taken for it") {
    const std::size_t before = stages().size();
    const MineRegistration registration(stage("01-b", DType::f32));
    CHECK(stages().size() == before);
    REQUIRE(mine().size() == 1);
    CHECK(mine()[0].name() == "01-b");
}

TEST_CASE("dtypes by name") {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) CHECK(parse_dtype(to_string(dtype)) == dtype);
    CHECK_THROWS_WITH(parse_dtype("fp8"), "dtype 'fp8' is not f32, bf16 or f16");
}

}  // namespace
}  // namespace flashladder
