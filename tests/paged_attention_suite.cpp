// The checks that every kernel of paged attention passes, whatever its idea: it computes what
// operations/paged_attention/problem.h says, for every shape and all tables that it accepts, and it refuses the others
// in words.
#include "paged_attention_suite.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "harness/dtype.h"
#include "launch.h"
#include "operations/attention/comparison.h"
#include "operations/attention/parts.h"

namespace flashladder::paged_attention {

constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();

const Stage& stage_under_test() { return find_stage(stages().front().get().name()); }
const Stage& variant(std::string_view name) {
    return find_stage(fmt::format("{}/{}", stage_under_test().name(), name));
}

std::vector<int> Case::pages_of_sequence(int b) const {
    const auto first = sequences.block_table.begin() + std::ptrdiff_t(b) * pool.pages_of_sequence;
    return {first, first + pages_of(sequences.lengths[std::size_t(b)], pool.page_size)};
}

std::string Case::words() const {
    constexpr int most = 4;
    const auto& lengths = sequences.lengths;
    const std::ptrdiff_t few = std::min(shape.batch, most);
    std::string text =
        fmt::format("{}: {}{} keys, tables", to_string(problem_of(shape, pool, true, 0)),
                    fmt::join(lengths.begin(), lengths.begin() + few, ", "), shape.batch > most ? ", ..." : "");
    for (int b = 0; b < few; ++b) {
        std::vector<int> pages = pages_of_sequence(b);
        const bool many = pages.size() > 8;
        if (many) pages.resize(8);
        text += fmt::format(" [{}{}]", fmt::join(pages, " "), many ? " ..." : "");
    }
    return text + (shape.batch > most ? " ..." : "");
}

Case case_of(std::mt19937_64& random, const std::vector<int>& lengths, int page_size, int head_dim, int n_q,
             bool causal, int heads, int kv_heads) {
    Case c{{.batch = int(lengths.size()),
            .heads = heads,
            .kv_heads = kv_heads,
            .n_q = n_q,
            .n_k = std::max(1, std::ranges::max(lengths)),
            .head_dim = head_dim,
            .causal = causal,
            .dtype = stage_under_test().dtypes().front()},
           {},
           {}};
    int used = 0;
    for (const int length : lengths) used += pages_of(length, page_size);
    c.pool = {page_size, used + 1 + int(random() % 3), pages_of(c.shape.n_k, page_size)};
    std::vector<int> pages(std::size_t(c.pool.pages));
    std::iota(pages.begin(), pages.end(), 0);
    std::ranges::shuffle(pages, random);
    const std::vector<int> all = pages;
    c.sequences.lengths = lengths;
    for (const int length : lengths)
        for (int x = 0; x < c.pool.pages_of_sequence; ++x) {
            const bool is_used = x < pages_of(length, page_size);
            const int anything = std::array{-1, 1 << 23, all[random() % all.size()], all.back()}[random() % 4];
            c.sequences.block_table.push_back(is_used ? pages.back() : anything);
            if (is_used) pages.pop_back();
        }
    return c;
}

Data inputs_of_case(const Case& c, Values values, std::uint64_t seed) {
    return make_inputs(c.shape, c.pool, c.sequences, values, seed, true);
}

namespace {

std::string difference(const Case& c, const Data& data, const Data& outputs,
                       attention::Judge judge = attention::Judge::both_rules) {
    const Inputs inputs = inputs_of(data);
    const auto rows = rows_to_check(c.shape, 1);
    const attention::Comparison result =
        compare({outputs.tensors.at("O"), outputs.tensors.at("lse")}, c.shape, reference_attention(inputs, rows),
                standard_attention(inputs, rows), judge);
    return result.passed ? "" : result.describe(c.shape, c.words());
}

}  // namespace

std::string fault(const Stage& stage, const Case& c, Values values, std::uint64_t seed, double scale) {
    try {
        Data data = inputs_of_case(c, values, seed);
        if (scale != 0) data.arguments.at("scale") = scale;
        return difference(
            c, data, run(stage, data),
            values == Values::large_offset ? attention::Judge::worst_row_only : attention::Judge::both_rules);
    } catch (const CudaError& error) {
        return error.what();
    }
}

bool check_agrees(const Case& c, Values values, std::uint64_t seed) {
    const std::string wrong = fault(stage_under_test(), c, values, seed);
    CHECK_MESSAGE(wrong.empty(), wrong);
    return wrong.empty();
}

namespace {

/// Calls f(page, first row, rows) for each box that has a key, of each tile of queries.
template <class F>
void for_boxes(const Case& c, F f) {
    const AttentionShape& s = c.shape;
    const int B_c = attention::block_of_keys, size = c.pool.page_size, box = std::gcd(size, B_c);
    const attention::Packing packing = attention::packing_of(s);
    for (int b = 0; b < s.batch; ++b) {
        const int N_k = c.sequences.lengths[std::size_t(b)];
        for (int i = 0; i < s.n_q; i += packing.queries()) {
            const int behind = std::min(i + packing.queries(), s.n_q);
            const int seen = s.causal ? std::max(behind + N_k - s.n_q, 0) : N_k, T_c = (seen + B_c - 1) / B_c;
            for (int j = 0; j < std::min(T_c * B_c, N_k); j += box) {
                const int first = j % size - std::max(j + box - N_k, 0);
                for (int tile = 0; tile < s.kv_heads * packing.tiles_of_group; ++tile)
                    f(std::uint64_t(first + box - std::max(first, 0)));
            }
        }
    }
}

}  // namespace

std::uint64_t loaded_rows(const Case& c) {
    std::uint64_t sum = 0;
    for_boxes(c, [&](std::uint64_t rows) { sum += rows; });
    return sum;
}
std::uint64_t boxes_with_keys(const Case& c) {
    std::uint64_t sum = 0;
    for_boxes(c, [&](std::uint64_t) { ++sum; });
    return sum;
}

namespace {

/// The dtypes, head dimensions and page sizes, over and over.
Case case_number(std::mt19937_64& random, std::uint64_t turn, const std::vector<int>& lengths, int n_q = 1,
                 bool causal = false, int heads = 1, int kv_heads = 1) {
    const attention::Support& supports = stage_under_test().supports;
    constexpr std::array sizes{16, 64, 256, 32, 128, 8, 48, 40};
    Case c = case_of(random, lengths, sizes[turn % sizes.size()], supports.head_dims[turn % supports.head_dims.size()],
                     n_q, causal, heads, kv_heads);
    c.shape.dtype = supports.dtypes[turn / 2 % supports.dtypes.size()];
    return c;
}
std::vector<int> drawn_lengths(std::mt19937_64& random, int batch, int most) {
    std::vector<int> lengths;
    for (int b = 0; b < batch; ++b) lengths.push_back(int(random() % unsigned(most + 1)));
    return lengths;
}

TEST_CASE("agrees with the reference: any lengths, any pages, whatever the table has behind them") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const bool causal : {false, true})
        for (int times = 0; times < 4; ++times, ++turn) {
            const int n_q = 1 + int(random() % 16),
                      batch = 2 + int(random() % 3);  // the worst of few rows is mere luck
            const Case c = case_number(random, turn, drawn_lengths(random, batch, 600), n_q, causal, 16, 4);
            if (!check_agrees(c, Values::normal, random())) return;
        }
}

