// Rung 26b. Each exercise is judged on inputs where the later ones, still open, do not matter: numbers that are finite,
// and queries that are a multiple of the 16 rows that a warp stores, if it has any.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "harness/asked.h"
#include "launch.h"
#include "operations/attention/longest_first.h"
#include "varlen_attention_suite.h"

namespace flashladder::varlen_attention {
namespace {

using std::size_t;

/// What the stage under test has planned for a head, and how the launch failed, if it did. `is_there`: whether the
/// kernel that plans has come to its end.
struct Plan {
    std::vector<PlannedTask> tasks;
    std::string error;
    bool is_there;
};
Plan plan_of(const Case& c) {
    const int places = places_of(c.shape.n_q, c.sequences.count(), tiles_of(c.shape).consumers);
    Plan found{std::vector<PlannedTask>(size_t(places)), "", true};
    const DeviceProblem problem(stage_under_test(), inputs_of_case(c, Values::normal, test_seed()));
    try {
        stage_under_test().launch(problem.data());
        check_cuda(cudaDeviceSynchronize(), "launch");
    } catch (const CudaError& error) {
        found.error = error.what();
        found.is_there = found.error.find("lcsf_kernel") != std::string::npos;  // which a wrong plan misleads
    }
    int planned = 0;
    const char* scratch = static_cast<const char*>(problem.data().scratch);
    const size_t bytes = found.tasks.size() * sizeof(PlannedTask);
    found.is_there = found.is_there &&
                     cudaMemcpy(found.tasks.data(), scratch, bytes, cudaMemcpyDeviceToHost) == cudaSuccess &&
                     cudaMemcpy(&planned, scratch + bytes, sizeof planned, cudaMemcpyDeviceToHost) == cudaSuccess;
    found.tasks.resize(size_t(std::clamp(planned, 0, places)));
    return found;
}

/// What is wrong with the plan, "" if nothing is: with which tasks there are, or with their steps.
enum class Of { tasks, steps };
std::string wrong_plan(const Case& c, Of what) {
    const Plan plan = plan_of(c);
    if (!plan.is_there) return plan.error;
    const auto wrong = [&](const std::string& text) {
        forget_asked();
        return fmt::format("{} ({})", text, c.words());
    };
    const Configuration& tiles = tiles_of(c.shape);
    const std::vector<ExpectedTask> expected = expected_tasks(c, tiles);
    std::vector<int> times(expected.size());
    for (const PlannedTask& task : plan.tasks) {
        int b = 0;
        while (b < c.sequences.count() && (c.sequences.n_q(b) == 0 || c.sequences.first_q(b) != task.first_q)) ++b;
        if (b == c.sequences.count())
            return wrong(fmt::format("a task is planned of the sequence whose queries begin with row {}: there is none",
                                     task.first_q));
        const auto of = std::ranges::find_if(
            expected, [&](const ExpectedTask& each) { return each.sequence == b && each.i == task.i; });
        if (of == expected.end())
            return wrong(fmt::format("a task is planned from query {} of sequence {} on, expected {}", task.i, b,
                                     task.i < 0 ? "no block before the first"
                                                : fmt::format("blocks of its {} queries", c.sequences.n_q(b))));
        const std::string who = fmt::format("queries {} to {} of sequence {}", of->i, of->last, b);
        if (++times[size_t(of - expected.begin())] > 1) return wrong(who + " are planned a second time");
        const int N_q = c.sequences.n_q(b), N_k = c.sequences.n_k(b);
        if (what == Of::tasks || task.steps == of->steps) continue;
        const int seen = c.shape.causal ? std::clamp(of->last + 1 + N_k - N_q, 0, N_k) : N_k;
        return wrong(
            fmt::format("the task with {} has {} steps, expected {}: its last query sees {} of {} keys, and a "
                        "step has {}",
                        who, task.steps, of->steps, seen, N_k, tiles.B_c));
    }
    for (size_t x = 0; x < expected.size(); ++x)
        if (times[x] == 0)
            return wrong(fmt::format("no task is planned that has queries {} to {} of sequence {}{}", expected[x].i,
                                     expected[x].last, expected[x].sequence,
                                     what == Of::tasks ? ""
                                                       : fmt::format("; expected one whose steps are {}, and a task of 0 is left out",
                                                                     expected[x].steps)));
    return plan.error;
}

bool check_plan_of(const Case& c, Of what) {
    std::string wrong = wrong_plan(c, what);
    if (wrong.empty()) wrong = fault(stage_under_test(), c, Values::normal, test_seed());
    CHECK_MESSAGE(wrong.empty(), wrong);
    return wrong.empty();
}

TEST_CASE("EXERCISE 26b.1: which sequence's block of queries has a place") {
    std::mt19937_64 random(test_seed());
    const auto some = [&](int most) { return 16 * int(random() % unsigned(most / 16 + 1)); };
    for (const int d : {64, 128, 256}) {
        const int B_r = tiles_of(d).consumers * unit, n = 16 + some(400);
        // Two sequences; full blocks, and blocks that are nearly empty; sequences without queries, first, last,
        // between.
        for (const std::vector<int>& n_q : {std::vector{B_r, B_r},
                                            {16, 16, 16},
                                            {B_r + 16, B_r - 16, 2 * B_r},
                                            {0, n, 0, 0, 48, B_r, 0},
                                            {some(B_r), 3 * B_r - 16, some(B_r), 32, some(300), 16, some(60)}}) {
            if (std::ranges::max(n_q) == 0) continue;
            if (!check_plan_of(case_of(n_q, std::vector(n_q.size(), 64), d), Of::tasks)) return;
        }
        std::vector<int> many;
        for (int b = 0; b < 40; ++b) many.push_back(random() % 3 == 0 ? 0 : some(b % 8 == 0 ? 500 : 48));
        if (!check_plan_of(case_of(many, std::vector(many.size(), 10), d), Of::tasks)) return;
    }
}

TEST_CASE("EXERCISE 26b.2: how many steps a task has") {
    std::mt19937_64 random(test_seed());
    const auto some = [&](int most) { return 16 * (1 + int(random() % unsigned(most / 16))); };
    for (const int d : {64, 128, 256}) {
        const int B_r = tiles_of(d).consumers * unit, n = some(300), m = 1 + int(random() % 300);
        // Without keys; as many keys as queries; more, fewer; the diagonal beside the border of a block of keys.
        const std::vector<int> n_q{64, B_r, 2 * B_r, B_r + 64, B_r + 64, n, n, 16, B_r + 16},
            n_k{0, B_r, B_r, 2 * B_r, 2 * B_r + 1, m, n + 63, 300, 1};
        for (const bool causal : {false, true}) {
            if (!check_plan_of(case_of(n_q, n_k, d, causal), Of::steps)) return;
        }
    }
}

/// With scores that are all 0, and values by which O shows which keys it has taken up. What is wrong with the first
/// sequence that has not taken up all of its own; "" if nothing is.
std::string wrong_keys(const Case& c) {
    Data data = inputs_of_case(c, Values::normal, test_seed());
    std::ranges::fill(data.tensors.at("K"), 0.0f);
    std::vector<float>& V = data.tensors.at("V");
    const size_t d = size_t(c.shape.head_dim), of_row = d * size_t(c.shape.kv_heads);
    for (int b = 0; b < c.sequences.count(); ++b)
        for (int j = 0; j < c.sequences.n_k(b); ++j)
            for (size_t x = 0; x < of_row; ++x)
                V[size_t(c.sequences.first_k(b) + j) * of_row + x] = x % d == size_t(j) % d;
    std::vector<float> O;
    try {
        O = run(stage_under_test(), data).tensors.at("O");
    } catch (const CudaError& error) {
        return error.what();
    }
    for (int b = 0; b < c.sequences.count(); ++b) {
        const int N_k = c.sequences.n_k(b);
        for (int i = 0; i < c.sequences.n_q(b) && N_k > 0; ++i)
            for (size_t x = 0; x < std::min(d, size_t(N_k)); ++x) {
                const double keys = double(O[place_in_O(c.shape, size_t(c.sequences.first_q(b) + i), x)]) * N_k;
                const int expected = (N_k - int(x) - 1) / int(d) + 1;
                if (std::abs(keys - expected) <= 0.02 * expected) continue;
                std::string which = fmt::format("key {}", x);
                for (int j = int(x) + int(d); j < N_k; j += int(d)) which += fmt::format(", {}", j);
                return fmt::format(
                    "query {} of sequence {}, which has keys 0 to {}, has taken up {:.2g} of {}, "
                    "expected {} ({})",
                    i, b, N_k - 1, keys, expected == 1 ? which : "keys " + which.substr(4), expected, c.words());
            }
    }
    return "";
}

/// Whether rows are moved that are nobody's, or somebody else's; "" if none are.
std::string wrong_bytes([[maybe_unused]] const Case& c) {
#ifndef FLASHLADDER_GPU
    StageCounts counts = count_stage(stage_under_test(), inputs_of_case(c, Values::normal, test_seed()));
    const std::uint64_t row = std::uint64_t(c.shape.head_dim) * 2, queries = c.shape.lse_elements();
    const Configuration& tiles = tiles_of(c.shape);
    const auto compared = [&](const char* what, std::uint64_t found, std::uint64_t expected) {
        forget_asked();
        return found == expected
                   ? ""
                   : fmt::format("{}: found {}, expected {} ({})", what, found / row, expected / row, c.words());
    };
    std::string wrong = compared("rows of O that are written, of all heads: those of sequences, once",
                                 counts.tensors["O"].written.requested_bytes, queries * row);
    for (const char* name : {"K", "V"})
        if (wrong.empty())
            wrong = compared(fmt::format("rows of {} that are read: a task's own, once", name).c_str(),
                             counts.tensors[name].read.requested_bytes, loaded_rows(c, tiles) * row);
    if (wrong.empty())
        wrong = compared("rows of Q that are read: a task's own, once", counts.tensors["Q"].read.requested_bytes,
                         queries * row);
    return wrong;
#else
    return "";
#endif
}

TEST_CASE("EXERCISE 26b.3: what is loaded and stored ends with the sequence") {
    std::mt19937_64 random(test_seed());
    for (const int d : {64, 80, 128, 256}) {
        const int B_c = tiles_of(d).B_c, n = 1 + int(random() % 200), m = 1 + int(random() % 200);
        // Full boxes alone; one row of a box, all but one; no keys, in the middle and last; anything.
        for (const auto& [n_q, n_k] : {std::pair(std::vector{64, 16, 128}, std::vector{B_c, 2 * B_c, B_c}),
                                       {{1, 17, 63, 15}, {1, B_c - 1, B_c + 1, 5}},
                                       {{20, 33, 7}, {0, 40, 0}},
                                       {{n, m, 3}, {m, n, 100}}}) {
            const Case c = case_of(n_q, n_k, d, false, 2, 2);
            std::string wrong = wrong_keys(c);
            for (int b = 0; b < c.sequences.count() && wrong.empty(); ++b) wrong = reached_by_others(c, b, test_seed());
            if (wrong.empty()) wrong = wrong_bytes(c);
            if (wrong.empty()) wrong = fault(stage_under_test(), c, Values::normal, test_seed());
            CHECK_MESSAGE(wrong.empty(), wrong);
            if (!wrong.empty()) return;
        }
        const Case c = case_of({m, 70, n}, {n, 70, m}, d, true, 4, 2);
        std::string wrong = wrong_bytes(c);
        if (wrong.empty()) wrong = fault(stage_under_test(), c, Values::normal, test_seed());
        CHECK_MESSAGE(wrong.empty(), wrong);
        if (!wrong.empty()) return;
    }
}

TEST_CASE("planned: the longest tasks of a head come first") {
    std::mt19937_64 random(test_seed());
    for (const auto& [sequences, most] : {std::pair(30, 500), {800, 100}, {2, 64 * 700}}) {
        std::vector<int> n_q, n_k;
        for (int b = 0; b < sequences; ++b) {
            n_q.push_back(sequences == 2 ? 1 : int(random() % 100));
            n_k.push_back(int(random() % unsigned(most)));
        }
        const Case c = case_of(n_q, n_k, 64, random() % 2);
        const Plan plan = plan_of(c);
        CHECK_MESSAGE(plan.error.empty(), plan.error);
        CHECK(plan.tasks.size() == expected_tasks(c, tiles_of(64)).size());
        int longest = 0;
        for (const PlannedTask& task : plan.tasks) longest = std::max(longest, task.steps);
        const int width = longest / attention::buckets + 1;  // steps that are alike
        for (size_t n = 1; n < plan.tasks.size(); ++n) {
            const int before = plan.tasks[n - 1].steps, here = plan.tasks[n].steps;
            const bool good = (longest - before) / width <= (longest - here) / width;
            CHECK_MESSAGE(
                good, fmt::format("task {} has {} steps, and the one before it {} ({})", n, here, before, c.words()));
            if (!good) return;
        }
    }
}

}  // namespace
}  // namespace flashladder::varlen_attention
