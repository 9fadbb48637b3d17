// The checks that every kernel of packed sequences passes, whatever its idea: it computes what
// operations/varlen_attention/problem.h says, for every shape and all lists that it accepts, and it refuses the others
// in words.
#include "varlen_attention_suite.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "harness/dtype.h"
#include "launch.h"

namespace flashladder::varlen_attention {

using std::size_t;

constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();

const Stage& stage_under_test() { return find_stage(stages().front().get().name()); }
const Stage& variant(std::string_view name) {
    return find_stage(fmt::format("{}/{}", stage_under_test().name(), name));
}

std::vector<int> drawn_head_dims(std::mt19937_64& random) {
    std::vector<int> all;
    int narrower = 0;
    for (const int head_dim : stage_under_test().supports.head_dims) {
        const int d = tiles_of(head_dim).d;
        if (d != head_dim) continue;
        all.push_back(random() % 2 ? d : narrower + 8 * (1 + int(random() % unsigned((d - narrower) / 8))));
        narrower = d;
    }
    return all;
}

std::string Case::words() const {
    constexpr int most = 8;
    std::string text;
    for (int b = 0; b < std::min(sequences.count(), most); ++b)
        text += fmt::format("{}{} on {}", b == 0 ? "" : ", ", sequences.n_q(b), sequences.n_k(b));
    return fmt::format("{}: {}{}", to_string(problem_of(shape, sequences)), text,
                       sequences.count() > most ? ", ..." : "");
}

Case case_of(const std::vector<int>& n_q, const std::vector<int>& n_k, int head_dim, bool causal, int heads,
             int kv_heads) {
    const Sequences sequences = sequences_of(n_q, n_k);
    return {Shape({.heads = heads,
                   .kv_heads = kv_heads,
                   .n_q = sequences.total_q(),
                   .n_k = sequences.total_k(),
                   .head_dim = head_dim,
                   .causal = causal,
                   .dtype = stage_under_test().dtypes().front()}),
            sequences};
}

Data inputs_of_case(const Case& c, Values values, std::uint64_t seed) {
    return make_inputs(c.shape, c.sequences, values, seed, true);
}

namespace {

std::string difference(const Case& c, const Data& data, const Data& outputs,
                       attention::Judge judge = attention::Judge::both_rules) {
    const Inputs inputs = inputs_of(data);
    const auto rows = rows_to_check(inputs, 1);
    const attention::Comparison result =
        compare({outputs.tensors.at("O"), outputs.tensors.at("lse")}, inputs, reference_attention(inputs, rows),
                standard_attention(inputs, rows), judge);
    return result.passed ? "" : result.describe(c.words(), [&](size_t row) { return place_of_row(c.sequences, row); });
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

std::string reached_by_others(const Case& c, int b, std::uint64_t seed) {
    const Sequences& all = c.sequences;
    const Data alone = inputs_of_case(c, Values::normal, seed);
    Data data = alone;
    const Shape& s = c.shape;
    const size_t d = size_t(s.head_dim), d_v = size_t(s.columns_of_V());
    for (const auto& [name, columns, heads, first, behind] :
         {std::tuple("Q", d, s.heads, all.first_q(b), all.first_q(b + 1)),
          {"K", d, s.kv_heads, all.first_k(b), all.first_k(b + 1)},
          {"V", d_v, s.kv_heads, all.first_k(b), all.first_k(b + 1)}}) {
        std::vector<float>& tensor = data.tensors.at(name);
        for (size_t x = 0; x < tensor.size(); ++x) {
            const int row = int(x / columns / size_t(heads));
            if (row < first || row >= behind) tensor[x] = nan;
        }
    }
    Data out{data.problem};
    try {
        out = run(stage_under_test(), data);
    } catch (const CudaError& error) {
        return error.what();
    }
    const auto &O = out.tensors.at("O"), &lse = out.tensors.at("lse");
    for (int head = 0; head < c.shape.heads; ++head)
        for (int i = 0; i < all.n_q(b); ++i) {
            const size_t row = size_t(head) * size_t(c.shape.n_q) + size_t(all.first_q(b) + i);
            const float* first = &O[place_in_O(c.shape, row, 0)];
            const bool is_nan = std::isnan(lse[row]) || std::any_of(first, first + d_v, [](float x) { return x != x; });
            if (is_nan)
                return fmt::format("{} of query {} of sequence {} is NaN, which stands in other sequences alone ({})",
                                   std::isnan(lse[row]) ? "LSE" : "O", i, b, c.words());
        }
    Inputs inputs = inputs_of(alone);
    std::vector<size_t> rows;
    for (const size_t row : rows_to_check(inputs, 1)) {
        const int query = int(row % size_t(c.shape.n_q));
        if (query >= all.first_q(b) && query < all.first_q(b + 1)) rows.push_back(row);
    }
    if (rows.empty()) return "";
    const attention::Comparison result =
        compare({O, lse}, inputs, reference_attention(inputs, rows), standard_attention(inputs, rows));
    return result.passed ? "" : result.describe(c.words(), [&](size_t row) { return place_of_row(c.sequences, row); });
}

std::vector<ExpectedTask> expected_tasks(const Case& c, const Configuration& tiles) {
    std::vector<ExpectedTask> all;
    for (int b = 0; b < c.sequences.count(); ++b) {
        const int N_q = c.sequences.n_q(b), N_k = c.sequences.n_k(b), units = (N_q + unit - 1) / unit;
        const int blocks = (units + tiles.consumers - 1) / tiles.consumers, fewer = blocks * tiles.consumers - units;
        for (int block = 0, i = 0; block < blocks; ++block) {
            const int own = tiles.consumers - (block < fewer), behind = i + own * unit;
            const int seen = c.shape.causal ? std::min(N_k, behind + N_k - N_q) : N_k;
            all.push_back({b, i, own, std::max((seen + tiles.B_c - 1) / tiles.B_c, 1), std::min(behind, N_q) - 1});
            i = behind;
        }
    }
    return all;
}
std::uint64_t loaded_rows(const Case& c, const Configuration& tiles) {
    std::uint64_t sum = 0;
    for (const ExpectedTask& task : expected_tasks(c, tiles))
        sum += std::uint64_t(std::min(task.steps * tiles.B_c, c.sequences.n_k(task.sequence)));
    return sum * std::uint64_t(c.shape.heads);
}
std::uint64_t products(const Case& c, const Configuration& tiles) {
    std::uint64_t blocks = 0;
    for (const ExpectedTask& task : expected_tasks(c, tiles))
        for (int x = 0; x < task.units; ++x) {
            const int diagonal = c.sequences.n_k(task.sequence) - c.sequences.n_q(task.sequence);
            const int last_seen = task.i + x * unit + unit - 1 + diagonal;
            for (int t = 0; t < task.steps; ++t) blocks += t == 0 || !c.shape.causal || t * tiles.B_c <= last_seen;
        }
    return blocks * std::uint64_t(c.shape.heads) * std::uint64_t(tiles.d / 16 + tiles.B_c / 16);
}

namespace {

/// The dtypes and head dimensions, over and over, and sometimes another one for V and O.
Case case_number(std::uint64_t turn, const std::vector<int>& n_q, const std::vector<int>& n_k, bool causal = false,
                 int heads = 1, int kv_heads = 1) {
    const attention::Support& supports = stage_under_test().supports;
    Case c = case_of(n_q, n_k, supports.head_dims[turn % supports.head_dims.size()], causal, heads, kv_heads);
    c.shape.dtype = supports.dtypes[turn / 2 % supports.dtypes.size()];
    if (turn % 3 == 0) c.shape.value_dim = supports.head_dims[turn / 3 % supports.head_dims.size()];
    return c;
}
std::vector<int> drawn_lengths(std::mt19937_64& random, int sequences, int most) {
    std::vector<int> lengths;
    for (int b = 0; b < sequences; ++b) lengths.push_back(int(random() % unsigned(most + 1)));
    return lengths;
}
/// Those at which tiles end, and their neighbours, in any order.
std::vector<int> lengths_about_tiles(std::mt19937_64& random, int head_dim) {
    const Configuration& tiles = tiles_of(head_dim);
    const int B_r = tiles.consumers * unit;
    std::vector<int> all{0,       1,   15,      16,           17, 63, 64, 65, tiles.B_c - 1, tiles.B_c + 1,
                         B_r - 1, B_r, B_r + 1, 2 * tiles.B_c};
    std::ranges::shuffle(all, random);
    return all;
}

TEST_CASE("agrees with the reference: any lengths of queries and of keys") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const bool causal : {false, true})
        for (int times = 0; times < 4; ++times, ++turn) {
            const int sequences = 2 + int(random() % 5);
            const auto n_q = drawn_lengths(random, sequences, 300);
            const auto n_k = times % 2 ? n_q : drawn_lengths(random, sequences, 400);
            if (!check_agrees(case_number(turn, n_q, n_k, causal, 4, 2), Values::normal, random())) return;
        }
}

TEST_CASE("agrees with the reference: lengths at which tiles end, one more and one less") {
    std::mt19937_64 random(test_seed());
    for (const int head_dim : drawn_head_dims(random))
        for (const bool causal : {false, true}) {
            const auto n_q = lengths_about_tiles(random, head_dim);
            const auto n_k = random() % 2 ? n_q : lengths_about_tiles(random, head_dim);
            if (!check_agrees(case_of(n_q, n_k, head_dim, causal), Values::normal, random())) return;
        }
}

TEST_CASE("agrees with the reference: V and O with other columns than Q and K") {
    std::mt19937_64 random(test_seed());
    const std::vector<int>& all = stage_under_test().supports.head_dims;
    const auto drawn = [&] { return all[random() % all.size()]; };
    for (const auto& [head_dim, value_dim] :
         {std::pair(192, 128), {184, 104}, {drawn(), 256}, {drawn(), 8}, {drawn(), drawn()}})
        for (const bool causal : {false, true}) {
            Case c = case_of({1, 130, 0, 70, 300}, {65, 129, 4, 0, 290}, head_dim, causal, 4, 2);
            c.shape.value_dim = value_dim;
            if (!check_agrees(c, Values::normal, random())) return;
        }
}

TEST_CASE("agrees with the reference: one long sequence among many short ones, and hundreds") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const bool causal : {false, true}) {
        auto lengths = drawn_lengths(random, 20, 20);
        lengths[random() % lengths.size()] = 1000 + int(random() % 200);
        if (!check_agrees(case_number(turn++, lengths, lengths, causal, 2), Values::normal, random())) return;
        // More than a block of the planner has threads.
        if (!check_agrees(case_number(turn++, drawn_lengths(random, 700, 3), drawn_lengths(random, 700, 3), causal),
                          Values::normal, random()))
            return;
    }
}

