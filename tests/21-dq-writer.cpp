// Rung 21. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
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

constexpr int unit = 64, B_r = 64, consumers = 2;  // keys that a consumer multiplies at a time; queries of a step
constexpr int units_of_block(int d) { return consumers * 128 / d; }
constexpr int keys_of_a_block(int d) { return units_of_block(d) * unit; }  // B_c

/// Problems whose dQ has several summands: with one head, or heads that share K and V; causal, with queries that see no
/// key, and others that see one block of them. Lengths of `turn`.
std::vector<AttentionShape> several_blocks(int d, std::uint64_t turn) {
    const int B_c = keys_of_a_block(d);
    const auto n_q = [&](int least, int most, std::uint64_t n) { return drawn_length(B_r, least, most, turn + n); };
    const auto n_k = [&](int least, int most, std::uint64_t n) { return drawn_length(B_c, least, most, turn + n); };
    std::vector<AttentionShape> all = {
        shape_of(1, n_q(2 * B_r + 1, 4 * B_r, 0), n_k(B_c + 1, B_c + 130, 1), d),
        grouped(shape_of(2, n_q(B_r + 1, 2 * B_r, 2), n_k(B_c + 1, B_c + 200, 3), d)),
        causal(shape_of(1, n_k(B_c + 20, B_c + 100, 4) + n_q(1, 2 * B_r, 5), n_k(B_c + 20, B_c + 100, 4), d))};
    all.back().dtype = test_seed() % 2 ? DType::f16 : DType::bf16;
    return all;
}

#ifndef FLASHLADDER_GPU
using emulator::Access;
using emulator::Activity;
using emulator::Doing;

constexpr std::uint64_t bytes = 2, of_statistics = 8, float_bytes = 4;

/// Matrix instructions of a consumer in a step: of its units S^T, dP^T and dV, then dQ of its turn, and dK.
constexpr std::uint64_t of_scores(int d) { return std::uint64_t(d / 16); }
constexpr std::uint64_t of_values = B_r / 16;  // of a unit
constexpr std::uint64_t of_queries(int d) { return std::uint64_t(units_of_block(d) * unit / 16); }
constexpr std::uint64_t of_keys(int d) { return std::uint64_t(units_of_block(d) / consumers) * (B_r / 16); }
constexpr std::uint64_t before_queries(int d) {
    return std::uint64_t(units_of_block(d) / consumers) * (2 * of_scores(d) + of_values);
}

/// Steps of all blocks of keys, and of the first one, which has the most.
std::pair<std::uint64_t, std::uint64_t> steps_of(const AttentionShape& s) {
    const int T_q = (s.n_q + B_r - 1) / B_r, heads = s.batch * s.heads;
    int all = 0;
    for (int j = 0; j < s.n_k; j += keys_of_a_block(s.head_dim))
        all += T_q - (s.causal ? std::max(0, j + s.n_q - s.n_k) / B_r : 0);
    const int most = T_q - (s.causal ? std::max(0, s.n_q - s.n_k) / B_r : 0);
    return {std::uint64_t(heads) * std::uint64_t(all), std::uint64_t(heads) * std::uint64_t(most)};
}

/// Who is first stores a step's sums, all others add. False if not, and then the test has failed.
bool check_stored_once(const Inputs& in) {
    const AttentionShape& s = in.shape();
    const auto [steps, first] = steps_of(s);
    const std::uint64_t d = std::uint64_t(s.head_dim), sums = float_bytes * B_r * d;
    const std::uint64_t gradients =
        bytes * d * std::uint64_t(s.batch) * std::uint64_t(s.heads * s.n_q + 2 * s.kv_heads * s.n_k);
    try {
        const emulator::Work work = work_of(count_stage(stage_under_test(), in), "dq_writer");
        const std::uint64_t stored = work.global_of(Access::tma_store).requested_bytes,
                            added = work.global_of(Access::tma_reduce).requested_bytes;
        check_count("bytes that bulk stores write: dQ, dK and dV, and the sums of each step of a head once", stored,
                    gradients + first * sums, attention::to_string(s));
        check_count("bytes that are added to sums, by all blocks but the first one of each step", added,
                    (steps - first) * sums, attention::to_string(s));
        return stored == gradients + first * sums && added == (steps - first) * sums;
    } catch (const CudaError& error) {
        FAIL_CHECK(std::string(error.what()));
        return false;
    }
}

