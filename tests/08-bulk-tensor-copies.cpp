// Rung 08. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
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

constexpr int B_r = 128, B_c = 64, stages = 2;

/// What the stage makes of the inputs; NaN, and a failed check, where it ends with an error.
Outputs outcome(const Inputs& in, Layout layout = Layout::heads_first) {
    try {
        return run(stage_under_test(), in, true, layout);
    } catch (const CudaError& error) {
        FAIL_CHECK(std::string(error.what()));
        const float nan = std::numeric_limits<float>::quiet_NaN();
        return {std::vector<float>(in.shape.q_elements(), nan), std::vector<float>(in.shape.lse_elements(), nan)};
    }
}

/// For 8.1: the emulator does not ask for the fence that 8.2 is about. A GPU mostly does without.
struct WithoutProxyFences {
    WithoutProxyFences() { ask_for_fences(false); }
    ~WithoutProxyFences() { ask_for_fences(true); }
    static void ask_for_fences([[maybe_unused]] bool asked) {
#ifndef FLASHLADDER_GPU
        emulator::settings().proxy_fences = asked;
#endif
    }
};

/// Inputs for the exercises before 8.3. While that is open nothing comes, and all elements of Q, K and V are taken for
/// 0: then O is 0 wherever it is written, and the inputs are made such that this is right.
Inputs that_may_be_zero(const AttentionShape& shape, std::uint64_t seed) {
    const Outputs probe = [] {
        try {
            return run(stage_under_test(), make_inputs(shape_of(1, 1, 1, 64), Values::normal, 1));
        } catch (const CudaError&) {
            return Outputs{{1.0f}, {}};  // the check itself says what is wrong
        }
    }();
    const bool nothing_comes = std::ranges::all_of(probe.O, [](float x) { return x == 0 || std::isnan(x); });
    Inputs in = make_inputs(shape, Values::normal, seed);
    for (auto* tensor : {&in.Q, &in.V})
        if (nothing_comes) std::ranges::fill(*tensor, 0.0f);
    return in;
}

TEST_CASE("EXERCISE 8.1: the map, of tensors that lie in any way") {
    const WithoutProxyFences later;
    std::mt19937_64 random(test_seed());
    for (const Layout layout : {Layout::heads_first, Layout::sequence_first, Layout::padded})
        for (const int d : {64, 128}) {
            AttentionShape shape =
                shape_of(4, drawn_length(B_r, 1, 300, random()), drawn_length(B_c, 1, 200, random()), d);
            shape.batch = 2, shape.kv_heads = 2;
            const std::string wrong = fault(stage_under_test(), that_may_be_zero(shape, random()), layout);
            CHECK_MESSAGE(wrong.empty(), std::string(to_string(layout)), ": ", wrong);
        }
}

TEST_CASE("EXERCISE 8.2: what threads have stored is fenced before TMA reads it") {
    for (const int d : {64, 128}) {
        const std::string wrong = fault(stage_under_test(), that_may_be_zero(shape_of(2, 150, 100, d), test_seed()));
        CHECK_MESSAGE(wrong.empty(), "d ", d, ": ", wrong);
#ifndef FLASHLADDER_GPU
        if (!wrong.empty()) continue;
        const auto work = work_of(stage_under_test(), inputs(1, 150, 1, d, false, 1));
        check_count("d " + std::to_string(d) + ": bytes of O that TMA stores",
                    work.global_of(emulator::Access::tma_store).requested_bytes, std::uint64_t(150) * d * 2);
#endif
    }
}