TEST_CASE("agrees with the reference: causal, with more queries than keys and with fewer") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (int times = 0; times < 3; ++times) {
        const int n = drawn_length(64, 2, 300, turn);
        const std::vector<int> n_q{n, n, n, n, 1, 200, 130}, n_k{n - 1, n + 1, n / 2, n + 200, 130, 3, 1};
        if (!check_agrees(case_number(turn++, n_q, n_k, true, 2), Values::normal, random())) return;
    }
}

TEST_CASE(
    "agrees with the reference: sequences without keys give 0 and an LSE of -infinity; those without queries nothing") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    struct Lengths {
        std::vector<int> n_q, n_k;
    };
    for (const auto& [n_q, n_k] : {Lengths{{20, 0, 70, 5, 0}, {0, 40, 0, 90, 0}},
                                   {{100}, {0}},
                                   {{0, 3}, {9, 0}},
                                   {{0, 0, 130}, {0, 7, 0}},
                                   {{0, 0}, {4, 0}},
                                   {{0}, {0}}})
        for (const bool causal : {false, true}) {
            const Case c = case_number(turn++, n_q, n_k, causal, 4, 2);
            if (c.shape.n_q == 0) {  // nothing is to be launched
                const DeviceProblem problem(stage_under_test(), inputs_of_case(c, Values::normal, 1));
                CHECK_NOTHROW(stage_under_test().launch(problem.data()));
                continue;
            }
            const Data out = run(stage_under_test(), inputs_of_case(c, Values::normal, random()));
            const auto &O = out.tensors.at("O"), &lse = out.tensors.at("lse");
            for (size_t r = 0; r < lse.size(); ++r) {
                const int query = int(r % size_t(c.shape.n_q));
                int b = 0;
                while (c.sequences.first_q(b + 1) <= query) ++b;
                if (c.sequences.n_k(b) > 0) continue;
                const float* first = &O[place_in_O(c.shape, r, 0)];
                const bool is_0 = std::all_of(first, first + c.shape.columns_of_V(), [](float x) { return x == 0; });
                CHECK_MESSAGE((is_0 && lse[r] == -infinity),
                              fmt::format("sequence {} has no key, and O of it is {}, LSE {}, expected 0 and -inf ({})",
                                          b, is_0 ? "0" : "not 0", lse[r], c.words()));
                if (!(is_0 && lse[r] == -infinity)) return;
            }
            if (!check_agrees(c, Values::normal, random())) return;
        }
}

