// Rung 10. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
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

/// The rung, without a name, and its variants. `blocks` share a multiprocessor.
struct Configuration {
    const char* name;
    int d, consumers, B_c, stages, blocks;

    int B_r() const { return 64 * consumers; }
    const Stage& stage() const {
        return *name ? find_stage(std::string("10-warp-specialization/") + name) : stage_under_test();
    }
    std::string name_and_d() const { return std::string(*name ? name : "the rung") + ", d " + std::to_string(d); }
    std::string describe() const { return name_and_d() + ": "; }
};
constexpr Configuration best_of_64{"", 64, 2, 64, 2, 2}, best_of_128{"", 128, 3, 128, 2, 1};
constexpr Configuration configurations[] = {best_of_64,
                                            {"1 stage", 64, 2, 64, 1, 2},
                                            {"3 stages", 64, 2, 64, 3, 2},
                                            {"4 stages", 64, 2, 64, 4, 2},
                                            {"1 block of 2, 128 keys", 64, 2, 128, 2, 1},
                                            {"1 block of 3, 128 keys", 64, 3, 128, 2, 1},
                                            {"1 block of 4", 64, 4, 64, 2, 1},
                                            best_of_128,
                                            {"1 stage", 128, 3, 128, 1, 1},
                                            {"64 keys", 128, 3, 64, 2, 1},
                                            {"64 keys, 4 stages", 128, 3, 64, 4, 1},
                                            {"2 consumers, 1 stage", 128, 2, 128, 1, 1},
                                            {"2 consumers", 128, 2, 128, 2, 1},
                                            {"2 consumers, 3 stages", 128, 2, 128, 3, 1}};

#ifndef FLASHLADDER_GPU
/// What block 0 does, in its order. `late`: copies and products end as late as the kernel's waits allow, so that
/// whoever goes on without them has gone as far as he can. Nothing where the kernel stops, and then the test has
/// failed.
std::vector<emulator::Activity> activities_of(const Configuration& c, const Inputs& in, bool late) {
    try {
        const auto launches = emulator::record_activity(
            0, [&] { run(c.stage(), in, true); }, late);
        return launches.at(0).activities;
    } catch (const CudaError& error) {
        FAIL_CHECK(c.describe(), std::string(error.what()));
        return {};
    }
}

bool is_consumers(const emulator::Activity& activity) { return activity.warp >= 4; }

/// Whether in this run a consumer has gone past the last barrier of its threads before all of another one's had come to
/// theirs.
bool one_went_on_alone(const Configuration& c, const std::vector<emulator::Activity>& activities) {
    std::map<unsigned, emulator::Activity> last;  // by warp
    for (const auto& activity : activities)
        if (is_consumers(activity) && activity.what == emulator::Doing::barrier) last[activity.warp] = activity;
    for (int a = 1; a <= c.consumers; ++a)
        for (int b = 1; b <= c.consumers; ++b) {
            std::uint64_t passed = 0, came = 0;
            for (int warp = 0; warp < 4; ++warp) {
                passed = std::max(passed, last[unsigned(4 * a + warp)].end);
                came = std::max(came, last[unsigned(4 * b + warp)].begin);
            }
            if (a != b && passed < came) return true;
        }
    return false;
}