#ifndef FLASHLADDER_GPU
/// Each block asks for its tiles once, by TMA.
void check_tiles_are_asked_for_once(int d) {
    const int n_q = B_r + 20, n_k = 4 * B_c + 20, T_r = 2;
    try {
        const auto counts = count_stage(stage_under_test(), inputs(1, n_q, n_k, d, false, test_seed()), true);
        const auto check_tensor = [&](const char* tensor, int rows) {
            const auto found = counts.tensors.find(tensor);  // none if nobody has touched it
            check_count("d " + std::to_string(d) + ": bytes of " + tensor + " that TMA is asked for",
                        found == counts.tensors.end() ? 0 : found->second.read.requested_bytes,
                        std::uint64_t(rows) * d * 2);
        };
        check_tensor("Q", n_q), check_tensor("K", T_r * n_k), check_tensor("V", T_r * n_k);
    } catch (const CudaError& error) {
        FAIL_CHECK(std::string(error.what()));
    }
}

/// While a tile is multiplied with, two others have been asked for and not been waited for, if as many are left.
void check_two_tiles_are_under_way() {
    using emulator::Doing;
    const Inputs in = inputs(1, 20, 6 * B_c - 3, 64, false, test_seed());  // d 64: a tile is one copy
    std::vector<emulator::LaunchActivity> launches;
    try {
        launches = emulator::record_activity(0, [&] { run(stage_under_test(), in, true); });
    } catch (const CudaError& error) {
        FAIL_CHECK(std::string(error.what()));
        return;
    }
    const auto& activities = launches.at(0).activities;
    const auto is_copy = [](const auto& activity) { return activity.what == Doing::copy; };
    const auto tiles = std::uint64_t(std::ranges::count_if(activities, is_copy));
    std::uint64_t asked = 0, waited = 0;
    for (const auto& activity : activities) {  // in the order in which they begin
        asked += is_copy(activity);
        if (activity.warp != 0) continue;  // others may be ahead of thread 0
        waited += activity.what == Doing::wait && activity.counts;
        const std::uint64_t least = std::min<std::uint64_t>(2, tiles - std::min(tiles, waited));
        if (activity.what != Doing::product || asked >= waited + least) continue;
        FAIL_CHECK("a product is made when ", asked, " of ", tiles, " tiles have been asked for and ", waited,
                   " waited for, so tiles under way: found ", asked - std::min(asked, waited), ", expected at least ",
                   least);
        return;  // the others tell the same
    }
}
#endif

TEST_CASE("EXERCISE 8.3: tiles come, in slots that are used again and again") {
#ifndef FLASHLADDER_GPU
    for (const int d : {64, 128}) check_tiles_are_asked_for_once(d);
    for (const int d : {64, 128}) {
        const std::string report = race(stage_under_test(), inputs(1, 20, 5 * B_c + 7, d, false, test_seed()));
        CHECK_MESSAGE(report.empty(), report);
    }
    check_two_tiles_are_under_way();
#endif
    std::mt19937_64 random(test_seed());
    for (const int tiles : {1, stages, stages + 1, 2 * stages + 1, 4 * stages})
        for (const int d : {64, 128}) {  // bytes may come late or soon: the order of events is drawn many times
            const int n_k = (tiles - 1) * B_c + drawn_length(B_c, 1, B_c, random());
            const std::string wrong = fault(stage_under_test(), inputs(2, 50, n_k, d, false, random()));
            CHECK_MESSAGE(wrong.empty(), tiles, " tiles of keys, d ", d, ": ", wrong);
        }
    for (const auto& [n_q, n_k] :
         {std::pair(B_r + 1, 1), {B_r + 50, B_r + 50}}) {  // the first: queries that see no key
        const std::string wrong = fault(stage_under_test(), inputs(2, n_q, n_k, 64, true, random()));
        CHECK_MESSAGE(wrong.empty(), "causal: ", wrong);
    }
}

TEST_CASE("a tile has come before it is read, and stays until it has been") {
    std::uint64_t seed = test_seed();
    for (int times = 0; times < 4; ++times)
        for (const int n_k : {1, 100, 150, 520})
            for (const int d : {64, 128}) {
                const std::string wrong =
                    fault(stage_under_test(), make_inputs(shape_of(2, 100, n_k, d), Values::normal, seed++));
                CHECK_MESSAGE(wrong.empty(), "d ", d, ", N_k ", n_k, ": ", wrong);
            }
}

