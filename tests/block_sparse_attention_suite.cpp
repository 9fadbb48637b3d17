// The checks that every kernel of block-sparse attention passes, whatever its idea: it computes what
// operations/block_sparse_attention/problem.h says, for every shape and all lists that it accepts, and it refuses the
// others in words.
#include "block_sparse_attention_suite.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>

#include "harness/dtype.h"
#include "launch.h"
#include "operations/attention/comparison.h"

namespace flashladder::block_sparse_attention {

constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();

const Stage& stage_under_test() { return find_stage(stages().front().get().name()); }

AttentionShape shape_of(int heads, int n_q, int n_k, int head_dim, bool causal) {
    return {.heads = heads,
            .kv_heads = heads,
            .n_q = n_q,
            .n_k = n_k,
            .head_dim = head_dim,
            .causal = causal,
            .dtype = stage_under_test().dtypes().front()};
}

Lists lists_of(const AttentionShape& shape, const std::vector<std::vector<int>>& rows) {
    const bool per_head = rows.size() > static_cast<std::size_t>(blocks_of(shape.n_q));
    Lists lists{.heads = per_head ? shape.heads : 1, .first = {0}, .blocks = {}};
    for (const std::vector<int>& row : rows) {
        lists.blocks.insert(lists.blocks.end(), row.begin(), row.end());
        lists.first.push_back(static_cast<int>(lists.blocks.size()));
    }
    return lists;
}

Lists drawn_lists(std::mt19937_64& random, const AttentionShape& shape, bool per_head) {
    std::vector<std::vector<int>> rows;
    for (int r = 0; r < blocks_of(shape.n_q) * (per_head ? shape.heads : 1); ++r) {
        std::vector<int>& row = rows.emplace_back();
        const unsigned percent = std::array{0u, 15u, 40u, 75u, 100u}[random() % 5];
        for (int j = 0; j < blocks_of(shape.n_k); ++j)
            if (random() % 100 < percent) row.push_back(j);
    }
    return lists_of(shape, rows);
}

std::string words(const AttentionShape& shape, const Lists& lists) {
    constexpr std::size_t most = 8;
    const std::size_t all = lists.first.size() - 1;
    std::string text = to_string(shape) + ", lists";
    for (std::size_t r = 0; r < std::min(all, most); ++r) {
        const auto begin = lists.blocks.begin() + lists.first[r], end = lists.blocks.begin() + lists.first[r + 1];
        if (end - begin <= 12)
            text += fmt::format(" [{}]", fmt::join(begin, end, " "));
        else
            text += fmt::format(" [{} ... {}: {} blocks]", fmt::join(begin, begin + 3, " "), end[-1], end - begin);
    }
    return text + (all > most ? " ..." : "") + (lists.heads > 1 ? " by head" : "");
}

std::string fault(const AttentionShape& shape, const Lists& lists, Values values, std::uint64_t seed, double scale) {
    try {
        Data data = make_inputs(shape, lists, values, seed, true);
        if (scale != 0) data.arguments.at("scale") = scale;
        const Data outputs = run(stage_under_test(), data);
        const Inputs inputs = inputs_of(data);
        const auto rows = rows_to_check(shape, 1);
        const attention::Comparison c = compare({outputs.tensors.at("O"), outputs.tensors.at("lse")}, shape,
                                                reference_attention(inputs, rows), standard_attention(inputs, rows));
        return c.passed ? "" : c.describe(shape, words(shape, lists));
    } catch (const CudaError& error) {
        return error.what();
    }
}

void check_agrees(const AttentionShape& shape, const Lists& lists, Values values, std::uint64_t seed) {
    const std::string wrong = fault(shape, lists, values, seed);
    CHECK_MESSAGE(wrong.empty(), wrong);
}

#ifndef FLASHLADDER_GPU
StageCounts counts_of(const AttentionShape& shape, const Lists& lists) {
    try {
        return count_stage(stage_under_test(), make_inputs(shape, lists, Values::normal, test_seed(), true));
    } catch (const CudaError& error) {
        FAIL_CHECK(std::string(error.what()));
        return {};
    }
}

std::uint64_t listed_keys(const AttentionShape& s, const Lists& lists) {
    std::uint64_t keys = 0;
    const int T_r = blocks_of(s.n_q);
    for (std::size_t r = 0; r + 1 < lists.first.size(); ++r) {
        const int last_query = std::min((static_cast<int>(r) % T_r + 1) * block, s.n_q) - 1;
        for (int e = lists.first[r]; e < lists.first[r + 1]; ++e)
            if (const int j = lists.blocks[static_cast<std::size_t>(e)] * block;
                !s.causal || j <= last_query + s.n_k - s.n_q)
                keys += static_cast<std::uint64_t>(std::min(block, s.n_k - j));
    }
    return keys * static_cast<std::uint64_t>(s.batch * s.heads / lists.heads);
}
#endif

namespace {

/// The dtypes and head dimensions that the stage supports, over and over.
AttentionShape shape_number(std::uint64_t turn, int heads, int n_q, int n_k, bool causal = false) {
    const attention::Support& supports = stage_under_test().supports;
    AttentionShape s = shape_of(heads, n_q, n_k, supports.head_dims[turn % supports.head_dims.size()], causal);
    s.dtype = supports.dtypes[turn / 2 % supports.dtypes.size()];
    return s;
}

TEST_CASE("agrees with the reference: any lists, lengths that divide nothing") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const bool causal : {false, true})
        for (int times = 0; times < 6; ++times, ++turn) {
            const int n_q = drawn_length(64, 1, 400, turn),
                      few = (31 + n_q) / n_q;  // the worst of few rows is mere luck
            AttentionShape s =
                shape_number(turn, few + int(random() % 2), n_q, drawn_length(64, 1, 700, turn / 4), causal);
            s.batch = 1 + int(random() % 2);
            check_agrees(s, drawn_lists(random, s, random() % 2), Values::normal, random());
        }
}

