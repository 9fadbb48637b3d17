// Rung 26. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "block_sparse_attention_suite.h"
#include "harness/asked.h"
#include "launch.h"
#include "lcsf/schedule.h"
#include "operations/block_sparse_attention/plan.h"

#ifndef FLASHLADDER_GPU
#include "emulator/activity.h"
#endif

namespace flashladder::block_sparse_attention {
namespace {

[[maybe_unused]] const StrictBarriers strict_barriers;

constexpr int unit = 64;  // queries of a consumer

/// With scores that are all 0, and values by which O shows which blocks of keys it has taken up. What is wrong with the
/// first query that has others than its list; "" if nothing is.
std::string wrong_blocks(const AttentionShape& s, const Lists& lists, std::uint64_t seed) {
    Data data = make_inputs(s, lists, Values::normal, seed);
    const std::size_t d = std::size_t(s.head_dim), n_q = std::size_t(s.n_q);
    std::ranges::fill(data.tensors.at("K"), 0.0f);
    std::vector<float>& V = data.tensors.at("V");
    for (std::size_t x = 0; x < V.size(); ++x) V[x] = x % d == x / d % std::size_t(s.n_k) / block;
    std::vector<float> O;
    try {
        O = run(stage_under_test(), data).tensors.at("O");
    } catch (const CudaError& error) {
        return error.what();
    }
    for (std::size_t r = 0; r < O.size() / d; ++r) {
        const std::size_t list = (lists.heads > 1 ? r / n_q * std::size_t(blocks_of(s.n_q)) : 0) + r % n_q / block;
        const std::vector<int> listed(lists.blocks.begin() + lists.first[list],
                                      lists.blocks.begin() + lists.first[list + 1]);
        std::vector<int> taken;
        for (std::size_t x = 0; x < d; ++x)
            if (O[r * d + x] != 0) taken.push_back(int(x));
        const bool is_nan = std::any_of(&O[r * d], &O[r * d] + d, [](float x) { return x != x; });
        if (taken != listed)
            return fmt::format("query {} of head {}, whose list of blocks is [{}], has taken up {} ({})", r % n_q,
                               r / n_q, fmt::join(listed, " "),
                               is_nan ? "nan" : fmt::format("[{}]", fmt::join(taken, " ")), words(s, lists));
    }
    return "";
}

TEST_CASE("EXERCISE 26.1: a step is of the block of keys that its list names") {
    std::mt19937_64 random(test_seed());
    const auto fault = [&](const AttentionShape& s, const Lists& lists, Values values, std::uint64_t seed) {
        const std::string wrong = wrong_blocks(s, lists, seed);
        return wrong.empty() ? block_sparse_attention::fault(s, lists, values, seed) : wrong;
    };
    for (const int d : {64, 128}) {
        // Blocks that are not the first ones, in an order that is not that of another list.
        const AttentionShape s = shape_of(1, 3 * block - int(random() % 60), 6 * block - int(random() % 100), d);
        for (const auto& rows :
             {std::vector<std::vector<int>>{{5}, {2}, {3}}, {{1, 4}, {0, 2, 5}, {3, 4, 5}}, {{0, 5}, {}, {2, 3}}}) {
            const std::string wrong = fault(s, lists_of(s, rows), Values::normal, random());
            CHECK_MESSAGE(wrong.empty(), wrong);
            if (!wrong.empty()) return;
        }
        AttentionShape heads = s;
        heads.heads = 2;
        const std::string wrong =
            fault(heads, lists_of(heads, {{0}, {1, 3}, {2}, {3}, {}, {0, 4}}), Values::normal, random());
        CHECK_MESSAGE(wrong.empty(), wrong);
    }
}

/// Lists of which all are empty, but that of block of queries r of one head.
Lists one_list(const AttentionShape& s, int head, int r, const std::vector<int>& list) {
    std::vector<std::vector<int>> rows(std::size_t(s.heads * blocks_of(s.n_q)));
    rows[std::size_t(head * blocks_of(s.n_q) + r)] = list;
    return lists_of(s, rows);
}

/// The steps that a consumer has to compute, if block of queries r of one head is the only one that has a list. Which ones
/// are too many or missing, in words; "" if none are. How many there are its matrix instructions say, of which a task
/// without a list has those of one step; and they are the last ones, as a list is gone through from its end.
std::string wrong_steps([[maybe_unused]] const AttentionShape& s, [[maybe_unused]] int head, [[maybe_unused]] int r,
                        [[maybe_unused]] const std::vector<int>& list, [[maybe_unused]] std::uint64_t seed) {
#ifndef FLASHLADDER_GPU
    const Lists lists = one_list(s, head, r, list);
    const Data data = make_inputs(s, lists, Values::normal, seed);
    const VirtualGpu gpu(1);  // one block has all tasks
    std::vector<emulator::LaunchActivity> launches;
    try {
        launches = emulator::record_activity(0, [&] { run(stage_under_test(), data); });
    } catch (const CudaError& error) {
        return error.what();
    }
    const int keys = s.head_dim == 64 ? keys_of_step<64> : keys_of_step<128>;  // of a step
    const auto last_seen = [&](int query) { return query + s.n_k - s.n_q; };
    for (int w = 0; w < 2; ++w) {
        int tasks = 0;  // in which this consumer has queries
        for (int i = w * unit; i < s.n_q; i += block) tasks += s.heads;
        const int i = r * block + w * unit, of_step = s.head_dim / 16 + keys / 16;
        if (i >= s.n_q) continue;
        const int last_of_task = std::min((r + 1) * block, s.n_q) - 1, last = std::min(i + unit, s.n_q) - 1;
        std::vector<int> steps;  // of the task: with which key each begins
        for (auto j = list.rbegin(); j != list.rend(); ++j)
            for (int key = (*j + 1) * block - keys; key >= *j * block && *j * block <= last_seen(last_of_task); key -= keys)
                steps.push_back(key);
        const auto seen = std::find_if(steps.begin(), steps.end(), [&](int key) { return key <= last_seen(last); });
        const int of_all = std::max(int(steps.size()), 1), skipped = std::min(int(seen - steps.begin()), of_all - 1);
        int products = 0;
        for (const auto& launch : launches)
            products += int(std::ranges::count_if(launch.activities, [&](const emulator::Activity& a) {
                const int consumer = int(a.warp) / 4 - 1;  // 0 and 1 of a team, and again of the next one
                return a.warp % 4 == 0 && consumer >= 0 && consumer % 2 == w && a.what == emulator::Doing::product;
            }));
        const int expected = of_all - skipped, found = products / of_step - (tasks - 1);
        const std::string who =
            fmt::format("consumer {} has queries {} to {} of head {}, which see {}", w, i, last, head,
                        last_seen(last) < 0 ? "no key" : fmt::format("keys up to {}", last_seen(last)));
        const auto told = [&](const char* what, int first, int behind) {
            std::vector<std::string> ranges;
            for (int t = first; t < behind; ++t) {
                const int key = steps[std::size_t(t)];
                ranges.push_back(fmt::format("{} to {} of block {}", key, key + keys - 1, key / block));
            }
            return fmt::format("{}: it {} keys {} ({})", who, what, fmt::join(ranges, ", "), words(s, lists));
        };
        if (found > expected && found <= of_all) return told("computes with", of_all - found, skipped);
        if (found < expected && found >= 0 && !steps.empty()) return told("leaves out", skipped, of_all - found);
        if (products != of_step * (expected + tasks - 1))
            return fmt::format("{}: matrix instructions: found {}, expected {}, of {} steps ({})", who, products,
                               of_step * (expected + tasks - 1), expected + tasks - 1, words(s, lists));
    }
#endif
    return "";
}

#ifndef FLASHLADDER_GPU
/// One block goes through all tasks, so that its slots are filled again and again, and some are skipped in each head.
std::string race_of_skips(std::mt19937_64& random) {
    const VirtualGpu gpu(1);
    const AttentionShape s = shape_of(4, 2 * block, 2 * block - unit, 128, true);
    const Data data = make_inputs(s, lists_of(s, {{0}, {0, 1}}), Values::normal, random());
    std::string race;
    for (int times = 0; times < 3 && race.empty(); ++times)
        race = emulator::find_race([&] { run(stage_under_test(), data); });
    return race;
}
#endif

TEST_CASE("EXERCISE 26.2: a consumer computes with the blocks that its queries see, and gives back all") {
    std::mt19937_64 random(test_seed());
    const auto is_right = [&](const AttentionShape& s, int head, int r, const std::vector<int>& list) {
        std::string wrong = wrong_steps(s, head, r, list, random());
        if (wrong.empty()) wrong = fault(s, one_list(s, head, r, list), Values::normal, random());
        CHECK_MESSAGE(wrong.empty(), wrong);
        return wrong.empty();
    };
    // An empty list beside a full one, whose last block the first consumer does not see.
    for (const int d : {64, 128})
        for (const int r : {0, 1})
            if (!is_right(shape_of(1, 2 * block, 2 * block - unit, d, true), 0, r, {0, 1})) return;
#ifndef FLASHLADDER_GPU
    const std::string race = race_of_skips(random);
    CHECK_MESSAGE(race.empty(), race);
    if (!race.empty()) return;
#endif
    const int some = drawn_length(unit, 1, 200, test_seed());
    std::size_t combination = 0;
    for (const int d : {64, 128})
        // The diagonal goes along the border of blocks, through the middle of one, anywhere; before the first key too.
        for (const int more : {0, -unit, unit, some, -some, 300}) {
            if (!takes_combination(combination++, 2)) continue;
            const int n_q = block + 1 + int(random() % block);
            const AttentionShape s = shape_of(2, n_q, std::max(1, n_q + more), d, true);
            std::vector<int> all(std::size_t(blocks_of(s.n_k)));
            for (std::size_t j = 0; j < all.size(); ++j) all[j] = int(j);
            if (all.size() > 2) all.erase(all.begin() + 1);
            for (const int r : {0, 1})
                if (!is_right(s, int(random() % 2), r, all)) return;
            const std::string wrong =
                fault(s, lists_of(s, {std::size_t(blocks_of(n_q)), all}), Values::normal, random());
            CHECK_MESSAGE(wrong.empty(), wrong);
            if (!wrong.empty()) return;
        }
}

#ifndef FLASHLADDER_GPU
/// Many tasks of a few lengths, so that threads meet at their buckets.
std::string race_of_plans() {
    std::mt19937_64 random(test_seed());
    const AttentionShape s = shape_of(12, 10, 2 * block, 64);
    const Data data = make_inputs(s, drawn_lists(random, s, true), Values::normal, test_seed());
    return emulator::find_race([&] { run(stage_under_test(), data); });
}
#endif

/// What the stage under test has planned, and how the launch failed, if it did: `plan` is empty where the plan's own kernel
/// has.
struct Plan {
    std::vector<PlannedTask> plan;
    std::string error;
};
Plan plan_of(const AttentionShape& s, const Lists& lists) {
    Plan found{std::vector<PlannedTask>(std::size_t(s.batch * s.heads * blocks_of(s.n_q))), ""};
    const DeviceProblem problem(stage_under_test(), make_inputs(s, lists, Values::normal, test_seed()));
    try {
        stage_under_test().launch(problem.data());
        check_cuda(cudaDeviceSynchronize(), "launch");
    } catch (const CudaError& error) {
        found.error = error.what();
    }
    const bool of_next_kernel = found.error.find("lcsf_kernel") != std::string::npos;  // which a wrong plan misleads
    if ((!found.error.empty() && !of_next_kernel) ||
        cudaMemcpy(found.plan.data(), problem.data().scratch, found.plan.size() * sizeof found.plan[0],
                   cudaMemcpyDeviceToHost) != cudaSuccess) {
        FAIL_CHECK(found.error);
        found.plan.clear();
    }
    return found;
}

/// The steps of the task that a block of queries is, and where its list ends.
PlannedTask expected_task(const AttentionShape& s, const Lists& lists, int number) {
    const int T_r = blocks_of(s.n_q), head = number / T_r, i = number % T_r;
    const std::size_t r = std::size_t(lists.heads > 1 ? head % s.heads * T_r + i : i);
    const int last = std::min((i + 1) * block, s.n_q) - 1 + s.n_k - s.n_q;
    int end = lists.first[r];
    while (end < lists.first[r + 1] && (!s.causal || lists.blocks[std::size_t(end)] * block <= last)) ++end;
    return {i, head, end, end - lists.first[r]};
}

/// Heads whose K and V have room in L2, in sections of equal size.
int heads_of_section(const AttentionShape& s) {
    const double bytes = 2.0 * s.n_k * s.head_dim * double(bytes_per_element(s.dtype)) * s.kv_heads / s.heads;
    const double l2_bytes = device_attribute(cudaDevAttrL2CacheSize) * (lcsf::most_of_L2 / 100.0);
    const int all = s.batch * s.heads, most = std::clamp(int(l2_bytes / bytes), 1, all), sections = (all + most - 1) / most;
    return (all + sections - 1) / sections;
}

std::vector<int> first_blocks(int count) {
    std::vector<int> blocks(static_cast<std::size_t>(count));
    for (int j = 0; j < count; ++j) blocks[static_cast<std::size_t>(j)] = j;
    return blocks;
}

TEST_CASE("EXERCISE 26.3: tasks come once each, the longest of a section first") {
#ifndef FLASHLADDER_GPU
    const std::string race = race_of_plans();
    CHECK_MESSAGE(race.empty(), race);
    if (!race.empty()) return;
#endif
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    // Few tasks, more than threads; one section, several, the last one smaller; lists of one length, and of many.
    for (const auto& [heads, n_q, n_k, heads_in_L2] : {std::tuple(2, 200, 600, 100),
                                                       {5, 150, 500, 2},
                                                       {3, 1, 300, 1},
                                                       {520, 1, 130, 1000},
                                                       {1, 200, 600 * block, 1},
                                                       {1, 300, 511 * block, 1}}) {
        const bool causal = turn++ % 2;
        AttentionShape s = shape_of(heads, n_q, n_k, 64, causal);
        if (heads > 100 || n_k > 100 * block) s.kv_heads = 1;
        const double bytes_of_head = 2.0 * s.n_k * s.head_dim * 2 * s.kv_heads / s.heads;
        const VirtualGpu gpu(4, std::size_t(heads_in_L2 * bytes_of_head * 100 / lcsf::most_of_L2) + 1000);
        Lists lists = drawn_lists(random, s, heads < 100);
        if (n_k == 600 * block) lists = lists_of(s, {{0}, {7, 50, 100, 300, 301, 302, 599}});  // no neighbours in length
        if (n_k == 511 * block) lists = lists_of(s, {first_blocks(300), first_blocks(290), {}});  // buckets 211, 221, 511
        const auto [plan, error] = plan_of(s, lists);
        if (plan.empty()) return;
        const int T_r = blocks_of(n_q), tasks = int(plan.size());
        const int of_section = heads_of_section(s) * T_r;
        std::vector<int> times(plan.size());
        for (int n = 0; n < tasks; ++n) {
            const PlannedTask& task = plan[std::size_t(n)];
            const std::string where =
                fmt::format("plan[{}], of {} tasks in sections of {}, {}", n, tasks, of_section, words(s, lists));
            if (task.block == -1 && task.head == -1) {
                forget_asked();
                FAIL_CHECK("nobody has written ", where);
                return;
            }
            const bool is_one = task.block >= 0 && task.block < T_r && task.head >= 0 && task.head < s.heads;
            CHECK_MESSAGE(is_one, fmt::format("block {} of head {} is no task: {}", task.block, task.head, where));
            if (!is_one) return;
            const int number = task.head * T_r + task.block;
            const PlannedTask expected = expected_task(s, lists, number);
            const auto say = [&](const std::string& wrong) {
                forget_asked();
                FAIL_CHECK(fmt::format("block {} of head {} {}: {}", task.block, task.head, wrong, where));
                return false;
            };
            bool good = true;
            if (task.end != expected.end || task.steps != expected.steps)
                good = say(fmt::format("has {} steps up to place {}, expected {} up to {}", task.steps, task.end,
                                       expected.steps, expected.end));
            else if (++times[std::size_t(number)] > 1)
                good = say("comes a second time");
            else if (number / of_section != n / of_section)
                good =
                    say(fmt::format("is of section {}, and stands in section {}", number / of_section, n / of_section));
            else if (n % of_section > 0 && plan[std::size_t(n) - 1].steps < task.steps)
                good = say(fmt::format("has {} steps, and the task before it has {}, expected the longest first",
                                       task.steps, plan[std::size_t(n) - 1].steps));
            if (!good) return;
        }
        CHECK_MESSAGE(error.empty(), error);
    }
}

}  // namespace
}  // namespace flashladder::block_sparse_attention