TEST_CASE("queries that see nothing: O is 0, and no copy is left behind") {
    for (const int d : {64, 128})
        for (int times = 0; times < 8; ++times) {
            Inputs in = make_inputs(shape_of(4, B_r + 1, 1, d), Values::normal, test_seed() + times);
            in.shape.causal = true;
            const std::string wrong = fault(stage_under_test(), in);
            CHECK_MESSAGE(wrong.empty(), wrong);
        }
}

TEST_CASE("how the tensors lie does not change a bit of the result") {
    for (const int d : {64, 128}) {
        AttentionShape shape = shape_of(6, 150, 333, d);
        shape.batch = 2, shape.kv_heads = 3;
        const Inputs in = make_inputs(shape, Values::growing_maximum, test_seed());
        const Outputs expected = outcome(in);
        for (const Layout layout : {Layout::sequence_first, Layout::padded}) {
            const Outputs found = outcome(in, layout);
            check_same_bits(found, expected, "with heads first", to_string(layout));
        }
    }
}

TEST_CASE("Q, K and V packed as (batch, N, 3, heads, d) need no copy") {
    constexpr int batch = 2, heads = 3, n = 200;
    for (const int d : {64, 128}) {
        AttentionShape shape = shape_of(heads, n, n, d);
        shape.batch = batch;
        const Inputs in = make_inputs(shape, Values::normal, test_seed());
        const Outputs expected = outcome(in);
        std::vector<float> packed(std::size_t(3) * in.Q.size());
        for (std::size_t at = 0; at < in.Q.size(); ++at) {
            const std::size_t x = at % d, row = at / d % n, head = at / d / n % heads, b = at / d / n / heads;
            const std::size_t to = ((b * n + row) * 3 * heads + head) * d + x;
            packed[to] = in.Q[at], packed[to + heads * d] = in.K[at], packed[to + 2 * heads * d] = in.V[at];
        }
        const DeviceProblem problem(stage_under_test(), in, true);
        DeviceBuffer memory(packed.size() * 2);
        memory.upload(packed, shape.dtype);
        ForwardArgs args = problem.args();
        const auto* begin = static_cast<const std::uint16_t*>(memory.data());
        args.Q = begin, args.K = begin + heads * d, args.V = begin + 2 * heads * d;
        args.Q_strides = args.K_strides = args.V_strides = {std::int64_t(n) * 3 * heads * d, d, 3 * heads * d};
        stage_under_test().launch(args);
        const Outputs found = problem.outputs();
        check_same_bits(found, expected, "of tensors for themselves", to_string(shape));
    }
}

TEST_CASE("rows past the end are those of no other head, whatever it holds") {
    for (const int d : {64, 128}) {
        const int n_q = 70, n_k = 100;
        Inputs in = make_inputs(shape_of(2, n_q, n_k, d), Values::normal, test_seed());
        const Outputs expected = outcome(in);
        for (auto* tensor : {&in.Q, &in.K, &in.V})
            std::fill(tensor->begin() + tensor->size() / 2, tensor->end(), std::numeric_limits<float>::quiet_NaN());
        const Outputs found = outcome(in);
        CHECK_MESSAGE(std::equal(found.O.begin(), found.O.begin() + n_q * d, expected.O.begin()),
                      "O of head 0 is another with NaN in head 1, expected the same");
        CHECK_MESSAGE(std::equal(found.lse.begin(), found.lse.begin() + n_q, expected.lse.begin()),
                      "LSE of head 0 is another with NaN in head 1, expected the same");
        CHECK_MESSAGE(std::isnan(found.O[n_q * d]), "O of head 1 is ", found.O[n_q * d], " with NaN in head 1");
    }
}