/// What a block of the contract does with T_c whole tiles of keys: who asks for tiles, how far ahead of the products,
/// and how often and when each warp gives a slot back.
void check_roles(const Configuration& c) {
    const int T_c = 2 * c.stages + 1;
    const Inputs in = make_inputs(shape_of(1, c.B_r(), T_c * c.B_c, c.d), Values::normal, test_seed());
    const auto activities = activities_of(c, in, true);
    if (activities.empty()) return;

    const int boxes = c.d / 64;                                                           // of TMA, that make a tile
    const int products_of_scores = c.d / 16, products = products_of_scores + c.B_c / 16;  // of a step
    std::vector<std::uint64_t> copies;                                                    // when each began
    std::map<unsigned, std::vector<std::uint64_t>> arrivals;                              // by warp
    std::map<unsigned, int> begun;                                                        // products, by warp
    std::vector<std::uint64_t> output_ended(std::size_t(T_c), 0);  // the last product of P V_t, of all warps
    std::map<unsigned, std::vector<int>> given_back;               // by warp: before the exponentials of step t begin
    std::uint64_t first_product = 0;
    for (const auto& activity : activities) {
        if (activity.what == emulator::Doing::copy) {
            if (is_consumers(activity)) {
                FAIL_CHECK(c.describe(), "warp ", activity.warp, " of consumer ", activity.warp / 4 - 1,
                           " asks for a tile; expected that the producer asks for all of them");
                return;
            }
            copies.push_back(activity.begin);
        }
        if (activity.what == emulator::Doing::arrive) arrivals[activity.warp].push_back(activity.begin);
        if (activity.what == emulator::Doing::exponential && is_consumers(activity)) {
            std::vector<int>& before = given_back[activity.warp];
            if (begun[activity.warp] == int(before.size()) * products + products_of_scores)
                before.push_back(int(arrivals[activity.warp].size()));
        }
        if (activity.what != emulator::Doing::product) continue;
        if (first_product == 0) first_product = activity.begin;
        const int t = begun[activity.warp]++ / products;
        if (t < T_c) output_ended[std::size_t(t)] = std::max(output_ended[std::size_t(t)], activity.happened);
    }
    const auto tiles_before = [&](std::uint64_t moment) {
        return std::count_if(copies.begin(), copies.end(), [=](auto begin) { return begin < moment; }) / boxes -
               c.consumers;
    };
    check_count("tiles of K and V that have been asked for before the first product begins, as many as there are slots",
                std::uint64_t(tiles_before(first_product)), std::uint64_t(2 * std::min(c.stages, T_c)), c.name_and_d());
    for (int warp = 4; warp < 4 * (1 + c.consumers); ++warp) {
        const std::string who = "warp " + std::to_string(warp % 4) + " of consumer " + std::to_string(warp / 4 - 1);
        check_count("arrivals of " + who + ", one for each tile of K and of V", arrivals[unsigned(warp)].size(),
                    std::uint64_t(2 * T_c), c.name_and_d());
        for (int t = 0; t < int(given_back[unsigned(warp)].size()); ++t)
            if (given_back[unsigned(warp)][std::size_t(t)] < 2 * t + 1) {
                FAIL_CHECK(c.describe(), "before ", who, " makes weights of S_", t, " it has arrived ",
                           given_back[unsigned(warp)][std::size_t(t)], " times; expected ", 2 * t + 1, ": K_", t,
                           " has been read by then");
                return;
            }
    }
    for (int t = 0; t < T_c; ++t)
        check_count("tiles of K and V that have been asked for before P V_" + std::to_string(t) +
                        " ends: K_t has been read by then",
                    std::uint64_t(tiles_before(output_ended[std::size_t(t)])),
                    std::uint64_t(std::min(t + 1 + c.stages, T_c) + std::min(t + c.stages, T_c)), c.name_and_d());
}

/// Barriers of threads that so many blocks of keys make a block of threads pass, beyond what it does with one.
void check_no_barrier_in_the_loop(const Configuration& c) {
    const auto barriers = [&](int T_c) {
        const Inputs in = make_inputs(shape_of(1, c.B_r(), T_c * c.B_c, c.d), Values::normal, test_seed());
        const emulator::Work work = work_of(c.stage(), in);
        return work.barriers + work.named_barriers;
    };
    check_count("barriers of threads that four more blocks of keys take", barriers(5) - barriers(1), 0, c.name_and_d());
}
#endif

#ifndef FLASHLADDER_GPU
/// Whether nothing stops the kernel, nor races, with so many queries and keys: that says which line, where a wrong
/// result has a number.
bool is_sound(const Configuration& c, int n_q, int n_k) {
    const Inputs in = make_inputs(shape_of(1, n_q, n_k, c.d), Values::normal, test_seed());
    const std::string report = emulator::find_race([&] { run(c.stage(), in, true); });
    CHECK_MESSAGE(report.empty(), c.describe(), report);
    return report.empty();
}
#endif

bool is_right(const Configuration& c, const Inputs& in) {
    const std::string wrong = fault(c.stage(), in);
    CHECK_MESSAGE(wrong.empty(), c.describe(), wrong);
    return wrong.empty();
}