TEST_CASE("agrees with the reference: the last block of queries, and of keys, of every length that a tile can have") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (int part = 0; part < 4;
         ++part, ++turn) {  // of 16 rows of a warp, a unit, a block: where they end, by the seed
        const int rest = 1 + int((test_seed() * 4 + unsigned(part)) * 37 % 128), other = 1 + int(random() % 128);
        AttentionShape s = shape_number(turn, 1, 128 + rest, 256 + other, part % 2);
        check_agrees(s, lists_of(s, {{0, 2}, {1, 2}}), Values::normal, random());
        std::swap(s.n_q, s.n_k);
        check_agrees(s, lists_of(s, {{1}, {0, 1}, {0}}), Values::normal, random());
    }
}

TEST_CASE("agrees with the reference: whatever the scale") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    const auto scales = stage_under_test().supports.positive_scale ? std::array{0.5, 0.01} : std::array{0.5, -0.125};
    for (const double scale : scales) {
        const AttentionShape s = shape_number(turn++, 1, 100, 300);
        const std::string wrong = fault(s, drawn_lists(random, s, false), Values::normal, random(), scale);
        CHECK_MESSAGE(wrong.empty(), fmt::format("args.scale is {}: {}", scale, wrong));
    }
}

TEST_CASE("agrees with the reference: patterns") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const Pattern& pattern : {Pattern{.density = 0},
                                   {.density = 30, .per_head = true},
                                   {.density = 0, .window = 1},
                                   {.density = 0, .butterfly = true},
                                   {}})
        for (const bool causal : {false, true}) {
            Pattern drawn = pattern;
            drawn.draw = int(random() % 1000);
            ++turn;
            const AttentionShape s =
                shape_number(turn, 2, drawn_length(64, 200, 520, turn), drawn_length(64, 200, 650, turn), causal);
            check_agrees(s, make_lists(s, drawn), Values::normal, random());
        }
}

TEST_CASE("agrees with the reference: peaky rows, a maximum that grows with j, values that are 0 at first") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const Values values : {Values::peaky, Values::growing_maximum, Values::zero_values_first})
        for (const bool causal : {false, true}) {
            ++turn;
            const AttentionShape s = shape_number(turn, 2, 200, 600, causal);
            check_agrees(s, lists_of(s, {{0, 1, 3}, {0, 2, 3, 4}}), values, random());
        }
}