TEST_CASE("causal: blocks behind the diagonal reach nobody, whatever they hold") {
    for (const int d : {64, 128}) check_hidden_keys_reach_nobody(shape_of(1, 300, 300, d), B_r, B_r, B_r);
}

#ifndef FLASHLADDER_GPU
TEST_CASE("what a slot and the memory of Q_i hold is handed on in order: no races") {
    for (int times = 0; times < 5; ++times)
        for (const int d : {64, 128}) {
            emulator::reseed(test_seed() + unsigned(times));
            const Inputs in = make_inputs(shape_of(1, 100, 5 * B_c + 7, d), Values::normal, test_seed() + times);
            const std::string report = emulator::find_race([&] { run(stage_under_test(), in, true); });
            CHECK_MESSAGE(report.empty(), report);
        }
}

TEST_CASE("counted: no block behind the diagonal is asked for, neither of K nor of V") {
    check_no_keys_behind_the_diagonal(64, B_r, B_c);
}

TEST_CASE("counted: TMA moves Q, K, V and O, and of no row past the end; threads move LSE alone") {
    using emulator::Access;
    for (const int d : {64, 128}) {
        const int n_q = 200, n_k = 333, T_r = 2, T_c = 6;
        const Inputs in = make_inputs(shape_of(1, n_q, n_k, d), Values::normal, test_seed());
        const auto total = count_stage(stage_under_test(), in, true).work.total();
        const std::string with_d = ", d " + std::to_string(d);
        const std::uint64_t row = d * 2;
        const auto check_bytes = [&](const char* what, Access access, std::uint64_t expected) {
            check_count(std::string("bytes of device memory ") + what + with_d, total.global_of(access).requested_bytes,
                        expected);
        };
        check_bytes("that TMA loads, Q, K and V", Access::tma_load, (n_q + 2 * T_r * n_k) * row);
        check_bytes("that TMA stores, O", Access::tma_store, n_q * row);
        check_bytes("that cp.async reads", Access::cp_async, 0);
        check_bytes("that threads read", Access::read, 0);
        check_bytes("that threads write, LSE", Access::write, n_q * sizeof(float));
        // What threads store to shared memory is O, and nothing lies in anybody's way.
        check_count("bytes of O that threads write to shared memory" + with_d,
                    total.shared_of(Access::write).requested_bytes, T_r * B_r * row);
        check_count("conflicts in shared memory" + with_d, total.all_shared().conflicts, 0);
        // A slot's reuse is still announced by all: once a step, or for K and V apart. 8.2 may have one more.
        check_barriers("barriers of a block with 6 steps" + with_d, total.barriers / T_r, T_c + 1, 2 * T_c + 3);
    }
}

TEST_CASE("counted: shared memory is Q_i, the slots and their barriers") {
    for (const int d : {64, 128}) {
        const auto work =
            count_stage(stage_under_test(), make_inputs(shape_of(2, 50, 500, d), Values::normal, test_seed())).work;
        const auto& launch = work.launches.at(0);
        const std::string with_d = ", d " + std::to_string(d);
        const std::size_t Q_bytes = B_r * d * 2, tile_bytes = B_c * d * 2, slots = Q_bytes + 2 * stages * tile_bytes;
        check_count("bytes of shared memory" + with_d, launch.dynamic_shared_bytes, slots + 1, slots + 1024);
        // How many depends on the order that was drawn.
        check_count("most bytes under way" + with_d, launch.most_bytes_in_flight, 1, slots);
    }
}
#endif

TEST_CASE("agrees with the reference: lengths near the edges of tiles, causal too") { check_lengths_near(B_r, B_c); }

TEST_CASE("needs no memory beyond inputs and outputs") {
    check_count("bytes of scratch", stage_under_test().scratch_bytes(shape_of(4, 1000, 1000, 64)), 0);
}

}  // namespace
}  // namespace flashladder::attention