TEST_CASE("EXERCISE 10.1: a consumer's output leaves when its own threads have written it") {
    // A single block of keys: no slot is filled again. The consumers come to their ends at nearly the same time.
#ifndef FLASHLADDER_GPU
    for (const Configuration& c : {best_of_64, best_of_128})
        if (!is_sound(c, c.B_r(), 40)) return;
    // The first block of queries sees no key, so that nothing but the end is left.
    constexpr int runs = 10;
    for (const Configuration& c : {best_of_64, best_of_128}) {
        Inputs in = make_inputs(shape_of(1, c.B_r() + 1, 1, c.d), Values::normal, test_seed());
        in.shape.causal = true;
        bool alone = false;
        for (int times = 0; times < runs && !alone; ++times) alone = one_went_on_alone(c, activities_of(c, in, false));
        CHECK_MESSAGE(alone, c.describe(), "in ", runs, " of ", runs,
                      " runs the consumers have waited for each other at their ends; expected that each waits for its "
                      "own 128 threads alone");
        if (!alone) return;
    }
#endif
    for (const Configuration& c : configurations)
        for (int times = 0; times < 3; ++times)
            if (!is_right(c, make_inputs(shape_of(3, c.B_r(), 40, c.d), Values::normal, test_seed() + times))) return;
}

TEST_CASE("EXERCISE 10.2: a producer and its consumers") {
#ifndef FLASHLADDER_GPU
    for (const Configuration& c : {best_of_64, best_of_128, configurations[1], configurations[3]})
        if (!is_sound(c, 50, (2 * c.stages + 1) * c.B_c - 5)) return;
#endif
    for (const Configuration& c : configurations)
        for (const int n_k : {(4 * c.stages + 1) * c.B_c, drawn_length(c.B_c, 1, c.stages * c.B_c, 0)})
            if (!is_right(c, make_inputs(shape_of(2, c.B_r() - 14, n_k, c.d), Values::normal, test_seed()))) return;
    for (const Configuration& c : {best_of_64, best_of_128})
        for (const int n_k : {1, c.B_r() + 70}) {
            Inputs in = make_inputs(shape_of(2, c.B_r() + 69, n_k, c.d), Values::normal, test_seed());
            in.shape.causal = true;
            if (!is_right(c, in)) return;
        }
    AttentionShape grouped = shape_of(4, 60, 3 * best_of_64.B_c, 64);
    grouped.kv_heads = 2;
    if (!is_right(best_of_64, make_inputs(grouped, Values::normal, test_seed()))) return;
#ifndef FLASHLADDER_GPU
    for (const Configuration& c : configurations) check_roles(c);
    for (const Configuration& c : {best_of_64, best_of_128}) check_no_barrier_in_the_loop(c);
#endif
}

TEST_CASE("a tile has come before it is read, and stays until all have read it: every number of slots, of consumers") {
    std::mt19937_64 random(test_seed());
    for (const Configuration& c : configurations)
        for (const int n_k :
             {drawn_length(c.B_c, 1, c.B_c + 1, random()), c.B_c + drawn_length(c.B_c, 1, c.B_c + 1, random()),
              c.stages * c.B_c, 3 * c.stages * c.B_c + drawn_length(c.B_c, 1, c.B_c + 1, random())}) {
            const int n_q = std::max(c.B_r() - 64 + drawn_length(64, 1, 64 + 1, random()), 16);
            const Inputs in = make_inputs(shape_of(2, n_q, n_k, c.d), Values::normal, random());
            const std::string wrong = fault(c.stage(), in);
            CHECK_MESSAGE(wrong.empty(), c.describe(), wrong);
        }
}

TEST_CASE("agrees with the reference: lengths near multiples of the tiles") {
    for (const Configuration& c : {best_of_64, best_of_128}) check_lengths_near(c.B_r(), c.B_c, c.d);
}

TEST_CASE("queries that see nothing: O is 0 though Q_i may still be on its way") {
    for (const Configuration& c : {best_of_64, best_of_128})
        for (int times = 0; times < 8; ++times) {
            Inputs in = make_inputs(shape_of(4, c.B_r() + 1, 1, c.d), Values::normal, test_seed() + times);
            in.shape.causal = true;
            const std::string wrong = fault(c.stage(), in);
            CHECK_MESSAGE(wrong.empty(), c.describe(), wrong);
        }
}

TEST_CASE("neither the slots nor the other consumers change a bit of the result") {
    for (const int d : {64, 128}) {
        const Inputs in = make_inputs(shape_of(2, 150, 333, d), Values::growing_maximum, test_seed());
        std::map<int, Outputs> expected;  // by B_c, which does: the maximum is another in between
        for (const Configuration& c : configurations) {
            if (c.d != d) continue;
            const Outputs found = run(c.stage(), in, true);
            const Outputs& first = expected.try_emplace(c.B_c, found).first->second;
            check_same_bits(found, first, "with other slots or consumers", c.describe());
        }
    }
}

