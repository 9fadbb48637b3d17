// Rung 20. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "attention_backward_suite.h"
#include "launch.h"

#ifndef FLASHLADDER_GPU
#include "emulator/activity.h"
#include "warp_activity.h"
#endif

namespace flashladder::attention_backward {
namespace {

[[maybe_unused]] const StrictBarriers strict_barriers;

constexpr int B_c = 128, unit = 64, slots = 2;
constexpr int queries_of_a_step(int d) { return d == 64 ? 128 : 64; }  // B_r

#ifndef FLASHLADDER_GPU
using emulator::Access;
using emulator::Activity;
using emulator::Doing;

constexpr std::uint64_t bytes = 2, of_statistics = 8;

/// Matrix instructions of a warpgroup in a step: S^T and dP^T, dQ, dV and dK.
constexpr std::uint64_t of_scores(int d) { return std::uint64_t(d / 16); }
constexpr std::uint64_t of_queries = B_c / 16;
constexpr std::uint64_t of_keys(int d) { return std::uint64_t(queries_of_a_step(d) / 16); }
constexpr std::uint64_t of_step(int d) { return 2 * of_scores(d) + of_queries + 2 * of_keys(d); }

/// What the first warp of the first block does, with copies and products that end as late as its waits allow. Nothing
/// where the kernel stops.
std::vector<Activity> activities_of_first_warp(const Inputs& in) {
    std::vector<Activity> all;
    try {
        for (const auto& launch : emulator::record_activity(
                 0, [&] { run(stage_under_test(), in); }, true))
            if (launch.kernel.find("warpgroup_backward") != std::string::npos)
                std::ranges::copy_if(launch.activities, std::back_inserter(all),
                                     [](const Activity& activity) { return activity.warp == 0; });
    } catch (const CudaError& error) {
        FAIL_CHECK(std::string(error.what()));
    }
    return all;
}

/// How many of them are under way at a moment.
std::uint64_t under_way(const std::vector<Activity>& of, std::uint64_t at) {
    return std::uint64_t(std::ranges::count_if(of, [=](const Activity& a) { return a.begin < at && at < a.happened; }));
}

/// dQ's products are those that are begun in the learner's file.
bool is_of_dQ(const Activity& product) { return !product.line.starts_with("common/"); }

/// When the last of dQ's products of a step is begun, the others are under way.
void check_waits_for_nothing(int d) {
    std::vector<Activity> of_dQ;
    for (const Activity& activity : activities_of_first_warp(
             backward_inputs(shape_of(1, 2 * queries_of_a_step(d), 100, d), Values::normal, test_seed())))
        if (activity.what == Doing::product && is_of_dQ(activity)) of_dQ.push_back(activity);
    if (of_dQ.size() != 2 * of_queries) return;  // their number has been checked
    for (const std::size_t last : {of_queries - 1, 2 * of_queries - 1})
        check_count(fmt::format("matrix instructions of dQ under way when its last one is begun (d {})", d),
                    under_way(of_dQ, of_dQ[last].begin), of_queries - 1);
}

/// While weights are found, dP^T and weights become dS^T, and dQ is added to its sums, products are under way: what
/// these wait for is no more than they need.
void check_under_way(int d) {
    constexpr std::uint64_t T_r = 6;
    const int B_r = queries_of_a_step(d);
    const std::vector<Activity> all =
        activities_of_first_warp(backward_inputs(shape_of(1, int(T_r) * B_r, 100, d), Values::normal, test_seed()));
    std::vector<Activity> products, exponentials, copies, adds;
    for (const Activity& activity : all) {
        if (activity.what == Doing::product) products.push_back(activity);
        if (activity.what == Doing::exponential) exponentials.push_back(activity);
        if (activity.what == Doing::copy) copies.push_back(activity);
        if (activity.what == Doing::store) adds.push_back(activity);
    }
    const std::string with = fmt::format(" (d {})", d);
    check_count("matrix instructions of a warp" + with, products.size(), T_r * of_step(d));
    if (products.size() != T_r * of_step(d) || exponentials.size() % T_r != 0) return;
    std::uint64_t ahead = 1, at_weights = of_scores(d), at_dV = of_scores(d), at_dQ = of_keys(d),
                  at_adds = of_keys(d);  // or more
    // Not if other products too are begun there.
    const bool knows_dQ = std::uint64_t(std::ranges::count_if(products, is_of_dQ)) == T_r * of_queries;
    bool in_order = true;
    std::uint64_t at_last = of_queries + of_keys(d);
    const std::uint64_t boxes = 2 * std::uint64_t(d / unit) + 1;  // of a step: Q, dO and the statistics
    for (std::uint64_t t = 1; t < T_r - 2; ++t) {
        const Activity *of_S = &products[t * of_step(d)], *of_dV = of_S + 2 * of_scores(d), *of_dQ = of_dV + of_keys(d),
                       *of_dK = of_dQ + of_queries, *next = of_S + of_step(d);
        const Activity& last = next[-1];  // is waited for by what comes last in its step
        if (knows_dQ) in_order = in_order && std::all_of(of_dQ, of_dK, is_of_dQ);
        at_weights = std::min(at_weights, under_way(products, exponentials[exponentials.size() / T_r * t].begin));
        at_dV = std::min(at_dV, under_way(products, of_dV->begin));
        at_dQ = std::min(at_dQ, under_way(products, of_dQ->begin));
        at_last = std::min(at_last, under_way(products, last.begin + 1));
        for (const Activity& add : adds)
            if (add.begin > last.begin && add.begin < next->begin)
                at_adds = std::min(at_adds, under_way(products, add.begin));
        ahead = std::min(ahead, under_way(copies, last.begin) / boxes);
    }
    CHECK_MESSAGE(in_order, "a step begins its products in another order than the test knows: S^T, dP^T, dV, dQ, dK",
                  with);
    if (!in_order) return;
    check_count("matrix instructions under way while weights are found: those of dP^T" + with, at_weights,
                of_scores(d));
    check_count("matrix instructions under way when dV is begun, before dS^T is found: those of dP^T" + with, at_dV,
                of_scores(d));
    check_count("matrix instructions under way when dQ is begun: those of dV" + with, at_dQ, of_keys(d));
    check_count("matrix instructions under way when a step has begun its last product: those of dQ and of dK" + with,
                at_last, of_queries + of_keys(d));
    check_count("matrix instructions under way while dQ is added to its sums: those of dK" + with, at_adds, of_keys(d));
    check_count("steps whose tiles may be on their way while dQ of a step is found" + with, ahead, 1);
}

/// Barriers of a block that has so many steps.
std::uint64_t barriers_of(int T_r, int d) {
    const auto counts = count_stage(stage_under_test(), backward_inputs(shape_of(1, T_r * queries_of_a_step(d), 40, d),
                                                                        Values::normal, test_seed()));
    return work_of(counts, "warpgroup_backward").barriers;
}

/// This gradient is right, without a race, also with copies and products that end as late as the waits allow. False if
/// not.
bool check_that(const Inputs& in, const std::string& gradient, const std::string& what) {
    const std::string race = emulator::find_race([&] { run(stage_under_test(), in); });
    CHECK_MESSAGE(race.empty(), race);
    if (!race.empty()) return false;
    const auto wrong_with = [&] { return gradient.empty() ? fault(in) : fault_of(gradient, in); };
    std::string wrong = wrong_with();
    if (wrong.empty()) {
        const Late late;
        wrong = wrong_with();
    }
    CHECK_MESSAGE(wrong.empty(), what, "; ", wrong);
    return wrong.empty();
}
#else
bool check_that(const Inputs& in, const std::string& gradient, const std::string& what) {
    const std::string wrong = gradient.empty() ? fault(in) : fault_of(gradient, in);
    CHECK_MESSAGE(wrong.empty(), what, "; ", wrong);
    return wrong.empty();
}
#endif

TEST_CASE("EXERCISE 20.1: a transposed product by wgmma") {
    for (const int d : {64, 128}) {
        const int B_r = queries_of_a_step(d);
        const int n_q = drawn_length(B_r, B_r + 1, 300, 0), n_k = drawn_length(B_c, 100, 200, 1);  // two steps or more
        AttentionShape shape = shape_of(1, n_q, n_k, d);
        shape.dtype = test_seed() % 2 ? DType::f16 : DType::bf16;
        const Inputs any = backward_inputs(shape, Values::normal, test_seed());
        if (!check_that(any, "dQ", "dQ = dS K, of two halves of 64 keys")) return;
#ifndef FLASHLADDER_GPU
        const std::uint64_t T_r = 2, blocks = 2;
        const Inputs in = backward_inputs(shape_of(1, int(T_r) * queries_of_a_step(d), int(blocks) * B_c, d),
                                          Values::normal, test_seed());
        check_count(fmt::format("matrix instructions, wgmma once a warpgroup (d {})", d),
                    work_of(count_stage(stage_under_test(), in), "warpgroup_backward").matrix_instructions, 0,
                    blocks * T_r * 2 * of_step(d));
        check_waits_for_nothing(d);
#endif
    }
}

TEST_CASE("EXERCISE 20.2: the steps") {
    // One step alone, two, several; heads one after the other; blocks of keys that not all queries see.
    for (const int d : {64, 128}) {
        const int B_r = queries_of_a_step(d);
        for (const AttentionShape& shape :
             {shape_of(2, drawn_length(B_r, 1, B_r, 0), 70, d),
              grouped(shape_of(2, drawn_length(B_r, 1, B_r, 1), 70, d)),
              shape_of(1, drawn_length(B_r, B_r + 1, 4 * B_r, 2), drawn_length(64, 100, 200, 3), d),
              grouped(causal(shape_of(3, drawn_length(B_r, 100, 2 * B_r + 50, 4), drawn_length(64, 40, 200, 5), d)))}) {
            const int steps = shape.heads / shape.kv_heads * ((shape.n_q + B_r - 1) / B_r);
            const Inputs in = backward_inputs(shape, Values::normal, test_seed());
            if (!check_that(in, "", fmt::format("up to {} steps", steps))) return;
        }
    }
#ifndef FLASHLADDER_GPU
    for (const int d : {64, 128}) {
        check_under_way(d);
        const std::uint64_t few = barriers_of(2, d), many = barriers_of(6, d);
        check_count(fmt::format("barriers of the block, __syncthreads(), that four steps more take (d {})", d),
                    many - few, 4);
    }
#endif
}

TEST_CASE("agrees with the reference: lengths near the edges of steps and of blocks of keys") {
    check_lengths_near_edges(queries_of_a_step, [](int) { return B_c; });
}

TEST_CASE("causal: keys that no query of a step sees reach nobody, whatever they hold") {
    for (const int d : {64, 128}) check_hidden_keys_reach_nobody(shape_of(1, 400, 400, d), 128, 128);
}

#ifndef FLASHLADDER_GPU
TEST_CASE("in whatever order blocks run, dK and dV have the same bits, and dQ is within the rule") {
    check_whatever_order();
}

TEST_CASE("counted: five products by wgmma, an exponential a score, dS alone is stored, no conflicts, whole sectors") {
    for (const int d : {64, 128}) {
        const std::uint64_t N = 256, width = static_cast<std::uint64_t>(d), B_r = std::uint64_t(queries_of_a_step(d));
        const auto counts =
            count_stage(stage_under_test(), backward_inputs(shape_of(1, N, N, d), Values::normal, test_seed()));
        const emulator::Work& work = work_of(counts, "warpgroup_backward");
        const std::uint64_t blocks = N / B_c, T_r = N / B_r;
        const std::string with = fmt::format(" (d {})", d);
        check_count("matrix instructions, of a warpgroup: five products" + with, work.matrix_instructions,
                    blocks * T_r * 2 * of_step(d));
        check_count("exponentials" + with, work.exponentials, N * N);
        check_count("bytes that threads write to shared memory: dS, and dK and dV at the end" + with,
                    work.shared_of(Access::write).requested_bytes, N * N * bytes + 2 * N * width * bytes);
        check_count("bytes that the sums of dQ take" + with, work.global_of(Access::atomic).requested_bytes,
                    4 * N * width * blocks);
        check_count("bytes of sectors that these take" + with, work.global_of(Access::atomic).sectors * 32,
                    4 * N * width * blocks);
        check_count("barriers: one a step, two a block and one for each half" + with, work.barriers,
                    blocks * (T_r + 2));
        for (const auto& launch : counts.work.launches) {
            check_count("bank conflicts of " + launch.kernel, launch.total.all_shared().conflicts, 0);
            if (launch.kernel.find("warpgroup_backward") == std::string::npos) continue;
            const std::uint64_t a_step = B_r * (2 * width * bytes + of_statistics), K_and_V = 2 * B_c * width * bytes;
            check_count("bytes of shared memory: tiles and barriers" + with, launch.dynamic_shared_bytes,
                        K_and_V + slots * (a_step + B_c * B_r * bytes),
                        K_and_V + slots * (a_step + B_c * B_r * bytes) + 1024);
        }
    }
}
#endif

TEST_CASE("needs a float for each element of dQ, and the statistics of each query, of whole steps") {
    AttentionShape shape = shape_of(6, 999, 1, 64);
    shape.batch = 2;
    CHECK(stage_under_test().scratch_bytes(shape) == 2 * 6 * 1024 * (4 * 64 + 8));
    shape.head_dim = 128;
    shape.n_q = 960;
    CHECK(stage_under_test().scratch_bytes(shape) == 2 * 6 * 960 * (4 * 128 + 8));
}

}  // namespace
}  // namespace flashladder::attention_backward