TEST_CASE("agrees with the reference: every number of keys that the last page and the last block can have") {
    std::mt19937_64 random(test_seed());
    for (const int page_size : {8, 16, 64, 256}) {
        std::vector<int> lengths;
        const int most = std::min(page_size, 64), first = int(random() % 2) * 128 + int(random() % unsigned(page_size));
        for (int more = 0; more < std::min(most, 24); ++more) lengths.push_back(first + more);
        for (const int head_dim : stage_under_test().supports.head_dims)
            if (!check_agrees(case_of(random, lengths, page_size, head_dim, 1, false, 4, 2), Values::normal, random()))
                return;
    }
}

TEST_CASE("agrees with the reference: pages of any multiple of 8 keys") {
    std::mt19937_64 random(test_seed());
    for (const int page_size : {8, 24, 32, 48, 80, 96, 128, 192, 384, 8 + 8 * int(random() % 40)}) {
        const int head_dim = stage_under_test().supports.head_dims[random() % 3];
        const Case c =
            case_of(random, {page_size * 2 + 5, page_size, 1, 300}, page_size, head_dim, 2, random() % 2, 8, 2);
        if (!check_agrees(c, Values::normal, random())) return;
    }
}

TEST_CASE("agrees with the reference: whatever the scale") {
    std::mt19937_64 random(test_seed());
    for (const double scale : {0.5, 0.01}) {
        const Case c = case_number(random, random(), {150, 0, 77}, 4, false, 8, 8);
        const std::string wrong = fault(stage_under_test(), c, Values::normal, random(), scale);
        CHECK_MESSAGE(wrong.empty(), fmt::format("args.scale is {}: {}", scale, wrong));
    }
}

