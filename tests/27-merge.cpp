// Rung 27. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "attention_suite.h"
#include "harness/asked.h"
#include "launch.h"
#include "operations/attention/parts.h"

#ifndef FLASHLADDER_GPU
#include "operations/attention/counts.h"
#endif

namespace flashladder::attention {
namespace {

using std::size_t;

/// What the parts of a problem have left behind, and what came of their merge: NaN where nobody has written.
struct Parts {
    std::vector<float> O, LSE;  // (rows, parts, d), (rows, parts)
    Outputs merged;
    size_t parts = 0, rows = 0, d = 0;
    std::string error;  // where the kernel stops

    float lse(size_t part, size_t row) const { return LSE[row * parts + part]; }
    const float* row_of_O(size_t part, size_t row) const { return &O[(row * parts + part) * d]; }
};
Parts parts_of(const Stage& stage, const Inputs& in) {
    const AttentionShape& s = in.shape;
    Parts all;
    all.rows = s.lse_elements(), all.d = size_t(s.head_dim);
    all.parts = stage.scratch_bytes(s) / bytes_of_partial_results(s, 1);
    try {
        DeviceProblem problem(stage, in, true);
        problem.scratch.fill(0xFF), problem.O.fill(0xFF), problem.lse.fill(0xFF);
        stage.launch(problem.args());
        check_cuda(cudaDeviceSynchronize(), "launch");
        const std::vector<float> scratch =
            problem.scratch.download(problem.scratch.bytes() / sizeof(float), DType::f32);
        const auto behind_O = scratch.begin() + std::ptrdiff_t(all.parts * all.rows * all.d);
        all.O.assign(scratch.begin(), behind_O);
        all.LSE.assign(behind_O, scratch.end());
        all.merged = problem.outputs();
    } catch (const CudaError& error) {
        all.error = error.what();
    }
    return all;
}

AttentionShape shape_with(int kv_heads, int group, int n_q, int n_k, int d, bool causal = false) {
    AttentionShape s = shape_of(kv_heads * group, n_q, n_k, d);
    s.kv_heads = kv_heads, s.causal = causal;
    return s;
}
std::string row_in_words(const AttentionShape& s, size_t row) {
    const size_t n_q = size_t(s.n_q), heads = size_t(s.heads);
    return fmt::format("{}head {} query {}", s.batch > 1 ? fmt::format("batch {} ", row / n_q / heads) : "",
                       row / n_q % heads, row % n_q);
}

/// The column in which a row of O is furthest off: the first NaN, if there is one.
size_t furthest_column(const float* O, const double* expected, size_t d) {
    size_t furthest = 0;
    for (size_t x = 0; x < d; ++x) {
        if (std::isnan(O[x])) return x;
        if (std::abs(O[x] - expected[x]) > std::abs(O[furthest] - expected[furthest])) furthest = x;
    }
    return furthest;
}

/// With one part, which needs no merge: what is wrong with the first row that is not what it should be, and whose result
/// it is; "" if nothing is.
std::string wrong_row(const Inputs& in) {
    const AttentionShape& s = in.shape;
    const Parts found = parts_of(variant("1 part"), in);
    if (!found.error.empty()) return found.error;
    const AttentionRows expected = reference_attention(in, rows_to_check(s, 1));
    const auto agrees = [&](size_t row, size_t with) {
        const double lse = expected.lse[with];
        double error = 0, size = 0;
        for (size_t x = 0; x < found.d; ++x) {
            const double e = expected.O[with * found.d + x];
            error += std::pow(double(found.merged.O[row * found.d + x]) - e, 2), size += e * e;
        }
        const bool same_lse = lse == -std::numeric_limits<double>::infinity()
                                  ? double(found.merged.lse[row]) == lse
                                  : std::abs(double(found.merged.lse[row]) - lse) < 0.01;
        return same_lse && error <= 0.02 * 0.02 * size;  // NaN does not agree
    };
    for (size_t row = 0; row < found.rows; ++row) {
        if (!std::isnan(found.merged.lse[row])) continue;
        forget_asked();  // rows that have the same place race as well, and whose place stays empty says more
        return fmt::format("no row of a tile is {}: nobody has written its O and LSE ({})", row_in_words(s, row),
                           to_string(s));
    }
    for (size_t row = 0; row < found.rows; ++row) {
        if (agrees(row, row)) continue;
        for (size_t other = 0; other < found.rows; ++other)
            if (agrees(row, other))
                return fmt::format("{} has what belongs to {} ({})", row_in_words(s, row), row_in_words(s, other),
                                   to_string(s));
        const float* O = &found.merged.O[row * found.d];
        const double* expected_O = &expected.O[row * found.d];
        const size_t furthest = furthest_column(O, expected_O, found.d);
        return fmt::format("{}: LSE is {:.6g}, expected {:.6g}; O[{}] is {:.4g}, expected {:.4g} ({})",
                           row_in_words(s, row), found.merged.lse[row], expected.lse[row], furthest, O[furthest],
                           expected_O[furthest], to_string(s));
    }
    return "";
}

TEST_CASE("EXERCISE 27.1: which head and which query a row of a tile is") {
    const auto check_rows = [](const AttentionShape& s) {
        const std::string wrong = wrong_row(make_inputs(s, Values::normal, test_seed()));
        CHECK_MESSAGE(wrong.empty(), wrong);
        return wrong.empty();
    };
    // Groups that are powers of two, and others, whose tile has heads of the next group too; larger than a tile.
    for (const int group : {1, 2, 3, 8, 12, 64, 70}) {
        const int some = drawn_length(64 / std::min(group, 64), 1, group > 8 ? 4 : 40, test_seed() + unsigned(group));
        for (const int n_q : {1, some})
            if (!check_rows(shape_with(2, group, n_q, drawn_length(128, 1, 300, test_seed()), 64))) return;
    }
    for (const int d : {64, 128, 256})
        for (const int group : {1, 4, 5}) {
            const int n_q = drawn_length(16, 1, 40, test_seed() + 2), more = drawn_length(16, 0, 90, test_seed() + 3);
            if (!check_rows(shape_with(2, group, n_q, n_q + more, d, true))) return;
            if (!check_rows(shape_with(1, group, n_q + 3, n_q, d, true))) return;  // rows that see nothing
        }
}

/// With scores that are all 0, LSE says how many keys a part has, and with values that are 1 at the number of their
/// block, O says which.
std::string wrong_split(const Stage& stage, const AttentionShape& s) {
    Inputs in = make_inputs(s, Values::normal, test_seed());
    const size_t d = size_t(s.head_dim), B_c = size_t(block_of_keys), N_k = size_t(s.n_k);
    std::ranges::fill(in.K, 0.0f);
    for (size_t x = 0; x < in.V.size(); ++x) in.V[x] = x % d == x / d % N_k / B_c;
    const Parts found = parts_of(stage, in);
    if (!found.error.empty()) return found.error;
    for (size_t row = 0; row < found.rows; ++row) {
        const long long query = (long long)(row % size_t(s.n_q));
        const size_t seen = size_t(std::clamp<long long>(visible_keys(s)(query), 0, s.n_k));
        // A tile, 64 queries as there is one head, has the blocks that the last of these sees. Those are shared evenly.
        std::vector<std::vector<size_t>> blocks(found.parts);
        std::vector<double> keys_of_block(d);
        for (size_t part = 0; part < found.parts; ++part) {
            const double keys = std::exp(double(found.lse(part, row)));
            for (size_t b = 0; b < d; ++b) {
                const double of_block = keys * found.row_of_O(part, row)[b];
                if (keys > 0 && std::abs(of_block) > 0.01) blocks[part].push_back(b), keys_of_block[b] += of_block;
            }
        }
        const auto where = [&] {
            return fmt::format("{}, whose {} keys are {} block{}, in {} parts; {}", row_in_words(s, row), seen,
                               (seen + B_c - 1) / B_c, seen <= B_c ? "" : "s", found.parts, to_string(s));
        };
        for (size_t b = 0; b * B_c < seen; ++b) {
            const double expected = double(std::min(B_c, seen - b * B_c));
            std::vector<size_t> who;
            for (size_t part = 0; part < found.parts; ++part)
                if (std::ranges::count(blocks[part], b)) who.push_back(part);
            if (who.empty()) return fmt::format("no part has block {} ({})", b, where());
            if (who.size() > 1)
                return fmt::format("parts {} have block {}, expected one ({})", fmt::join(who, " and "), b, where());
            if (!(std::abs(keys_of_block[b] - expected) < 0.02 * expected))
                return fmt::format("part {} has {:.0f} keys of block {}, expected {} ({})", who.front(),
                                   keys_of_block[b], b, expected, where());
        }
        if ((query + 1) % 64 != 0 && query + 1 != s.n_q) continue;
        const auto [least, most] = std::ranges::minmax_element(blocks, {}, [](const auto& b) { return b.size(); });
        if (most->size() > least->size() + 1)
            return fmt::format("part {} has {} blocks of keys and part {} has {}, expected at most one more ({})",
                               most - blocks.begin(), most->size(), least - blocks.begin(), least->size(), where());
    }
    return "";
}

TEST_CASE("EXERCISE 27.2: which blocks of keys a part has") {
    for (const int d : {64, 128}) {
        const auto check_split = [&](const char* name, const AttentionShape& s) {
            const std::string wrong = wrong_split(variant(name), s);
            CHECK_MESSAGE(wrong.empty(), wrong);
            return wrong.empty();
        };
        // Blocks that parts share evenly, or not; fewer than parts; one.
        for (const int blocks : {1, 2, 3, 4, 7, 8, 9, 13, 16, 23})
            for (const char* name : {"3 parts", "8 parts"}) {
                const int n_k = blocks * block_of_keys -
                                (blocks + int(test_seed())) % 2 * drawn_length(32, 1, block_of_keys - 1, test_seed());
                if (!check_split(name, shape_with(1, 1, 1, n_k, d))) return;
            }
        // Causal, tiles see different numbers of blocks, and shares of those of all keys would be uneven; some see
        // none.
        const int n = drawn_length(64, 520, 760, test_seed());
        if (!check_split("3 parts", shape_with(1, 1, n, n, d, true))) return;
        const int n_q = drawn_length(64, 65, 200, test_seed());
        if (!check_split("3 parts", shape_with(2, 1, n_q, n_q + 600, d, true))) return;
        if (!check_split("3 parts", shape_with(1, 1, 200, 100, d, true))) return;
    }
}

/// What is wrong with the first row of O and LSE that is not what its parts come to, whatever these are; "" if nothing
/// is.
std::string wrong_merge(const Stage& stage, const Inputs& in) {
    const AttentionShape& s = in.shape;
    const Parts found = parts_of(stage, in);
    if (!found.error.empty()) return found.error;
    for (size_t row = 0; row < found.rows; ++row) {
        const double infinity = std::numeric_limits<double>::infinity();
        std::vector<double> lse, O(found.d);
        for (size_t part = 0; part < found.parts; ++part) lse.push_back(found.lse(part, row));
        const double largest = std::ranges::max(lse);
        double sum = 0;
        for (size_t part = 0; part < found.parts && largest > -infinity; ++part) sum += std::exp(lse[part] - largest);
        for (size_t part = 0; part < found.parts && sum > 0; ++part)
            for (size_t x = 0; x < found.d; ++x)
                O[x] += std::exp(lse[part] - largest) / sum * found.row_of_O(part, row)[x];
        const double expected_lse = sum > 0 ? largest + std::log(sum) : -infinity, found_lse = found.merged.lse[row];
        const bool same_lse = found_lse == expected_lse || std::abs(found_lse - expected_lse) < 1e-3;

        const float* merged = &found.merged.O[row * found.d];
        const size_t furthest = furthest_column(merged, O.data(), found.d);
        double size = 0;
        for (const double o : O) size = std::max(size, std::abs(o));
        const bool same_O = std::abs(merged[furthest] - O[furthest]) <= 0.01 * size;  // NaN is not the same
        if (same_O && same_lse) continue;

        std::string theirs;
        for (size_t part = 0; part < found.parts && part < 4; ++part)
            theirs += fmt::format("{}{:.4g} with LSE {:.4g}", part > 0 ? ", " : "", found.row_of_O(part, row)[furthest],
                                  lse[part]);
        return fmt::format(
            "{} of {} is {}, expected {:.4g}; {} (O[{}] of its {} parts: {}{}; {})",
            same_O ? "LSE" : fmt::format("O[{}]", furthest), row_in_words(s, row),
            same_O ? found_text(found_lse) : found_text(merged[furthest]), same_O ? expected_lse : O[furthest],
            same_O     ? "O is right"
            : same_lse ? "LSE is right"
                       : fmt::format("LSE is {}, expected {:.4g}", found_text(found_lse), expected_lse),
            furthest, found.parts, theirs, found.parts > 4 ? ", ..." : "", to_string(s));
    }
    return "";
}

#ifndef FLASHLADDER_GPU
/// Of the threads, which in this rung do the merge alone.
emulator::GlobalWork read_by_threads(const Stage& stage, const Inputs& in) {
    return count_stage(stage, in, true).work.total().global_of(emulator::Access::read);
}
#endif

TEST_CASE("EXERCISE 27.3: the merge of the parts") {
    std::uint64_t turn = test_seed();
    const auto check_inputs = [](const char* name, const Inputs& in) {
#ifndef FLASHLADDER_GPU
        std::string wrong = race(variant(name), in);
        if (wrong.empty()) wrong = wrong_merge(variant(name), in);
#else
        const std::string wrong = wrong_merge(variant(name), in);
#endif
        CHECK_MESSAGE(wrong.empty(), wrong);
        return wrong.empty();
    };
    const auto check_merge = [&](const char* name, const AttentionShape& s, Values values) {
        return check_inputs(name, make_inputs(s, values, test_seed()));
    };
    const AttentionShape small = shape_with(2, 1, 2, 500, 64);
    if (!check_merge("3 parts", small, Values::normal)) return;
    try {
        for (const char* name : {"1 part", "3 parts"})
            run(variant(name), make_inputs(small, Values::normal, test_seed()), false);
    } catch (const CudaError& error) {
        FAIL_CHECK(fmt::format("where LSE is not wanted: {}", error.what()));
        return;
    }
    // Rows that no part sees a key of; more parts than a block has threads; those behind the first with an LSE larger by
    // more than exp() can do.
    if (!check_merge("3 parts", shape_with(1, 1, 100, 70, 64, true), Values::normal)) return;
    if (!check_merge("200 parts", shape_with(1, 1, 3, drawn_length(64, 1000, 2000, turn), 64), Values::normal)) return;
    const auto growing = [](int key) { return key * 0.05; };
    if (!check_inputs("200 parts", inputs_with_scores(shape_with(1, 1, 2, 200 * block_of_keys + 1, 64), growing, test_seed())))
        return;
    // LSE of the parts far apart, or large in all of them.
    for (const Values values : {Values::large_offset, Values::growing_maximum, Values::peaky})
        if (!check_merge("8 parts", shape_with(3, 1, 2, 1100, 64), values)) return;
    for (const int d : {64, 128, 256})
        for (const char* name : {"3 parts", "8 parts"}) {
            const Values values = all_values[turn++ % std::size(all_values)];
            const int n_k = drawn_length(64, 100, 1000, turn);
            if (!check_merge(name, shape_with(2, 1, 1 + int(turn % 5), n_k, d), values)) return;
        }
    // O in rows of other strides; NaN of one part is NaN of all, in that row alone; the same bits again.
    AttentionShape several = shape_with(2, 2, 3, 700, 64);
    several.batch = 2;
    for (const Layout layout : {Layout::sequence_first, Layout::padded}) {
        const std::string wrong = fault(variant("3 parts"), make_inputs(several, Values::normal, test_seed()), layout);
        CHECK_MESSAGE(wrong.empty(), "rows of O lie ", layout == Layout::padded ? "with gaps between them" : "as (N_q, heads, d)",
                      ": ", wrong);
        if (!wrong.empty()) return;
    }
    Inputs with_nan = make_inputs(several, Values::normal, test_seed());
    const size_t row_of_nan = test_seed() % several.lse_elements(), d = size_t(several.head_dim);
    with_nan.Q.at(row_of_nan * d + 7) = std::numeric_limits<float>::quiet_NaN();
    const Outputs merged = run(variant("8 parts"), with_nan, true);
    for (size_t row = 0; row < several.lse_elements(); ++row) {
        const bool is_nan = std::isnan(merged.lse[row]) && std::isnan(merged.O[row * d]);
        const bool is_number = !std::isnan(merged.lse[row]) && !std::isnan(merged.O[row * d]);
        const std::string wrong = (row == row_of_nan ? is_nan : is_number) ? "" : fmt::format(
            "{}: {} alone has a NaN in its query, in all its 8 parts; of {} LSE is {}, O[0] is {}", to_string(several),
            row_in_words(several, row_of_nan), row_in_words(several, row), merged.lse[row], merged.O[row * d]);
        CHECK_MESSAGE(wrong.empty(), wrong);
        if (!wrong.empty()) return;
    }
    const Inputs numbers = make_inputs(several, Values::normal, test_seed());
    const Outputs before = run(variant("8 parts"), numbers, true);
    check_same_bits(run(variant("8 parts"), numbers, true), before, "in the run before", to_string(several));
#ifndef FLASHLADDER_GPU
    // A thread may read two columns one by one, which asks for their sectors twice, and all warps LSE, time and again:
    // of 256 columns that is little. Not all warps all of O.
    const AttentionShape s = shape_with(2, 1, 4, 1024, 256);
    const emulator::GlobalWork work = read_by_threads(variant("8 parts"), make_inputs(s, Values::normal, test_seed()));
    const std::uint64_t of_O = s.q_elements() * 8 * sizeof(float);
    check_count(
        fmt::format("bytes of the sectors that the merge reads, of O of all parts, which is {}, and of LSE ({})", of_O,
                    to_string(s)),
        work.sectors * 32, of_O, of_O * 5 / 2);
#endif
}

#ifndef FLASHLADDER_GPU
/// Steps that the launch takes at least, if each task takes two steps more than it has: tasks are dealt out in turn.
int time_of(int tiles, int blocks, int parts, int multiprocessors) {
    return (tiles * parts + multiprocessors - 1) / multiprocessors * ((blocks + parts - 1) / parts + 2);
}
#endif

TEST_CASE("EXERCISE 27.4: into how many parts the keys are split") {
#ifndef FLASHLADDER_GPU
    std::mt19937_64 random(test_seed());
    for (const int multiprocessors : {4, 78, 132})
        for (const auto& [batch, kv_heads, group, n_q, n_k, d] :
             {std::tuple(1, 1, 1, 1, 100, 64),
              {2, 4, 1, 1, 600, 64},
              {1, 1, 1, 1, 100000, 128},
              {1, 8, 4, 1, 8192, 128},
              {16, 8, 8, 1, 8192, 64},
              {1, 2, 16, 8, 1000000, 128},
              {4, 32, 1, 1, 2048, 128},
              {15, 6, 4, 1, 100000, 128},
              {3, 5, 6, 2, 40000, 256},
              {1 + int(random() % 20), 1 + int(random() % 10), 1 + int(random() % 10), 1 + int(random() % 4),
               1 + int(random() % 100000), 128}}) {
            const VirtualGpu gpu(multiprocessors);
            AttentionShape s = shape_with(kv_heads, group, n_q, n_k, d);
            s.batch = batch;
            const int tiles = tiles_of(s), blocks = blocks_of_keys(s);
            const int parts = int(stage_under_test().scratch_bytes(s) / bytes_of_partial_results(s, 1));
            int least = time_of(tiles, blocks, 1, multiprocessors);
            for (int other = 2; other <= std::min(blocks / 4, multiprocessors); ++other)
                least = std::min(least, time_of(tiles, blocks, other, multiprocessors));
            const std::string where =
                fmt::format("{} parts of {} tiles with {} blocks of keys on {} multiprocessors; {}", parts, tiles,
                            blocks, multiprocessors, to_string(s));
            check_count("parts: " + where, std::uint64_t(std::max(parts, 0)), 1, std::uint64_t(blocks));
            if (parts < 1) return;
            const int time = time_of(tiles, blocks, parts, multiprocessors);
            check_count("steps of the busiest multiprocessor, and two for each of its tasks: " + where,
                        std::uint64_t(time), 0, std::uint64_t(least) * 5 / 4);
            if (time > least * 5 / 4) return;
        }
#endif
}

TEST_CASE("agrees with the reference: few queries, many keys") {
    std::uint64_t turn = test_seed();
    const VirtualGpu gpu(7);
    for (const int d : {64, 128, 256}) {
        const int group = 1 + int(turn++ % 9), n_q = drawn_length(4, 1, 9, turn),
                  n_k = drawn_length(128, 1500, 2600, turn);
        for (const bool causal : {false, true}) {
            AttentionShape s = shape_with(2, group, n_q, n_k, d, causal);
            s.dtype = turn++ % 2 ? DType::f16 : DType::bf16;
            const Inputs in = make_inputs(with_enough_rows(s), all_values[turn % std::size(all_values)], test_seed());
            for (const Layout layout : {Layout::heads_first, Layout::sequence_first, Layout::padded}) {
                const std::string wrong = fault(stage_under_test(), in, layout);
                CHECK_MESSAGE(wrong.empty(), wrong);
                if (!wrong.empty()) return;
            }
        }
    }
}

// ---- the variant whose parts are merged by the last block to arrive

/// A chapter has it not.
bool has_last_block() {
    return std::ranges::any_of(variants(),
                               [](const flashladder::Stage& form) { return form.variant() == "last_block"; });
}

TEST_CASE("last block: O and LSE are what the parts come to") {
    if (!has_last_block()) return;
    std::uint64_t turn = test_seed();
    const auto check_merge = [](const char* name, const Inputs& in) {
        const std::string wrong = wrong_merge(variant(name), in);
        CHECK_MESSAGE(wrong.empty(), wrong);
        return wrong.empty();
    };
    // Rows that no part sees a key of, and parts that are empty; many parts; several heads and queries of a tile, not all of
    // the group; LSE of the parts far apart, or large in all of them.
    for (const AttentionShape& s : {shape_with(1, 1, 100, 70, 64, true), shape_with(2, 3, 5, 40, 64),
                                    shape_with(1, 1, 65 + int(turn % 60), 300, 128, true)})
        if (!check_merge("last_block, 3 parts", make_inputs(s, Values::normal, test_seed()))) return;
    const int n_k = drawn_length(64, 1000, 2000, turn);
    if (!check_merge("last_block, 200 parts", make_inputs(shape_with(1, 2, 2, n_k, 64), Values::normal, test_seed()))) return;
    for (const Values values : {Values::large_offset, Values::growing_maximum, Values::peaky})
        for (const int d : {64, 128, 256}) {
            ++turn;
            const AttentionShape s = shape_with(2, 1 + int(turn % 5), 1 + int(turn % 3), drawn_length(64, 300, 900, turn), d);
            if (!check_merge("last_block, 8 parts", make_inputs(s, values, test_seed()))) return;
        }
    try {
        run(variant("last_block, 3 parts"), make_inputs(shape_with(2, 1, 2, 500, 64), Values::normal, test_seed()), false);
    } catch (const CudaError& error) {
        FAIL_CHECK(fmt::format("where LSE is not wanted: {}", error.what()));
    }
}

TEST_CASE("last block: agrees with the reference, whatever is left over") {
    if (!has_last_block()) return;
    const int groups[] = {1, 2, 3, 5, 8, 11, 64, 70};
    for (int left_over = 0; left_over < block_of_keys; ++left_over) {  // of keys, behind whole blocks
        const int turn = left_over + int(test_seed() % 97), d = turn % 7 == 0 ? 256 : turn % 7 < 4 ? 64 : 128;
        AttentionShape s = shape_with(1 + turn % 2, groups[turn % 8], 1 + turn % 23, (1 + turn % 4) * block_of_keys + left_over,
                                      d, turn % 3 == 0);
        if (s.heads > 20) s.n_q = 1 + turn % 3;
        s.batch = s.heads == 1 ? 2 : 1, s.dtype = turn / 2 % 2 ? DType::f16 : DType::bf16;
        const Layout layouts[] = {Layout::heads_first, Layout::sequence_first, Layout::padded};
        const std::string wrong = fault(variant(turn % 5 ? "last_block, 3 parts" : "last_block, 8 parts"),
                                        make_inputs(with_enough_rows(s), all_values[std::size_t(turn) % std::size(all_values)],
                                                    test_seed()),
                                        layouts[turn / 3 % 3]);
        CHECK_MESSAGE(wrong.empty(), wrong);
        if (!wrong.empty()) return;
    }
    // As many parts as the rung has; also one, which nobody merges.
    for (const int multiprocessors : {1, 7})
        for (const int d : {64, 128, 256}) {
            const VirtualGpu gpu(multiprocessors);
            const AttentionShape s = shape_with(2, 5, 3, 1100 + int(test_seed() % 400), d, multiprocessors == 7 && d == 64);
            const std::string wrong = fault(variant("last_block"), make_inputs(with_enough_rows(s), Values::normal, test_seed()));
            CHECK_MESSAGE(wrong.empty(), wrong);
            if (!wrong.empty()) return;
        }
}

/// Problems for few multiprocessors: blocks have several parts of a tile, and of several.
std::vector<AttentionShape> shapes_of_several_tiles(std::uint64_t turn) {
    AttentionShape several = shape_with(2, 2, 3, 200 + int(turn % 300), turn % 2 ? 64 : 128);
    several.batch = 2;
    return {several, shape_with(1, 1, 130, 130 + int(turn % 64), turn % 2 ? 128 : 64, true)};
}

#ifndef FLASHLADDER_GPU
TEST_CASE("last block: has no races, in whatever order blocks run") {
    if (!has_last_block()) return;
    std::mt19937_64 random(test_seed());
    for (const int multiprocessors : {1, 3, 7})
        for (const bool last_block_first : {false, true}) {
            const VirtualGpu gpu(multiprocessors);
            emulator::settings().last_block_first = last_block_first;
            emulator::reseed(random());
            for (const AttentionShape& s : shapes_of_several_tiles(random())) {
                const Inputs in = make_inputs(s, Values::normal, random());
                const std::string wrong = race(variant("last_block, 3 parts"), in);
                CHECK_MESSAGE(wrong.empty(), wrong);
                if (!wrong.empty()) return;
            }
        }
}
#endif

TEST_CASE("last block: the same bits again, whatever the scratch holds, in a launch behind another one") {
    if (!has_last_block()) return;
    std::mt19937_64 random(test_seed());
    for (const AttentionShape& s : shapes_of_several_tiles(random())) {
        const Stage& stage = variant("last_block, 3 parts");
        const Inputs in = make_inputs(s, Values::normal, random());
        try {
            const Outputs expected = run(stage, in, true);
            DeviceProblem problem(stage, in, true);
            for (const int garbage : {0x00, 0xFF, 0x7F, 0x01}) {
                const VirtualGpu gpu(garbage == 0x7F ? 2 : 5);
#ifndef FLASHLADDER_GPU
                emulator::reseed(random());
                emulator::settings().last_block_first = garbage == 0xFF;
#endif
                problem.scratch.fill(garbage);
                for (int launched = 0; launched < 3; ++launched) {
                    problem.O.fill(0xFF), problem.lse.fill(0xFF);
                    for (int times = 0; times <= launched; ++times) stage.launch(problem.args());
                    check_cuda(cudaDeviceSynchronize(), "launch");
                    check_same_bits(problem.outputs(), expected, "alone",
                                    fmt::format("scratch was filled with {:#x}, launch {} ({})", garbage, launched,
                                                to_string(s)));
                }
            }
        } catch (const CudaError& error) {
            FAIL_CHECK(std::string(error.what()));
            return;
        }
    }
}

}  // namespace
}  // namespace flashladder::attention