TEST_CASE("agrees with the reference: whatever the scale") {
    std::mt19937_64 random(test_seed());
    for (const double scale : {0.5, 0.01}) {
        const Case c = case_number(random(), {150, 0, 77}, {140, 9, 200}, false, 2);
        const std::string wrong = fault(stage_under_test(), c, Values::normal, random(), scale);
        CHECK_MESSAGE(wrong.empty(), fmt::format("args.scale is {}: {}", scale, wrong));
    }
}

TEST_CASE("agrees with the reference: peaky rows, a maximum that grows with j, values that are 0 at first") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const Values values : {Values::peaky, Values::growing_maximum, Values::zero_values_first})
        for (const bool causal : {false, true})
            if (!check_agrees(case_number(turn++, {90, 130, 33}, {500, 130, 280}, causal, 2), values, random())) return;
}

TEST_CASE("agrees with the reference: scores near 200, and near -200") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const bool causal : {false, true})
        if (!check_agrees(case_number(turn++, {300, 40, 200}, {900, 40, 300}, causal, 2), Values::large_offset,
                          random()))
            return;
}

TEST_CASE("agrees with the reference: grouped queries") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const auto& [heads, kv_heads] : {std::pair(6, 2), {5, 5}, {8, 1}})
        if (!check_agrees(case_number(turn++, {70, 12, 33}, {100, 31, 66}, random() % 2, heads, kv_heads),
                          Values::normal, random()))
            return;
}

