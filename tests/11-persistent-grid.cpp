// Rung 11. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch.h"
#include "attention_suite.h"

#ifndef FLASHLADDER_GPU
#include "emulator/activity.h"
#include "emulator/emulator.h"
#include "emulator/report.h"
#include "operations/attention/counts.h"
#endif

namespace flashladder::attention {
namespace {

/// What a block of the rung has, by head dimension; `blocks` share a multiprocessor.
struct Sizes {
    int d, B_r, B_c, consumers, blocks;
};
constexpr Sizes of_64{64, 128, 64, 2, 2}, of_128{128, 192, 128, 3, 1};
constexpr int stages = 2;

#ifndef FLASHLADDER_GPU
/// Head and block of queries of tasks that are numbered by their place in LSE: "0 1, 0 0".
std::string listed(const std::vector<int>& tasks, int T_r) {
    std::string text;
    for (const int task : tasks)
        text += (text.empty() ? "" : ", ") + std::to_string(task / T_r) + " " + std::to_string(task % T_r);
    return text.empty() ? "none" : text;
}

/// The tasks of a problem in the order in which they are given away, each as its place in LSE: block of queries behind
/// block, head behind head.
std::vector<int> expected_order(int T_r, int heads, int section, bool causal) {
    std::vector<int> order;
    for (int first = 0; first < heads; first += section)
        for (int i = 0; i < T_r; ++i)
            for (int head = first; head < std::min(first + section, heads); ++head)
                order.push_back(head * T_r + (causal ? T_r - 1 - i : i));
    return order;
}

/// Runs a problem of whole blocks of queries on one multiprocessor, where LSE has room for the blocks from `first` up
/// to `end` alone. The first task that finds no room stops the kernel. Which tasks have ended by then, by their place?
/// If no task has less than three blocks of keys, no warp is a task ahead of another.
std::vector<int> tasks_done(const Stage& stage, const Inputs& in, int first, int end, std::size_t l2_bytes) {
    const VirtualGpu one(1, l2_bytes);
    const std::size_t block = std::size_t(of_128.B_r);
    const DeviceProblem problem(stage, in, false);
    std::optional<DeviceBuffer> nobodys(in.shape.lse_elements() * sizeof(float));  // no memory, once it is freed
    const DeviceBuffer lse((end - first) * block * sizeof(float));
    nobodys.reset();
    ForwardArgs args = problem.args();
    args.lse = static_cast<float*>(lse.data()) - first * block;
    try {
        stage.launch(args);
    } catch (const CudaError&) {
    }
    const std::vector<float> values = lse.download((end - first) * block, DType::f32);
    std::vector<int> done;
    for (int i = first; i < end; ++i) {
        const auto begin = values.begin() + (i - first) * block;
        if (std::none_of(begin, begin + block, [](float x) { return std::isnan(x); })) done.push_back(i);
    }
    return done;
}

/// Checks the order of tasks, from either end of LSE.
void check_order(const Stage& stage, const Inputs& in, const std::vector<int>& order, std::size_t l2_bytes = 50 << 20) {
    const int tasks = static_cast<int>(order.size()), T_r = in.shape.n_q / of_128.B_r;
    const std::string in_order = "the order of tasks, as head and block of queries: " + listed(order, T_r);
    // Where a single task has room, it is done if it is task 0.
    for (int task = 0; task < tasks; ++task)
        if (task != order[0] && !tasks_done(stage, in, task, task + 1, l2_bytes).empty()) {
            FAIL_CHECK("task 0 is head ", task / T_r, ", block ", task % T_r, " of queries; expected head ",
                       order[0] / T_r, ", block ", order[0] % T_r, " (", in_order, ")");
            return;
        }
    for (int cut = 1; cut < tasks; ++cut)
        for (const auto& [first, end] : {std::pair(0, cut), {cut, tasks}}) {
            std::vector<int> expected;
            for (const int task : order) {
                if (task < first || task >= end) break;
                expected.push_back(task);
            }
            std::sort(expected.begin(), expected.end());
            const std::vector<int> found = tasks_done(stage, in, first, end, l2_bytes);
            const bool same = found == expected;
            CHECK_MESSAGE(same, "of the tasks from head and block ", listed({first}, T_r), " to ",
                          listed({end - 1}, T_r), ", done before the first task that is none of these: found ",
                          listed(found, T_r), "; expected ", listed(expected, T_r), " (", in_order, ")");
            if (!same) return;
        }
}
#endif

bool is_right(const Inputs& in) {
    const std::string wrong = fault(stage_under_test(), in);
    CHECK_MESSAGE(wrong.empty(), wrong);
    return wrong.empty();
}

#ifndef FLASHLADDER_GPU
/// Whether nothing stops the kernel, nor races: that says which line, where a wrong result has a number.
bool is_sound(const Inputs& in) {
    const std::string report = race(stage_under_test(), in);
    CHECK_MESSAGE(report.empty(), to_string(in.shape), ": ", report);
    return report.empty();
}

/// Whether each task's queries are asked for once.
bool each_task_once(const Inputs& in) {
    const StageCounts counts = count_stage(stage_under_test(), in);
    const auto rows = counts.tensors.at("Q").read.requested_bytes / std::uint64_t(in.shape.head_dim * 2);
    const auto expected = std::uint64_t(in.shape.heads) * std::uint64_t(in.shape.n_q);
    check_count("rows of Q asked for, each task's once", rows, expected, to_string(in.shape));
    return rows == expected;
}

/// What block 0 does, in its order; nothing where the kernel stops, and then the test has failed. `late`: copies and
/// products end as late as the kernel's waits allow, so that whoever goes on without them has gone as far as he can.
std::vector<emulator::Activity> activities_of(const Inputs& in, bool late = false) {
    try {
        const auto launches = emulator::record_activity(
            0, [&] { run(stage_under_test(), in, false); }, late);
        return launches.at(0).activities;
    } catch (const CudaError& error) {
        FAIL_CHECK(std::string(error.what()));
        return {};
    }
}

struct Products {
    int of_scores, of_step;
};
Products products_of(const Sizes& size) { return {size.d / 16, size.d / 16 + size.B_c / 16}; }

/// A task's last P V needs no Q_i: when it begins, each K_j has been given back, each V_j but one, and Q_i. Barriers
/// have no names here, so arrivals are counted.
void check_queries_given_back(const Sizes& size) {
    const int T_c = 3;
    const auto [products_of_scores, products] = products_of(size);
    std::map<unsigned, int> begun, arrivals;  // by warp: products, and arrivals before that one
    const VirtualGpu one(1);
    for (const auto& activity : activities_of(inputs(1, size.B_r, T_c * size.B_c, size.d, false, test_seed()))) {
        const bool last = begun[activity.warp] > (T_c - 1) * products + products_of_scores;
        begun[activity.warp] += activity.what == emulator::Doing::product;
        arrivals[activity.warp] += activity.what == emulator::Doing::arrive && !last;
    }
    for (int warp = 4; warp < 4 * (1 + size.consumers); ++warp) {
        const bool in_time = arrivals[unsigned(warp)] >= 2 * T_c;  // a test's source tells nobody anything
        CHECK_MESSAGE(in_time, "Q_i is given back late: before a task's last P V begins, warp ", warp, " has arrived ",
                      arrivals[unsigned(warp)], " times; expected ", 2 * T_c, ", ", T_c, " for K, ", T_c - 1,
                      " for V, and one for Q (d ", size.d, ")");
    }
}

/// Before the last P V of the first of two tasks is done, the producer has asked for what the next one needs, as far as
/// slots are free: its queries, and all but the V whose slot that product reads.
void check_next_task_is_asked_for() {
    const Sizes& size = of_128;  // a block is alone on its multiprocessor
    const VirtualGpu one(1);
    const int T_c = 3, boxes = size.d / 64;  // of TMA, that make a tile
    const int products = products_of(size).of_step;
    std::vector<std::uint64_t> copies;
    std::map<unsigned, int> begun;
    std::uint64_t end = 0;
    for (const auto& activity : activities_of(inputs(2, size.B_r, T_c * size.B_c, size.d, false, test_seed()), true)) {
        if (activity.what == emulator::Doing::copy) copies.push_back(activity.begin);
        if (activity.what == emulator::Doing::product && ++begun[activity.warp] == T_c * products)
            end = std::max(end, activity.happened);
    }
    if (copies.empty()) return;
    check_count(
        "tiles of the next task, of Q, K and V, that have been asked for before this one's last P V is done",
        std::uint64_t(std::count_if(copies.begin(), copies.end(), [=](auto begin) { return begin < end; }) / boxes -
                      size.consumers - 2 * T_c),
        std::uint64_t(size.consumers + 2 * stages - 1));
}

/// Of two tasks with one block of keys each: no warp waits for TMA between its first O and the next task's scores.
void check_output_leaves_meanwhile() {
    const VirtualGpu one(1);
    const int products = products_of(of_128).of_step;
    std::map<unsigned, int> begun;
    std::map<unsigned, bool> sent;  // the first O, and the next task has not begun
    for (const auto& activity : activities_of(inputs(2, of_128.B_r, of_128.B_c, 128, false, test_seed()))) {
        const unsigned warp = activity.warp;
        if (activity.what == emulator::Doing::store && begun[warp] == products) sent[warp] = true;
        if (activity.what == emulator::Doing::product && begun[warp]++ == products) sent[warp] = false;
        if (activity.what != emulator::Doing::wait || !sent[warp]) continue;
        const std::size_t colon = activity.line.rfind(':');
        const std::string text = emulator::source_line(activity.line.substr(0, colon),
                                                       unsigned(std::stoul(activity.line.substr(colon + 1))));
        if (text.find("bulk_wait") == std::string::npos) continue;
        FAIL_CHECK("warp ", warp % 4, " of consumer ", warp / 4 - 1,
                   " waits for TMA between its O and the next task's scores, at ", activity.line,
                   "; expected that it goes on, and waits when it has the next O");
        return;
    }
}
#endif

TEST_CASE("EXERCISE 11.1: which task is which: sections of heads, and what takes longest first") {
    const int T_r = 2, heads = 3, n_q = T_r * of_128.B_r, n_k = n_q + of_128.B_c;
    const Inputs in = inputs(heads, n_q, n_k, 128, true, test_seed());
#ifndef FLASHLADDER_GPU
    const std::size_t two_heads = std::size_t(2 * 2 * n_k * 128 * 2) * 3 / 2 + 3;  // of L2: K and V in two thirds
    // Of a kernel that stops by itself, or leaves tasks out, the order says nothing.
    try {
        const VirtualGpu one(1, two_heads);
        const std::vector<float> lse = run(stage_under_test(), in, true).lse;
        for (int row = 0; row < heads * n_q; row += of_128.B_r)
            CHECK_MESSAGE(!std::isnan(lse.at(std::size_t(row))), "no task has queries ", row % n_q, " to ",
                          row % n_q + of_128.B_r - 1, " of head ", row / n_q, ", N_q ", n_q,
                          ": their LSE is not written");
        check_order(stage_under_test(), in, expected_order(T_r, heads, 2, true), two_heads);
        const Inputs plain = inputs(2, n_q, 3 * of_128.B_c, 128, false, test_seed());
        check_order(stage_under_test(), plain, expected_order(T_r, 2, 1, false));
    } catch (const CudaError& error) {
        FAIL_CHECK(std::string(error.what()));
    }
#endif
    Inputs batches = inputs(2, n_q, 30, 128, true, test_seed());
    batches.shape.batch = 2, batches.shape.heads = 1, batches.shape.kv_heads = 1;
    is_right(batches);  // a GPU shows the order in its time alone
}

TEST_CASE("EXERCISE 11.2: a block takes one task after another") {
#ifndef FLASHLADDER_GPU
    for (const Sizes& size : {of_64, of_128}) {
        const VirtualGpu one(1);
        if (!is_sound(inputs(4, size.B_r / 2 + 3, 2 * size.B_c + 5, size.d, false, test_seed()))) return;
        if (!is_sound(inputs(2, 3 * size.B_r, size.B_c + 10, size.d, true, test_seed()))) return;
    }
#endif
    for (const Sizes& size : {of_64, of_128})
        for (const int multiprocessors : {1, 2})
            for (const int blocks : {1, 2, 3, 4}) {
                const VirtualGpu gpu(multiprocessors);
                const int n_k = (blocks - 1) * size.B_c + drawn_length(size.B_c, 1, size.B_c, std::uint64_t(blocks));
                if (!is_right(inputs(7, 50, n_k, size.d, false, test_seed(), Values::peaky))) return;
            }
    for (const Sizes& size : {of_64, of_128}) {  // tasks without a key, between others
        const VirtualGpu one(1);
        if (!is_right(inputs(3, 3 * size.B_r, size.B_c + 1, size.d, true, test_seed()))) return;
    }
#ifndef FLASHLADDER_GPU
    for (const Sizes& size : {of_64, of_128})
        for (const int multiprocessors : {1, 3}) {
            const VirtualGpu gpu(multiprocessors);
            const Inputs in = inputs(5, size.B_r + 1, 20, size.d, false, test_seed());
            const dim3 grid = count_stage(stage_under_test(), in).work.launches.at(0).grid;
            check_count(
                "blocks of the grid, as many as run at once", grid.x,
                std::uint64_t(std::min(10, size.blocks * multiprocessors)),
                "10 tasks, d " + std::to_string(size.d) + ", " + std::to_string(multiprocessors) + " multiprocessors");
            if (!each_task_once(in)) return;
        }
    for (const Sizes& size : {of_64, of_128}) check_queries_given_back(size);
    check_next_task_is_asked_for();
#endif
}

TEST_CASE("EXERCISE 11.3: O leaves while the next task is computed") {
    // Short tasks: the next one ends when the O of the one before may still be there.
#ifndef FLASHLADDER_GPU
    for (const Sizes& size : {of_64, of_128}) {
        const VirtualGpu one(1);
        if (!is_sound(inputs(4, 50, 40, size.d, false, test_seed()))) return;
    }
#endif
    for (const Sizes& size : {of_64, of_128})
        for (int times = 0; times < 4; ++times) {
            const VirtualGpu one(1);
            if (!is_right(inputs(6, 50, 40, size.d, false, test_seed() + times))) return;
        }
#ifndef FLASHLADDER_GPU
    check_output_leaves_meanwhile();
#endif
}

TEST_CASE("EXERCISE 11.4: who is done takes the next task that nobody has taken") {
#ifndef FLASHLADDER_GPU
    for (const Sizes& size : {of_64, of_128})
        for (const int multiprocessors : {1, 2}) {
            const VirtualGpu gpu(multiprocessors);
            if (!is_sound(inputs(4, size.B_r / 2 + 3, 2 * size.B_c + 5, size.d, true, test_seed()))) return;
            // Where tasks have no keys, the ring of tasks alone holds the producer back.
            if (!is_sound(inputs(2, 5 * size.B_r, 10, size.d, true, test_seed()))) return;
        }
#endif
    for (const Sizes& size : {of_64, of_128})
        for (const int multiprocessors : {1, 2, 3}) {
            const VirtualGpu gpu(multiprocessors);
            const Inputs in = inputs(5, 2 * size.B_r, size.B_c, size.d, false, test_seed());
            if (!is_right(in)) return;
#ifndef FLASHLADDER_GPU
            if (!each_task_once(in)) return;
            const auto asked = count_stage(stage_under_test(), in).work.total().global_of(emulator::Access::atomic);
            check_count("times that a next task is asked for, once in each", asked.accesses, 10,
                        "10 tasks, d " + std::to_string(size.d));
#endif
        }
}

constexpr const char* names[] = {"a block for each task", "fixed schedule", "head after head", "sections in L2",
                                 "all heads at once"};

TEST_CASE("the rings go on from task to task: any number of blocks of keys, of tasks, of blocks that take them") {
    for (const Sizes& size : {of_64, of_128}) check_many_tasks(size.d, size.B_c, {0, 1, 1, 2}, {0});
}

TEST_CASE("agrees with the reference: lengths near multiples of the tiles") {
    for (const Sizes& size : {of_64, of_128}) {
        const VirtualGpu one(1);
        check_lengths_near(size.B_r, size.B_c, size.d);
    }
}

TEST_CASE("tasks without a key, between others") {
    std::uint64_t seed = test_seed();
    for (const Sizes& size : {of_64, of_128})
        for (const char* name : {"head after head", "fixed schedule", "all heads at once"}) {
            const VirtualGpu gpu(1);
            const Inputs in = inputs(3, 3 * size.B_r, size.B_c + 1, size.d, true, seed++);
            const std::string wrong = fault(variant(name), in);
            CHECK_MESSAGE(wrong.empty(), "d ", size.d, ", ", std::string(name), ": ", wrong);
        }
}

TEST_CASE("the schedule, the order and the number of blocks do not change a bit of the result") {
    for (const Sizes& size : {of_64, of_128})
        for (const bool causal : {false, true}) {
            Inputs in = inputs(4, size.B_r + 20, 2 * size.B_c + 33, size.d, causal, test_seed());
            in.shape.batch = 1;
            const Outputs expected = run(stage_under_test(), in, true);
            const auto check_same = [&](const Stage& stage) {
                check_same_bits(run(stage, in, true), expected, "by the rung's schedule", stage.name());
            };
            for (const int multiprocessors : {1, 3}) {
                const VirtualGpu gpu(multiprocessors);
                check_same(stage_under_test());
                for (const char* name : names) check_same(variant(name));
            }
        }
}

TEST_CASE("heads in sections, also where they do not divide: every task finds its queries, its head, its batch") {
    // 3 * 4 heads, of which two share a K and V; L2 has room for 1 to 13 of them.
    for (const Sizes& size : {of_64, of_128}) {
        AttentionShape shape = shape_of(4, size.B_r + 1, 30, size.d);
        shape.batch = 3, shape.kv_heads = 2, shape.causal = true;
        const Inputs in = make_inputs(shape, Values::normal, test_seed());
        for (const int section : {1, 2, 5, 7, 12, 13}) {
            const std::size_t bytes_of_head = 2 * 30 * size.d * 2 / 2;
            const VirtualGpu gpu(2, (section * bytes_of_head + 1) * 3 / 2);
            const std::string wrong = fault(variant("sections in L2"), in);
            CHECK_MESSAGE(wrong.empty(), "d ", size.d, ", ", section, " heads together: ", wrong);
        }
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
    for (const auto& [name, multiprocessors] : {std::pair("", 1), {"", 2}, {"fixed schedule", 1}})
        for (const Sizes& size : {of_64, of_128}) {
            const VirtualGpu gpu(multiprocessors);
            const Stage& stage = *name ? variant(name) : stage_under_test();
            const Inputs in = inputs(4, size.B_r / 2 + 3, 2 * size.B_c + 5, size.d, true, test_seed());
            const std::string report = race(stage, in);
            CHECK_MESSAGE(report.empty(), stage.name(), ", d ", size.d, ": ", report);
        }
}

TEST_CASE("has no races where tasks have no keys: there the ring of tasks alone holds the producer back") {
    for (const Sizes& size : {of_64, of_128})
        for (int times = 0; times < 4; ++times) {
            const VirtualGpu one(1);
            const Inputs in = inputs(2, 5 * size.B_r, 10, size.d, true, test_seed() + times);
            const std::string report = race(stage_under_test(), in);
            CHECK_MESSAGE(report.empty(), "d ", size.d, ": ", report);
        }
}

TEST_CASE("the order of tasks: head after head, in sections that fill L2, all heads at once") {
    const int T_r = 2, heads = 5, n_q = T_r * of_128.B_r, n_k = n_q + of_128.B_c;
    const Inputs in = inputs(heads, n_q, n_k, 128, true, test_seed());
    check_order(variant("head after head"), in, expected_order(T_r, heads, 1, true));
    const std::size_t bytes_of_head = 2 * n_k * 128 * 2;
    check_order(variant("sections in L2"), in, expected_order(T_r, heads, 2, true), 2 * bytes_of_head * 3 / 2 + 3);
    check_order(variant("all heads at once"), in, expected_order(T_r, heads, heads, true));
    const Inputs plain = inputs(2, n_q, n_k, 128, false, test_seed());
    check_order(stage_under_test(), plain, expected_order(T_r, 2, 1, false));
}

TEST_CASE("counted: the grid is as many blocks as run at once, or a block for each task") {
    const char* a_block_each = "a block for each task";
    for (const char* name : {"", "fixed schedule", "all heads at once", a_block_each})
        for (const Sizes& size : {of_64, of_128})
            for (const int multiprocessors : {1, 3, 4, 132}) {
                const VirtualGpu gpu(multiprocessors);
                const int heads = 5, T_r = 2, tasks = T_r * heads;
                const Stage& stage = *name ? variant(name) : stage_under_test();
                const Inputs in = inputs(heads, size.B_r + 1, 20, size.d, false, test_seed());
                const dim3 found = count_stage(stage, in).work.launches.at(0).grid;
                check_count("blocks of the grid", std::uint64_t(found.x) * found.y * found.z,
                            name == a_block_each ? tasks : std::min(tasks, size.blocks * multiprocessors),
                            stage.name() + ", d " + std::to_string(size.d) + ", " + std::to_string(multiprocessors) +
                                " multiprocessors, " + std::to_string(tasks) + " tasks");
                CHECK(found.y * found.z == 1);
            }
}

TEST_CASE("counted: under every schedule each task is done once, and nothing behind the diagonal is asked for") {
    for (const char* name : {"", "a block for each task", "fixed schedule", "sections in L2"})
        for (const Sizes& size : {of_64, of_128}) {
            const VirtualGpu gpu(3);
            const Stage& stage = *name ? variant(name) : stage_under_test();
            const int heads = 3, n_q = 2 * size.B_r + 9, n_k = n_q - 20, T_r = 3;
            const auto counts = count_stage(stage, inputs(heads, n_q, n_k, size.d, true, test_seed()), true);
            std::uint64_t keys = 0;  // that blocks of queries ask for, together
            for (int i = 0; i < n_q; i += size.B_r) {
                const int seen = std::clamp(i + size.B_r + n_k - n_q, 0, n_k);
                keys += std::min(n_k, (seen + size.B_c - 1) / size.B_c * size.B_c);
            }
            const std::uint64_t row = heads * size.d * 2;
            const auto check = [&](const char* what, std::uint64_t found, std::uint64_t expected) {
                check_count(what, found, expected, stage.name() + ", d " + std::to_string(size.d));
            };
            check("bytes asked for of Q", counts.tensors.at("Q").read.requested_bytes, n_q * row);
            check("bytes asked for of K", counts.tensors.at("K").read.requested_bytes, keys * row);
            check("bytes asked for of V", counts.tensors.at("V").read.requested_bytes, keys * row);
            check("bytes written of O", counts.tensors.at("O").written.requested_bytes, n_q * row);
            check("bytes written of LSE", counts.tensors.at("lse").written.requested_bytes,
                  std::uint64_t(heads) * n_q * 4);
            const auto atomics = counts.work.total().global_of(emulator::Access::atomic);
            const bool dynamic = stage.name() == stage_under_test().name() || std::string(name) == "sections in L2";
            check("times that a next task is asked for", atomics.accesses, dynamic ? heads * T_r : 0);
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

TEST_CASE("counted: shared memory is Q, O, the slots of K and V, and some barriers") {
    for (const Sizes& size : {of_64, of_128}) {
        const Inputs in = inputs(2, 50, 500, size.d, false, test_seed());
        const auto counts = count_stage(stage_under_test(), in);
        const auto& launch = counts.work.launches.at(0);
        const std::size_t tiles = (2 * size.B_r + 2 * stages * size.B_c) * size.d * 2;
        INFO("d ", size.d);
        CHECK(launch.dynamic_shared_bytes > tiles);
        CHECK(launch.dynamic_shared_bytes <= tiles + 1024);
        CHECK(size.blocks * (launch.dynamic_shared_bytes + 1024) <= 228 * 1024);
        CHECK(launch.most_bytes_in_flight <= tiles - size.B_r * size.d * 2);
    }
}
#endif

}  // namespace
}  // namespace flashladder::attention
