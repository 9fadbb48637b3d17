// Rung 13. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "launch.h"
#include "operations/attention/reference.h"
#include "attention_suite.h"

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#include "operations/attention/counts.h"
#endif

namespace flashladder::attention {
namespace {

constexpr int unit = 64, consumers = 3, B_r = consumers * unit, slots = 4;

/// What depends on the head dimension. A block has a multiprocessor to itself.
struct Sizes {
    int d, B_c;
};
constexpr Sizes of_64{64, 128}, of_128{128, 64};

#ifndef FLASHLADDER_GPU
/// What the tasks of a problem are made of, by the rules of the lesson.
struct Expected {
    std::uint64_t tasks = 0, queries = 0, keys = 0;  // of one head; rows of Q and of K that are asked for
    std::uint64_t blocks = 0;                        // blocks of keys that units compute with, of all heads
};
Expected expected(const Sizes& size, const AttentionShape& s, bool mixed = true, bool skip = true) {
    const int units_of_head = (s.n_q + unit - 1) / unit, T_r = (units_of_head + consumers - 1) / consumers;
    const int low = mixed ? std::min(T_r * consumers - units_of_head, T_r) : 0;
    Expected sum;
    sum.tasks = std::uint64_t(T_r);
    for (int block = 0, i = 0; block < T_r; ++block) {
        const int units = block < low ? consumers - 1 : consumers, first = i;
        i += units * unit;
        const int end = std::max(1, s.causal ? std::min(s.n_k, i + s.n_k - s.n_q) : s.n_k);
        const int T_c = (end + size.B_c - 1) / size.B_c;
        sum.queries += std::uint64_t(std::min(B_r, s.n_q - first));
        sum.keys += std::uint64_t(std::min(s.n_k, T_c * size.B_c));
        for (int c = 0; c < units; ++c) {
            const int last_key = s.causal && skip ? first + (c + 1) * unit - 1 + s.n_k - s.n_q : s.n_k;
            for (int t = 0; t < T_c; ++t) sum.blocks += t == 0 || t * size.B_c <= last_key;
        }
    }
    sum.blocks *= std::uint64_t(s.heads);
    return sum;
}
/// Matrix instructions of a unit and a block of keys: of S, and of O.
std::uint64_t products(const Sizes& size) { return std::uint64_t(size.d / 16 + size.B_c / 16); }
/// Exponentials of a unit and a block, and those that raising m costs: one for each row and lane.
std::uint64_t exponentials(const Sizes& size) { return std::uint64_t(unit * size.B_c); }
constexpr std::uint64_t per_raise = unit * 4;

#endif

TEST_CASE("EXERCISE 13.1: a block that a consumer does not need: tasks of two units and of three") {
    // 8 units: of three blocks only the first is low. 7: two are.
    std::mt19937_64 random(test_seed());
    const VirtualGpu gpu(1);  // tasks of both heights, one after the other
    for (const Sizes& size : {of_64, of_128})
        for (const auto& [others, blocks] : {std::pair(1, 3), {3, 6}, {4, 2}, {6, 2}, {7, 3}}) {
            const int n_q = others * unit + drawn_length(unit, 1, unit + 1, random());
            const Inputs in = inputs(2, n_q, blocks * size.B_c, size.d, false, random());
            const std::string wrong = fault(stage_under_test(), in);
            CHECK_MESSAGE(wrong.empty(), wrong);
            if (!wrong.empty()) return;
#ifndef FLASHLADDER_GPU
            const std::uint64_t units = (n_q + unit - 1) / unit, needed = 2 * units * blocks,
                                found = work_of(stage_under_test(), in).matrix_instructions / products(size);
            check_count("blocks of keys that units of 64 queries compute with, by the matrix instructions", found, needed,
                        to_string(in.shape) + ", " + std::to_string(units) + " units a head, " +
                            std::to_string(blocks) + " blocks of keys");
            if (found != needed) return;
#endif
        }
#ifndef FLASHLADDER_GPU
    for (const Sizes& size : {of_64, of_128}) {
        const std::string report = race(stage_under_test(), inputs(2, B_r + 20, 5 * size.B_c, size.d, false, random()));
        CHECK_MESSAGE(report.empty(), report);
    }
#endif
}

TEST_CASE("EXERCISE 13.2: no unit computes with a block that none of its queries sees") {
    for (const Sizes& size : {of_64, of_128}) {
        // By how many keys more, and whether causal. The third: the first unit of a task sees no key, the others do.
        std::vector<std::pair<int, bool>> problems = {{-130, false}, {10 - B_r, true}, {-unit - 6, true}};
        for (const int more_keys : more_keys_near(unit, test_seed())) problems.emplace_back(more_keys, true);
        for (const auto& [more_keys, causal] : problems) {
            // The later a key, the higher its scores: none can be left out unnoticed.
            const Inputs in =
                inputs(1, 2 * B_r, 2 * B_r + more_keys, size.d, causal, test_seed(), Values::growing_maximum);
#ifndef FLASHLADDER_GPU
            try {  // before the numbers: a block that is left out is why they are wrong
                check_count("blocks of keys that units of 64 queries compute with, by the matrix instructions",
                            count_stage(stage_under_test(), in, true).work.total().matrix_instructions / products(size),
                            expected(size, in.shape).blocks,
                            to_string(in.shape) + ", blocks of " + std::to_string(size.B_c) + " keys");
            } catch (const CudaError&) {  // fault() has it too
            }
#endif
            const std::string wrong = fault(stage_under_test(), in);
            CHECK_MESSAGE(wrong.empty(), wrong);
        }
    }
}

/// The stage under test agrees with the reference.
bool is_right(const Inputs& in, const std::string& what) {
    const std::string wrong = fault(stage_under_test(), in);
    CHECK_MESSAGE(wrong.empty(), what, ": ", wrong);
    return wrong.empty();
}

/// Groups of so many rows take turns: the scores of one grow by 150 in base 2 from block to block, those of the next
/// are at `others`, and may fall as much. Rows of a lane are 8 apart, those of a quad's neighbours 1.
void check_rows_apart(const Sizes& size, DType dtype, double others, int growing, std::uint64_t seed,
                      bool fall = false) {
    AttentionShape shape = shape_of(1, 100, 4 * size.B_c, size.d);
    shape.dtype = dtype;
    Inputs in = inputs_with_scores(shape, [](int) { return 0.0; }, seed);
    const double scale_log2 = in.scale * std::log2(std::exp(1.0));
    for (int key = 0; key < shape.n_k; ++key) {
        const double grown = 150.0 * (3 - key / size.B_c), other = others - (fall ? grown : 0);
        in.K[key * size.d] = round_to(dtype, float(grown / (4 * scale_log2)));
        in.K[key * size.d + 1] = round_to(dtype, float(other / (4 * scale_log2)));
    }
    for (int row = 0; row < shape.n_q; ++row) {
        const bool grows = row / growing % 2;
        in.Q[row * size.d] = grows ? 4.0f : 0.0f;
        in.Q[row * size.d + 1] = grows ? 0.0f : 4.0f;
    }
    is_right(in, "rows in groups of " + std::to_string(growing) + ", whose scores in turn grow by 150 from block to " +
                     "block, or " + (fall ? "fall from " : "stay at ") + std::to_string(int(others)) + ", in base 2");
}

#ifndef FLASHLADDER_GPU  // a GPU shows the number of raises in its time alone
/// How often m is raised in a task of 7 blocks of keys, in each of which all scores are alike. Whole tasks, not causal.
void check_raises(const Sizes& size, const std::function<double(int block)>& score_log2, int expected,
                  const std::string& scores) {
    constexpr int heads = 2, blocks = 7;
    const Inputs in = inputs_with_scores(
        shape_of(heads, B_r, blocks * size.B_c, size.d),
        [&](int key) { return score_log2(blocks - 1 - key / size.B_c); }, test_seed());
    const std::string what = "scores " + scores + ", d " + std::to_string(size.d);
    if (!is_right(in, what)) return;
    const std::uint64_t steps = heads * consumers, least = steps * blocks * exponentials(size),
                        found = work_of(stage_under_test(), in).exponentials,
                        wanted = least + steps * std::uint64_t(expected) * per_raise;
    const bool all_computed = found >= least, countable = found <= least + steps * blocks * per_raise;
    CHECK_MESSAGE(all_computed, "exponentials: found ", found, ", expected at least ", least,
                  ", one for each score: blocks of keys are left out: ", what);
    CHECK_MESSAGE(countable, "exponentials: found ", found, ", expected ", wanted,
                  ": more than one for each score, and one for each row and lane where m is raised: ", what);
    if (!all_computed || !countable) return;
    const bool same = found == wanted;
    CHECK_MESSAGE(same, "m is raised ", (double(found) - double(least)) / double(steps * per_raise), " times in the ",
                  blocks, " blocks of keys of a task, expected ", expected, ", by the exponentials: ", what);
}
#endif

TEST_CASE("EXERCISE 13.3: m is raised where a score reaches its bound, and nowhere else") {
    std::uint64_t seed = test_seed();
    for (const Sizes& size : {of_64, of_128}) {
#ifndef FLASHLADDER_GPU
        // bf16 allows 24: every second block raises m. The others: also where scores are negative and the bound is not.
        check_raises(size, [](int block) { return 20.0 * (block + 1); }, 4,
                     "that grow by 20 in base 2 from block to block, where P may be 2^24");
        check_raises(size, [](int) { return 0.0; }, 1, "near 0");
        check_raises(size, [](int) { return -10.0; }, 1, "near -10 in base 2, where P may be 2^24");
        check_raises(size, [](int block) { return block ? -10.0 : 8.0; }, 1, "near 8, then near -10");
#endif
        // All scores are negative, and so is the bound. Then they grow: to P of f16 that are infinite, or bf16's.
        for (const auto& [dtype, least, growth] :
             {std::tuple(DType::f16, -200.0, 20.0), {DType::f16, -60.0, 17.0}, {DType::bf16, -1500.0, 200.0}}) {
            const int blocks = 4;
            AttentionShape shape = shape_of(1, B_r, blocks * size.B_c, size.d);
            shape.dtype = dtype;
            is_right(inputs_with_scores(
                         shape, [&](int key) { return least + growth * (blocks - 1 - key / size.B_c); }, seed++),
                     "scores from " + std::to_string(int(least)) + " on, in base 2, all below 0 at first: if m stays, P is infinite");
        }
        // One score of a row may ask, whichever it is: of both halves of a block, of each lane, at both of its places.
        for (const int column : {0, 3, size.B_c / 2 - 4, size.B_c / 2 + 1, size.B_c - 6, size.B_c - 1})
            is_right(inputs_with_scores(
                         shape_of(1, unit, 2 * size.B_c, size.d), [&](int key) { return key == column ? 400.0 : 0.0; }, seed++),
                     "scores near 0 but one, 400 in base 2, in column " + std::to_string(column) + " of its block of keys");
        // Each row has a bound of its own: one row may ask, and the others of its warp not.
        for (const int growing : {1, 8})
            for (const bool fall : {false, true}) check_rows_apart(size, DType::bf16, 700, growing, seed++, fall);
        // Each task begins anew: on one multiprocessor, one head's scores are high, the next one's low.
        const VirtualGpu one(1);
        Inputs in = inputs_with_scores(shape_of(4, 100, 2 * size.B_c, size.d), [](int) { return 400.0; }, seed++);
        const std::size_t head = in.K.size() / 4;
        for (std::size_t x = 0; x < in.K.size(); x += size.d)
            if (x / head % 2) in.K[x] *= -1;
        is_right(in, "scores of heads in turn near 400 and -400, in base 2");
        // Queries that see no key, or see their first one in a later block.
        is_right(inputs(1, 2 * B_r, B_r + 10, size.d, true, seed++), "causal");
    }
}

// ---- the lazy maximum

/// Queries of a problem with adverse scores.
constexpr int rows_of(bool causal) { return causal ? 2 * B_r - 40 : 70; }

TEST_CASE("a maximum that is not the largest costs no accuracy: bf16, against the same kernel with an exact one") {
    std::uint64_t seed = test_seed();
    for (const Sizes& size : {of_64, of_128})
        for (const Scores& scores : adverse_scores())
            for (const bool causal : {false, true}) {
                const Inputs in = adverse_inputs(scores, rows_of(causal), size.B_c, size.d, DType::bf16, causal, seed++);
                INFO("scores ", std::string(scores.name), ", d ", size.d, ", causal ", causal);
                try {
                    const Comparison lazy = check(stage_under_test(), in, Judge::worst_row_only, true);
                    const Comparison exact = check(variant("three consumers"), in, Judge::worst_row_only, true);
                    CHECK_MESSAGE((lazy.error <= 1.1 * exact.error), lazy.error, " against ", exact.error);
                    CHECK_MESSAGE((lazy.lse_error <= std::max(1.1 * exact.lse_error, 1e-6)), lazy.lse_error,
                                  " against ", exact.lse_error);
                } catch (const CudaError& error) {
                    FAIL_CHECK(std::string(error.what()));
                }
            }
}

TEST_CASE("the same by the rules of all rungs, also with f16, whose P end at 65504") {
    std::size_t i = 0;
    for (const DType dtype : {DType::bf16, DType::f16})
        for (const Sizes& size : {of_64, of_128})
            for (const Scores& scores : adverse_scores())
                for (const bool causal : {false, true}) {
                    if (!takes_combination(++i)) continue;
                    const Inputs in =
                        adverse_inputs(scores, rows_of(causal), size.B_c, size.d, dtype, causal, test_seed() + i);
                    INFO("scores ", std::string(scores.name), ", d ", size.d, ", causal ", causal);
                    check_adverse(in, scores);
                }
}

TEST_CASE("each row has a bound of its own: some grow, while others of their warp are far above, or below") {
    std::uint64_t seed = test_seed();
    for (const Sizes& size : {of_64, of_128})
        for (const DType dtype : {DType::bf16, DType::f16})
            for (const double others : {700.0, -700.0})
                for (const int growing : {1, 8, 5}) check_rows_apart(size, dtype, others, growing, seed++);
}

TEST_CASE("any positive scale: what a score may exceed m by is in units of scores, from nearly nothing to infinity") {
    std::uint64_t seed = test_seed();
    std::size_t i = 0;
    for (const Sizes& size : {of_64, of_128})
        for (const DType dtype : {DType::bf16, DType::f16})
            for (const float scale : {1e-38f, 1e-30f, 1e-4f, 0.03f, 1.0f, 3.0f}) {
                if (!takes_combination(i++)) continue;
                // Half of the queries see nothing; if scale * log2(e) > 1, the lowest float times it is none.
                Inputs in = inputs(2, 2 * B_r, B_r, size.d, true, seed++);
                in.shape.dtype = dtype;
                in.scale = scale;
                if (scale >= 1)
                    for (float& x : in.Q) x /= 16;  // the power of two leaves a 16-bit number one
                const std::string wrong = fault(stage_under_test(), in);
                CHECK_MESSAGE(wrong.empty(), "d ", size.d, ", scale ", scale, ": ", wrong);
            }
}

TEST_CASE("keys that are hidden first: the bound of a row is none until it has seen one") {
    std::uint64_t seed = test_seed();
    for (const Sizes& size : {of_64, of_128})
        for (const int more_keys : {-1, -17, 5, 40, 100, -100}) {
            const int n_q = B_r + 70;
            AttentionShape shape = shape_of(1, n_q, n_q + more_keys, size.d);
            shape.causal = true;
            for (const double score : {-500.0, 0.0, 500.0}) {
                const Inputs in = inputs_with_scores(shape, [&](int) { return score; }, seed++);
                const std::string wrong = fault(stage_under_test(), in);
                CHECK_MESSAGE(wrong.empty(), "d ", size.d, ", N_k - N_q ", more_keys, ", scores ", score, ": ", wrong);
            }
        }
}

TEST_CASE("NaN in a key reaches all queries, whatever m is") {
    for (const Sizes& size : {of_64, of_128}) {
        Inputs in = inputs(1, 30, 2 * size.B_c, size.d, false, test_seed());
        in.K[5 * size.d] = std::numeric_limits<float>::quiet_NaN();
        const Outputs found = run(stage_under_test(), in);
        CHECK(std::all_of(found.O.begin(), found.O.end(), [](float x) { return std::isnan(x); }));
    }
}

// ---- tasks, turns, slots

TEST_CASE("the rings go on from task to task: any number of blocks of keys, of tasks, of blocks that take them") {
    for (const Sizes& size : {of_64, of_128}) check_many_tasks(size.d, size.B_c, {0, 1, 1, 4}, {0, 4});
}

TEST_CASE("agrees with the reference: lengths near multiples of the tiles") {
    for (const Sizes& size : {of_64, of_128}) {
        const VirtualGpu one(1);
        check_lengths_near(B_r, size.B_c, size.d);
    }
}

TEST_CASE("tasks without a key, and units without one, between others") {
    std::uint64_t seed = test_seed();
    for (const char* name : {"", "three consumers", "and blocks skipped"})
        for (const Sizes& size : {of_64, of_128})
            for (const int n_k : {1, 70, size.B_c + 1}) {
                const VirtualGpu gpu(1);
                const Inputs in = inputs(3, 2 * B_r + 70, n_k, size.d, true, seed++);
                const Stage& stage = *name ? variant(name) : stage_under_test();
                const std::string wrong = fault(stage, in);
                CHECK_MESSAGE(wrong.empty(), stage.name(), ", d ", size.d, ": ", wrong);
            }
}

TEST_CASE("what is skipped and how high tasks are does not change a bit of the result") {
    // A unit's steps are the same wherever it is; a block that none of its queries sees adds nothing.
    for (const Sizes& size : {of_64, of_128})
        for (const bool causal : {false, true}) {
            const Inputs in = inputs(3, B_r + 100, 3 * size.B_c + 33, size.d, causal, test_seed());
            const auto check_same = [&](const Stage& stage, const Stage& other) {
                check_same_bits(run(other, in, true), run(stage, in, true), "by " + stage.name(),
                                other.name() + ", " + to_string(in.shape));
            };
            check_same(stage_under_test(), variant("three consumers, lazy"));
            check_same(stage_under_test(), variant("and blocks skipped"));
            check_same(variant("three consumers"), variant("all but lazy"));
        }
}

TEST_CASE("causal: blocks behind the diagonal reach nobody, whatever they hold") {
    for (const Sizes& size : {of_64, of_128}) {
        const VirtualGpu gpu(1);
        const int n = 2 * B_r, seen = (B_r + size.B_c - 1) / size.B_c * size.B_c;  // by the first task
        check_hidden_keys_reach_nobody(shape_of(1, n, n, size.d), seen, B_r, n - 1);
    }
}

TEST_CASE("scratch is a word, whatever it holds: launches one after another") {
    CHECK(stage_under_test().scratch_bytes(shape_of(4, 1000, 1000, 64)) == sizeof(unsigned));
    const VirtualGpu gpu(2);
    check_ignores_scratch(inputs(7, 250, 100, 128, true, test_seed()));
}

#ifndef FLASHLADDER_GPU
// Tasks of both heights, with idle consumers and without, and blocks that a unit skips.
TEST_CASE("has no races where blocks take several tasks") {
    for (const Sizes& size : {of_64, of_128})
        for (const bool causal : {false, true})
            for (const int n_q : {100, 5 * unit - 20, 2 * B_r}) {
                const VirtualGpu one(1);
                const Inputs in = inputs(causal ? 2 : 3, n_q, causal ? n_q : 3 * size.B_c + 5, size.d, causal, test_seed());
                const std::string report = race(stage_under_test(), in);
                CHECK_MESSAGE(report.empty(), "d ", size.d, ", N_q ", n_q, ", causal ", causal, ": ", report);
            }
}

// A block of keys or two: so few that no ring holds the producer back before it asks for the queries of the task behind
// the next one. Their slot still has O of this one.
TEST_CASE("has no races where tasks are short: O leaves from where the queries after the next ones will be") {
    for (const Sizes& size : {of_64, of_128})
        for (const int n_k : {10, size.B_c + 10})
            for (const int n_q : {100, B_r - 3})
                for (const bool causal : {false, true}) {
                    const VirtualGpu one(1);
                    const Inputs in = inputs(7, n_q, n_k, size.d, causal, test_seed());
                    const std::string report = race(stage_under_test(), in);
                    CHECK_MESSAGE(report.empty(), "d ", size.d, ", N_q ", n_q, ", N_k ", n_k, ", causal ", causal, ": ",
                                  report);
                }
}

TEST_CASE("has no races where m is raised in each step, and where some rows of a warp ask for it") {
    for (const Sizes& size : {of_64, of_128}) {
        const VirtualGpu one(1);
        Inputs in = adverse_inputs({"", [](int block, int) { return 60.0 * block; }}, rows_of(false), size.B_c, size.d,
                                   DType::bf16, false, test_seed());
        for (std::size_t row = 0; row < in.Q.size(); row += 3 * size.d) in.Q[row] = 0;
        const std::string report = race(stage_under_test(), in);
        CHECK_MESSAGE(report.empty(), "d ", size.d, ": ", report);
    }
}

TEST_CASE("counted: products and exponentials of every variant are what it computes with") {
    struct Variant {
        const char* name;
        bool mixed, skip;
    };
    for (const auto& [name, mixed, skip] : {Variant{"", true, true}, {"three consumers", false, false},
                                            {"three consumers, lazy", false, false}, {"and blocks skipped", false, true},
                                            {"all but lazy", true, true}})
        for (const Sizes& size : {of_64, of_128})
            for (const bool causal : {false, true}) {
                const VirtualGpu gpu(2);
                const Inputs in = inputs(2, B_r + 3 * unit + unit - 5, 3 * size.B_c, size.d, causal, test_seed());
                const Stage& stage = *name ? variant(name) : stage_under_test();
                const bool lazy = std::string(name) != "three consumers" && std::string(name) != "all but lazy";
                const std::uint64_t blocks = expected(size, in.shape, mixed, skip).blocks;
                const auto work = work_of(stage, in);
                const std::string where = stage.name() + ", " + to_string(in.shape);
                check_count(skip ? "matrix instructions"
                                 : "matrix instructions of a variant with Config::saving.skip false, which computes "
                                   "with all blocks of keys of its tasks (13.2)",
                            work.matrix_instructions, blocks * products(size), where);
                const std::uint64_t all_raised = blocks * (exponentials(size) + per_raise);
                if (!lazy)
                    check_count("exponentials, m raised in each step", work.exponentials, all_raised, where);
                else if (!causal)
                    check_count("exponentials, m raised in first steps alone", work.exponentials,
                                blocks * exponentials(size) + blocks / 3 * per_raise, where);
                else
                    CHECK_MESSAGE((work.exponentials < all_raised), "exponentials: found ", work.exponentials,
                                  ", expected less than ", all_raised, ", which is m raised in each step: ", where);
            }
}

TEST_CASE("counted: each task is done once, by as many blocks as run at once; nothing behind the diagonal") {
    for (const Sizes& size : {of_64, of_128})
        for (const int multiprocessors : {1, 3, 132}) {
            const VirtualGpu gpu(multiprocessors);
            const int heads = 3, n_q = 2 * B_r + 9;
            const Inputs in = inputs(heads, n_q, n_q - 20, size.d, true, test_seed());
            const auto counts = count_stage(stage_under_test(), in, true);
            const Expected all = expected(size, in.shape);
            const std::uint64_t row = heads * size.d * 2;
            const auto check = [&](const char* what, std::uint64_t found, std::uint64_t expected) {
                check_count(
                    what, found, expected,
                    "d " + std::to_string(size.d) + ", " + std::to_string(multiprocessors) + " multiprocessors");
            };
            check("bytes asked for of Q", counts.tensors.at("Q").read.requested_bytes, all.queries * row);
            check("bytes asked for of K", counts.tensors.at("K").read.requested_bytes, all.keys * row);
            check("bytes asked for of V", counts.tensors.at("V").read.requested_bytes, all.keys * row);
            check("bytes written of O", counts.tensors.at("O").written.requested_bytes, n_q * row);
            check("bytes written of LSE", counts.tensors.at("lse").written.requested_bytes,
                  std::uint64_t(heads) * n_q * 4);
            const dim3 grid = counts.work.launches.at(0).grid;
            check("blocks of the grid", grid.x, std::min(heads * int(all.tasks), multiprocessors));
            CHECK(grid.y * grid.z == 1);
            check("times that a next task is asked for",
                  counts.work.total().global_of(emulator::Access::atomic).accesses, heads * all.tasks);
        }
}

TEST_CASE("counted: all but LSE by TMA, no conflicts, one barrier a block") {
    for (const Sizes& size : {of_64, of_128}) {
        const VirtualGpu gpu(2);
        const int heads = 3, n_q = B_r + 5;
        const Inputs in = inputs(heads, n_q, 2 * size.B_c + 5, size.d, false, test_seed());
        const auto work = count_stage(stage_under_test(), in).work;
        const Expected all = expected(size, in.shape);
        const std::uint64_t row = heads * size.d * 2;
        check_by_tma(work.total(), (all.queries + 2 * all.keys) * row, n_q * row, work.launches.at(0).grid.x,
                     "d " + std::to_string(size.d));
    }
}

TEST_CASE("counted: shared memory is Q twice, the slots of K and V, and some barriers; O has none") {
    for (const Sizes& size : {of_64, of_128}) {
        const auto counts = count_stage(stage_under_test(), inputs(2, 50, 500, size.d, false, test_seed()));
        const auto& launch = counts.work.launches.at(0);
        const std::size_t tiles = (2 * B_r + 2 * slots * size.B_c) * size.d * 2;
        INFO("d ", size.d);
        CHECK(launch.dynamic_shared_bytes > tiles);
        CHECK(launch.dynamic_shared_bytes <= tiles + 1024);
        CHECK(launch.dynamic_shared_bytes <= 227 * 1024);
    }
}
#endif

}  // namespace
}  // namespace flashladder::attention