/// This gradient is right, without a race, also with copies and products that end as late as the waits allow, unless
/// that is not asked for: blocks that wait for one another ask very often until then. False if not.
bool check_that(const Inputs& in, const std::string& gradient, const std::string& what, bool also_late = true) {
    const std::string race = emulator::find_race([&] { run(stage_under_test(), in); });
    CHECK_MESSAGE(race.empty(), race);
    if (!race.empty()) return false;
    const auto wrong_with = [&] { return gradient.empty() ? fault(in) : fault_of(gradient, in); };
    std::string wrong = wrong_with();
    if (wrong.empty() && also_late) {
        const Late late;
        wrong = wrong_with();
    }
    CHECK_MESSAGE(wrong.empty(), what, "; ", wrong);
    return wrong.empty();
}

/// Another virtual GPU until the end of the scope.
struct WithSettings {
    ~WithSettings() { emulator::settings() = before; }
    const emulator::Settings before = emulator::settings();
};

/// How many of them are under way at a moment.
std::uint64_t under_way(const Activity* begin, const Activity* end, std::uint64_t at) {
    return std::uint64_t(std::count_if(begin, end, [=](const Activity& a) { return a.begin < at && at < a.happened; }));
}

/// What a consumer waits for: dS^T of both in its own turn alone; and never for dK, which the next step still has time
/// for.
void check_turns(int d) {
    constexpr std::uint64_t T_r = 7;  // odd: the consumers have other numbers of turns
    std::vector<Activity> all;
    const Inputs in = backward_inputs(shape_of(1, int(T_r) * B_r, 100, d), Values::normal, test_seed());
    try {
        for (const auto& launch : emulator::record_activity(
                 0, [&] { run(stage_under_test(), in); }, true))
            if (launch.kernel.find("dq_writer") != std::string::npos) all = launch.activities;
    } catch (const CudaError& error) {
        FAIL_CHECK(std::string(error.what()));
        return;
    }
    // Of the barriers at which both consumers arrive, these wait for those of dS^T alone.
    std::set<const void*> arrived[consumers], of_both;
    for (const Activity& a : all)
        if (a.what == Doing::arrive && a.barrier && a.warp >= 4) arrived[a.warp / 4 - 1].insert(a.barrier);
    std::ranges::set_intersection(arrived[0], arrived[1], std::inserter(of_both, of_both.end()));
    for (unsigned w = 0; w < consumers; ++w) {
        const std::uint64_t turns = (T_r + 1 - w) / 2;
        const std::string with = fmt::format(" (consumer {}, d {})", w, d);
        std::vector<Activity> products, waits;  // of its first warp
        std::uint64_t waits_for_both = 0;
        for (const Activity& a : all) {
            if (a.warp != 4 * (1 + w)) continue;
            if (a.what == Doing::product) products.push_back(a);
            if (a.what == Doing::wait && a.counts) waits.push_back(a), waits_for_both += of_both.contains(a.barrier);
        }
        check_count(fmt::format("times that a consumer waits for dS^T of both, in {} steps: its turns{}", T_r, with),
                    waits_for_both, 0, turns);
        const std::uint64_t expected = T_r * (before_queries(d) + of_keys(d)) + turns * of_queries(d);
        check_count("matrix instructions of a warp" + with, products.size(), expected);
        if (products.size() != expected) return;
        // Of dV in one step at least: where both consumers wait for products, those that were begun first end first.
        std::uint64_t dV_at_dQ = 0, dK_behind_dQ = of_keys(d), dK_at_next = of_keys(d);
        const Activity* of_step = products.data();
        for (std::uint64_t t = 0; t + 1 < T_r; ++t) {
            const Activity *of_dQ = of_step + before_queries(d),
                           *of_dK = of_dQ + (t % consumers == w ? of_queries(d) : 0), *next = of_dK + of_keys(d);
            dV_at_dQ = std::max(dV_at_dQ, under_way(of_step, of_dQ, of_dQ->begin));
            dK_at_next = std::min(dK_at_next, under_way(of_dK, next, next->begin));
            if (of_dQ != of_dK) {
                std::uint64_t waited = ~std::uint64_t(0);  // until when dQ has been
                for (const Activity& wait : waits)
                    if (wait.end > of_dK[-1].happened) waited = std::min(waited, wait.end);
                dK_behind_dQ = std::min(dK_behind_dQ, under_way(of_dK, next, waited));
            }
            of_step = next;
        }
        check_count(
            "matrix instructions under way when dQ, or dK where it is not a consumer's turn, is begun: those of dV" +
                with,
            dV_at_dQ, of_values);
        check_count("matrix instructions under way when dQ has been waited for: those of dK" + with, dK_behind_dQ,
                    of_keys(d));
        check_count("matrix instructions under way when the next step begins: those of dK" + with, dK_at_next,
                    of_keys(d));
    }
}