TEST_CASE("agrees with the reference: few multiprocessors and many, and heads in sections of L2") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const int multiprocessors : {1, 3, 40})
        for (const size_t l2_bytes : {size_t(50) << 20, size_t(300) << 10}) {
            const VirtualGpu gpu(multiprocessors, l2_bytes);
            if (!check_agrees(case_number(turn++, {300, 3, 500, 130}, {300, 70, 500, 10}, random() % 2, 5, 5),
                              Values::normal, random()))
                return;
        }
}

TEST_CASE("agrees with the reference: each variant") {
    std::mt19937_64 random(test_seed());
    for (const flashladder::Stage& form : variants()) {
        const Stage& stage = find_stage(form.name());
        for (const bool causal : {false, true}) {
            const int head_dim = stage.supports.head_dims.front();
            Case c = case_of({200, 0, 65, 330}, {190, 5, 65, 128}, head_dim, causal, 2);
            c.shape.dtype = stage.dtypes().front();
            const std::string wrong = fault(stage, c, Values::normal, random());
            CHECK_MESSAGE(wrong.empty(), stage.name(), ": ", wrong);
        }
    }
}

TEST_CASE("what is in other sequences reaches nobody, NaN neither") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const bool causal : {false, true})
        for (int times = 0; times < 3; ++times, ++turn) {
            const int n = drawn_length(64, 1, 200, turn);
            const Case c = case_number(turn, {70, n, 1, 100}, {times == 0 ? 70 : n + 30, n, 5, 100}, causal, 2);
            for (int b = 0; b < c.sequences.count(); ++b) {
                const std::string wrong = reached_by_others(c, b, random());
                CHECK_MESSAGE(wrong.empty(), wrong);
                if (!wrong.empty()) return;
            }
        }
}

