// The checks that every kernel of ring attention passes, whatever its idea: it computes what
// operations/ring_attention/problem.h says, for every shape and any number of ranks that it accepts, and it refuses the
// others in words. All ranks are on one device.
#include "ring_attention_suite.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "harness/own_stream.h"
#include "launch.h"
#include "operations/attention/comparison.h"

namespace flashladder::ring_attention {

constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();

const Stage& stage_under_test() { return find_stage(stages().front().get().name()); }

std::string Case::words() const { return to_string(problem_of(shape, ranks)); }

Case case_of(int ranks, int rows_of_shard, int head_dim, bool causal, int heads, int kv_heads, int batch) {
    const int n = ranks * (causal ? (rows_of_shard + 1) / 2 * 2 : rows_of_shard);
    return {{.batch = batch,
             .heads = heads,
             .kv_heads = kv_heads,
             .n_q = n,
             .n_k = n,
             .head_dim = head_dim,
             .causal = causal,
             .dtype = stage_under_test().dtypes().front()},
            ranks};
}

std::string fault(const Case& c, const Data& data, attention::Judge judge) {
    try {
        const Data outputs = run(stage_under_test(), data);
        const attention::Inputs inputs = inputs_of(data);
        const auto rows = rows_to_check(c.shape, 1);
        const int heads = c.shape.heads;
        const attention::Comparison result =
            compare({from_shards(outputs.tensors.at("O"), c.shape, heads, c.ranks),
                     from_shards(outputs.tensors.at("lse"), c.shape, heads, c.ranks)},
                    c.shape, reference_attention(inputs, rows), standard_attention(inputs, rows), judge);
        return result.passed ? "" : result.describe(c.shape, c.words());
    } catch (const CudaError& error) {
        return error.what();
    }
}
std::string fault(const Case& c, Values values, std::uint64_t seed, double scale) {
    Data data = data_of(attention::make_inputs(c.shape, values, seed), c.ranks, true);
    if (scale != 0) data.arguments.at("scale") = scale;
    return fault(c, data,
                 values == Values::large_offset ? attention::Judge::worst_row_only : attention::Judge::both_rules);
}
bool check_agrees(const Case& c, Values values, std::uint64_t seed) {
    const std::string wrong = fault(c, values, seed);
    CHECK_MESSAGE(wrong.empty(), wrong);
    return wrong.empty();
}

Ranks::Ranks(const Case& c, const Data& data) : c(c) {
    const AttentionShape s = shard();
    args.shape = c.shape, args.scale = float(data.arguments.at("scale"));
    for (int g = 0; g < c.ranks; ++g) {
        const auto of_rank = [&](const char* name) { return fmt::format("{} of rank {}", name, g); };
        const auto put = [&](const char* name, std::size_t elements) {
            DeviceBuffer& buffer = buffers_.emplace_back(3 * elements * bytes_per_element(s.dtype), of_rank(name).c_str());
            buffer.fill(0xFF);
            const auto first = data.tensors.at(name).begin() + std::ptrdiff_t(elements) * g;
            std::vector<float> values(elements, nan);
            values.insert(values.end(), first, first + std::ptrdiff_t(elements));
            buffer.upload(values, s.dtype);
            return static_cast<char*>(buffer.data()) + elements * bytes_per_element(s.dtype);
        };
        Rank rank{.Q = put("Q", s.q_elements()), .K = put("K", s.kv_elements()), .V = put("V", s.kv_elements())};
        for (const auto& [name, bytes] : {std::pair("O", s.q_elements() * bytes_per_element(s.dtype)),
                                          {"lse", s.lse_elements() * 4},
                                          {"scratch", stage_under_test().scratch_bytes(c.shape, c.ranks)}})
            buffers_.emplace_back(bytes, of_rank(name).c_str()).fill(0xFF);
        rank.O = buffers_[buffers_.size() - 3].data();
        rank.lse = static_cast<float*>(buffers_[buffers_.size() - 2].data());
        rank.scratch = buffers_.back().data();
        check_cuda(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking), "a rank's stream");
        args.ranks.push_back(rank);
    }
    check_cuda(cudaDeviceSynchronize(), "uploading");
}
Ranks::~Ranks() {
    (void)cudaDeviceSynchronize();
    for (const Rank& rank : args.ranks) (void)cudaStreamDestroy(rank.stream);
}
Data Ranks::outputs() const {
    const AttentionShape s = shard();
    Data all;
    for (int g = 0; g < c.ranks; ++g)
        for (const auto& [name, at, elements, dtype] :
             {std::tuple("O", 3, s.q_elements(), s.dtype), {"lse", 4, s.lse_elements(), DType::f32}}) {
            const std::vector<float> own = buffers_[std::size_t(g * 6 + at)].download(elements, dtype);
            all.tensors[name].insert(all.tensors[name].end(), own.begin(), own.end());
        }
    return all;
}
RoundArgs Ranks::round(int rank, int round) const {
    const Rank &own = args.ranks[std::size_t(rank)],
               &other = args.ranks[std::size_t((rank - round + c.ranks) % c.ranks)];
    return {{.shape = shard(), .Q = own.Q, .K = other.K, .V = other.V, .O = own.O, .lse = own.lse, .scale = args.scale,
             .scratch = own.scratch, .stream = own.stream},
            c.ranks, rank, round};
}
State Ranks::state(int rank) const { return state_in(args.ranks[std::size_t(rank)].scratch, shard(), c.ranks); }