/// Two blocks at a time, from the last to the first.
void two_at_a_time_from_the_last() {
    emulator::settings().multiprocessors = 2;
    emulator::settings().last_block_first = true;
}

/// With one multiprocessor, whose blocks come in the one order or in the other. False if a block waits for another one,
/// and then the test has failed.
bool check_waits_for_nobody(const Inputs& in) {
    for (const bool last_first : {true, false}) {
        const WithSettings restore;
        emulator::settings().multiprocessors = 1;
        emulator::settings().last_block_first = last_first;
        emulator::settings().patience = 1 << 20;
        const std::string wrong = fault_of("dQ", in);
        CHECK_MESSAGE(wrong.empty(), fmt::format("one block at a time, from the {}, as CUDA promises no order; {}",
                                                 last_first ? "last to the first" : "first to the last", wrong));
        if (!wrong.empty()) return false;
    }
    return true;
}
#else
bool check_stored_once(const Inputs&) { return true; }
bool check_that(const Inputs& in, const std::string& gradient, const std::string& what) {
    const std::string wrong = gradient.empty() ? fault(in) : fault_of(gradient, in);
    CHECK_MESSAGE(wrong.empty(), what, "; ", wrong);
    return wrong.empty();
}
bool check_waits_for_nobody(const Inputs&) { return true; }
#endif

TEST_CASE("EXERCISE 21.1: the writer") {
    for (const int d : {64, 128})
        for (const AttentionShape& shape : several_blocks(d, std::uint64_t(d))) {
            const Inputs in = backward_inputs(shape, Values::normal, test_seed());
            if (!check_stored_once(in) || !check_that(in, "dQ", "dQ, of several blocks of keys")) return;
        }
#ifndef FLASHLADDER_GPU
    // Who is first at a step is another one in each order. The block of the first keys may have no room until another
    // one ends: who leaves the first sums to it waits for ever.
    const Inputs in = backward_inputs(
        causal(grouped(shape_of(2, drawn_length(B_r, 130, 200, 6), drawn_length(128, 257, 384, 7), 128))),
        Values::normal, test_seed());
    for (const bool last_first : {false, true}) {
        const WithSettings restore;
        emulator::reseed(100 * test_seed() + last_first);
        if (last_first) two_at_a_time_from_the_last();
        if (!check_stored_once(in) || !check_that(in, "dQ", "dQ, with blocks in another order", false)) break;
    }
    emulator::reseed(test_seed());
#endif
}

TEST_CASE("EXERCISE 21.2: consumers take turns") {
    // One step alone, two, several; heads one after the other; blocks of keys that not all queries see.
    for (const int d : {64, 128})
        for (const AttentionShape& shape :
             {shape_of(2, drawn_length(B_r, 1, B_r, 0), 70, d),
              grouped(shape_of(2, drawn_length(B_r, 1, B_r, 1), 70, d)),
              shape_of(1, drawn_length(B_r, 2 * B_r + 1, 6 * B_r, 2), drawn_length(unit, 100, 200, 3), d),
              grouped(
                  causal(shape_of(3, drawn_length(B_r, 100, 2 * B_r + 50, 4), drawn_length(unit, 40, 200, 5), d)))}) {
            const int steps = shape.heads / shape.kv_heads * ((shape.n_q + B_r - 1) / B_r);
            const Inputs in = backward_inputs(shape, Values::normal, test_seed());
            if (!check_that(in, "", fmt::format("up to {} steps", steps))) return;
        }
#ifndef FLASHLADDER_GPU
    for (const int d : {64, 128}) check_turns(d);
#endif
}

