// Rung 12. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "launch.h"
#include "attention_suite.h"

#ifndef FLASHLADDER_GPU
#include "emulator/activity.h"
#include "emulator/emulator.h"
#include "operations/attention/counts.h"
#endif

namespace flashladder::attention {
namespace {

/// What a block of the rung has, by head dimension. It has a multiprocessor to itself.
struct Sizes {
    int d, B_r, B_c, consumers, stages;
};
constexpr Sizes of_64{64, 192, 128, 3, 4}, of_128{128, 128, 128, 2, 2};

#ifndef FLASHLADDER_GPU
/// Blocks of keys that all tasks go over, of all heads. Each has one at least.
int steps(const Sizes& size, int heads, int n_q, int n_k, bool causal) {
    int steps = 0;
    for (int i = 0; i < n_q; i += size.B_r) {
        const int seen = causal ? std::clamp(i + size.B_r + n_k - n_q, 1, n_k) : n_k;
        steps += (seen + size.B_c - 1) / size.B_c;
    }
    return heads * steps;
}

/// In what order a task of four blocks of keys is done: products that are begun together, exponentials beside them, and
/// when turns and K_j go on.
void check_order(const Sizes& size) {
    const int blocks = 4, products_of_S = size.d / 16, products_of_O = size.B_c / 16;
    const Inputs in = inputs(1, size.B_r, blocks * size.B_c, size.d, false, test_seed());
    const std::string where = to_string(in.shape) + ", " + std::to_string(blocks) + " blocks of keys";
    const std::uint64_t of_step = size.B_r * (size.B_c + 4);
    const auto work = work_of(stage_under_test(), in);
    check_count("exponentials", work.exponentials, blocks * of_step, where);
    // The first block of keys has nothing to hide under.
    check_count("exponentials while a product of the same warpgroup is under way", work.overlapped_exponentials,
                (blocks - 1) * of_step, where);

    // What goes on without its threads is done as late as these allow. A warp's first barrier is __syncthreads(), its
    // others are turns. In one of them, the first to arrive anywhere is who passes it.
    struct Turn {
        std::vector<emulator::Activity> products;
        std::uint64_t passed = 0, arrivals = 0, late_arrivals = 0;  // before the exponentials, and behind them
        bool exponentials = false;
    };
    const auto launches = emulator::record_activity(0, [&] { run(stage_under_test(), in, true); }, true);
    for (int consumer = 0; consumer < size.consumers; ++consumer) {
        std::vector<Turn> turns;
        for (const auto& activity : launches.at(0).activities) {
            if (activity.warp != 4u + 4u * unsigned(consumer)) continue;
            if (activity.what == emulator::Doing::barrier && activity.counts) turns.emplace_back();
            if (turns.empty()) continue;
            Turn& turn = turns.back();
            if (activity.what == emulator::Doing::product && turn.passed == 0) turn.products.push_back(activity);
            if (activity.what == emulator::Doing::exponential) turn.exponentials = true;
            if (activity.what != emulator::Doing::arrive) continue;
            if (turn.exponentials)
                ++turn.late_arrivals;
            else if (turn.arrivals++ == 0)
                turn.passed = activity.begin;
        }
        const auto check = [&](int block, const std::string& what, auto found, int expected) {
            check_count("consumer " + std::to_string(consumer) + ", block of keys " + std::to_string(block + 1) + ": " +
                            what, std::uint64_t(found), std::uint64_t(expected), where);
        };
        for (int block = 0; block < blocks && block + 1 < int(turns.size()); ++block) {
            const Turn& turn = turns[std::size_t(block) + 1];
            check(block, "matrix instructions begun in its turn, those of S" +
                             std::string(block ? " and of P V of the block before" : ""),
                  turn.products.size(), products_of_S + (block ? products_of_O : 0));
            check(block, "matrix instructions begun in its turn that are still under way when the turn is passed on",
                  std::count_if(turn.products.begin(), turn.products.end(),
                                [&](const auto& product) { return product.happened > turn.passed; }),
                  int(turn.products.size()));
            check(block, "arrivals before its exponentials: the turn is passed on, K_j is given back", turn.arrivals,
                  2);
            if (block + 1 < blocks)  // the last step and the task's end have arrivals of their own
                check(block, "arrivals behind its exponentials: V of the block before, if there is one, is given back",
                      turn.late_arrivals, block > 0);
        }
    }
}
#endif

TEST_CASE("EXERCISE 12.1: every block with a key that comes too late for some query has a mask") {
    std::uint64_t seed = test_seed();
    for (const Sizes& size : {of_64, of_128})
        for (const int more_keys : more_keys_near(64, seed)) {  // queries of a consumer
            const int n_q = 2 * size.B_r;
            // The later a key, the higher its scores: one too many is seen in the result.
            const Inputs in = inputs(1, n_q, n_q + more_keys, size.d, true, seed++, Values::growing_maximum);
            const std::string wrong = fault(stage_under_test(), in);
            CHECK_MESSAGE(wrong.empty(), wrong);
        }
}

TEST_CASE("EXERCISE 12.2: consumers take turns") {
    for (const Sizes& size : {of_64, of_128})
        for (const int multiprocessors : {1, 2}) {
            const VirtualGpu gpu(multiprocessors);
            const int heads = 3, n_q = size.B_r + 1, n_k = 3 * size.B_c;
            const Inputs in = inputs(heads, n_q, n_k, size.d, false, test_seed());
            const std::string wrong = fault(stage_under_test(), in);
            CHECK_MESSAGE(wrong.empty(), wrong);
#ifndef FLASHLADDER_GPU  // it shows in its time
            if (!wrong.empty()) continue;
            // Each consumer once in each step; and the first one, at the end of a block, what the last one has passed.
            const int turns = size.consumers * steps(size, heads, n_q, n_k, false) + multiprocessors;
            check_count("turns that are passed and waited for: one of each consumer in each step, and for each block "
                        "of threads the pass that is left over at the end, which close() waits for",
                        work_of(stage_under_test(), in).named_barriers, unsigned(turns),
                        to_string(in.shape) + ", " + std::to_string(multiprocessors) + " multiprocessors");
#endif
        }
#ifndef FLASHLADDER_GPU
    // Who passes a turn goes on: it waits for its own alone, in each step of a task, and where threads begin.
    for (const Sizes& size : {of_64, of_128}) {
        const int blocks = 3;
        const Inputs in = inputs(1, size.B_r, blocks * size.B_c, size.d, false, test_seed());
        const auto launches = emulator::record_activity(0, [&] { run(stage_under_test(), in, true); });
        std::map<unsigned, std::uint64_t> waits;  // by warp
        for (const auto& activity : launches.at(0).activities)
            waits[activity.warp] += activity.what == emulator::Doing::barrier && activity.counts;
        for (int consumer = 0; consumer < size.consumers; ++consumer)
            check_count("times that consumer " + std::to_string(consumer) + " waits at barriers for other threads",
                        waits[4 + 4 * consumer], 1 + blocks + (consumer == 0), to_string(in.shape));
    }
#endif
}

TEST_CASE("EXERCISE 12.3: S of a block beside P V of the block before, and the softmax under P V") {
    const auto check_that = [](const Inputs& in) {
        const std::string wrong = fault(stage_under_test(), in);
        CHECK_MESSAGE(wrong.empty(), wrong);
        return wrong.empty();
    };
    std::uint64_t seed = test_seed();
    for (const Sizes& size : {of_64, of_128}) {
        const VirtualGpu one(1);  // several tasks, one after the other
        bool right = true;
        for (const int n_k : {size.B_c, 2 * size.B_c - 3, (size.stages + 2) * size.B_c})
            right &= check_that(inputs(2, size.B_r, n_k, size.d, false, seed++, Values::growing_maximum));
        right &= check_that(inputs(1, 2 * size.B_r, 2 * size.B_r + 1, size.d, true, seed++, Values::growing_maximum));
#ifndef FLASHLADDER_GPU
        if (!right) continue;
        const Inputs in = inputs(1, size.B_r, (size.stages + 2) * size.B_c, size.d, false, seed++, Values::peaky);
        const std::string report = race(stage_under_test(), in);
        CHECK_MESSAGE(report.empty(), report);
        if (report.empty()) check_order(size);
#endif
    }
}

constexpr const char* overlaps[] = {"no overlap", "ping-pong", "intra"};

TEST_CASE("what overlaps does not change a bit of the result") {
    for (const Sizes& size : {of_64, of_128})
        for (const bool causal : {false, true}) {
            const Inputs in = inputs(3, size.B_r + 20, 3 * size.B_c + 33, size.d, causal, test_seed());
            const auto check_same = [&](const Stage& stage, const Stage& other) {
                check_same_bits(run(other, in, true), run(stage, in, true), "by " + stage.name(),
                                other.name() + ", " + to_string(in.shape));
            };
            for (const char* name : overlaps) check_same(stage_under_test(), variant(name));
            check_same(variant("scores multiplied before"), variant("no overlap, scores multiplied before"));
        }
}

TEST_CASE("the rings go on from task to task: any number of blocks of keys, of tasks, of blocks that take them") {
    for (const Sizes& size : {of_64, of_128}) check_many_tasks(size.d, size.B_c, {0, 1, 1, 2, 4}, {0, 1});
}

TEST_CASE("agrees with the reference: lengths near multiples of the tiles") {
    for (const Sizes& size : {of_64, of_128}) {
        const VirtualGpu one(1);
        check_lengths_near(size.B_r, size.B_c, size.d);
    }
}

TEST_CASE("tasks without a key, between others: they have one block, and all of it is hidden") {
    std::uint64_t seed = test_seed();
    for (const char* name : {"", "no overlap", "scores multiplied before"})
        for (const Sizes& size : {of_64, of_128})
            for (const int n_k : {1, 70, size.B_c + 1}) {
                const VirtualGpu gpu(1);
                const Inputs in = inputs(3, 3 * size.B_r, n_k, size.d, true, seed++);
                const Stage& stage = *name ? variant(name) : stage_under_test();
                const std::string wrong = fault(stage, in);
                CHECK_MESSAGE(wrong.empty(), stage.name(), ", d ", size.d, ": ", wrong);
            }
}

TEST_CASE("any positive scale: m is a maximum of scores as they are, and what it shifts by stays finite") {
    std::uint64_t seed = test_seed();
    for (const Sizes& size : {of_64, of_128})
        for (const float scale : {1e-30f, 1e-4f, 0.03f, 1.0f, 3.0f}) {
            // Half of the queries see nothing; if scale * log2(e) > 1, the lowest float times it is none.
            Inputs in = inputs(2, 2 * size.B_r, size.B_r, size.d, true, seed++);
            in.scale = scale;
            if (scale >= 1)
                for (float& x : in.Q) x /= 16;  // the power of two leaves a 16-bit number one
            const std::string wrong = fault(stage_under_test(), in);
            CHECK_MESSAGE(wrong.empty(), "d ", size.d, ", scale ", scale, ": ", wrong);
        }
}

TEST_CASE("causal: blocks behind the diagonal reach nobody, whatever they hold") {
    for (const Sizes& size : {of_64, of_128}) {
        const VirtualGpu gpu(1);
        const int n = 2 * size.B_r + 9, seen = (size.B_r + size.B_c - 1) / size.B_c * size.B_c;  // by the first task
        check_hidden_keys_reach_nobody(shape_of(1, n, n, size.d), seen, size.B_r, 2 * size.B_r);
    }
}

TEST_CASE("scratch is a word, whatever it holds: launches one after another") {
    CHECK(stage_under_test().scratch_bytes(shape_of(4, 1000, 1000, 64)) == sizeof(unsigned));
    const VirtualGpu gpu(2);
    check_ignores_scratch(inputs(7, 150, 100, 128, true, test_seed()));
}

#ifndef FLASHLADDER_GPU
TEST_CASE("has no races where blocks take several tasks") {
    for (const char* name : {"", "ping-pong", "intra"})
        for (const Sizes& size : {of_64, of_128})
            for (const bool causal : {false, true}) {
                const VirtualGpu one(1);
                const Stage& stage = *name ? variant(name) : stage_under_test();
                const Inputs in = inputs(3, size.B_r / 2 + 3, 3 * size.B_c + 5, size.d, causal, test_seed());
                const std::string report = race(stage, in);
                CHECK_MESSAGE(report.empty(), stage.name(), ", d ", size.d, ": ", report);
            }
}

// A block of keys or two: so few that neither ring holds the producer back before it asks for the queries of the task
// behind the next one.
TEST_CASE("has no races where tasks are short: the next queries come while these are in use") {
    for (const Sizes& size : {of_64, of_128})
        for (const int n_k : {10, size.B_c + 10})
            for (const bool causal : {false, true}) {
                const VirtualGpu one(1);
                const Inputs in = inputs(7, size.B_r - 3, n_k, size.d, causal, test_seed());
                const std::string report = race(stage_under_test(), in);
                CHECK_MESSAGE(report.empty(), "d ", size.d, ", N_k ", n_k, ", causal ", causal, ": ", report);
            }
}

TEST_CASE("counted: exponentials overlap with the warpgroup's own products in two variants, turns are taken in two") {
    for (const auto& [name, intra, ping_pong] : {std::tuple("", true, true),
                                                 {"intra", true, false},
                                                 {"ping-pong", false, true},
                                                 {"no overlap", false, false},
                                                 {"scores multiplied before", true, true},
                                                 {"no overlap, scores multiplied before", false, false}})
        for (const Sizes& size : {of_64, of_128})
            for (const bool causal : {false, true}) {
                const VirtualGpu gpu(2);
                const int heads = 3, n_q = size.B_r + 9, n_k = 2 * size.B_c + 40, T_r = 2;
                const Inputs in = inputs(heads, n_q, n_k, size.d, causal, test_seed());
                const int all = steps(size, heads, n_q, n_k, causal), firsts = heads * T_r;
                const std::uint64_t of_step = size.B_r * (size.B_c + 4), turns = size.consumers * all + 2;
                const Stage& stage = *name ? variant(name) : stage_under_test();
                const auto work = work_of(stage, in);
                const std::string where = stage.name() + ", " + to_string(in.shape);
                check_count("exponentials", work.exponentials, all * of_step, where);
                check_count(intra ? "exponentials while a product of the same warpgroup is under way"
                                  : "exponentials while a product of the same warpgroup is under way, in a variant "
                                    "with Config::intra false, which waits for both products before its softmax (12.3)",
                            work.overlapped_exponentials, intra ? (all - firsts) * of_step : 0, where);
                check_count(ping_pong ? "turns that are passed and waited for"
                                      : "turns that are passed and waited for, in a variant with Config::ping_pong "
                                        "false, which has none (12.2)",
                            work.named_barriers, ping_pong ? turns : 0, where);
            }
}

TEST_CASE("counted: each task is done once, by as many blocks as run at once; nothing behind the diagonal") {
    for (const Sizes& size : {of_64, of_128})
        for (const int multiprocessors : {1, 3, 132}) {
            const VirtualGpu gpu(multiprocessors);
            const int heads = 3, n_q = 2 * size.B_r + 9, n_k = n_q - 20, T_r = 3;
            const Inputs in = inputs(heads, n_q, n_k, size.d, true, test_seed());
            const auto counts = count_stage(stage_under_test(), in, true);
            std::uint64_t keys = 0;  // that blocks of queries ask for, together
            for (int i = 0; i < n_q; i += size.B_r) {
                const int seen = std::clamp(i + size.B_r + n_k - n_q, 0, n_k);
                keys += std::min(n_k, (seen + size.B_c - 1) / size.B_c * size.B_c);
            }
            const std::uint64_t row = heads * size.d * 2;
            const auto check = [&](const char* what, std::uint64_t found, std::uint64_t expected) {
                check_count(
                    what, found, expected,
                    "d " + std::to_string(size.d) + ", " + std::to_string(multiprocessors) + " multiprocessors");
            };
            check("bytes asked for of Q", counts.tensors.at("Q").read.requested_bytes, n_q * row);
            check("bytes asked for of K", counts.tensors.at("K").read.requested_bytes, keys * row);
            check("bytes asked for of V", counts.tensors.at("V").read.requested_bytes, keys * row);
            check("bytes written of O", counts.tensors.at("O").written.requested_bytes, n_q * row);
            check("bytes written of LSE", counts.tensors.at("lse").written.requested_bytes,
                  std::uint64_t(heads) * n_q * 4);
            const dim3 grid = counts.work.launches.at(0).grid;
            check("blocks of the grid", grid.x, std::min(heads * T_r, multiprocessors));
            CHECK(grid.y * grid.z == 1);
            check("times that a next task is asked for",
                  counts.work.total().global_of(emulator::Access::atomic).accesses, heads * T_r);
        }
}

TEST_CASE("counted: all but LSE by TMA, no conflicts, one barrier a block") {
    for (const Sizes& size : {of_64, of_128}) {
        const VirtualGpu gpu(2);
        const int heads = 3, n_q = size.B_r + 5, n_k = 2 * size.B_c + 5, T_r = 2;
        const auto work = count_stage(stage_under_test(), inputs(heads, n_q, n_k, size.d, false, test_seed())).work;
        const std::uint64_t row = heads * size.d * 2;
        check_by_tma(work.total(), (n_q + 2 * T_r * n_k) * row, n_q * row, work.launches.at(0).grid.x,
                     "d " + std::to_string(size.d));
    }
}

TEST_CASE("counted: shared memory is Q twice, O, the slots of K and V, and some barriers") {
    for (const Sizes& size : {of_64, of_128}) {
        const auto counts = count_stage(stage_under_test(), inputs(2, 50, 500, size.d, false, test_seed()));
        const auto& launch = counts.work.launches.at(0);
        const std::size_t tiles = (3 * size.B_r + 2 * size.stages * size.B_c) * size.d * 2;
        INFO("d ", size.d);
        CHECK(launch.dynamic_shared_bytes > tiles);
        CHECK(launch.dynamic_shared_bytes <= tiles + 1024);
        CHECK(launch.dynamic_shared_bytes <= 227 * 1024);
    }
}
#endif

}  // namespace
}  // namespace flashladder::attention
