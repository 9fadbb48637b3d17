// Rung 22. Each exercise is judged on inputs where the later one, still open, does not matter.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "attention_backward_suite.h"
#include "harness/asked.h"
#include "launch.h"

#ifndef FLASHLADDER_GPU
#include "emulator/activity.h"
#include "lcsf/ring.h"
#include "warp_activity.h"
#endif

namespace flashladder::attention_backward {
namespace {

[[maybe_unused]] const StrictBarriers strict_barriers;

constexpr int unit = 64, B_r = 64, consumers = 2;  // keys that a consumer multiplies at a time; queries of a step
constexpr int units_of_block(int d) { return consumers * 128 / d; }
constexpr int keys_of_a_block(int d) { return units_of_block(d) * unit; }  // B_c

/// -D of each query is another whole number; all else that dK is made of is 1, 0, or divides by a power of 2. Where
/// dP^T begins with something else, dK says with what: each query of a step has a column of it, those of the other step
/// have none. False if it does, and then the test has failed.
bool check_first_summands(int d) {
    constexpr float scale = 0.5f;
    constexpr std::size_t queries = 2 * B_r;
    const std::size_t keys = std::size_t(keys_of_a_block(d)), width = std::size_t(d);
    for (std::size_t first = 0; first < queries; first += B_r) {
        attention::Inputs forward{shape_of(1, int(queries), int(keys), d), {}, {}, {}, scale};
        forward.Q.resize(queries * width), forward.K.resize(keys * width), forward.V.resize(keys * width);
        std::vector<float> dO(queries * width);
        for (std::size_t i = 0; i < B_r; ++i) forward.Q[(first + i) * width + i] = 1;
        for (std::size_t i = 0; i < queries; ++i) dO[i * width] = float(i + 1);
        for (std::size_t j = 0; j < keys; ++j) forward.V[j * width] = 1;
        try {
            const Outputs out = run(stage_under_test(), with_forward_pass(forward, dO));
            for (std::size_t i = 0; i < B_r; ++i)
                for (std::size_t j = 0; j < keys; ++j) {
                    const int expected = -int(first + i + 1);
                    const float differs = out.dK[j * width + i] * float(keys) / scale;
                    if (std::abs(differs) < 0.25f) continue;
                    const float found = float(expected) + differs, whole = std::round(found);
                    const bool known = std::abs(found - whole) < 0.01f && std::abs(whole) <= float(queries);
                    const std::string which = !known       ? "of no query"
                                              : whole == 0 ? "no summand"
                                              : whole > 0  ? fmt::format("D of query {}, not -D", whole - 1)
                                                           : fmt::format("-D of query {}", -whole - 1);
                    FAIL_CHECK(fmt::format(
                        "dP^T of key {} and query {} begins with {:.3g}, {}; expected {}, -D of query {} (d {})", j,
                        first + i, found, which, expected, first + i, d));
                    return false;
                }
        } catch (const CudaError& error) {
            FAIL_CHECK(std::string(error.what()));
            return false;
        }
    }
    return true;
}

#ifndef FLASHLADDER_GPU
using emulator::Access;
using emulator::Activity;
using emulator::Doing;

constexpr std::uint64_t bytes = 2, of_statistics = 8, float_bytes = 4, warps = 4 * consumers;
constexpr std::uint64_t units_of_consumer(int d) { return std::uint64_t(units_of_block(d)) / consumers; }

/// Matrix instructions of a consumer in a step: of its units S^T, dP^T and dV, then in its turn dQ, and dK.
constexpr std::uint64_t of_scores(int d) { return std::uint64_t(d / 16); }
constexpr std::uint64_t of_values = B_r / 16;  // of a unit
constexpr std::uint64_t of_queries(int d) { return std::uint64_t(units_of_block(d) * unit / 16); }
constexpr std::uint64_t of_keys(int d) { return units_of_consumer(d) * (B_r / 16); }
constexpr std::uint64_t before_queries(int d) { return units_of_consumer(d) * (2 * of_scores(d) + of_values); }

/// What is loaded beside products is slow: few loads. False if there are more, and then the test has failed.
bool check_loads(int d) {
    constexpr std::uint64_t T_r = 3, loads = B_r / 8;
    const Inputs in = backward_inputs(shape_of(1, int(T_r) * B_r, keys_of_a_block(d), d), Values::normal, test_seed());
    try {
        const emulator::Work work = work_of(count_stage(stage_under_test(), in), "out_of_step");
        // But for one at the end: who is last.
        const std::uint64_t found = (work.shared_of(Access::read).accesses - warps) / (warps * T_r),
                            expected = loads * (1 + units_of_consumer(d));
        check_count(
            fmt::format("loads of a warp from shared memory in a step: {0} of log-sum-exps, and for each of its units "
                        "{0} of -D, of two columns each",
                        loads),
            found, expected, fmt::format("d {}", d));
        return found == expected;
    } catch (const CudaError& error) {
        FAIL_CHECK(std::string(error.what()));
        return false;
    }
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

/// How many of them are under way at a moment.
std::uint64_t under_way(const Activity* begin, const Activity* end, std::uint64_t at) {
    return std::uint64_t(std::count_if(begin, end, [=](const Activity& a) { return a.begin < at && at < a.happened; }));
}

/// What the first block's warps do in so many steps, as late as its waits allow.
std::vector<Activity> activities_of_steps(int d, std::uint64_t T_r) {
    const Inputs in = backward_inputs(shape_of(1, int(T_r) * B_r, 100, d), Values::normal, test_seed());
    for (const auto& launch : emulator::record_activity(
             0, [&] { run(stage_under_test(), in); }, true))
        if (launch.kernel.find("out_of_step") != std::string::npos) return launch.activities;
    return {};
}

/// Of those barriers at which this warp arrives.
std::set<const void*> barriers_of(unsigned warp, const std::vector<Activity>& all) {
    std::set<const void*> barriers;
    for (const Activity& a : all)
        if (a.what == Doing::arrive && a.barrier && a.warp == warp) barriers.insert(a.barrier);
    return barriers;
}

/// Nobody reads what it has not waited for. False if somebody may, and then the test has failed; what ends the kernel
/// is told later.
bool check_waits_for_loads(int d) {
    constexpr std::uint64_t T_r = 4;
    std::vector<Activity> all;
    try {
        all = activities_of_steps(d, T_r);
    } catch (const CudaError&) {
        return true;
    }
    const std::set<const void*> of_producer = barriers_of(0, all);
    for (unsigned w = 0; w < consumers; ++w) {
        const auto waits = std::uint64_t(std::ranges::count_if(all, [&](const Activity& a) {
            return a.warp == 4 * (1 + w) && a.what == Doing::wait && a.counts && of_producer.contains(a.barrier);
        }));
        check_count(fmt::format("times that consumer {} waits for keys, and for queries of each of {} steps{}", w, T_r,
                                d == 64 ? ": of all but the first by load_ahead()" : ""),
                    waits, 1 + T_r, fmt::format("d {}", d));
        if (waits != 1 + T_r) return false;
    }
    return true;
}

/// Each dQ is announced once, and not before it is in its buffer, which a consumer waits for just before it stores: or
/// its writer would be told as reading what nobody has written. False if not, and then the test has failed; what else
/// ends the kernel is told later.
bool check_announced(int d, std::uint64_t T_r) {
    const Inputs in = backward_inputs(shape_of(1, int(T_r) * B_r, 100, d), Values::normal, test_seed());
    bool ended = true;
    const auto launches = emulator::record_activity(0, [&] {
        try {
            run(stage_under_test(), in);
        } catch (const CudaError&) {
            ended = false;
        }
    });
    const auto launch = std::ranges::find_if(
        launches, [](const emulator::LaunchActivity& l) { return l.kernel.find("out_of_step") != std::string::npos; });
    if (launch == launches.end()) return true;
    const std::vector<Activity>& all = launch->activities;
    const auto of_writer =
        std::ranges::find_if(all, [](const Activity& a) { return a.warp == 1 && a.what == Doing::wait && a.barrier; });
    if (of_writer == all.end()) return true;
    for (unsigned w = 0; w < consumers; ++w) {
        const char* const full = static_cast<const char*>(of_writer->barrier) + w * sizeof(lcsf::Ring<1>);
        const char* const empty = full + offsetof(lcsf::Ring<1>, empty);
        std::uint64_t stored = 0, announced = 0, exponentials = 0;
        const std::uint64_t expected = (T_r + 1 - w) / consumers;
        for (const Activity& a : all) {
            if (a.warp != 4 * (1 + w)) continue;
            if (a.what == Doing::exponential) ++exponentials;
            if (a.what == Doing::wait && a.counts && a.barrier == empty) ++stored;
            if (a.what != Doing::arrive || a.barrier != full || ++announced <= stored) continue;
            const std::uint64_t step = exponentials / (units_of_consumer(d) * B_r / 2) - 1;
            const std::string when =
                step + 1 == T_r ? "in the last step, or behind it," : fmt::format("in step {}", step);
            forget_asked();  // what the writer reads then is no cause
            FAIL_CHECK(fmt::format("{} consumer {} announces a dQ, but has stored none {} (d {}, {} step{})", when, w,
                                   stored == 0 ? "yet" : "since it announced the last one", d, T_r,
                                   T_r == 1 ? "" : "s"));
            return false;
        }
        if (!ended) continue;
        check_count(fmt::format("times that consumer {} announces a dQ, in {} step{}", w, T_r, T_r == 1 ? "" : "s"),
                    announced, expected, fmt::format("d {}", d));
        if (announced != expected) return false;
    }
    return true;
}

/// What a consumer waits for: in its turn alone for dS^T of both, of the step before, which both have long stored; and
/// never for dK, which the next step still has time for.
void check_turns(int d, std::uint64_t T_r) {
    std::vector<Activity> all;
    try {
        all = activities_of_steps(d, T_r);
    } catch (const CudaError& error) {
        FAIL_CHECK(std::string(error.what()));
        return;
    }
    // Of the barriers at which both consumers arrive, they wait for those of dS^T alone; and for those of the producer.
    const std::set<const void*> of_producer = barriers_of(0, all), of_first = barriers_of(4, all),
                                of_second = barriers_of(8, all);
    std::set<const void*> of_both, of_scores;
    std::ranges::set_intersection(of_first, of_second, std::inserter(of_both, of_both.end()));
    for (const Activity& a : all)
        if (a.what == Doing::wait && a.warp >= 4 && of_both.contains(a.barrier)) of_scores.insert(a.barrier);
    const std::uint64_t loop = T_r * (before_queries(d) + of_keys(d));
    std::set<const void*> of_step_barriers[consumers];  // those of threads, at which a consumer waits in steps
    for (unsigned w = 0; w < consumers; ++w) {
        const std::uint64_t turns = (T_r + 1 - w) / 2;
        const std::string with = fmt::format("consumer {}, d {}, {} steps", w, d, T_r);
        std::vector<Activity> products, waits, of_loads;  // of its first warp
        std::vector<const void*> announced;               // the barrier of dS^T, in each step
        std::uint64_t exponentials = 0, turn = 0;
        for (const Activity& a : all) {
            if (a.warp != 4 * (1 + w)) continue;
            if (a.what == Doing::product) products.push_back(a);
            if (a.what == Doing::exponential) ++exponentials;
            if (a.what == Doing::arrive && of_scores.contains(a.barrier)) announced.push_back(a.barrier);
            if (a.what != Doing::wait || !a.counts) continue;
            waits.push_back(a);
            if (of_producer.contains(a.barrier)) of_loads.push_back(a);
            if (!of_scores.contains(a.barrier)) continue;
            const std::uint64_t wanted = w + 2 * turn++;  // the step whose dQ is next
            const std::uint64_t step = exponentials / (units_of_consumer(d) * B_r / 2) - 1;
            const auto last = std::ranges::find(announced.rbegin(), announced.rend(), a.barrier);
            const std::uint64_t of_step = std::uint64_t(announced.rend() - last) - 1;
            const bool is_of_wanted = last != announced.rend() && of_step == wanted;
            if (is_of_wanted && announced.size() == std::min(wanted + 2, T_r)) continue;
            if (is_of_wanted && announced.size() == step)
                FAIL_CHECK(fmt::format("in step {} a consumer waits before it has announced its own dS^T of that step, "
                                       "for which the other one may have to wait ({})",
                                       step, with));
            else
                FAIL_CHECK(fmt::format(
                    "in step {} a consumer waits for dS^T of step {}, so for what the other one is doing now; "
                    "expected, in its turn, dS^T of the step before, and behind the last step that of the last ({})",
                    announced.size() - 1, last == announced.rend() ? announced.size() : of_step, with));
            return;
        }
        check_count(fmt::format("times that a consumer waits for dS^T of both, in {} steps: its turns", T_r), turn,
                    turns, with);
        check_count("matrix instructions of a warp", products.size(), loop + turns * of_queries(d), with);
        check_count("times that a consumer waits for what is loaded: keys, and queries of each step", of_loads.size(),
                    1 + T_r, with);
        if (turn != turns || products.size() != loop + turns * of_queries(d) || of_loads.size() != 1 + T_r) return;
        for (const Activity& a : all)
            if (a.what == Doing::barrier && a.barrier && a.warp == 4 * (1 + w) && a.begin < products.back().begin)
                of_step_barriers[w].insert(a.barrier);
        // Of dV in one step at least: where both consumers wait for products, those that were begun first end first.
        std::uint64_t dV_at_dQ[2] = {};  // without a turn, with one
        std::uint64_t dK_behind_dQ = of_keys(d), dK_at_loads = of_keys(d), dK_at_next = of_keys(d);
        const Activity* of_step = products.data();
        for (std::uint64_t t = 0; t + 1 < T_r; ++t) {
            const Activity *of_dQ = of_step + before_queries(d),
                           *of_dK = of_dQ + (t > 0 && (t - 1) % consumers == w ? of_queries(d) : 0),
                           *next = of_dK + of_keys(d);
            auto& of_values_now = dV_at_dQ[of_dQ != of_dK];
            of_values_now = std::max(of_values_now, under_way(of_step, of_dQ, of_dQ->begin));
            dK_at_next = std::min(dK_at_next, under_way(of_dK, next, next->begin));
            if (d == 64) dK_at_loads = std::min(dK_at_loads, under_way(of_dK, next, of_loads[2 + t].begin));
            if (of_dQ != of_dK) {
                std::uint64_t waited = ~std::uint64_t(0);  // until when dQ has been
                for (const Activity& wait : waits)
                    if (wait.end > of_dK[-1].happened) waited = std::min(waited, wait.end);
                dK_behind_dQ = std::min(dK_behind_dQ, under_way(of_dK, next, waited));
            }
            of_step = next;
        }
        check_count("matrix instructions under way when dK is begun in a step without a turn: those of dV", dV_at_dQ[0],
                    of_values, with);
        check_count("matrix instructions under way when dQ is begun: those of dV", dV_at_dQ[1], of_values, with);
        check_count("matrix instructions under way when dQ has been waited for: those of dK", dK_behind_dQ, of_keys(d),
                    with);
        check_count("matrix instructions under way when the next step's log-sum-exps are waited for: those of dK",
                    dK_at_loads, of_keys(d), with);
        check_count("matrix instructions under way when the next step begins: those of dK", dK_at_next, of_keys(d),
                    with);
    }
    std::vector<const void*> shared;
    std::ranges::set_intersection(of_step_barriers[0], of_step_barriers[1], std::back_inserter(shared));
    check_count("barriers at which both consumers wait for each other in steps", shared.size(), 0,
                fmt::format("d {}, {} steps", d, T_r));
}
#else
bool check_that(const Inputs& in, const std::string& gradient, const std::string& what) {
    const std::string wrong = gradient.empty() ? fault(in) : fault_of(gradient, in);
    CHECK_MESSAGE(wrong.empty(), what, "; ", wrong);
    return wrong.empty();
}
bool check_loads(int) { return true; }
bool check_waits_for_loads(int) { return true; }
bool check_announced(int, std::uint64_t) { return true; }
#endif

TEST_CASE("EXERCISE 22.1: dP^T begins with -D") {
    for (const int d : {64, 128}) {
        if (!check_announced(d, 5)) return;  // else its writer would be told, and that by this test
        if (!check_first_summands(d)) return;
        // Several steps, heads one after the other: each has statistics in its own slot.
        for (const AttentionShape& shape :
             {shape_of(1, drawn_length(B_r, 2 * B_r + 1, 5 * B_r, 0), drawn_length(unit, 70, 150, 1), d),
              grouped(causal(shape_of(2, drawn_length(B_r, 70, 130, 2), drawn_length(unit, 70, 150, 3), d)))})
            for (const char* gradient : {"dK", "dQ"})
                if (!check_that(backward_inputs(shape, Values::normal, test_seed()), gradient, "dP^T begins with -D"))
                    return;
        if (!check_loads(d)) return;
    }
}

TEST_CASE("EXERCISE 22.2: dQ, a step late") {
    for (const int d : {64, 128})
        for (const std::uint64_t T_r : {1u, 2u, 5u})
            if (!check_announced(d, T_r)) return;
    for (const int d : {64, 128})
        if (!check_waits_for_loads(d)) return;
    // One step alone, three or more, odd or even; heads one after the other; blocks of keys that not all queries see.
    for (const int d : {64, 128})
        for (const AttentionShape& shape :
             {shape_of(2, drawn_length(B_r, 1, B_r, 0), 70, d),
              shape_of(1, drawn_length(B_r, 2 * B_r + 1, 3 * B_r, 2), drawn_length(unit, 100, 200, 3), d),
              shape_of(1, drawn_length(B_r, 3 * B_r + 1, 6 * B_r, 4), drawn_length(unit, 100, 200, 5), d),
              grouped(shape_of(2, drawn_length(B_r, 1, B_r, 1), 70, d)),
              grouped(
                  causal(shape_of(3, drawn_length(B_r, 100, 2 * B_r + 50, 6), drawn_length(unit, 40, 200, 7), d)))}) {
            const int steps = shape.heads / shape.kv_heads * ((shape.n_q + B_r - 1) / B_r);
            const Inputs in = backward_inputs(shape, Values::normal, test_seed());
            if (!check_that(in, "",
                            fmt::format("{}{} step{}", shape.causal ? "up to " : "", steps, steps == 1 ? "" : "s")))
                return;
        }
#ifndef FLASHLADDER_GPU
    for (const std::uint64_t T_r : {6u, 7u}) check_turns((T_r + test_seed()) % 2 ? 64 : 128, T_r);
#endif
}

TEST_CASE("agrees with the reference: lengths near the edges of steps and of blocks of keys") {
    check_lengths_near_edges([](int) { return B_r; }, keys_of_a_block);
}

TEST_CASE("causal: keys that no query of a step sees reach nobody, whatever they hold") {
    for (const int d : {64, 128})
        check_hidden_keys_reach_nobody(shape_of(1, 400, 400, d), keys_of_a_block(d), keys_of_a_block(d));
}

TEST_CASE("deterministic: dQ has the same bits too, on few multiprocessors and many, in a launch behind another one") {
    const auto is_it = [](const flashladder::Stage& form) { return form.variant() == "deterministic"; };
    if (std::ranges::none_of(variants(), is_it)) return;  // a chapter has no variants
    const Stage& stage = find_stage("22-out-of-step/deterministic");
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
#ifndef FLASHLADDER_GPU
    for (const bool first_to_last : {true, false}) {
        const VirtualGpu gpu(first_to_last ? 4 : 1);
        emulator::settings().ordered_adds = true;
        emulator::settings().last_block_first = !first_to_last;
        emulator::settings().patience = 1 << 20;  // where blocks wait for one that has no room
        const int d = first_to_last == (turn % 2 == 0) ? 128 : 64;
        for (AttentionShape shape : shapes_of_several_blocks(d, turn)) {
            // Who comes second is behind the first one in any case; the last queries' tile reaches beyond the last key.
            shape.n_k = 3 * std::size_t(keys_of_a_block(d)), shape.n_q |= 1;
            const Inputs in = backward_inputs(shape, Values::normal, random());
            const std::string race = emulator::find_race([&] { run(stage, in); });
            CHECK_MESSAGE(race.empty(), race);
            if (!race.empty()) return;  // what else is wrong follows from it
        }
    }
#endif
    for (const auto& [n_q, n_k] : {std::pair(drawn_length(64, 65, 300, turn), drawn_length(128, 129, 700, turn + 1)),
                                   {500, 200}, {64, 513}, {3, 1}})
        for (const bool is_causal : {false, true}) {
            AttentionShape shape = shape_of(4, n_q, n_k, turn++ % 2 ? 64 : 128);
            shape.causal = is_causal, shape.kv_heads = 2, shape.batch = 1 + int(turn % 2);
            if (n_q > 400) shape.heads = 2;
            const Inputs in = backward_inputs(shape, Values::normal, random());
            try {
                const Comparison compared = check(stage, in);
                CHECK_MESSAGE(compared.passed, compared.describe(shape));
                const Outputs expected = run(stage, in);
                DeviceProblem problem(stage, in);
                for (const int multiprocessors : {3, 40}) {
                    const VirtualGpu gpu(multiprocessors);
#ifndef FLASHLADDER_GPU
                    emulator::reseed(random());
                    emulator::settings().last_block_first = multiprocessors == 3;
#endif
                    problem.scratch.fill(multiprocessors), problem.dQ.fill(0xFF);
                    for (int launched = 0; launched < 2; ++launched) {
                        stage.launch(problem.args());
                        check_cuda(cudaDeviceSynchronize(), "launch");
                        check_same_bits(problem.outputs(), expected,
                                        fmt::format("with other multiprocessors, {}, launch {} ({})", multiprocessors,
                                                    launched, attention::to_string(shape)));
                    }
                }
            } catch (const CudaError& error) {
                FAIL_CHECK(std::string(error.what()));
                return;
            }
        }
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
        const emulator::Work& work = work_of(counts, "out_of_step");
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
        const std::uint64_t few = blocks * (consumers * T_r + 4) + 2 * T_r;
        WARN_MESSAGE((work.named_barriers <= few),
                     fmt::format("barriers of warpgroups{}: found {}, needed {}: of each consumer one a step, four a block, "
                                 "two for each step of dQ at the end",
                                 with, work.named_barriers, few));
        for (const auto& launch : counts.work.launches) {
            check_count("bank conflicts of " + launch.kernel, launch.total.all_shared().conflicts, 0);
            if (launch.kernel.find("out_of_step") == std::string::npos) continue;
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