TEST_CASE("agrees with the reference: empty lists give 0 and an LSE of -infinity, among others and alone") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const bool causal : {false, true}) {
        ++turn;
        const AttentionShape s = shape_number(turn, 2, 300, 400, causal);
        for (const auto& rows : {std::vector<std::vector<int>>{{}, {0, 2}, {}}, {{1}, {}, {0, 1}}, {{}, {}, {}}}) {
            const Lists lists = lists_of(s, rows);
            const std::string why = fault(s, lists, Values::normal, random());
            CHECK_MESSAGE(why.empty(), why);
            if (!why.empty()) return;
            const Data out = run(stage_under_test(), make_inputs(s, lists, Values::normal, random(), true));
            const auto &O = out.tensors.at("O"), &lse = out.tensors.at("lse");
            for (std::size_t r = 0; r < lse.size(); ++r) {
                if (!rows[r % 300 / block].empty()) continue;
                const auto first = O.begin() + static_cast<std::ptrdiff_t>(r) * s.head_dim;
                const bool is_0 = std::all_of(first, first + s.head_dim, [](float x) { return x == 0; });
                CHECK_MESSAGE(
                    (is_0 && lse[r] == -infinity),
                    fmt::format(
                        "query {} of head {} has an empty list, and O of it is {}, LSE {}, expected 0 and -inf ({})",
                        r % 300, r / 300, is_0 ? "0" : "not 0", lse[r], words(s, lists)));
                if (!(is_0 && lse[r] == -infinity)) return;
            }
        }
    }
}

TEST_CASE("agrees with the reference: one block alone, wherever it is") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const bool causal : {false, true})
        for (int j = 0; j < 4; ++j) {
            ++turn;
            const AttentionShape s =
                shape_number(turn, 1, 2 * block, 3 * block + drawn_length(64, 1, block, turn), causal);
            std::vector<std::vector<int>> rows(2);
            rows[random() % 2] = {j};
            check_agrees(s, lists_of(s, rows), Values::normal, random());
        }
}

TEST_CASE("agrees with the reference: causal, with more keys than queries and with less, listed blocks hidden or not") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    const int some = drawn_length(64, 1, 200, turn);
    for (const int more : {0, 1, -1, 64, -64, 128, some, -some}) {
        const int n_q = drawn_length(64, 201, 300, turn);
        ++turn;
        AttentionShape s = shape_number(turn, 1, n_q, n_q + more, true);
        std::vector<int> all(std::size_t(blocks_of(s.n_k)));
        for (std::size_t j = 0; j < all.size(); ++j) all[j] = int(j);
        check_agrees(s, lists_of(s, {std::size_t(blocks_of(n_q)), all}), Values::normal, random());
        check_agrees(s, drawn_lists(random, s), Values::normal, random());
    }
}

TEST_CASE("agrees with the reference: grouped queries, in batches, with lists by head and for all") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const auto& [heads, kv_heads] : {std::pair(6, 3), {4, 1}})
        for (const bool per_head : {false, true}) {
            AttentionShape s = shape_number(turn, heads, 150, 300, turn % 2);
            ++turn;
            s.batch = 2, s.kv_heads = kv_heads;
            check_agrees(s, drawn_lists(random, s, per_head), Values::normal, random());
        }
}

TEST_CASE("agrees with the reference: many tasks of unlike length, for one multiprocessor and for three, in sections") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const auto& [multiprocessors, heads_in_L2] : {std::pair(1, 100), {3, 1}, {3, 2}}) {
        ++turn;
        AttentionShape s =
            shape_number(turn, 5, drawn_length(64, 200, 300, turn), drawn_length(64, 300, 600, turn), turn % 2);
        const std::size_t bytes_of_head = 2 * 2 * std::size_t(s.n_k * s.head_dim);
        const VirtualGpu gpu(multiprocessors, std::size_t(heads_in_L2) * bytes_of_head * 8 / 5);
        check_agrees(s, drawn_lists(random, s, true), Values::normal, random());
    }
}

TEST_CASE("keys and values in blocks of no list reach nobody, whatever they are") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const bool causal : {false, true}) {
        ++turn;
        const AttentionShape s = shape_number(turn, 2, 300, 650, causal);
        const Lists lists = lists_of(s, {{1, 2}, {2, 5}, {}});
        Data data = make_inputs(s, lists, Values::normal, random(), true);
        const Data expected = run(stage_under_test(), data);
        const std::set<int> listed(lists.blocks.begin(), lists.blocks.end());
        for (const char* name : {"K", "V"}) {
            std::vector<float>& tensor = data.tensors.at(name);
            for (std::size_t x = 0; x < tensor.size(); ++x)
                if (!listed.contains(int(x) / s.head_dim % s.n_k / block)) tensor[x] = nan;
        }
        const Data found = run(stage_under_test(), data);
        for (const char* name : {"O", "lse"}) {
            const auto &a = found.tensors.at(name), &b = expected.tensors.at(name);
            const auto [wrong, right] = std::ranges::mismatch(a, b);
            CHECK_MESSAGE(
                (wrong == a.end()),
                fmt::format("{}[{}] is {}, and was {} before keys and values in blocks of no list became NaN ({})",
                            name, wrong - a.begin(), *wrong, *right, words(s, lists)));
        }
    }
}