namespace {

/// The dtypes and head dimensions, over and over.
Case case_number(std::uint64_t turn, int ranks, int rows_of_shard, bool causal, int heads = 2, int kv_heads = 1,
                 int batch = 1) {
    const attention::Support& supports = stage_under_test().supports;
    Case c = case_of(ranks, rows_of_shard, supports.head_dims[turn % supports.head_dims.size()], causal, heads, kv_heads,
                     batch);
    c.shape.dtype = supports.dtypes[turn / 2 % supports.dtypes.size()];
    return c;
}

TEST_CASE("agrees with the reference: any number of ranks, and of rows of each") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    std::size_t combination = 0;
    for (const int ranks : {1, 2, 3, 8})
        for (const bool causal : {false, true})
            for (const int rows : {drawn_length(64, 1, 300 / ranks, turn), 1 + int(random() % unsigned(500 / ranks))}) {
                if (!takes_combination(combination++)) continue;
                if (!check_agrees(case_number(turn++, ranks, rows, causal), Values::normal, random())) return;
            }
}

TEST_CASE("agrees with the reference: shards that end about where tiles do") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const bool causal : {false, true})
        for (const int rows : {64, 128, 192, 256})
            for (const int more : {-2, 0, 2}) {
                if (!takes_combination(turn, 3)) {
                    ++turn;
                    continue;
                }
                if (!check_agrees(case_number(turn++, 2, rows + more, causal), Values::normal, random())) return;
            }
}

TEST_CASE("agrees with the reference: each head dimension and dtype") {
    std::mt19937_64 random(test_seed());
    for (const int head_dim : stage_under_test().supports.head_dims)
        for (const DType dtype : stage_under_test().dtypes()) {
            Case c = case_of(2 + int(random() % 2), 90 + int(random() % 60), head_dim, random() % 2, 2, 1);
            c.shape.dtype = dtype;
            if (!check_agrees(c, Values::normal, random())) return;
        }
}

TEST_CASE("agrees with the reference: a rank's shard of one row, and of two chunks of one row") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const int ranks : {1, 2, 5})
        for (const bool causal : {false, true})
            for (const int rows : {1, 2, 3})
                if (!check_agrees(case_number(turn++, ranks, rows, causal, 4, 2, 2), Values::normal, random())) return;
}

TEST_CASE("agrees with the reference: batches, and heads that share a K and V") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const auto& [heads, kv_heads] : {std::pair(6, 2), {3, 3}, {4, 1}})
        if (!check_agrees(case_number(turn++, 3, 70, random() % 2, heads, kv_heads, 2), Values::normal, random()))
            return;
}

TEST_CASE("agrees with the reference: peaky rows, a maximum that grows with j, values that are 0 at first") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const Values values : {Values::peaky, Values::growing_maximum, Values::zero_values_first})
        for (const bool causal : {false, true})
            if (!check_agrees(case_number(turn++, 3, 110, causal), values, random())) return;
}

TEST_CASE("agrees with the reference: scores near 200, and near -200") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const bool causal : {false, true})
        if (!check_agrees(case_number(turn++, 2, 200, causal, 4, 2), Values::large_offset, random())) return;
}

TEST_CASE("agrees with the reference: whatever the scale") {
    std::mt19937_64 random(test_seed());
    for (const double scale : {0.5, 0.01}) {
        const Case c = case_number(random(), 2, 100, false);
        const std::string wrong = fault(c, Values::normal, random(), scale);
        CHECK_MESSAGE(wrong.empty(), fmt::format("args.scale is {}: {}", scale, wrong));
    }
}