TEST_CASE("agrees with the reference: peaky rows, a maximum that grows with j, values that are 0 at first") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const Values values : {Values::peaky, Values::growing_maximum, Values::zero_values_first})
        for (const bool causal : {false, true})
            if (!check_agrees(case_number(random, turn++, {700, 333, 520}, 5, causal, 8, 4), values, random())) return;
}

TEST_CASE("agrees with the reference: scores near 200, and near -200") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const bool causal : {false, true})  // few tiles, so that keys are in parts: the merge meets such scores too
        if (!check_agrees(case_number(random, turn++, {1500, 40}, 4, causal, 4, 1), Values::large_offset, random()))
            return;
}

TEST_CASE("agrees with the reference: causal, with many queries, and with more than keys") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const int n_q : {2, drawn_length(64, 17, 200, turn), 130}) {
        std::vector<int> lengths{n_q, n_q - 1, n_q + 1, n_q / 2, 0, n_q + 70, n_q + int(random() % 300)};
        if (!check_agrees(case_number(random, turn++, lengths, n_q, true, 6, 2), Values::normal, random())) return;
    }
}

TEST_CASE("agrees with the reference: sequences without keys give 0 and an LSE of -infinity, among others and alone") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const auto& lengths : {std::vector{0, 40, 0, 300}, {0}, {0, 0, 1}})
        for (const bool causal : {false, true}) {
            const Case c = case_number(random, turn++, lengths, 3, causal, 4, 2);
            const Data out = run(stage_under_test(), inputs_of_case(c, Values::normal, random()));
            const auto &O = out.tensors.at("O"), &lse = out.tensors.at("lse");
            for (std::size_t r = 0; r < lse.size(); ++r) {
                if (lengths[r / 12] > 0) continue;
                const auto first = O.begin() + static_cast<std::ptrdiff_t>(r) * c.shape.head_dim;
                const bool is_0 = std::all_of(first, first + c.shape.head_dim, [](float x) { return x == 0; });
                CHECK_MESSAGE((is_0 && lse[r] == -infinity),
                              fmt::format("sequence {} has no key, and O of it is {}, LSE {}, expected 0 and -inf ({})",
                                          r / 12, is_0 ? "0" : "not 0", lse[r], c.words()));
                if (!(is_0 && lse[r] == -infinity)) return;
            }
            if (!check_agrees(c, Values::normal, random())) return;
        }
}

TEST_CASE("agrees with the reference: grouped queries, few and many heads of a group") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const auto& [heads, kv_heads] : {std::pair(6, 2), {5, 5}, {8, 1}, {70, 1}, {130, 2}})
        if (!check_agrees(case_number(random, turn++, {200, 31}, 2, random() % 2, heads, kv_heads), Values::normal,
                          random()))
            return;
}

TEST_CASE("agrees with the reference: more tasks than multiprocessors, and more parts than blocks of keys") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const int multiprocessors : {1, 3, 40}) {
        const VirtualGpu gpu(multiprocessors);
        if (!check_agrees(case_number(random, turn++, {1900, 3, 800, 130}, 2, true, 4, 2), Values::normal, random()))
            return;
    }
}

TEST_CASE("what is in no sequence reaches nobody, whatever it is") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (int times = 0; times < 4; ++times) {
        const Case c =
            case_number(random, turn++, {int(random() % 400), 77, 1 + int(random() % 30)}, 2, times % 2, 4, 2);
        Data data = inputs_of_case(c, Values::normal, random());
        const Data expected = run(stage_under_test(), data);
        for (const float anything : {0.0f, infinity, -60000.0f}) {
            Data other = data;
            for (const char* name : {"K", "V"})
                for (float& x : other.tensors.at(name))
                    if (std::isnan(x)) x = anything;
            const Data found = run(stage_under_test(), other);
            for (const char* name : {"O", "lse"}) {
                const auto &a = found.tensors.at(name), &b = expected.tensors.at(name);
                const auto [wrong, right] = std::ranges::mismatch(a, b);
                CHECK_MESSAGE(
                    (wrong == a.end()),
                    fmt::format("{}[{}] is {}, and was {} while what is in no sequence was NaN; now it is {} ({})",
                                name, wrong - a.begin(), *wrong, *right, anything, c.words()));
                if (wrong != a.end()) return;
            }
        }
    }
}

