// Rung 14. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "launch.h"
#include "operations/attention/configurations.h"
#include "operations/attention/early_keys.h"
#include "attention_suite.h"
#include "harness/asked.h"

#ifndef FLASHLADDER_GPU
#include "emulator/activity.h"
#include "operations/attention/counts.h"
#endif

namespace flashladder::attention {
namespace {

constexpr int unit = 64;  // queries of a consumer

constexpr int B_r_of(const Configuration& c) { return unit * c.consumers; }
const Stage& stage_of(const Configuration& c) { return variant(to_string(c)); }
/// Whether the program has it: a learner's has a few.
bool is_compiled(int i) {
    const std::string name = fmt::format("{}/{}", stage_under_test().name(), to_string(configurations.at(std::size_t(i))));
    return std::ranges::any_of(variants(), [&](const flashladder::Stage& form) { return form.name() == name; });
}
/// All that the program has.
std::vector<Configuration> compiled() {
    std::vector<Configuration> all;
    for (int i = 0; i < int(configurations.size()); ++i)
        if (is_compiled(i)) all.push_back(configurations[std::size_t(i)]);
    return all;
}
/// What the stage under test takes for a shape.
const Configuration& chosen(const AttentionShape& s) {
    return configurations.at(std::size_t(configuration_for(s, device_attribute(cudaDevAttrMultiProcessorCount), is_compiled)));
}

#ifndef FLASHLADDER_GPU
/// What the tasks of a problem are made of, by the rules of rung 13, but for how many have a unit less.
struct Expected {
    std::uint64_t tasks = 0, queries = 0, keys = 0;  // of one head; rows of Q and of K that are asked for
    std::uint64_t steps = 0;                         // of one head: blocks of keys that tasks go over
    std::uint64_t blocks = 0;                        // blocks of keys that units compute with, of all heads
};
Expected expected(const Configuration& config, const AttentionShape& s) {
    const QueryTasks of_head = query_tasks(config, s, device_attribute(cudaDevAttrMultiProcessorCount));
    const int T_r = of_head.tasks, low = of_head.low;
    Expected sum;
    sum.tasks = std::uint64_t(T_r);
    for (int block = 0, i = 0; block < T_r; ++block) {
        const int units = config.consumers - (block < low), first = i;
        i += units * unit;
        const int end = std::max(1, s.causal ? std::min(s.n_k, i + s.n_k - s.n_q) : s.n_k);
        const int T_c = (end + config.B_c - 1) / config.B_c;
        sum.queries += std::uint64_t(std::min(B_r_of(config), s.n_q - first));
        sum.keys += std::uint64_t(std::min(s.n_k, T_c * config.B_c));
        sum.steps += std::uint64_t(T_c);
        for (int c = 0; c < units; ++c) {
            const int last_key = s.causal ? first + (c + 1) * unit - 1 + s.n_k - s.n_q : s.n_k;
            for (int t = 0; t < T_c; ++t) sum.blocks += t == 0 || t * config.B_c <= last_key;
        }
    }
    sum.blocks *= std::uint64_t(s.heads);
    return sum;
}
/// Matrix instructions of a unit and a block of keys: of S, and of O.
std::uint64_t products(const Configuration& c) { return std::uint64_t(c.d / 16 + c.B_c / 16); }
/// What a stage does, by tensor; nothing where the kernel stops, and then the test has failed.
std::optional<StageCounts> counts_of(const Stage& stage, const Inputs& in) {
    try {
        return count_stage(stage, in, true);
    } catch (const CudaError& error) {
        FAIL_CHECK(stage.name(), ": ", std::string(error.what()));
        return {};
    }
}

/// Of the report of a race: the same with a sentence in front, where a tile has been given back too early. "" of any other.
std::string given_back_too_early(const std::string& report) {
    if (report.find("race: write by tma_load") == report.npos || report.find("not ordered behind read by wgmma") == report.npos)
        return "";
    forget_asked();  // a report of the same, without the sentence
    return "a tile is given back before this product, which reads it, has been waited for: TMA fills its slot again\n" + report;
}
/// By all blocks of threads, of which there are no more than tasks.
std::uint64_t tiles_asked_for(const Configuration& config, const Inputs& in, std::uint64_t tasks) {
    std::uint64_t boxes = 0;
    for (std::uint64_t block = 0; block < tasks; ++block)
        for (const auto& launch : emulator::record_activity(block, [&] { run(stage_of(config), in, true); }))
            boxes += std::uint64_t(std::ranges::count(launch.activities, emulator::Doing::copy, &emulator::Activity::what));
    return boxes / unsigned(config.d / 64);
}

/// What is under way when, and who has given back what.
void check_order_of_work(const Configuration& config) {
    using emulator::Doing;
    const int heads = 2, blocks = 4, n_q = B_r_of(config);
    Inputs in = inputs(heads, n_q, blocks * config.B_c, config.d, false, test_seed());
    // m is raised in the first step alone, an exponential for each row and lane.
    std::fill(in.K.begin(), in.K.end(), 0.0f);
    const std::string where = stage_of(config).name() + ": " + to_string(in.shape);
    const auto work = work_of(stage_of(config), in);
    const std::uint64_t of_step = std::uint64_t(heads * n_q * config.B_c), raises = std::uint64_t(heads * n_q * 4);
    check_count("exponentials", work.exponentials, blocks * of_step + raises, where);
    // The first block of keys has nothing to hide under.
    const int early = early_keys(config.consumers, config.d, config.B_c);
    check_count("exponentials while a product of the same warpgroup is under way: of `early` keys in each step but the first",
                work.overlapped_exponentials,
                std::uint64_t((blocks - 1) * heads * n_q * early), where);
    // Each consumer once in each step; and the first one, at the end of a block, what the last one has passed.
    const int resident = emulator::settings().multiprocessors;
    const int ends = config.schedule == lcsf::Schedule::one_each ? heads : std::min(heads, resident);
    check_count("turns that are passed and waited for: one of each consumer in each step, and for each block of "
                "threads the pass that is left over at the end, which the template waits for",
                work.named_barriers, config.turns ? unsigned(config.consumers * heads * blocks + ends) : 0u, where);
    // The first warp of each consumer, in the one task that its block has.
    const auto launches = emulator::record_activity(0, [&] { run(stage_of(config), in, true); });
    const unsigned of_S = unsigned(config.d / 16), of_O = unsigned(config.B_c / 16);
    for (int consumer = 0; consumer < config.consumers; ++consumer) {
        std::uint64_t begun = 0, given_back = 0, out_of_turn = 0, waits_in_turn = 0, behind_the_last_step = 0;
        int steps = 0;
        bool has_turn = false, knows_next = false, in_softmax = false;
        const std::string who = ", consumer " + std::to_string(consumer);
        for (const auto& activity : launches.back().activities) {
            if (activity.warp != 4 * unsigned(1 + consumer)) continue;
            const bool is_softmax = activity.what == Doing::exponential, arrives = activity.what == Doing::arrive;
            if (is_softmax && !in_softmax) {
                const int K = steps + 1, V = std::max(steps - (early > 0), 0);
                check_count(fmt::format("tiles given back before the softmax of step {}: K of {} blocks, V of {}{}", steps, K, V, who),
                            given_back, unsigned(K + V), where);
                ++steps;
            }
            if (is_softmax || activity.what == Doing::product) in_softmax = is_softmax;
            if (activity.line.starts_with("common/lcsf/turns.h")) has_turn = activity.what == Doing::barrier;
            if (activity.line.starts_with("common/lcsf/tasks.h")) knows_next = true;
            waits_in_turn += has_turn && activity.what == Doing::wait && !activity.line.starts_with("common/lcsf/");
            given_back += arrives && activity.line.starts_with("common/lcsf/lcsf.h");
            if (activity.what != Doing::product) continue;
            ++begun;
            out_of_turn += !has_turn;
            behind_the_last_step += knows_next;
        }
        check_count("matrix instructions" + who, begun, unsigned(blocks) * (of_S + of_O), where);
        check_count("waits for products before the turn is passed" + who, waits_in_turn, 0, where);
        if (config.turns)
            check_count("matrix instructions begun out of turn, those of finish alone" + who, out_of_turn, of_O, where);
        if (config.schedule == lcsf::Schedule::dynamic)
            check_count("matrix instructions begun when the next task is known, those of finish" + who,
                        behind_the_last_step, of_O, where);
    }
    in = inputs(1, n_q + 40, n_q + 70, config.d, true, test_seed());
    check_count("matrix instructions: a block that no query of a consumer sees has none",
                work_of(stage_of(config), in).matrix_instructions, expected(config, in.shape).blocks * products(config),
                stage_of(config).name() + ": " + to_string(in.shape));
}
#endif

/// What the exercises are tried with, to be compiled soon: one consumer to four, each d, blocks of 64 and of 128 keys,
/// rings of one slot, turns and none: those that FLASHLADDER_LEARNER leaves.
const std::array exercised = {&configurations[0], &configurations[6], &configurations[11], &configurations[14],
                              &configurations[17]};

TEST_CASE("EXERCISE 14.1: a task has as many steps as there are blocks of keys that its queries see") {
    std::uint64_t seed = test_seed();
    for (const Configuration* config : exercised)
        // A task's last key is one of a block's first, or the last one of a block, or any; and some tasks see none.
        for (const auto& [more_keys, causal] :
             {std::pair(0, true), {1, true}, {int(seed * 7 % 150) - 1, true}, {-100, true}, {-100, false}}) {
            const int n_q = B_r_of(*config) + 44;
            Inputs in = inputs(1, n_q, n_q + more_keys, config->d, causal, seed++);
            const std::string where = stage_of(*config).name() + ": ";
#ifdef FLASHLADDER_GPU  // without a count: all scores are 0, so that LSE is the logarithm of how many keys there are
            std::fill(in.K.begin(), in.K.end(), 0.0f);
            const std::string wrong = lse_fault(stage_of(*config), in);
            CHECK_MESSAGE(wrong.empty(), where, wrong);
#else
            const unsigned row = unsigned(config->d) * 2;
            const Expected all = expected(*config, in.shape);
            const auto counts = counts_of(stage_of(*config), in);
            if (!counts) continue;
            const std::string what = where + to_string(in.shape) + ", blocks of " + std::to_string(config->B_c) + " keys";
            const std::uint64_t rows = counts->tensors.at("K").read.requested_bytes / row;
            check_count("rows of K asked for", rows, all.keys, what);
            // A block behind the last key has no rows.
            if (rows == all.keys)
                check_count("tiles asked for: Q_i of each consumer, K_j and V_j of each step",
                            tiles_asked_for(*config, in, all.tasks), all.tasks * unsigned(config->consumers) + 2 * all.steps, what);
#endif
        }
}

TEST_CASE("EXERCISE 14.2: each consumer has its own queries, and step t the t-th block of keys from the end") {
    std::uint64_t seed = test_seed();
    for (const Configuration* config : exercised) {
        AttentionShape shape = shape_of(1, 2 * B_r_of(*config) - 70, config->B_c - 3, config->d);
        const auto all = [](const Stage& stage, const Inputs& in) { return fault(stage, in); };
        const auto check_that = [&](const char* tile, auto fault_of, bool same_queries = false) {
            Inputs in = make_inputs(shape, Values::normal, seed++);
            const std::size_t row = std::size_t(config->d);
            if (same_queries)
                for (std::size_t x = row; x < in.Q.size(); ++x) in.Q[x] = in.Q[x - row];
            const std::string wrong = fault_of(stage_of(*config), in);
            std::string what = std::string(tile) + " (" + stage_of(*config).name() + ")";
            if (!wrong.empty()) try {  // of a kernel that stops, no tile is wrong
                    run(stage_of(*config), in, true);
                } catch (const CudaError&) {
                    what = stage_of(*config).name();
                }
            CHECK_MESSAGE(wrong.empty(), what, ": ", wrong);
            return wrong.empty();
        };
        // LSE does not know V. All queries are the same, and of one consumer: it is K_j alone that can be wrong.
        const AttentionShape one_head = shape;
        shape.batch = shape.kv_heads = 2, shape.heads = 4;
        shape.n_q = 40, shape.n_k = 3 * config->B_c - 5;
        const AttentionShape heads = shape;
        if (!check_that("K_j", lse_fault, true)) continue;
        if (!check_that("Q_i", lse_fault)) continue;
        shape = one_head;  // several consumers
        if (!check_that("Q_i", lse_fault)) continue;
        shape = heads;
        check_that("V_j", all);
    }
}

TEST_CASE("EXERCISE 14.3: begin, compute, finish") {
    std::uint64_t seed = test_seed();
    std::size_t turn = seed;
    for (const Configuration* config : exercised) {
        const int B_r = B_r_of(*config), B_c = config->B_c;
        const auto is_right = [&](const Inputs& in) {
            std::string wrong = fault(stage_of(*config), in);
#ifndef FLASHLADDER_GPU
            if (!wrong.empty())
                if (const std::string cause = given_back_too_early(race(stage_of(*config), in)); !cause.empty()) wrong = cause;
#endif
            CHECK_MESSAGE(wrong.empty(), stage_of(*config).name(), ": ", wrong);
            return wrong.empty();
        };
        // One step or several, whole blocks of keys or not, and m that grows from block to block. Then one
        // multiprocessor, so that a block of threads has so many tasks that a slot which is not given back is missed:
        // tasks without a key, units without a query or a key.
        const auto all_are_right = [&] {
            for (const int n_k : {B_c - 3, drawn_length(B_c, B_c + 1, 3 * B_c + 1, seed)})
                if (!is_right(inputs(1, 40, n_k, config->d, false, seed++, Values::growing_maximum))) return false;
            const std::vector<int> more_keys = more_keys_near(unit, seed);
            for (int times = 0; times < 2; ++times) {  // all six of them in a run
                const int more = more_keys[turn++ % more_keys.size()], n_q = std::max(B_r + 30, 1 - more);
                if (!is_right(inputs(1, n_q, n_q + more, config->d, true, seed++, Values::growing_maximum)))
                    return false;
            }
            const VirtualGpu one(1);
            return is_right(inputs(3, B_r + 9, B_c - 3, config->d, false, seed++)) &&
                   is_right(inputs(2, 2 * B_r - 70, 3 * B_c + 1, config->d, true, seed++)) &&
                   is_right(inputs(2, B_r + 70, 1, config->d, true, seed++));
        };
        if (!all_are_right()) continue;
#ifndef FLASHLADDER_GPU
        check_order_of_work(*config);
        const VirtualGpu one(1);
        for (const bool causal : {false, true}) {
            const std::string report =
                race(stage_of(*config), inputs(1, B_r + 40, 3 * B_c + 5, config->d, causal, seed++));
            const std::string cause = given_back_too_early(report);
            CHECK_MESSAGE(report.empty(), stage_of(*config).name(), ": ", (cause.empty() ? report : cause));
        }
#endif
    }
}

// ---- configurations, and which is chosen

TEST_CASE("each problem has a configuration of its d, and each that has a cost is for some problem") {
    std::set<std::string> names;
    for (const Configuration& config : configurations)
        CHECK(names.insert(std::to_string(config.d) + ": " + to_string(config)).second);
    if (variants().size() < configurations.size()) throw std::logic_error("compiled without variants");
    CHECK(variants().size() == configurations.size());
    std::set<std::pair<int, bool>> of_some_problem, with_cost;
    for (const ConfigurationCost& cost : configuration_costs) with_cost.emplace(cost.configuration, cost.causal);
    for (const int d : stage_under_test().supports.head_dims)
        for (const bool causal : {false, true})
            for (const int heads : {1, 2, 4, 6, 8, 12, 16, 24, 32, 40, 64, 128, 512})
                for (int n = 256; n <= 16384; n += n < 4096 ? 128 : 1024) {
                    AttentionShape shape = shape_of(heads, n, n, d);
                    shape.causal = causal;
                    const int best = configuration_for(shape, 132);
                    CHECK(configurations.at(std::size_t(best)).d == d);
                    CHECK(is_chosen(best, causal));
                    of_some_problem.emplace(best, causal);
                }
    CHECK(of_some_problem == with_cost);
}

TEST_CASE("the stage gives the bits of the configuration that is chosen, whichever that is") {
    std::uint64_t seed = test_seed();
    std::set<std::pair<int, bool>> seen;
    for (const int multiprocessors : {1, 2, 4, 8, 132})
        for (const int d : stage_under_test().supports.head_dims)
            for (const bool causal : {false, true})
                for (const int n : {100, 330, 700}) {
                    const VirtualGpu gpu(multiprocessors);
                    const Inputs in = inputs(2, n, n + 60, d, causal, seed++);
                    const Configuration& config = chosen(in.shape);
                    if (!seen.emplace(&config - configurations.data(), causal).second) continue;
                    const Stage& named = stage_of(config);
                    INFO(named.name(), ", d ", d, ", N ", n, ", multiprocessors ", multiprocessors);
                    check_same_bits(run(stage_under_test(), in, true), run(named, in, true), "by " + named.name(),
                                    "what the rung takes for " + to_string(in.shape));
#ifndef FLASHLADDER_GPU
                    const auto launch = [&](const Stage& stage) { return count_stage(stage, in).work.launches.back(); };
                    const auto ours = launch(stage_under_test()), theirs = launch(named);
                    CHECK(ours.block.x == unsigned(128 * (1 + config.consumers)));
                    CHECK(ours.grid.x == theirs.grid.x);
                    CHECK(ours.dynamic_shared_bytes == theirs.dynamic_shared_bytes);
#endif
                }
#ifndef FLASHLADDER_GPU
    if (variants().size() < configurations.size()) throw std::logic_error("compiled without variants");
    CHECK(seen.size() >= 10);  // of how many there are: of few tasks and of many
#endif
}

TEST_CASE("each configuration agrees with the reference: odd lengths, causal or not, grouped, strided") {
    std::uint64_t seed = test_seed();
    std::size_t turn = 0;
    for (const Configuration& config : compiled())
        for (const auto& [n_q, n_k] : {std::pair(1, 1), {70, 257}, {257, 70}, {330, 130}}) {
            AttentionShape shape = shape_of(4, n_q, n_k, config.d);
            // Two seeds have each of them causal and not.
            shape.causal = (test_seed() + turn + turn / 4) % 2;
            shape.kv_heads = turn % 3 == 0 ? 4 : turn % 3 == 1 ? 2 : 1;
            const auto layout = Layout(turn++ % 3);
            if (!takes_combination(turn)) continue;
            const VirtualGpu gpu(int(1 + turn % 2));
            const Inputs in = make_inputs(with_enough_rows(shape), Values::normal, seed++);
            const std::string wrong = fault(stage_of(config), in, layout);
            CHECK_MESSAGE(wrong.empty(), stage_of(config).name(), ", ", std::string(to_string(layout)), ": ", wrong);
        }
}

TEST_CASE("a last round that is not full: tasks of one unit less, behind those of all heads and batches") {
    std::mt19937_64 random(test_seed());
    for (const Configuration& config : compiled()) {
        const VirtualGpu gpu(3);
        const int multiprocessors = device_attribute(cudaDevAttrMultiProcessorCount);
        AttentionShape shape = shape_of(3, 0, 1 + int(random() % 100), config.d);
        shape.batch = 2, shape.kv_heads = random() % 2 ? 1 : 3;
        for (int i = 0; i < 1000; ++i) {
            shape.n_q = 1 + int(random() % unsigned(30 * unit * multiprocessors / 6));
            if (query_tasks(config, shape, multiprocessors).late > 0) break;
        }
        if (query_tasks(config, shape, multiprocessors).late == 0) {
            CHECK((config.consumers == 1 || config.schedule == lcsf::Schedule::fixed));
            continue;
        }
        const std::string wrong = fault(stage_of(config), make_inputs(shape, Values::normal, random()), Layout::heads_first);
        CHECK_MESSAGE(wrong.empty(), stage_of(config).name(), ": ", wrong);
    }
}

TEST_CASE("consumers, slots, turns and schedules do not change a bit of the result: d and B_c do") {
    std::size_t turn = test_seed();
    const std::vector<Configuration> all = compiled();
    for (const Configuration& config : all)
        for (const Configuration& other : all) {
            if (&other >= &config || other.d != config.d || other.B_c != config.B_c) continue;
            const Inputs in = inputs(2, 3 * unit + 70, 3 * config.B_c + 33, config.d, turn++ % 2, test_seed());
            const Outputs wanted = run(stage_of(config), in, true), found = run(stage_of(other), in, true);
            check_same_bits(found, wanted, "by " + stage_of(config).name(), stage_of(other).name());
            break;
        }
    if (all.size() < configurations.size()) throw std::logic_error("compiled without variants");
}

TEST_CASE("gives the same bits again, whoever comes first") {
    for (const Configuration& config : compiled()) {
        const Inputs in = inputs(3, 2 * unit + 70, 2 * config.B_c + 5, config.d, true, test_seed());
        const Outputs first = run(stage_of(config), in, true);
#ifndef FLASHLADDER_GPU
        emulator::reseed(test_seed() + 1000);
        const VirtualGpu one(1);
#endif
        const Outputs again = run(stage_of(config), in, true);
        check_same_bits(again, first, "in the run before", stage_of(config).name());
    }
}

// ---- problems of all kinds

TEST_CASE("d 256: one slot for what a task owns; tasks one after another, of both heights") {
    std::uint64_t seed = test_seed();
    std::size_t i = 0;
    for (const DType dtype : stage_under_test().supports.dtypes)
        for (const bool causal : {false, true})
            for (const auto& [n_q, n_k] : {std::pair(1, 1), {64, 64}, {100, 257}, {257, 100}, {330, 330}}) {
                if (!takes_combination(i++, 4)) continue;
                const VirtualGpu gpu(1);
                AttentionShape shape = shape_of(3, n_q, n_k, 256);
                shape.dtype = dtype, shape.causal = causal, shape.kv_heads = 1;
                const std::string wrong =
                    fault(stage_under_test(), make_inputs(with_enough_rows(shape), Values::normal, seed++));
                CHECK_MESSAGE(wrong.empty(), wrong);
            }
}

TEST_CASE("heads that share a K and V: any number of them") {
    std::uint64_t seed = test_seed();
    std::size_t i = 0;
    for (const int d : stage_under_test().supports.head_dims)
        for (const int kv_heads : {6, 3, 2, 1}) {
            if (!takes_combination(i++)) continue;
            AttentionShape shape = shape_of(6, 70, 100, d);
            shape.batch = 2, shape.kv_heads = kv_heads, shape.causal = kv_heads % 2;
            const std::string wrong = fault(stage_under_test(), make_inputs(shape, Values::normal, seed++));
            CHECK_MESSAGE(wrong.empty(), "K and V of ", kv_heads, " heads: ", wrong);
        }
}

TEST_CASE("scores that grow, fall, are all negative, or huge once: m may lag, the result may not") {
    std::uint64_t seed = test_seed();
    std::size_t i = 0;
    for (const int d : stage_under_test().supports.head_dims)
        for (const DType dtype : stage_under_test().supports.dtypes)
            for (const Scores& scores : adverse_scores()) {
                const bool causal = seed++ % 2;
                if (!takes_combination(i++, 4)) continue;
                AttentionShape shape = shape_of(1, 1, adverse_blocks * unit, d);
                shape.causal = causal;
                const Configuration& config = chosen(shape);
                const int n_q = causal ? B_r_of(config) + 40 : 70;
                const Inputs in = adverse_inputs(scores, n_q, config.B_c, d, dtype, causal, seed);
                INFO("scores ", std::string(scores.name), ", d ", d, ", causal ", causal);
                check_adverse(in, scores);
            }
}

TEST_CASE("any positive scale") {
    std::uint64_t seed = test_seed();
    for (const int d : stage_under_test().supports.head_dims)
        for (const float scale : {1e-38f, 1e-30f, 1e-4f, 1.0f, 3.0f}) {
            Inputs in = inputs(1, 200, 100, d, true, seed++);  // half of the queries see nothing
            in.scale = scale;
            if (scale >= 1)
                for (float& x : in.Q) x /= 16;  // the power of two leaves a 16-bit number one
            const std::string wrong = fault(stage_under_test(), in);
            CHECK_MESSAGE(wrong.empty(), "d ", d, ", scale ", scale, ": ", wrong);
        }
}

TEST_CASE("random shapes and strides") {
#ifdef FLASHLADDER_GPU
    constexpr std::size_t problems = 1000;
    constexpr int most_q = 500, most_k = 1000, most_heads = 4;
#else
    constexpr std::size_t problems = 100;
    constexpr int most_q = 150, most_k = 200, most_heads = 2;
#endif
    std::mt19937_64 random(test_seed());
    const auto draw = [&](int most) { return 1 + int(random() % unsigned(most)); };
    /// Short ones as often as long ones.
    const auto length = [&](int most) { return draw(draw(2) == 1 ? 70 : most); };
    const auto& supports = stage_under_test().supports;
    for (std::size_t i = 0; i < problems; ++i) {
        if (!takes_combination(i, 4)) continue;
        const VirtualGpu gpu(draw(4));
        AttentionShape s = shape_of(1, length(most_q), length(most_k), supports.head_dims[i % 3]);
        s.batch = draw(2), s.kv_heads = draw(most_heads), s.heads = s.kv_heads * draw(3);
        s.dtype = supports.dtypes[random() % supports.dtypes.size()], s.causal = draw(2) == 1;
        const auto layout = Layout(random() % 3);
        const bool lse = draw(2) == 1;
        s = with_enough_rows(s);
        INFO("problem ", i, ", ", std::string(to_string(layout)), lse ? ", with LSE" : "");
        try {
            const Comparison result =
                check(stage_under_test(), make_inputs(s, Values::normal, random()), Judge::both_rules, lse, layout);
            CHECK_MESSAGE(result.passed, result.describe(s));
        } catch (const CudaError& error) {
            FAIL_CHECK(to_string(s), ": ", std::string(error.what()));
        }
    }
}

TEST_CASE("causal: blocks behind the diagonal reach nobody, whatever they hold") {
    for (const int d : stage_under_test().supports.head_dims) {
        const VirtualGpu gpu(1);
        AttentionShape shape = shape_of(1, 8 * unit, 8 * unit, d);
        shape.causal = true;
        const int B_r = B_r_of(chosen(shape)), B_c = chosen(shape).B_c;
        const int seen = (B_r + B_c - 1) / B_c * B_c;  // by the first task
        check_hidden_keys_reach_nobody(shape, seen, B_r, shape.n_q - 1);
    }
}

TEST_CASE("the rings go on from task to task: tasks without a key, units without a query or a key, one step or many") {
    std::uint64_t seed = test_seed();
    for (const Configuration& config : compiled())
        for (const auto& [n_q, n_k, causal] : {std::tuple(40, 1, false),
                                               {B_r_of(config) + 70, 1, true},
                                               {40, 5 * config.B_c - 5, false},
                                               {2 * B_r_of(config) - 70, config.B_c + 1, true},
                                               {B_r_of(config) + 1, 2 * config.B_c, false}}) {
            const VirtualGpu gpu(1);
            const std::string wrong = fault(stage_of(config), inputs(3, n_q, n_k, config.d, causal, seed++));
            CHECK_MESSAGE(wrong.empty(), stage_of(config).name(), ": ", wrong);
        }
}

TEST_CASE("scratch is a word, whatever it holds: launches one after another") {
    CHECK(stage_under_test().scratch_bytes(shape_of(4, 1000, 1000, 64)) == sizeof(unsigned));
    const VirtualGpu gpu(2);
    check_ignores_scratch(inputs(7, 250, 100, 128, true, test_seed()));
}

#ifdef FLASHLADDER_GPU
TEST_CASE("a CUDA graph that has captured a launch gives the same bits, as often as it runs") {
    for (const int d : stage_under_test().supports.head_dims)
        for (const bool causal : {false, true}) {
            const Inputs in = inputs(40, 700, 700, d, causal, test_seed());
            const Outputs wanted = run(stage_under_test(), in, true);
            DeviceProblem problem(stage_under_test(), in, true);
            ForwardArgs args = problem.args();
            cudaGraph_t graph;
            cudaGraphExec_t launches;
            check_cuda(cudaStreamCreate(&args.stream), "a stream");
            check_cuda(cudaStreamBeginCapture(args.stream, cudaStreamCaptureModeGlobal), "capture");
            stage_under_test().launch(args);
            check_cuda(cudaStreamEndCapture(args.stream, &graph), "end of the capture");
            check_cuda(cudaGraphInstantiate(&launches, graph, 0), "a graph to launch");
            for (int times = 0; times < 3; ++times) {
                problem.O.fill(0xFF), problem.lse.fill(0xFF);
                check_cuda(cudaDeviceSynchronize(), "outputs are poisoned");
                check_cuda(cudaGraphLaunch(launches, args.stream), "launch of the graph");
                check_cuda(cudaStreamSynchronize(args.stream), "the graph");
                const Outputs found = problem.outputs();
                check_same_bits(found, wanted, "without a graph", "launch " + std::to_string(times) + " of the graph");
            }
            check_cuda(cudaGraphExecDestroy(launches), "launches");
            check_cuda(cudaGraphDestroy(graph), "graph");
            check_cuda(cudaStreamDestroy(args.stream), "stream");
        }
}
#else
// Tasks of both heights, with idle consumers and without, blocks that a unit skips, and O that leaves under the next
// task. Giving K_j back before S is waited for is no race: its slot is asked for behind the V that takes the slot of
// V_j-1, and that is given back in the same step after the wait.
TEST_CASE("has no races where blocks take several tasks") {
    for (const Configuration& config : compiled())
        for (const bool causal : {false, true}) {
            const VirtualGpu one(1);
            const int n_q = B_r_of(config) + 100;
            const Inputs in = inputs(2, n_q, causal ? n_q : 3 * config.B_c + 5, config.d, causal, test_seed());
            const std::string report = race(stage_of(config), in);
            CHECK_MESSAGE(report.empty(), stage_of(config).name(), ", d ", config.d, ", causal ", causal, ": ", report);
        }
}

// So few blocks of keys that no ring holds the producer back before it asks for the queries of the task behind the next
// one, or of the next one at d 256. Their slot still has O.
TEST_CASE("has no races where tasks are short") {
    for (const Configuration& config : compiled())
        for (const int n_q : {100, B_r_of(config) - 3}) {
            const VirtualGpu one(1);
            const Inputs in = inputs(5, n_q, 10, config.d, n_q == 100, test_seed());
            const std::string report = race(stage_of(config), in);
            CHECK_MESSAGE(report.empty(), stage_of(config).name(), ", d ", config.d, ", N_q ", n_q, ": ", report);
        }
}

TEST_CASE("has no races where m is raised in each step, and where some rows of a warp ask for it") {
    for (const int d : stage_under_test().supports.head_dims) {
        const VirtualGpu one(1);
        const int B_c = chosen(shape_of(1, 70, 300, d)).B_c;
        Inputs in = adverse_inputs({"", [](int block, int) { return 60.0 * block; }}, 70, B_c, d, DType::bf16, false,
                                   test_seed());
        for (std::size_t row = 0; row < in.Q.size(); row += 3 * std::size_t(d)) in.Q[row] = 0;
        const std::string report = race(stage_under_test(), in);
        CHECK_MESSAGE(report.empty(), "d ", d, ": ", report);
    }
}

TEST_CASE("counted: each task is done once, by as many blocks as its schedule has; nothing behind the diagonal") {
    for (const Configuration& config : compiled())
        for (const int multiprocessors : {1, 3, 132}) {
            const VirtualGpu gpu(multiprocessors);
            const int heads = 3, n_q = B_r_of(config) + 9;
            const Inputs in = inputs(heads, n_q, n_q - 20, config.d, true, test_seed());
            const auto counts = count_stage(stage_of(config), in, true);
            const Expected all = expected(config, in.shape);
            const std::uint64_t row = std::uint64_t(heads * config.d * 2);
            const auto check = [&](const char* what, std::uint64_t found, std::uint64_t expected) {
                check_count(what, found, expected,
                            stage_of(config).name() + ", " + std::to_string(multiprocessors) + " multiprocessors, " +
                                to_string(in.shape));
            };
            check("bytes asked for of Q", counts.tensors.at("Q").read.requested_bytes, all.queries * row);
            check("bytes asked for of K", counts.tensors.at("K").read.requested_bytes, all.keys * row);
            check("bytes asked for of V", counts.tensors.at("V").read.requested_bytes, all.keys * row);
            check("bytes written of O", counts.tensors.at("O").written.requested_bytes, std::uint64_t(n_q) * row);
            check("bytes written of LSE", counts.tensors.at("lse").written.requested_bytes,
                  std::uint64_t(heads * n_q * 4));
            check("matrix instructions", counts.work.total().matrix_instructions, all.blocks * products(config));
            const auto tasks = std::uint64_t(heads) * all.tasks;
            const dim3 grid = counts.work.launches.back().grid;
            const bool persistent = config.schedule != lcsf::Schedule::one_each;
            check("blocks of the grid", grid.x, persistent ? std::min(tasks, std::uint64_t(multiprocessors)) : tasks);
            CHECK(grid.y * grid.z == 1);
            const bool dynamic = config.schedule == lcsf::Schedule::dynamic;
            check("times that a next task is asked for",
                  counts.work.total().global_of(emulator::Access::atomic).accesses, dynamic ? tasks : 0);
        }
}

TEST_CASE("counted: all but LSE by TMA, no conflicts, one barrier a block; shared memory is tiles and barriers") {
    for (const Configuration& config : compiled()) {
        const VirtualGpu gpu(2);
        const int heads = 3, n_q = B_r_of(config) + 5;
        const Inputs in = inputs(heads, n_q, 2 * config.B_c + 5, config.d, false, test_seed());
        const auto work = count_stage(stage_of(config), in).work;
        const Expected all = expected(config, in.shape);
        const std::uint64_t row = std::uint64_t(heads * config.d * 2);
        INFO(stage_of(config).name(), ", d ", config.d);
        const auto& launch = work.launches.back();
        check_by_tma(launch.total, (all.queries + 2 * all.keys) * row, std::uint64_t(n_q) * row, launch.grid.x,
                     stage_of(config).name() + ", d " + std::to_string(config.d));
        const int tiles = (config.own_slots * B_r_of(config) + 2 * config.stages * config.B_c) * config.d * 2;
        CHECK(launch.dynamic_shared_bytes > std::size_t(tiles));
        CHECK(launch.dynamic_shared_bytes <= std::size_t(tiles + 1024));
        CHECK(launch.dynamic_shared_bytes <= 227 * 1024);
    }
}
#endif

}  // namespace
}  // namespace flashladder::attention