TEST_CASE("tensors of any strides, with NaN around them, and nothing is written around O") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (int times = 0; times < 4; ++times) {
        const Case c = case_number(turn++, {33, 0, 100, 7}, {40, 11, 0, 90}, times % 2, 4, 2);
        const Shape& s = c.shape;
        const Data data = inputs_of_case(c, Values::normal, random());
        const DeviceProblem problem(stage_under_test(), data);
        const auto at = [&](const char* name) { return problem.data().tensors.at(name); };
        const size_t d_v = size_t(s.columns_of_V());
        constexpr size_t around = 3;  // rows before and behind
        const bool heads_first = times / 2 % 2;
        struct Wide {
            std::vector<float> values;
            Strides strides;
            size_t begin;
            size_t place(size_t row, size_t head) const {
                return begin + row * size_t(strides.row) + head * size_t(strides.head);
            }
        };
        /// Rows have 16 elements more, or heads come first.
        const auto widen = [&](const char* name, size_t d, int heads, int rows, bool is_output) {
            Wide wide{{}, {}, 0};
            const std::int64_t row = heads_first ? std::int64_t(d) + 8 : std::int64_t(d) * heads + 16;
            const std::int64_t head = heads_first ? row * (rows + std::int64_t(around)) : std::int64_t(d);
            wide.strides = {0, head, row};
            wide.begin = around * size_t(row);
            wide.values.assign(wide.begin + size_t(head) * size_t(heads) + size_t(row) * (size_t(rows) + around), nan);
            const std::vector<float> none, &from = is_output ? none : data.tensors.at(name);
            for (size_t i = 0; !is_output && i < size_t(rows); ++i)
                for (size_t h = 0; h < size_t(heads); ++h)
                    std::copy_n(&from[(i * size_t(heads) + h) * d], d, &wide.values[wide.place(i, h)]);
            if (is_output) std::ranges::fill(wide.values, 1234.0f);
            return wide;
        };
        const size_t d = size_t(s.head_dim);
        const Wide Q = widen("Q", d, s.heads, s.n_q, false), K = widen("K", d, s.kv_heads, s.n_k, false),
                   V = widen("V", d_v, s.kv_heads, s.n_k, false), O = widen("O", d_v, s.heads, s.n_q, true);
        std::vector<DeviceBuffer> buffers;
        for (const Wide* wide : {&Q, &K, &V, &O}) {
            buffers.emplace_back(wide->values.size() * 2, "wide tensor");
            buffers.back().upload(wide->values, s.dtype);
        }
        constexpr size_t lse_around = 8;
        const size_t rows_of_lse = s.lse_elements();
        DeviceBuffer lse((rows_of_lse + 2 * lse_around) * 4, "wide LSE");
        lse.upload(std::vector<float>(rows_of_lse + 2 * lse_around, 1234.0f), DType::f32);
        const auto start = [&](size_t i, const Wide& wide) {
            return static_cast<void*>(static_cast<char*>(buffers[i].data()) + wide.begin * 2);
        };
        stage_under_test().launch(Args{{.shape = s,
                                        .Q = start(0, Q),
                                        .K = start(1, K),
                                        .V = start(2, V),
                                        .O = start(3, O),
                                        .lse = static_cast<float*>(lse.data()) + lse_around,
                                        .scale = float(data.arguments.at("scale")),
                                        .scratch = problem.data().scratch,
                                        .Q_strides = Q.strides,
                                        .K_strides = K.strides,
                                        .V_strides = V.strides,
                                        .O_strides = O.strides},
                                       c.sequences.count(),
                                       static_cast<const int*>(at("cu_seqlens_q")),
                                       static_cast<const int*>(at("cu_seqlens_k")),
                                       s.value_dim});
        check_cuda(cudaDeviceSynchronize(), "launch");
        Data outputs{data.problem};
        std::vector<float> all = buffers[3].download(O.values.size(), s.dtype), &packed = outputs.tensors["O"];
        const float untouched = round_to(s.dtype, 1234.0f);
        for (size_t i = 0; i < size_t(s.n_q); ++i)
            for (size_t h = 0; h < size_t(s.heads); ++h) {
                const auto first = all.begin() + std::ptrdiff_t(O.place(i, h));
                packed.insert(packed.end(), first, first + std::ptrdiff_t(d_v));
                std::fill_n(first, d_v, untouched);
            }
        const std::string where =
            fmt::format("rows are {} elements apart, heads {} ({})", O.strides.row, O.strides.head, c.words());
        const auto written = std::ranges::find_if(all, [&](float x) { return x != untouched; });
        CHECK_MESSAGE((written == all.end()),
                      fmt::format("something is written around O, {} elements from its start: {}",
                                  written - all.begin() - std::ptrdiff_t(O.begin), where));
        if (written != all.end()) return;
        std::vector<float> all_lse = lse.download(rows_of_lse + 2 * lse_around, DType::f32);
        for (size_t x = 0; x < lse_around; ++x) {
            const bool good = all_lse[x] == 1234.0f && all_lse[rows_of_lse + lse_around + x] == 1234.0f;
            CHECK_MESSAGE(good, "something is written around LSE: ", where);
            if (!good) return;
        }
        const auto first = all_lse.begin() + std::ptrdiff_t(lse_around);
        outputs.tensors["lse"].assign(first, first + std::ptrdiff_t(rows_of_lse));
        const std::string wrong = difference(c, data, outputs);
        CHECK_MESSAGE(wrong.empty(), where, ": ", wrong);
        if (!wrong.empty()) return;
    }
}