TEST_CASE("sequences may share pages") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (int times = 0; times < 3; ++times) {
        Case c = case_number(random, turn++, {300, 300, 270}, 2, times % 2, 8, 4);
        const int width = c.pool.pages_of_sequence, common = 1 + int(random() % unsigned(270 / c.pool.page_size + 1));
        for (int b = 1; b < 3; ++b)
            std::copy_n(c.sequences.block_table.begin(), std::min(common, pages_of(270, c.pool.page_size)),
                        c.sequences.block_table.begin() + std::ptrdiff_t(b) * width);
        if (!check_agrees(c, Values::normal, random())) return;
    }
}

TEST_CASE("pools and queries of any strides, and tables that are wider than they need to be") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (int times = 0; times < 3; ++times) {
        const Case c = case_number(random, turn++, {200, 90}, 4, times % 2, 8, 4);
        const AttentionShape& s = c.shape;
        const Data data = inputs_of_case(c, Values::normal, random());
        Data otherwise = data;
        const std::size_t d = std::size_t(s.head_dim);
        /// From (outer, a, b, d) to (outer, b, a, d).
        const auto swapped = [&](const std::vector<float>& from, int a, int b) {
            std::vector<float> to(from.size());
            for (std::size_t x = 0; x < from.size() / d; ++x) {
                const std::size_t outer = x / std::size_t(a * b), row = x / std::size_t(b) % std::size_t(a),
                                  column = x % std::size_t(b);
                std::copy_n(&from[x * d], d, &to[((outer * std::size_t(b) + column) * std::size_t(a) + row) * d]);
            }
            return to;
        };
        for (const char* name : {"K", "V"})
            otherwise.tensors.at(name) = swapped(data.tensors.at(name), s.kv_heads, c.pool.page_size);
        otherwise.tensors.at("Q") = swapped(data.tensors.at("Q"), s.heads, s.n_q);
        const DeviceProblem problem(stage_under_test(), otherwise);
        const auto at = [&](const char* name) { return problem.data().tensors.at(name); };
        const std::size_t wide = std::size_t(c.pool.pages_of_sequence) + 3;
        std::vector<float> table(wide * 2, -5);
        for (std::size_t b = 0; b < 2; ++b)
            std::copy_n(c.sequences.block_table.begin() + std::ptrdiff_t(b) * c.pool.pages_of_sequence,
                        c.pool.pages_of_sequence, table.begin() + std::ptrdiff_t(b * wide));
        DeviceBuffer wide_table(table.size() * 4, "wide table");
        wide_table.upload(table, DType::i32);
        const Strides pages = {std::int64_t(c.pool.page_size) * s.kv_heads * s.head_dim, s.head_dim,
                               std::int64_t(s.kv_heads) * s.head_dim};
        const Strides queries = {std::int64_t(s.n_q) * s.heads * s.head_dim, s.head_dim,
                                 std::int64_t(s.heads) * s.head_dim};
        Args args{{.shape = s,
                   .Q = at("Q"),
                   .K = at("K"),
                   .V = at("V"),
                   .O = at("O"),
                   .lse = static_cast<float*>(at("lse")),
                   .scale = float(data.arguments.at("scale")),
                   .scratch = problem.data().scratch,
                   .Q_strides = queries,
                   .K_strides = pages,
                   .V_strides = pages,
                   .O_strides = queries},
                  c.pool,
                  static_cast<const int*>(wide_table.data()),
                  static_cast<const int*>(at("lengths"))};
        args.pool.pages_of_sequence = int(wide);
        stage_under_test().launch(args);
        check_cuda(cudaDeviceSynchronize(), "launch");
        Data outputs = problem.outputs();
        outputs.tensors.at("O") = swapped(outputs.tensors.at("O"), s.n_q, s.heads);
        const std::string wrong = difference(c, data, outputs);
        CHECK_MESSAGE(wrong.empty(), "(pages, page_size, kv_heads, d): ", wrong);
        if (!wrong.empty()) return;
    }
}

TEST_CASE("NaN in a query is NaN in its rows of O and LSE, and in no other") {
    std::mt19937_64 random(test_seed());
    for (const int head_dim : stage_under_test().supports.head_dims) {
        const Case c = case_of(random, {140, 60}, 16, head_dim, 5, false, 4, 1);
        Data data = inputs_of_case(c, Values::normal, random());
        constexpr std::size_t ill = 13;
        data.tensors.at("Q").at(ill * static_cast<std::size_t>(head_dim) + 5) = nan;
        const Data out = run(stage_under_test(), data);
        for (std::size_t r = 0; r < c.shape.lse_elements(); ++r) {
            const float *O = &out.tensors.at("O")[r * static_cast<std::size_t>(head_dim)],
                        lse = out.tensors.at("lse")[r];
            const bool O_is_nan = std::any_of(O, O + head_dim, [](float x) { return std::isnan(x); });
            CHECK_MESSAGE((O_is_nan == (r == ill) && std::isnan(lse) == (r == ill)),
                          fmt::format("row {} of Q alone has a NaN, but row {} of O has {}, and LSE is {} ({})", ill, r,
                                      O_is_nan ? "one" : "none", lse, c.words()));
        }
    }
}