/// From (batch, a, b, d) to (batch, b, a, d).
std::vector<float> swapped(const std::vector<float>& from, int a, int b, int d) {
    std::vector<float> to(from.size());
    const auto rows = std::size_t(a), columns = std::size_t(b), width = std::size_t(d);
    for (std::size_t x = 0; x < from.size() / width; ++x) {
        const std::size_t outer = x / (rows * columns), row = x / columns % rows, column = x % columns;
        std::copy_n(&from[x * width], width, &to[((outer * columns + column) * rows + row) * width]);
    }
    return to;
}

TEST_CASE("agrees with the reference: tensors of (batch, N, heads, d), by their strides") {
    const Stage& stage = stage_under_test();
    if (!stage.supports.strides) return;
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const bool causal : {false, true}) {
        ++turn;
        AttentionShape s = shape_number(turn, 4, drawn_length(64, 100, 300, turn), drawn_length(64, 100, 400, turn), causal);
        s.batch = 2, s.kv_heads = 2;
        const Lists lists = drawn_lists(random, s, true);
        Data data = make_inputs(s, lists, Values::normal, random(), true);
        const Data expected = run(stage, data);
        data.tensors.at("Q") = swapped(data.tensors.at("Q"), s.heads, s.n_q, s.head_dim);
        for (const char* name : {"K", "V"})
            data.tensors.at(name) = swapped(data.tensors.at(name), s.kv_heads, s.n_k, s.head_dim);
        const DeviceProblem problem(stage, data);
        const auto at = [&](const char* name) { return problem.data().tensors.at(name); };
        const auto strides = [&](int heads, int rows) {
            return Strides{std::int64_t(rows) * heads * s.head_dim, s.head_dim, std::int64_t(heads) * s.head_dim};
        };
        const Strides queries = strides(s.heads, s.n_q), keys = strides(s.kv_heads, s.n_k);
        stage.launch(Args{{.shape = s,
                           .Q = at("Q"),
                           .K = at("K"),
                           .V = at("V"),
                           .O = at("O"),
                           .lse = static_cast<float*>(at("lse")),
                           .scale = float(data.arguments.at("scale")),
                           .scratch = problem.data().scratch,
                           .Q_strides = queries,
                           .K_strides = keys,
                           .V_strides = keys,
                           .O_strides = queries},
                          static_cast<const int*>(at("first")),
                          static_cast<const int*>(at("blocks")),
                          lists.heads});
        check_cuda(cudaDeviceSynchronize(), "launch");
        const Data found = problem.outputs();
        const bool O_agrees = swapped(found.tensors.at("O"), s.n_q, s.heads, s.head_dim) == expected.tensors.at("O");
        CHECK_MESSAGE(O_agrees, "O has other bits than with contiguous tensors (", words(s, lists), ")");
        CHECK_MESSAGE((found.tensors.at("lse") == expected.tensors.at("lse")),
                      "LSE has other bits than with contiguous tensors (", words(s, lists), ")");
    }
}

TEST_CASE("NaN in a query is NaN in its rows of O and LSE, and in no other") {
    std::mt19937_64 random(test_seed());
    for (const int head_dim : stage_under_test().supports.head_dims) {
        const AttentionShape s = shape_of(1, 140, 300, head_dim);
        const Lists lists = lists_of(s, {{0, 2}, {1}});
        Data data = make_inputs(s, lists, Values::normal, random(), true);
        constexpr std::size_t ill = 3;
        data.tensors.at("Q").at(ill * static_cast<std::size_t>(head_dim) + 5) = nan;
        const Data out = run(stage_under_test(), data);
        for (std::size_t r = 0; r < static_cast<std::size_t>(s.n_q); ++r) {
            const float *O = &out.tensors.at("O")[r * static_cast<std::size_t>(head_dim)],
                        lse = out.tensors.at("lse")[r];
            const bool O_is_nan = std::any_of(O, O + head_dim, [](float x) { return std::isnan(x); });
            CHECK_MESSAGE((O_is_nan == (r == ill) && std::isnan(lse) == (r == ill)),
                          fmt::format("query {} alone has a NaN, but O of query {} has {}, and LSE is {} ({})", ill, r,
                                      O_is_nan ? "one" : "none", lse, words(s, lists)));
        }
    }
}

