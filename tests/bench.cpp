// `ladder bench` without its clock: which problems, who takes part and who is compared with whom, turns, quartiles and
// ratios.
#include "bench.h"

#include <CLI/CLI.hpp>
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <thread>

#include "harness/dtype.h"
#include "harness/timing.h"
#include "operations/attention/operation.h"
#include "operations/attention/stage.h"
#include "test_seed.h"

namespace flashladder {
namespace {

using attention::AttentionShape;

attention::Stage stage(const char* name, DType dtype, bool causal = true, std::vector<int> head_dims = {64, 128}) {
    return {attention::Support{.stage = name, .head_dims = std::move(head_dims), .dtypes = {dtype}, .causal = causal, .grouped_query = causal},
            nullptr,
            nullptr};
}

const std::vector<attention::Stage> kernels = {stage("00-a", DType::f32, false), stage("01-b", DType::f32, false),
                                stage("03-c", DType::f32),        stage("04-d", DType::bf16),
                                stage("05-e", DType::bf16),       stage("06-f", DType::bf16, true, {64, 256})};

const std::vector<StageRef> all(kernels.begin(), kernels.end());

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

Problem problem(int n, int head_dim = 64, bool causal = false) {
    return attention::operation().problem({{"n_q", n}, {"head_dim", head_dim}, {"causal", causal}});
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
    const Operation& operation = attention::operation();
    const Problem many = operation.problem({{"batch", 3}, {"n_q", 17}}, DType::bf16);
    const Data inputs = operation.inputs(operation.part_of(many), test_seed());
    CHECK(inputs.problem.at("batch") == 1);
    InputSets sets(inputs, many);
    const DeviceData first = sets.data(0, nullptr, nullptr), last = sets.data(std::size_t(sets.count()) - 1, nullptr, nullptr);
    CHECK(sets.data(std::size_t(sets.count()), nullptr, nullptr).tensors.at("Q") == first.tensors.at("Q"));
    CHECK(last.problem == many);
    const std::size_t bytes = operation.tensors(many)[0].bytes();  // all have as many
    CHECK(first.tensors.size() == 4);
    for (const auto& [name, memory] : first.tensors)
        CHECK(static_cast<const char*>(last.tensors.at(name)) ==
              static_cast<const char*>(memory) + bytes * std::size_t(sets.count() - 1));
    for (const auto& [name, values] : inputs.tensors)
        for (std::size_t b = 0; b < 3; ++b) {
            DeviceBuffer copy(2 * values.size());
            cudaMemcpy(copy.data(), static_cast<const char*>(last.tensors.at(name)) + b * copy.bytes(), copy.bytes(),
                       cudaMemcpyDeviceToDevice);
            CHECK(copy.download(values.size(), DType::bf16) == values);
        }
    sets.poison();
    const Data outputs = sets.outputs(inputs.problem);
    CHECK(outputs.tensors.size() == 1);
    CHECK(outputs.tensors.at("O").size() == 17 * 64);
    CHECK(std::isnan(outputs.tensors.at("O").front()));
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

TEST_CASE("few queries: the rung for these beside the one below it, and nobody else") {
    const Operation& operation = attention::operation();
    const std::vector<attention::Stage> some = {stage("13-a", DType::bf16), stage("14-lcsf", DType::bf16),
                                                stage("27-merge", DType::bf16)};
    const std::vector<StageRef> refs(some.begin(), some.end());
    const Problem one = operation.problem({{"n_q", 1}, {"n_k", 4096}}), many = operation.problem({{"n_q", 1024}});
    CHECK(text(entrants(refs, one, {})) == "14 27<14");
    CHECK(text(entrants(refs, many, {})) == "13 14<13");
    CHECK(operation.takes_part("27-merge/3 parts", one));
    CHECK_FALSE(operation.takes_part("14-lcsf/one", one));
}

TEST_CASE("the grid: 16384 tokens, a model width of 2048") {
    const Operation& operation = attention::operation();
    auto grid = operation.benched({});
    const auto few = [](const Problem& problem) { return problem.at("n_q") == 1; };
    CHECK(std::erase_if(grid, few) == 10);
    CHECK(grid.size() == 8);
    for (const Problem& problem : grid) {
        const AttentionShape s = attention::shape_of(problem);
        CHECK(s.batch * s.n_q == 16384);
        CHECK(s.heads * s.head_dim == 2048);
        CHECK(s.kv_heads == s.heads);
        CHECK(s.n_k == s.n_q);
    }
    const auto one = operation.benched({{"n_q", 333}, {"head_dim", 128}, {"causal", 1}, {"kv_heads", 4}, {"batch", 2}});
    REQUIRE(one.size() == 1);
    AttentionShape wanted = attention::shape_of(problem(333, 128, true));
    wanted.batch = 2, wanted.heads = 16, wanted.kv_heads = 4;
    CHECK(attention::shape_of(one[0]) == wanted);
    CHECK(operation.benched({{"n_q", 100000}})[0].at("batch") == 1);
    CHECK_THROWS_WITH(operation.benched({{"n_q", 0}}), "--n is 0, but must be at least 1");
    CHECK_THROWS_WITH(operation.benched({{"kv_heads", 5}}), "heads 32 is not a multiple of kv-heads 5");
}

/// As if somebody had typed it.
GivenOptions given(std::vector<std::string> arguments) {
    static std::vector<std::unique_ptr<GivenOptions>> kept;  // the parser writes to it
    GivenOptions& options = *kept.emplace_back(std::make_unique<GivenOptions>());
    CLI::App app;
    options.add_to(&app);
    std::ranges::reverse(arguments);  // as CLI11 wants them
    app.parse(arguments);
    return options;
}

TEST_CASE("sizes on the command line are those of the operation at hand") {
    CHECK(given({}).empty());
    CHECK(given({"--n", "7", "--causal"}).of(attention::operation()) == GivenSizes{{"n_q", 7}, {"causal", 1}});
    const Operation& gemm = find_operation("gemm");
    CHECK(given({"--n", "7", "--m", "9"}).of(gemm) == GivenSizes{{"N", 7}, {"M", 9}});
    CHECK(!given({"--m", "9"}).fit(attention::operation()));
    CHECK_THROWS_WITH(given({"--d", "64"}).of(gemm), "--d is no size of gemm (it has --m, --n, --k)");
    CHECK_THROWS_WITH(gemm.problem({{"n_q", 1}}), "gemm has no size n_q (it has M, N, K)");
}

TEST_CASE("who takes part, and with whom each is compared") {
    BenchOptions options;
    CHECK(text(entrants(all, problem(1024), options)) == "00 01<00 03<01 04<03 05<04 06<05");
    CHECK(text(entrants(all, problem(1024, 64, true), options)) == "03 04<03 05<04 06<05");
    CHECK(text(entrants(all, problem(4096), options)) == "04 05<04 06<05");
    CHECK(text(entrants(all, problem(1024, 256), options)) == "06");
    options.given = given({"--n", "4096"});
    CHECK(text(entrants(all, problem(4096), options)) == "04 05<04 06<05");
    options.rungs = {"04-d"};
    CHECK(text(entrants(all, problem(4096), options)) == "03 04<03");  // asked for at this N
    options.given = {};
    CHECK(text(entrants(all, problem(4096), options)) == "04");
    options.rungs = {"06-f", "04-d"};
    CHECK(text(entrants(all, problem(1024), options)) == "03 04<03 06<04");
    options.rungs = {"00-a"};
    CHECK(text(entrants(all, problem(1024), options)) == "00");
    CHECK(text(entrants(all, problem(1024, 64, true), options)) == "");
    options.rungs = {}, options.dtype = "bf16";
    const auto in_bf16 = entrants(all, problem(1024), options);
    CHECK(text(in_bf16) == "04 05<04 06<05");
    CHECK(in_bf16[0].problem.dtype == DType::bf16);
}

TEST_CASE("nobody, or not all who were named, can do it: one line says why") {
    BenchOptions options;
    CHECK(why_no_bench(all, {problem(1024)}, options) == "");
    CHECK(why_no_bench(all, {problem(1024, 80)}, options) ==
          "06-f: head_dim 80 is not supported (only 64, 256), nor is another rung able to");
    options.rungs = {"06-f", "01-b"};
    CHECK(why_no_bench(all, {problem(1024), problem(1024, 64, true)}, options) == "");  // one of them is enough
    CHECK(why_no_bench(all, {problem(1024, 64, true)}, options).starts_with("01-b: causal is not supported"));
    options.rungs = {}, options.dtype = "f16";
    CHECK(why_no_bench(all, {problem(1024)}, options) == "06-f: dtype f16 is not supported (only bf16), nor is another rung able to");
    options.dtype = "f32", options.given = given({"--n", "4096"});
    CHECK(why_no_bench(all, {problem(4096)}, options) ==
          "rungs that take so long on B 1 H 1 N 4096 d 64 take part only if they are named, with its sizes: "
          "./ladder bench 03 --n 4096");
    CHECK(why_no_bench(all, {problem(1024), problem(4096)}, options) == "");
    options.rungs = {"01-b"};
    CHECK(why_no_bench(all, {problem(4096)}, options) == "");
}

TEST_CASE("a problem is cut down to one of its kind") {
    const Operation& operation = attention::operation();
    AttentionShape s = attention::shape_of(problem(4096, 128, true));
    s.batch = 4, s.heads = 16, s.kv_heads = 4;
    const Problem small = operation.cut_down(attention::problem_of(s));
    s.batch = 2, s.heads = 8, s.kv_heads = 2, s.n_q = s.n_k = 256;
    CHECK(attention::shape_of(small) == s);
    CHECK(operation.cut_down(problem(100)) == problem(100));
}

TEST_CASE("a learner's kernel beside the solution is not taken for it") {
    const std::size_t before = stages().size();
    const RegistrationBy<attention::Stage, add_mine> registration(stage("01-b", DType::f32));
    CHECK(stages().size() == before);
    REQUIRE(mine().size() == 1);
    CHECK(mine()[0].get().name() == "01-b");
}

TEST_CASE("dtypes by name") {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) CHECK(parse_dtype(to_string(dtype)) == dtype);
    CHECK_THROWS_WITH(parse_dtype("fp8"), "dtype 'fp8' is not f32, bf16 or f16");
}

}  // namespace
}  // namespace flashladder