TEST_CASE("NaN in a query is NaN in its rows of O and LSE, and in no other") {
    std::mt19937_64 random(test_seed());
    for (const int head_dim : drawn_head_dims(random)) {
        const Case c = case_of({5, 20, 3}, {140, 60, 9}, head_dim, false, 2, 1);
        Data data = inputs_of_case(c, Values::normal, random());
        const size_t ill = 28 + 7;  // query 2 of sequence 1, in head 1
        data.tensors.at("Q").at(place_in_O(c.shape, ill, 5)) = nan;
        const Data out = run(stage_under_test(), data);
        for (size_t r = 0; r < c.shape.lse_elements(); ++r) {
            const float *O = &out.tensors.at("O")[place_in_O(c.shape, r, 0)], lse = out.tensors.at("lse")[r];
            const bool O_is_nan = std::any_of(O, O + head_dim, [](float x) { return std::isnan(x); });
            CHECK_MESSAGE((O_is_nan == (r == ill) && std::isnan(lse) == (r == ill)),
                          fmt::format("{} of Q alone has a NaN, but O of {} has {}, and LSE is {} ({})",
                                      place_of_row(c.sequences, ill), place_of_row(c.sequences, r),
                                      O_is_nan ? "one" : "none", lse, c.words()));
        }
    }
}

TEST_CASE("gives the same bits again, whatever its scratch holds") {
    std::mt19937_64 random(test_seed());
    const Case c = case_number(test_seed(), {200, 0, 70}, {210, 4, 170}, test_seed() % 2, 4, 2);
    check_same_bits(stage_under_test(), inputs_of_case(c, Values::normal, random()));
}