TEST_CASE("gives the same bits again, whatever its scratch holds") {
    std::mt19937_64 random(test_seed());
    const AttentionShape s = shape_number(test_seed(), 2, 300, 500, test_seed() % 2);
    const Data data = make_inputs(s, drawn_lists(random, s, true), Values::normal, random(), true);
    check_same_bits(stage_under_test(), data);
}

TEST_CASE("refuses what it does not support, naming stage, limit and value") {
    const Stage& stage = stage_under_test();
    const AttentionShape s = shape_of(2, 8, 8, 64);
    const DeviceProblem problem(stage, make_inputs(s, lists_of(s, {{0}}), Values::normal, 1));
    const DeviceData device = problem.data();
    const auto at = [&](const char* name) { return device.tensors.at(name); };
    const Args good{{.shape = s, .Q = at("Q"), .K = at("K"), .V = at("V"), .O = at("O"), .scratch = device.scratch},
                    static_cast<const int*>(at("first")),
                    static_cast<const int*>(at("blocks"))};
    CHECK(refusal(stage, good) == "(no refusal)");
    const auto check_refusal = check_refusal_of(stage, good);
    check_refusal([](Args& a) { a.shape.head_dim = 80; }, "head_dim 80");
    check_refusal([](Args& a) { a.shape.n_q = 0; }, "n_q is 0");
    check_refusal([](Args& a) { a.shape.kv_heads = 3; }, "kv_heads 3");
    check_refusal([](Args& a) { a.shape.dtype = DType::f32; }, "dtype f32");
    check_refusal([](Args& a) { a.V = nullptr; }, "V is a null pointer");
    check_refusal([](Args& a) { a.K = static_cast<const char*>(a.K) + 4; }, "not aligned to 16 bytes");
    check_refusal([](Args& a) { a.scale = nan; }, "scale is nan");
    check_refusal([](Args& a) { a.first = nullptr; }, "first is a null pointer");
    check_refusal([](Args& a) { a.blocks = nullptr; }, "blocks is a null pointer");
    check_refusal([](Args& a) { a.list_heads = 3; }, "list_heads is 3, but must be 1 or heads 2");
    check_refusal([](Args& a) { a.block_size = 64; }, "block_size is 64, but only 128 is supported");
    if (stage.supports.strides)
        check_refusal([](Args& a) { a.Q_strides = {1024, 512, 65}; }, "Q has a row stride of 65 elements");
    else
        check_refusal([](Args& a) { a.Q_strides = {2 * 8 * 64, 64, 2 * 64}; }, "Q is not contiguous");
    if (stage.scratch_bytes(s) > 0) check_refusal([](Args& a) { a.scratch = nullptr; }, "scratch is a null pointer");
    const auto why = [&](const Pattern& pattern) { return stage.why_unsupported(problem_of(s, pattern)); };
    CHECK(why({}) == "");
    CHECK(why({.density = 101}) == stage.name() + ": density is 101, but must be 0 to 100 percent");
    CHECK(why({.density = -1}) == stage.name() + ": density is -1, but must be 0 to 100 percent");
    CHECK(why({.window = -2}) == stage.name() + ": window is -2, but must be at least 0");
    CHECK_THROWS_WITH_AS(find_stage("99"), "99 is not in this program", std::invalid_argument);
}

#ifndef FLASHLADDER_GPU
TEST_CASE("has no races") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const bool causal : {false, true})
        for (const auto& [n_q, n_k] : {std::pair(200, 530), {300, 100}}) {
            ++turn;
            const AttentionShape s = shape_number(turn, 2, n_q, n_k, causal);
            const VirtualGpu gpu(1 + int(random() % 3));
            const Data data = make_inputs(s, drawn_lists(random, s, random() % 2), Values::normal, random(), true);
            const std::string report = emulator::find_race([&] { run(stage_under_test(), data); });
            CHECK_MESSAGE(report.empty(), report);
        }
}
#endif

}  // namespace
}  // namespace flashladder::block_sparse_attention