TEST_CASE("EXERCISE 21.3: no block waits for another one, and the last one finishes dQ") {
    for (const int d : {64, 128}) {
        // Three blocks: who adds waits for the first one alone, and so is not ordered behind a third one.
        const int B_c = keys_of_a_block(d), heads = d == 64 ? 2 : 4;
        AttentionShape shape =
            shape_of(heads, drawn_length(B_r, 20, 140, 0), drawn_length(B_c, 2 * B_c + 1, 2 * B_c + 130, 1), d);
        shape.kv_heads = 2;
        shape.causal = test_seed() % 2 == 0;
        const Inputs in = backward_inputs(shape, Values::normal, test_seed());
        if (!check_waits_for_nobody(in) || !check_that(in, "dQ", "dQ, finished by one block of each head of K")) return;
    }
}

TEST_CASE("agrees with the reference: lengths near the edges of steps and of blocks of keys") {
    check_lengths_near_edges([](int) { return B_r; }, keys_of_a_block);
}

TEST_CASE("causal: keys that no query of a step sees reach nobody, whatever they hold") {
    for (const int d : {64, 128})
        check_hidden_keys_reach_nobody(shape_of(1, 400, 400, d), keys_of_a_block(d), keys_of_a_block(d));
}

#ifndef FLASHLADDER_GPU
TEST_CASE("in whatever order blocks run, dK and dV have the same bits, and dQ is within the rule") {
    check_whatever_order();
}

TEST_CASE("counted: five products by wgmma, an exponential a score, dS^T and dQ are stored, no conflicts") {
    for (const int d : {64, 128}) {
        const std::uint64_t N = 512, width = static_cast<std::uint64_t>(d);
        const auto counts =
            count_stage(stage_under_test(), backward_inputs(shape_of(1, N, N, d), Values::normal, test_seed()));
        const emulator::Work& work = work_of(counts, "dq_writer");
        const std::uint64_t B_c = std::uint64_t(keys_of_a_block(d)), blocks = N / B_c, T_r = N / B_r;
        const std::string with = fmt::format(" (d {})", d);
        check_count("matrix instructions, of a warpgroup: four products by each consumer, dQ by one" + with,
                    work.matrix_instructions,
                    blocks * T_r * (consumers * (before_queries(d) + of_keys(d)) + of_queries(d)));
        check_count("exponentials" + with, work.exponentials, N * N);
        check_count(
            "bytes that threads write to shared memory: dS^T, dQ of a step, the gradients at the end, who is last" +
                with,
            work.shared_of(Access::write).requested_bytes,
            N * N * bytes + blocks * N * width * float_bytes + 3 * N * width * bytes + blocks);
        check_count(
            "bytes of atomics: a claim for each step of a block, another word waited for or told, who is last" + with,
            work.global_of(Access::atomic).requested_bytes, float_bytes * (2 * T_r + 1) * blocks);
        check_count("barriers of a block" + with, work.barriers, blocks);
        check_count(
            "barriers of warpgroups: of each consumer one a step, four a block, two for each step of dQ at the end" +
                with,
            work.named_barriers, 0, blocks * (consumers * T_r + 4) + 2 * T_r);
        for (const auto& launch : counts.work.launches) {
            check_count("bank conflicts of " + launch.kernel, launch.total.all_shared().conflicts, 0);
            if (launch.kernel.find("dq_writer") == std::string::npos) continue;
            const std::uint64_t slots = d == 64 ? 3 : 2, a_step = B_r * (2 * width * bytes + of_statistics);
            const std::uint64_t tiles = 2 * B_c * width * bytes + slots * a_step + 2 * B_c * B_r * bytes +
                                        consumers * B_r * width * float_bytes;
            check_count("bytes of shared memory: tiles and barriers" + with, launch.dynamic_shared_bytes, tiles,
                        tiles + 1024);
        }
    }
}
#endif

TEST_CASE(
    "needs a float for each element of dQ, statistics of each query, of whole steps, and words for who has come") {
    AttentionShape shape = shape_of(6, 999, 1, 64);
    shape.batch = 2;
    CHECK(stage_under_test().scratch_bytes(shape) == 2 * 6 * (16 * (64 * (4 * 64 + 8) + 4) + 4));
    shape.head_dim = 128;
    shape.n_q = 960;
    CHECK(stage_under_test().scratch_bytes(shape) == 2 * 6 * (15 * (64 * (4 * 128 + 8) + 4) + 4));
}

}  // namespace
}  // namespace flashladder::attention_backward