TEST_CASE("refuses what it does not support, naming stage, limit and value") {
    const Stage& stage = stage_under_test();
    const Case c = case_of({40, 20}, {30, 10}, 64, false, 2, 2);
    const DeviceProblem problem(stage, inputs_of_case(c, Values::normal, 1));
    const DeviceData device = problem.data();
    const auto at = [&](const char* name) { return device.tensors.at(name); };
    const Args good{{.shape = c.shape, .Q = at("Q"), .K = at("K"), .V = at("V"), .O = at("O"), .scratch = device.scratch},
                    c.sequences.count(),
                    static_cast<const int*>(at("cu_seqlens_q")),
                    static_cast<const int*>(at("cu_seqlens_k"))};
    CHECK(refusal(stage, good) == "(no refusal)");
    const auto check_refusal = check_refusal_of(stage, good);
    check_refusal([](Args& a) { a.shape.head_dim = 84; },
                  "head_dim 84 is not supported (only multiples of 8 up to 256)");
    check_refusal([](Args& a) { a.shape.head_dim = 264; }, "head_dim 264");
    check_refusal([](Args& a) { a.value_dim = 20; }, "value_dim 20 is not supported");
    check_refusal([](Args& a) { a.shape.n_q = -1; }, "total_q is -1");
    check_refusal([](Args& a) { a.shape.n_k = -3; }, "total_k is -3");
    check_refusal([](Args& a) { a.sequences = 0; }, "sequences is 0");
    check_refusal([](Args& a) { a.shape.batch = 2; }, "batch is 2");
    check_refusal([](Args& a) { a.shape.kv_heads = 3; }, "kv_heads 3");
    check_refusal([](Args& a) { a.shape.dtype = DType::f32; }, "dtype f32");
    check_refusal([](Args& a) { a.shape.heads = a.shape.kv_heads = 60000, a.shape.n_q = 60000; }, "heads * total_q is");
    check_refusal([](Args& a) { a.V = nullptr; }, "V is a null pointer");
    check_refusal([](Args& a) { a.K = static_cast<const char*>(a.K) + 4; }, "not aligned to 16 bytes");
    check_refusal([](Args& a) { a.Q_strides = {0, 64, 100}; }, "Q has a row stride of 100");
    check_refusal([](Args& a) { a.O_strides = {0, 64, 64}; }, "O overlaps itself");
    check_refusal([](Args& a) { a.scale = nan; }, "scale is nan");
    check_refusal([](Args& a) { a.cu_seqlens_q = nullptr; }, "cu_seqlens_q is a null pointer");
    check_refusal([](Args& a) { a.cu_seqlens_k = nullptr; }, "cu_seqlens_k is a null pointer");
    if (stage.supports.positive_scale) check_refusal([](Args& a) { a.scale = -1; }, "scale is -1");
    if (stage.scratch_bytes(c.shape, c.sequences.count()) > 0)
        check_refusal([](Args& a) { a.scratch = nullptr; }, "scratch is a null pointer");
    CHECK(stage.why_unsupported(problem_of(c.shape, c.sequences)) == "");
    CHECK_THROWS_WITH_AS(find_stage("99"), "99 is not in this program", std::invalid_argument);
}

#ifndef FLASHLADDER_GPU
TEST_CASE("has no races") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const bool causal : {false, true})
        for (int times = 0; times < 2; ++times) {
            const int n = int(random() % 300);
            const Case c = case_number(turn++, {250, n, 9}, {250, 100, n}, causal, 2);
            const VirtualGpu gpu(1 + int(random() % 3));
            const Data data = inputs_of_case(c, Values::normal, random());
            const std::string report = emulator::find_race([&] { run(stage_under_test(), data); });
            CHECK_MESSAGE(report.empty(), report);
        }
}
#endif

}  // namespace
}  // namespace flashladder::varlen_attention