TEST_CASE("causal: blocks behind the diagonal reach nobody, whatever they hold") {
    for (const Configuration& c : {best_of_64, best_of_128}) {
        const int seen = (c.B_r() + c.B_c - 1) / c.B_c * c.B_c;  // by the first block, in whole tiles
        check_hidden_keys_reach_nobody(shape_of(1, 400, 400, c.d), seen, c.B_r(), seen);
    }
}

#ifndef FLASHLADDER_GPU
TEST_CASE("no races where each slot is filled three times and more: every number of slots, of consumers") {
    for (const Configuration& c : configurations) {
        const Inputs in =
            make_inputs(shape_of(1, c.B_r() - 3, (2 * c.stages + 1) * c.B_c - 5, c.d), Values::normal, test_seed());
        const std::string report = emulator::find_race([&] { run(c.stage(), in, true); });
        CHECK_MESSAGE(report.empty(), c.describe(), report);
    }
}

TEST_CASE("counted: no block behind the diagonal is asked for, neither of K nor of V") {
    for (const Configuration& c : {best_of_64, best_of_128})
        for (const auto& [n_q, n_k] : {std::pair(300, 300), {512, 512}, {100, 400}, {400, 100}, {256, 128}}) {
            Inputs in = make_inputs(shape_of(1, n_q, n_k, c.d), Values::normal, test_seed());
            in.shape.causal = true;
            int keys = 0;  // that blocks of queries ask for, together
            for (int i = 0; i < n_q; i += c.B_r()) {
                const int seen = std::clamp(i + c.B_r() + n_k - n_q, 0, n_k);
                keys += std::min(n_k, (seen + c.B_c - 1) / c.B_c * c.B_c);
            }
            const StageCounts counts = count_stage(c.stage(), in);
            for (const char* tensor : {"K", "V"})
                check_count(std::string("bytes asked for of ") + tensor, counts.tensors.at(tensor).read.requested_bytes,
                            std::uint64_t(keys) * c.d * 2, to_string(in.shape));
        }
}

TEST_CASE("counted: K and V come once for all consumers of a block, by TMA; no barrier of all threads in the loop") {
    for (const Configuration& c : configurations) {
        const int n_q = 200, n_k = 333, T_r = (n_q + c.B_r() - 1) / c.B_r(), T_c = (n_k + c.B_c - 1) / c.B_c;
        const auto total =
            count_stage(c.stage(), make_inputs(shape_of(1, n_q, n_k, c.d), Values::normal, test_seed())).work.total();
        const std::uint64_t row = c.d * 2;
        // One barrier of a block, after the mbarriers have been made, however many steps there are.
        check_by_tma(total, (n_q + 2 * T_r * n_k) * row, n_q * row, T_r, c.name_and_d());
        check_count("matrix instructions", total.matrix_instructions,
                    std::uint64_t(T_r) * c.consumers * T_c * (c.d + c.B_c) / 16, c.name_and_d());
    }
}

TEST_CASE("counted: shared memory is Q_i, the slots and their barriers; all slots may be under way, and no more") {
    for (const Configuration& c : configurations) {
        const auto work =
            count_stage(c.stage(), make_inputs(shape_of(2, 50, 700, c.d), Values::normal, test_seed())).work;
        const auto& launch = work.launches.at(0);
        INFO(c.name_and_d());
        const std::size_t tiles = (c.B_r() + 2 * c.stages * c.B_c) * c.d * 2;
        const std::size_t barriers = (c.consumers + 4 * c.stages) * 8;
        check_count("bytes of shared memory", launch.dynamic_shared_bytes, (tiles + barriers + 1023) / 1024 * 1024,
                    c.name_and_d());
        CHECK(c.blocks * (launch.dynamic_shared_bytes + 1024) <= 228 * 1024);
        CHECK(launch.block.x == 128 * (1 + c.consumers));
        CHECK(launch.most_bytes_in_flight <= tiles);
        CHECK(launch.most_bytes_in_flight > 0);  // how many depends on the order that was drawn
    }
}
#endif

TEST_CASE("needs no memory beyond inputs and outputs") {
    CHECK(stage_under_test().scratch_bytes(shape_of(4, 1000, 1000, 64)) == 0);
}

}  // namespace
}  // namespace flashladder::attention