TEST_CASE("agrees with the reference: more tasks than multiprocessors, and fewer") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const int multiprocessors : {1, 3, 40}) {
        const VirtualGpu gpu(multiprocessors);
        if (!check_agrees(case_number(turn++, 2, 420, random() % 2, 2, 2), Values::normal, random())) return;
    }
}

TEST_CASE("without LSE, and what lies in the scratch, and in O, reaches nobody; the same bits again") {
    std::mt19937_64 random(test_seed());
    const Case c = case_number(test_seed(), 3, 130, test_seed() % 2);
    const Data data = data_of(attention::make_inputs(c.shape, Values::normal, random()), c.ranks, random() % 2);
    const DeviceProblem problem(stage_under_test(), data);
    const DeviceData device = problem.data();
    std::vector<float> before;
    for (const int garbage : {0xFF, 0x7F, 0x01}) {
        check_cuda(cudaMemset(device.scratch, garbage, stage_under_test().scratch_bytes(data.problem)), "scratch");
        for (int times = 0; times < 2; ++times) {
            stage_under_test().launch(device);
            check_cuda(cudaDeviceSynchronize(), "launch");
            const std::vector<float> O = problem.outputs().tensors.at("O");
            CHECK_MESSAGE((before.empty() || O == before), "O has other bits than before, with scratch full of ", garbage);
            before = O;
        }
    }
    const std::string wrong = fault(c, Values::normal, random());
    CHECK_MESSAGE(wrong.empty(), wrong);
}

TEST_CASE("a launch behind another one, with nobody waiting in between, has what that one left") {
    std::mt19937_64 random(test_seed());
    for (const int ranks : {2, 3}) {
        const Case c = case_of(ranks, 60 + int(random() % 70), 64, random() % 2);
        const Data data = data_of(attention::make_inputs(c.shape, Values::normal, random()), c.ranks, true);
        const DeviceProblem problem(stage_under_test(), data);
        const OwnStream stream;
        for (int times = 0; times < 3; ++times) stage_under_test().launch(problem.data(stream.get()));
        check_cuda(cudaStreamSynchronize(stream.get()), "three launches");
        const std::vector<float> O = problem.outputs().tensors.at("O"), expected = run(stage_under_test(), data).tensors.at("O");
        CHECK_MESSAGE((O == expected), fmt::format("three launches one behind the other give other bits than one ({})",
                                                   c.words()));
    }
}

TEST_CASE("keys that have no weight at all, of some ranks") {
    std::mt19937_64 random(test_seed());
    for (int times = 0; times < 4; ++times) {
        const bool causal = times % 2;
        const int head_dim = stage_under_test().supports.head_dims[random() % 3];
        const Case c = case_of(3, 40 + int(random() % 60), head_dim, causal);
        Data data = data_of(attention::make_inputs(c.shape, Values::normal, random()), c.ranks, true);
        const std::size_t d = std::size_t(c.shape.head_dim), rows = std::size_t(c.rows_of_shard());
        // A key that is far away in the first column has a score of -infinity, whoever asks. If causal, everybody sees a
        // key of rank 0.
        const unsigned with_weight = causal ? 1 + random() % 4 * 2 : 1 + random() % 7;
        auto &Q = data.tensors.at("Q"), &K = data.tensors.at("K");
        for (std::size_t row = 0; row < rows * std::size_t(c.ranks); ++row) {
            Q[row * d] = 0x1p100f;
            K[row * d] = (with_weight >> row / rows & 1) ? 0.0f : -0x1p100f;
        }
        const std::string wrong = fault(c, data);
        CHECK_MESSAGE(wrong.empty(), fmt::format("keys of some ranks have scores of -infinity: {}", wrong));
        if (!wrong.empty()) return;
    }
}

TEST_CASE("NaN in a query is NaN in its rows of O and LSE, and in no other") {
    std::mt19937_64 random(test_seed());
    for (const int head_dim : stage_under_test().supports.head_dims) {
        const Case c = case_of(2, 70, head_dim, random() % 2, 2, 1);
        Data data = data_of(attention::make_inputs(c.shape, Values::normal, random()), c.ranks, true);
        const std::size_t ill = random() % c.shape.lse_elements();
        data.tensors.at("Q").at(ill * std::size_t(head_dim) + 5) = nan;
        const Data out = run(stage_under_test(), data);
        for (std::size_t r = 0; r < c.shape.lse_elements(); ++r) {
            const float* O = &out.tensors.at("O")[r * std::size_t(head_dim)];
            const bool O_is_nan = std::any_of(O, O + head_dim, [](float x) { return std::isnan(x); });
            CHECK_MESSAGE((O_is_nan == (r == ill) && std::isnan(out.tensors.at("lse")[r]) == (r == ill)),
                          fmt::format("row {} of Q alone has a NaN, but row {} of O has {}, and LSE is {} ({})", ill, r,
                                      O_is_nan ? "one" : "none", out.tensors.at("lse")[r], c.words()));
        }
    }
}