TEST_CASE("gives the same bits again, whatever its scratch holds") {
    std::mt19937_64 random(test_seed());
    const Case c = case_number(random, test_seed(), {500, 0, 310}, 3, test_seed() % 2, 4, 2);
    check_same_bits(stage_under_test(), inputs_of_case(c, Values::normal, random()));
}

TEST_CASE("refuses what it does not support, naming stage, limit and value") {
    std::mt19937_64 random(test_seed());
    const Stage& stage = stage_under_test();
    const Case c = case_of(random, {40, 20}, 16, 64, 8, false, 2, 2);
    const DeviceProblem problem(stage, inputs_of_case(c, Values::normal, 1));
    const DeviceData device = problem.data();
    const auto at = [&](const char* name) { return device.tensors.at(name); };
    const Args good{{.shape = c.shape, .Q = at("Q"), .K = at("K"), .V = at("V"), .O = at("O"), .scratch = device.scratch},
                    c.pool,
                    static_cast<const int*>(at("block_table")),
                    static_cast<const int*>(at("lengths"))};
    CHECK(refusal(stage, good) == "(no refusal)");
    const auto check_refusal = check_refusal_of(stage, good);
    check_refusal([](Args& a) { a.shape.head_dim = 80; }, "head_dim 80");
    check_refusal([](Args& a) { a.shape.n_q = 0; }, "n_q is 0");
    check_refusal([](Args& a) { a.shape.n_k = -3; }, "n_k is -3");
    check_refusal([](Args& a) { a.shape.kv_heads = 3; }, "kv_heads 3");
    check_refusal([](Args& a) { a.shape.dtype = DType::f32; }, "dtype f32");
    check_refusal([](Args& a) { a.V = nullptr; }, "V is a null pointer");
    check_refusal([](Args& a) { a.K = static_cast<const char*>(a.K) + 4; }, "not aligned to 16 bytes");
    check_refusal([](Args& a) { a.scale = nan; }, "scale is nan");
    check_refusal([](Args& a) { a.block_table = nullptr; }, "block_table is a null pointer");
    check_refusal([](Args& a) { a.lengths = nullptr; }, "lengths is a null pointer");
    check_refusal([](Args& a) { a.pool.page_size = 20; }, "page_size is 20, but must be a multiple of 8");
    check_refusal([](Args& a) { a.pool.page_size = 0; }, "page_size is 0, but must be a multiple of 8");
    check_refusal([](Args& a) { a.pool.pages = 0; }, "pages is 0, but must be at least 1");
    check_refusal([](Args& a) { a.pool.pages_of_sequence = 2; },
                  "pages_of_sequence is 2, but n_k 40 keys in pages of 16 need 3");
    if (stage.supports.positive_scale) check_refusal([](Args& a) { a.scale = -1; }, "scale is -1");
    if (stage.scratch_bytes(c.shape) > 0)
        check_refusal([](Args& a) { a.scratch = nullptr; }, "scratch is a null pointer");
    CHECK(stage.why_unsupported(problem_of(c.shape, c.pool, true)) == "");
    CHECK(stage.why_unsupported(problem_of(c.shape, {.page_size = 0, .pages = 0}, true)) ==
          stage.name() + ": page_size is 0, but must be a multiple of 8");
    CHECK_THROWS_WITH_AS(find_stage("99"), "99 is not in this program", std::invalid_argument);
}

#ifndef FLASHLADDER_GPU
TEST_CASE("has no races") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const bool causal : {false, true})
        for (int times = 0; times < 2; ++times) {
            const Case c = case_number(random, turn++, {700, int(random() % 300)}, 2, causal, 4, 2);
            const VirtualGpu gpu(1 + int(random() % 3));
            const Data data = inputs_of_case(c, Values::normal, random());
            const std::string report = emulator::find_race([&] { run(stage_under_test(), data); });
            CHECK_MESSAGE(report.empty(), report);
        }
}
#endif

}  // namespace
}  // namespace flashladder::paged_attention
