// Rung 25b. Where 25b.2 is open dK and dV of a split block of keys are those of one part; dQ does not ask for them.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "attention_backward_suite.h"
#include "harness/asked.h"
#include "launch.h"
#include "operations/attention_backward/split.h"

#ifndef FLASHLADDER_GPU
#include "emulator/activity.h"
#include "warp_activity.h"
#endif

namespace flashladder::attention_backward {
namespace {

[[maybe_unused]] const StrictBarriers strict_barriers;

using std::size_t;

constexpr int B_r = 64;  // queries of a step
constexpr int keys_of_a_block(int d) { return d == 64 ? 192 : 128; }
int blocks_of(int n, int size) { return (n + size - 1) / size; }

Split split_on(const AttentionShape& s, int multiprocessors) {
    return split_of(s, B_r, keys_of_a_block(s.head_dim), multiprocessors);
}
/// A shape and a GPU. On the virtual one some of its blocks of keys are split.
struct Case {
    AttentionShape shape;
    int multiprocessors;

    Split split() const { return split_on(shape, multiprocessors); }
    /// " on 2 multiprocessors, 1 of 3 blocks of keys in 4 parts"; on a GPU, which has what it has, nothing.
    std::string split_in_words() const {
#ifdef FLASHLADDER_GPU
        return "";
#else
        const Split of = split();
        const int all = of.tasks - of.all_parts + of.blocks;
        return of_few(multiprocessors) +
               fmt::format(", {} of {} block{} of keys in {} parts", of.blocks, all, all == 1 ? "" : "s", of.parts);
#endif
    }
    std::string words() const { return attention::to_string(shape) + split_in_words(); }
};
/// Lengths by the seed. No mask: one block of keys, several, and some that are not split; with one, blocks with fewer steps
/// that are not, too; heads that share K and V, whose parts begin in any of them; more parts than multiprocessors.
std::vector<Case> cases() {
    std::uint64_t turn = test_seed();
    const auto queries = [&](int least, int most) { return drawn_length(B_r, (least - 1) * B_r + 1, most * B_r, ++turn); };
    const auto keys = [&](int d, int blocks) {
        const int B_c = keys_of_a_block(d);
        return drawn_length(64, (blocks - 1) * B_c + 1, blocks * B_c, ++turn);
    };
    const int d = test_seed() % 2 ? 64 : 128, other = 192 - d;
    std::vector<Case> all = {
        {shape_of(1, queries(8, 9), keys(d, 1), d), 2},
        {shape_of(1, queries(18, 20), keys(other, 1), other), 5},
        {grouped(shape_of(3, queries(3, 4), keys(other, 2), other)), 7},
        {shape_of(3, queries(8, 9), keys(128, 1), 128), 2},
        {shape_of(13, queries(8, 8), keys(64, 1), 64), 4},  // some shares of dQ are made by tasks
        {causal(shape_of(1, queries(9, 10), 9 * B_r + queries(1, 2), d)), 24},  // the last blocks are not split
        {causal(of_batches(2, grouped(shape_of(2, queries(5, 6), 4 * B_r + queries(1, 2), other)))), 16},
    };
    all[test_seed() % all.size()].shape.dtype = DType::f16;
    return all;
}
#ifndef FLASHLADDER_GPU
/// A case that is split on this virtual GPU, or the test has nothing to look at.
void require_split(const Case& of) { REQUIRE_MESSAGE(of.split().blocks > 0, of.words()); }
#else
void require_split(const Case&) {}
#endif

// ---- 25b.1

#ifndef FLASHLADDER_GPU
/// "steps 3 to 5", "step 3", "no step"
std::string steps_in_words(int first, int count) {
    if (count == 0) return "no step";
    return count == 1 ? fmt::format("step {}", first) : fmt::format("steps {} to {}", first, first + count - 1);
}
/// Of each part of a launch whose tasks have a block of threads each: the steps that it passes, of its block's. A block
/// of threads asks for Q of each of its steps. What ends a launch goes to `error`; until then it has asked.
std::vector<std::vector<int>> steps_of_parts(const Inputs& in, const Split& split, std::string& error) {
    const AttentionShape& s = in.shape();
    const DeviceProblem problem(stage_under_test(), in);
    const BackwardArgs args = problem.args();
    const std::uint64_t Q = reinterpret_cast<std::uint64_t>(args.Q), row_bytes = 2 * std::uint64_t(s.head_dim);
    const std::uint64_t rows = std::uint64_t(s.batch) * std::uint64_t(s.heads) * std::uint64_t(s.n_q);
    std::vector<std::vector<int>> all;
    for (int part = 0; part < split.all_parts; ++part) {
        auto& of_part = all.emplace_back();
        for (const auto& launch : emulator::record_activity(std::uint64_t(split.first + part), [&] {
                 try {
                     stage_under_test().launch(args);
                     check_cuda(cudaDeviceSynchronize(), "launch");
                 } catch (const CudaError& failed) {
                     error = failed.what();
                 }
             })) {
            if (launch.kernel.find("lcsf_kernel") == std::string::npos) continue;
            for (const emulator::Activity& a : launch.activities) {
                const std::uint64_t at = reinterpret_cast<std::uint64_t>(a.tensor) - Q;
                if (a.what != emulator::Doing::copy || at % row_bytes != 0 || at / row_bytes >= rows) continue;
                const int row = int(at / row_bytes), head = row / s.n_q % (s.heads / s.kv_heads);
                const int step = head * blocks_of(s.n_q, B_r) + row % s.n_q / B_r;
                if (of_part.empty() || of_part.back() != step) of_part.push_back(step);
            }
        }
    }
    return all;
}
std::string told_of_parts(const std::string& report, const Case& of);  // 25b.2's, below

/// Not causal: parts have their block's steps in order, as many as the others or one more. False if not.
bool check_steps(const Case& of) {
    const Split split = of.split();
    const SmallGpu gpu(of.multiprocessors);
    const int parts = split.parts, group = of.shape.heads / of.shape.kv_heads;
    const int all = group * blocks_of(of.shape.n_q, B_r), least = all / parts;
    std::string error;
    const auto found = steps_of_parts(backward_inputs(of.shape, Values::normal, test_seed()), split, error);
    for (int block = 0, next = 0; block < split.blocks; ++block, next = 0)
        for (int k = 0; k < parts; ++k) {
            const auto& of_part = found[size_t(block * parts + k)];
            const int count = int(of_part.size()), first = count ? of_part.front() : next;
            const bool in_order = std::ranges::is_sorted(of_part) && (!count || of_part.back() - first == count - 1);
            const bool as_others = in_order && first == next && count >= least && count <= least + (all % parts > 0);
            if (!as_others || (k == parts - 1 && next + count < all)) {
                const std::string expected =
                    as_others ? "all that are left, " + steps_in_words(next, all - next)
                              : fmt::format("{} or {} steps from {} on", least, least + (all % parts > 0), next);
                forget_asked();  // what comes of it, a hang perhaps, says less
                FAIL_CHECK(fmt::format("part {} of {} passes {} of its block's {}, expected {} ({})", k, parts,
                                       in_order ? steps_in_words(first, count) : "steps in another order", all,
                                       expected, of.words()));
                return false;
            }
            next += count;
        }
    CHECK_MESSAGE(error.empty(), told_of_parts(error, of));
    return error.empty();
}
#endif

TEST_CASE("EXERCISE 25b.1: parts pass the steps of their block of keys in order, each once, and as many as the others") {
#ifndef FLASHLADDER_GPU
    // A block of threads for each task. 10 steps in 3 parts.
    for (const Case& of : {Case{shape_of(1, 9 * B_r + 1 + int(test_seed() % 60), 60, 64), 3},
                           Case{grouped(shape_of(2, 4 * B_r + 10, 130, 128)), 6}}) {
        require_split(of);
        if (!check_steps(of)) return;
    }
#endif
    for (const Case& of : cases()) {
        require_split(of);
        const SmallGpu gpu(of.multiprocessors);
        const Inputs in = backward_inputs(of.shape, Values::normal, test_seed());
        const std::string wrong = fault_of("dQ", in, attention::Judge::both_rules, "dQ" + of.split_in_words());
        CHECK_MESSAGE(wrong.empty(), wrong);
        if (!wrong.empty()) return;
    }
}

// ---- 25b.2

/// The report of a race; on a GPU none is looked for.
std::string race_of([[maybe_unused]] const Inputs& in) {
#ifdef FLASHLADDER_GPU
    return "";
#else
    return emulator::find_race([&] { run(stage_under_test(), in); });
#endif
}

/// What a report is about, in the words of the exercise; "" if it is not about parts.
std::string in_words_of_parts(const std::string& report, const Case& of) {
    if (report.find("livelock: ") != std::string::npos)
        return fmt::format(
            "warps wait, and nobody comes: no part may wait for another one, which may not have begun ({})",
            of.words());
    if (report.find("lanes of one warp meet in different instructions") != std::string::npos)
        return fmt::format("lanes of a warp do not do the same: do all return the same ({})", of.words());
    if (report.find("nobody has written") != std::string::npos)
        return fmt::format(
            "nobody has stored gradients of a block of keys: of warps with the same keys none has returned true ({})",
            of.words());
    if (!report.starts_with("race: ")) return "";
    for (const char* gradient : {"dK", "dV"})
        if (report.find(fmt::format(" of {}, ", gradient)) != std::string::npos)
            return fmt::format(
                "{} of a block of keys is stored by several of its parts: of warps with the same keys more than one "
                "returns true ({})",
                gradient, of.words());
    const size_t of_scratch = report.find(" of scratch"), byte = report.find("byte ");
    if (of_scratch == std::string::npos || byte > of_scratch) return "";
    // Behind the parts are a state of each step, a count of each head of K, those of parts, and one word more.
    const AttentionShape& s = of.shape;
    const Split split = of.split();
    const size_t warps = size_t(keys_of_a_block(s.head_dim) / 16),
                 of_warp = 2 * 16 * size_t(s.head_dim) * sizeof(float);
    const size_t of_part = warps * of_warp, all_parts = size_t(split.all_parts) * of_part;
    const size_t states = size_t(s.batch * s.heads * blocks_of(s.n_q, B_r)), of_heads = size_t(s.batch * s.kv_heads);
    const size_t words = states + of_heads + size_t(split.blocks) * warps + 1;
    const size_t at = std::stoull(report.substr(byte + 5));
    const size_t begin = stage_under_test().scratch_bytes(s) - words * sizeof(std::uint32_t) - all_parts;
    if (at < begin || (at >= begin + all_parts && at < begin + all_parts + (states + of_heads) * sizeof(std::uint32_t)))
        return "";
    if (at >= begin + all_parts)
        return fmt::format("a count of parts is read or written by others at the same time ({})", of.words());
    const int part = int((at - begin) / of_part), warp = int((at - begin) % of_part / of_warp);
    const std::string place = fmt::format("{} of part {} of {}, of consumer {}'s warp {},",
                                          (at - begin) % of_warp < of_warp / 2 ? "dK" : "dV", part % split.parts,
                                          split.parts, warp / 4, warp % 4);
    const bool reads = report.find("race: read") == 0 || report.find("not ordered behind read") != std::string::npos;
    return reads
               ? fmt::format("{} may be read before it is there: nothing orders those who read, all lanes of the warp, behind "
                             "all lanes that have written ({})",
                             place, of.words())
               : fmt::format("{} is written by two who do not know of each other: to each its own place ({})", place,
                             of.words());
}
/// The same, and the report behind it; else the report alone.
std::string told_of_parts(const std::string& report, const Case& of) {
    const std::string words = in_words_of_parts(report, of);
    if (words.empty()) return report;
    forget_asked();  // a report of the same, without these words
    return words + "\n" + report;
}

TEST_CASE("EXERCISE 25b.2: dK and dV of a block that is split are sums of all parts, the same to the bit") {
    for (const Case& of : cases()) {
        require_split(of);
        if (of.shape.heads == 13) continue;  // which is about dQ
        const SmallGpu gpu(of.multiprocessors);
        const Inputs in = backward_inputs(of.shape, Values::normal, test_seed());
        try {
            const std::string race = race_of(in);
            CHECK_MESSAGE(race.empty(), told_of_parts(race, of));
            if (!race.empty()) return;
            for (const char* gradient : {"dK", "dV"}) {
                const std::string wrong =
                    fault_of(gradient, in, attention::Judge::both_rules, gradient + of.split_in_words());
                CHECK_MESSAGE(wrong.empty(), told_of_parts(wrong, of));
                if (!wrong.empty()) return;
            }
            if (of.split().parts == 2) continue;  // a + b is b + a
            const Outputs first = run(stage_under_test(), in);
            for (std::uint64_t again = 1; again <= (of.shape.heads == 1 ? 4u : 2u); ++again) {  // one head is soon done
#ifndef FLASHLADDER_GPU
                emulator::reseed(test_seed() + again);  // who comes last is another one
#endif
                Outputs found = run(stage_under_test(), in);
                found.dQ = first.dQ;  // whose sums are made in any order
                check_same_bits(found, first, "in another launch: who comes last is chance");
            }
        } catch (const CudaError& error) {
            FAIL_CHECK(told_of_parts(error.what(), of));
            return;
        }
    }
}

TEST_CASE("agrees with the reference: lengths near the edges of steps and of blocks of keys, some split") {
    check_lengths_near_edges([](int) { return B_r; }, keys_of_a_block, 700);
}

TEST_CASE("causal: keys that no query of a step sees reach nobody, whatever they hold") {
    for (const int d : {64, 128})
        check_hidden_keys_reach_nobody(shape_of(1, 600, 600, d), keys_of_a_block(d), keys_of_a_block(d));
}

TEST_CASE("where blocks are split gives the same again, whatever its scratch and its outputs hold") {
    for (const Case& of : {cases().front(), cases().back()}) {
        const SmallGpu gpu(of.multiprocessors);
        const Inputs in = backward_inputs(of.shape, Values::normal, test_seed());
        DeviceProblem problem(stage_under_test(), in);
        const auto launched = [&](int byte) {
            problem.scratch.fill(byte);
            for (auto* gradient : {&problem.dQ, &problem.dK, &problem.dV}) gradient->fill(byte);
            stage_under_test().launch(problem.args());
            check_cuda(cudaDeviceSynchronize(), "launch");
            return problem.outputs();
        };
        const Outputs first = launched(0x00);
        Outputs second = launched(0xFF);
        const Comparison result = judged(second, in);
        CHECK_MESSAGE(result.passed, result.describe(of.shape));
        second.dQ = first.dQ;
        check_same_bits(second, first, "with other scratch");
    }
}

#ifndef FLASHLADDER_GPU
TEST_CASE("where blocks are split is right, also with copies and products that end as late as the waits allow") {
    for (const Case& of : {cases().front(), cases()[2]}) {
        const VirtualGpu gpu(of.multiprocessors);  // patient: who waits for others' sums asks very often, where these come late
        const Late late;
        const std::string wrong = fault(backward_inputs(of.shape, Values::normal, test_seed()));
        CHECK_MESSAGE(wrong.empty(), wrong);
    }
}

TEST_CASE("in whatever order blocks run, dK and dV have the same bits, and dQ is within the rule") {
    check_whatever_order();
}
#endif

// ---- which blocks are split

TEST_CASE("split: no part is without a step, and blocks that are split are the last or the longest") {
    std::mt19937_64 random(test_seed());
    const auto draw = [&](int least, int most) { return int(least + random() % std::uint64_t(most - least + 1)); };
    int splits = 0;
    for (int n = 0; n < 2000; ++n) {
        AttentionShape s = shape_of(1, draw(1, 3000), draw(1, 3000), n % 2 ? 64 : 128);
        s.batch = draw(1, 3), s.kv_heads = draw(1, 12), s.heads = s.kv_heads * draw(1, 4), s.causal = n / 2 % 2;
        const int multiprocessors = draw(1, 200), B_c = keys_of_a_block(s.head_dim);
        const Split split = split_on(s, multiprocessors);
        const int T_c = blocks_of(s.n_k, B_c), heads = s.batch * s.kv_heads, all = T_c * heads;
        CAPTURE(attention::to_string(s));
        CAPTURE(multiprocessors);
        CHECK(split.all_parts == split.blocks * split.parts);
        CHECK(split.tasks == all - split.blocks + split.all_parts);
        CHECK((split.first >= 0 && split.first + split.blocks <= all));
        splits += split.blocks > 0;
        for (int block = split.first; block < split.first + split.blocks; ++block) {
            const int j = s.causal ? block / heads * B_c : 0;  // all heads take turns
            const int unseen = s.causal ? std::max(0, j - (s.n_k - s.n_q)) / B_r : 0;
            CHECK(s.heads / s.kv_heads * (blocks_of(s.n_q, B_r) - unseen) >= split.parts);
        }
        if (s.causal)
            CHECK((split.blocks == 0 || (split.first == 0 && split.blocks % heads == 0)));
        else
            CHECK(split.first % multiprocessors == (split.blocks ? 0 : all % multiprocessors));
    }
    CHECK(splits > 200);
}

}  // namespace
}  // namespace flashladder::attention_backward