TEST_CASE("what is beside a shard reaches nobody, and a round by itself does what all together do") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (int times = 0; times < 4; ++times) {
        const Case c = case_number(turn++, 2 + int(random() % 2), 20 + int(random() % 100), times % 2, 2, 1);
        const Data data = data_of(attention::make_inputs(c.shape, Values::normal, random()), c.ranks, true);
        const Data expected = run(stage_under_test(), data);
        const Ranks guarded(c, data), by_rounds(c, data);
        stage_under_test().launch(guarded.args);
        for (int round = 0; round < c.ranks; ++round)
            for (int g = 0; g < c.ranks; ++g) stage_under_test().launch_round(by_rounds.round(g, round));
        check_cuda(cudaDeviceSynchronize(), "launch");
        for (const char* name : {"O", "lse"}) {
            CHECK_MESSAGE((guarded.outputs().tensors.at(name) == expected.tensors.at(name)),
                          fmt::format("{} is another one where NaN is beside each shard ({})", name, c.words()));
            CHECK_MESSAGE((by_rounds.outputs().tensors.at(name) == expected.tensors.at(name)),
                          fmt::format("{} is another one by rounds that are launched one by one ({})", name, c.words()));
        }
    }
}

TEST_CASE("refuses what it does not support, naming stage, limit and value") {
    const Stage& stage = stage_under_test();
    const Case c = case_of(2, 64, 64, true, 2, 1);
    const Ranks guarded(c, data_of(attention::make_inputs(c.shape, Values::normal, 1), c.ranks, true));
    CHECK(refusal(stage, guarded.args) == "(no refusal)");
    const auto check_refusal = check_refusal_of(stage, guarded.args);
    check_refusal([](Args& a) { a.shape.head_dim = 80; }, "head_dim 80");
    check_refusal([](Args& a) { a.shape.n_k = 64; }, "n_q is 128 and n_k 64");
    check_refusal([](Args& a) { a.shape.n_q = a.shape.n_k = 126; }, "n is 126, but must be a multiple of 4");
    check_refusal([](Args& a) { a.shape.n_q = a.shape.n_k = 127, a.shape.causal = false; },
                  "n is 127, but must be a multiple of the number of ranks, 2");
    check_refusal([](Args& a) { a.shape.kv_heads = 3; }, "kv_heads 3");
    check_refusal([](Args& a) { a.shape.dtype = DType::f32; }, "dtype f32");
    check_refusal([](Args& a) { a.ranks[1].V = nullptr; }, "V of rank 1 is a null pointer");
    check_refusal([](Args& a) { a.ranks[0].K = static_cast<const char*>(a.ranks[0].K) + 4; },
                  "K of rank 0 is not aligned to 16 bytes");
    check_refusal([](Args& a) { a.scale = nan; }, "scale is nan");
    check_refusal([](Args& a) { a.scale = -1; }, "scale is -1");
    check_refusal([](Args& a) { a.ranks.clear(); }, "ranks is 0");
    const auto of_round = [&](int rank, int round) {
        RoundArgs args = guarded.round(0, 0);
        args.rank = rank, args.round = round;
        return refusal([&] { stage.launch_round(args); });
    };
    CHECK(of_round(0, 0) == "(no refusal)");
    check_refusal_line(of_round(2, 0), stage.name(), "rank is 2, but there are 2");
    check_refusal_line(of_round(0, -1), stage.name(), "round is -1");
    check_cuda(cudaDeviceSynchronize(), "launch");
}

#ifndef FLASHLADDER_GPU
TEST_CASE("no races") {
    std::mt19937_64 random(test_seed());
    for (const int head_dim : {64, 128})
        for (const bool causal : {false, true}) {
            const Case c = case_of(2 + int(random() % 2), 100 + int(random() % 60), head_dim, causal, 2, 1);
            const Data data = data_of(attention::make_inputs(c.shape, Values::normal, random()), c.ranks, true);
            const std::string race = emulator::find_race([&] { run(stage_under_test(), data); });
            CHECK_MESSAGE(race.empty(), race);
        }
}
#endif

}  // namespace
}  // namespace flashladder::ring_attention
