// Rung 25. Each exercise is judged on what the later one, still open, does not change.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attention_backward_suite.h"
#include "harness/asked.h"
#include "launch.h"
#include "operations/attention_backward/section.h"

#ifndef FLASHLADDER_GPU
#include "emulator/activity.h"
#include "operations/attention_backward/transposed_step.h"
#include "warp_activity.h"
#endif

namespace flashladder::attention_backward {
namespace {

[[maybe_unused]] const StrictBarriers strict_barriers;

using std::size_t;

constexpr int unit = 64, B_r = 64;  // keys of a consumer; queries of a step
constexpr int consumers_of_a_block(int d) { return d == 64 ? 3 : 2; }
constexpr int keys_of_a_block(int d) { return consumers_of_a_block(d) * unit; }

int blocks_of(int n, int size) { return (n + size - 1) / size; }
int tasks_of(const AttentionShape& s) {
    return s.batch * s.kv_heads * blocks_of(s.n_k, keys_of_a_block(s.head_dim));
}
std::string in_words(const AttentionShape& shape, int multiprocessors) {
    return attention::to_string(shape) + of_few(multiprocessors);
}
#ifndef FLASHLADDER_GPU
/// Whether what ends late is tried: threads that ask again and again, until others' sums are written, ask very often
/// then.
bool can_be_late(const AttentionShape& s, int multiprocessors) {
    return multiprocessors == 1 && s.n_k <= keys_of_a_block(s.head_dim);
}
#endif
/// The report of a race; on a GPU none is looked for.
std::string race_of(const Inputs& in) {
#ifdef FLASHLADDER_GPU
    (void)in;
    return "";
#else
    return emulator::find_race([&] { run(stage_under_test(), in); });
#endif
}

// ---- 25.1: sums, dK and dV are right while nobody makes dQ

/// What a kernel has left, with dQ as its sums in scratch memory have it: in the order of an accumulator's registers,
/// and for queries that see no key nobody has set them.
Outputs with_dQ_of_sums(const DeviceProblem& problem) {
    const AttentionShape& s = problem.shape;
    const size_t d = size_t(s.head_dim), n_q = size_t(s.n_q), blocks = size_t(blocks_of(s.n_q, B_r));
    Outputs out = problem.outputs();
    const std::vector<float> sums =
        problem.scratch.download(size_t(s.batch) * size_t(s.heads) * blocks * B_r * d, DType::f32);
    for (size_t row = 0; row < out.dQ.size() / d; ++row) {
        const size_t i = row % n_q, in_block = i % B_r, thread = in_block / 16 * 32 + in_block % 8 * 4;
        const float* const of_block = &sums[(row / n_q * blocks + i / B_r) * B_r * d];
        const bool is_seen = !s.causal || int(i) + s.n_k - s.n_q >= 0;
        for (size_t x = 0; x < d; ++x) {
            const size_t lane = thread + x % 8 / 2, e = in_block % 16 / 8 * 2 + x % 2;
            out.dQ[row * d + x] = is_seen ? problem.scale * of_block[(x / 8 * 128 + lane) * 4 + e] : 0;
        }
    }
    return out;
}

/// What is wrong with dK, dV and the sums of dQ; "" if nothing is.
std::string fault_of_sums(const Inputs& in, const std::string& what) {
    try {
        const DeviceProblem problem(stage_under_test(), in);
        stage_under_test().launch(problem.args());
        check_cuda(cudaDeviceSynchronize(), "launch");
        const Comparison result = judged(with_dQ_of_sums(problem), in);
        return result.passed ? "" : fmt::format("{}; {}", what, result.describe(in.shape()));
    } catch (const CudaError& error) {
        return error.what();
    }
}

/// Of a report that dK is stored while products read what was there: a sentence that says so, with the line that
/// stores. "" of any other.
std::string overwritten(const std::string& report) {
    constexpr std::string_view of_stores = "transposed_step.h:", of_fence = "missing fence: wgmma",
                               called = "called at  ";
    const bool is_of_fence = report.find(of_fence) != std::string::npos;
    const size_t store = report.rfind(of_stores);
    if (!is_of_fence && (report.find("read by wgmma") == std::string::npos || store == std::string::npos)) return "";
    // The consumer of a thread that is named behind these words; below 0 if none is.
    const auto consumer_behind = [&](std::string_view words) {
        const size_t at = report.find(words);
        const size_t number = at == std::string::npos ? at : report.find('(', at);
        return number == std::string::npos ? -1 : std::stoi(report.substr(number + 1)) / 128 - 1;
    };
    const int stores = consumer_behind(is_of_fence ? "which thread" : "write by thread");
    const int reads = report.find("race: write") == 0 ? -1 : consumer_behind("  thread  ");
    std::string place;
    if (!is_of_fence) {
        const size_t line = report.find(called, store), end = report.find('\n', line), next = report.find(called, end);
        // From finish(), which the template calls, not dS^T from a step.
        if (next == std::string::npos || report.compare(next, called.size() + 12, "called at  common/lcsf/") != 0)
            return "";
        place = fmt::format(", in {},", report.substr(line + called.size(), end - line - called.size()));
    }
    return fmt::format("dK of consumer {} is stored over its K{} while products of dQ{} still read it\n{}", stores,
                       place,
                       reads < 0         ? ""
                       : reads == stores ? ", begun by another warp of that consumer,"
                                         : fmt::format(", begun by consumer {},", reads),
                       report);
}

#ifndef FLASHLADDER_GPU
std::string made_too_early(const std::string& report, const AttentionShape& s, const std::string& with);  // 25.2's, below
#endif

/// dK, dV and the sums of dQ are right, without a race, also with copies and products that end as late as the waits
/// allow. False if not.
bool check_sums(const AttentionShape& shape, int multiprocessors) {
    const SmallGpu gpu(multiprocessors);
    const Inputs in = backward_inputs(shape, Values::normal, test_seed());
    const std::string what = fmt::format("the sums of dQ, dK and dV{}", of_few(multiprocessors));
    std::string wrong = race_of(in);
    if (wrong.empty()) wrong = fault_of_sums(in, what);
#ifndef FLASHLADDER_GPU
    if (wrong.empty() && can_be_late(shape, multiprocessors)) {
        const Late late;
        wrong = fault_of_sums(in, what);
    }
    if (!made_too_early(wrong, shape, what).empty()) {  // shares of dQ, which 25.2 tells of
        forget_asked();
        return true;
    }
#endif
    const std::string sentence = overwritten(wrong);
    if (!sentence.empty()) forget_asked();  // a report of the same, without the sentence
    CHECK_MESSAGE(wrong.empty(), (sentence.empty() ? wrong : sentence));
    return wrong.empty();
}

TEST_CASE("EXERCISE 25.1: dK and dV are stored where nobody reads K and V any more") {
    std::uint64_t turn = test_seed();
    // One step alone, and whose turn it is; two, three and more. Blocks of threads with one task, and with several.
    for (const int d : {64, 128}) {
        const int B_c = keys_of_a_block(d);
        const auto steps = [&](int least, int most) { return drawn_length(B_r, least * B_r + 1, most * B_r, ++turn); };
        const auto keys = [&](int least, int most) { return drawn_length(unit, least, most, ++turn); };
        for (const auto& [shape, multiprocessors] :
             {std::pair(shape_of(1, steps(0, 1), keys(B_c - 40, B_c + 40), d), 2),
              {shape_of(1, steps(1, 2), keys(B_c - 40, B_c), d), 1},
              {shape_of(3, steps(0, 1), keys(70, B_c), d), 1},
              {shape_of(2, steps(2, 3), keys(70, B_c), d), 1},
              {of_batches(2, grouped(shape_of(2, steps(1, 2), keys(70, B_c), d))), 1},
              {causal(shape_of(1, steps(3, 5), keys(B_c + 20, B_c + 100), d)), 2}})
            if (!check_sums(shape, multiprocessors)) return;
    }
}

// ---- 25.2: dQ of each block of queries once, of complete sums

/// "block 0", "blocks 0, 1 and 2", "blocks 0, 1, 2, 3 and 7 others"
std::string blocks_in_words(const std::vector<int>& blocks) {
    constexpr size_t most = 4;
    std::string words = fmt::format("block{} {}", blocks.size() == 1 ? "" : "s", blocks.front());
    const size_t named = blocks.size() <= most + 1 ? blocks.size() : most;
    for (size_t n = 1; n < named; ++n) words += fmt::format("{} {}", n + 1 == blocks.size() ? " and" : ",", blocks[n]);
    return named == blocks.size() ? words : words + fmt::format(" and {} others", blocks.size() - named);
}
std::string head_in_words(const AttentionShape& s, int head_of_all) {
    return fmt::format("{}head {}", s.batch > 1 ? fmt::format("batch {} ", head_of_all / s.heads) : "",
                       head_of_all % s.heads);
}
/// The first head with such blocks of queries, and all these of it: "blocks 0 and 1 of head 2's 5 blocks of queries";
/// "" if there are none. `is` takes a block's number, those of all heads one after the other.
template <class Is>
std::string which_blocks(const AttentionShape& s, Is is) {
    const int blocks = blocks_of(s.n_q, B_r);
    for (int head = 0; head < s.batch * s.heads; ++head) {
        std::vector<int> found;
        for (int block = 0; block < blocks; ++block)
            if (is(head * blocks + block)) found.push_back(block);
        if (!found.empty())
            return fmt::format("{} of {}'s {} block{} of queries", blocks_in_words(found), head_in_words(s, head),
                               blocks, blocks == 1 ? "" : "s");
    }
    return "";
}

/// What dQ holds at first: a number, as NaN is what comes of sums that nobody has set.
constexpr int byte_of_fresh_dQ = 0x42;

/// Whether nobody has written some row of a block of dQ's: in all columns it is what it was.
bool is_missing(const Outputs& out, const AttentionShape& s, int place) {
    const int blocks = blocks_of(s.n_q, B_r), head = place / blocks, first = place % blocks * B_r;
    const size_t d = size_t(s.head_dim);
    for (int i = first; i < std::min(first + B_r, s.n_q); ++i) {
        const float* const row = &out.dQ[(size_t(head) * size_t(s.n_q) + size_t(i)) * d];
        if (row[0] > 1 && std::all_of(row, row + d, [=](float x) { return x == row[0]; })) return true;
    }
    return false;
}
/// What is left of a launch that begins with such a dQ.
Outputs outputs_of_launch(const Inputs& in) {
    DeviceProblem problem(stage_under_test(), in);
    problem.dQ.fill(byte_of_fresh_dQ);
    stage_under_test().launch(problem.args());
    check_cuda(cudaDeviceSynchronize(), "launch");
    return problem.outputs();
}

#ifndef FLASHLADDER_GPU
/// A block of queries whose dQ was made, its number among those of all heads, and the consumer that made it.
struct MadeBlock {
    int place;
    unsigned consumer;
};
/// By each block of threads.
std::vector<std::vector<MadeBlock>> made_by_blocks(const Inputs& in, int grid) {
    const AttentionShape& s = in.shape();
    const DeviceProblem problem(stage_under_test(), in);
    const BackwardArgs args = problem.args();
    const std::uint64_t begin = reinterpret_cast<std::uint64_t>(args.dQ), row_bytes = 2 * std::uint64_t(s.head_dim);
    const std::uint64_t rows = std::uint64_t(s.batch) * std::uint64_t(s.heads) * std::uint64_t(s.n_q);
    std::vector<std::vector<MadeBlock>> made;
    for (int block = 0; block < grid; ++block) {
        emulator::reseed(test_seed());  // blocks take the same tasks each time
        auto& of_block = made.emplace_back();
        for (const auto& launch : emulator::record_activity(std::uint64_t(block), [&] {
                 stage_under_test().launch(args);
                 check_cuda(cudaDeviceSynchronize(), "launch");
             })) {
            if (launch.kernel.find("lcsf_kernel") == std::string::npos) continue;
            for (const emulator::Activity& a : launch.activities) {
                const std::uint64_t at = reinterpret_cast<std::uint64_t>(a.tensor) - begin;
                if (a.what != emulator::Doing::store || at % row_bytes != 0 || at / row_bytes >= rows) continue;
                const int row = int(at / row_bytes), head = row / s.n_q, i = row % s.n_q;
                if (i % B_r == 0) of_block.push_back({head * blocks_of(s.n_q, B_r) + i / B_r, a.warp / 4 - 1});
            }
        }
    }
    return made;
}

/// Each block of queries once; where each block of threads has one task, shares are as large as each other, and so are
/// those of the consumers. False if not.
bool check_made_once(const Inputs& in, int multiprocessors) {
    const AttentionShape& s = in.shape();
    const std::string with = in_words(s, multiprocessors);
    const int tasks = tasks_of(s), T_r = blocks_of(s.n_k, keys_of_a_block(s.head_dim)), blocks = blocks_of(s.n_q, B_r);
    const auto made = made_by_blocks(in, std::min(tasks, multiprocessors));
    std::vector<int> times(size_t(s.batch * s.heads * blocks));
    for (const auto& of_block : made)
        for (const MadeBlock& m : of_block) ++times[size_t(m.place)];
    const int most_times = *std::ranges::max_element(times);
    if (const std::string twice = which_blocks(s, [&](int place) { return times[size_t(place)] > 1; });
        !twice.empty()) {
        forget_asked();  // who makes it twice, and perhaps too early, may race as well
        FAIL_CHECK(fmt::format("dQ of {} is made {} times, expected once ({})", twice, most_times, with));
        return false;
    }
    if (tasks > multiprocessors) return true;
    const int all = s.heads / s.kv_heads * blocks, largest = blocks_of(all, T_r);
    const int consumers = consumers_of_a_block(s.head_dim);
    for (size_t n = 0; n < made.size(); ++n) {
        std::vector<int> of_consumer(size_t(consumers), 0);
        for (const MadeBlock& m : made[n]) ++of_consumer[m.consumer];
        const int share = int(made[n].size());
        if (share > largest) {
            FAIL_CHECK(fmt::format(
                "a block of threads makes dQ of {} blocks of queries, expected at most {}, the share of one of "
                "{} tasks in {} blocks of queries ({})",
                share, largest, T_r, all, with));
            return false;
        }
        for (int w = 0; w < consumers; ++w)
            if (of_consumer[size_t(w)] > blocks_of(share, consumers)) {
                FAIL_CHECK(fmt::format(
                    "consumer {} makes dQ of {} of a share's {} blocks of queries, expected at most {}: all {} "
                    "consumers have time ({})",
                    w, of_consumer[size_t(w)], share, blocks_of(share, consumers), consumers, with));
                return false;
            }
    }
    return true;
}

/// Of a report that sums are read before somebody has written or added to them: a sentence that says so. "" of any
/// other.
std::string made_too_early(const std::string& report, const AttentionShape& s, const std::string& with) {
    if (report.find("race: ") == std::string::npos) return "";
    const size_t of_scratch = report.find("scratch");
    if (of_scratch == std::string::npos) return "";
    std::string which = "a block of queries";
    if (const size_t byte = report.find("byte "); byte != std::string::npos && byte < of_scratch) {
        const int place = int(std::stoull(report.substr(byte + 5)) / (sizeof(float) * B_r * std::uint64_t(s.head_dim)));
        which = which_blocks(s, [=](int other) { return other == place; });
        if (which.empty()) return "";  // behind the sums
    }
    return fmt::format("dQ of {} is made before its sums are complete ({})\n{}", which, with, report);
}
#endif

/// dQ of each block of queries is made once, of complete sums, also with copies and products that end as late as the
/// waits allow. False if not.
bool check_shares(const AttentionShape& shape, int multiprocessors) {
    const SmallGpu gpu(multiprocessors);
    const Inputs in = backward_inputs(shape, Values::normal, test_seed());
    const std::string with = in_words(shape, multiprocessors);
    try {
#ifndef FLASHLADDER_GPU
        emulator::settings().proxy_fences = false;  // what they are for is 25.1's, and told there
#endif
        const Outputs out = outputs_of_launch(in);
        const std::string missing = which_blocks(shape, [&](int place) { return is_missing(out, shape, place); });
        if (!missing.empty()) {
            forget_asked();  // who makes another one instead may race, which says less
            FAIL_CHECK(fmt::format("nobody makes dQ of {} ({})", missing, with));
            return false;
        }
#ifndef FLASHLADDER_GPU
        if (!check_made_once(in, multiprocessors)) return false;
        emulator::settings().proxy_fences = true;
        const std::string race = race_of(in), sentence = made_too_early(race, shape, with) + overwritten(race);
        if (!sentence.empty()) forget_asked();  // a report of the same, without the sentence
        CHECK_MESSAGE(race.empty(), (sentence.empty() ? race : sentence));
        if (!race.empty()) return false;
#endif
    } catch (const CudaError& error) {
        FAIL_CHECK(std::string(error.what()));
        return false;
    }
    const std::string what = "the gradients" + of_few(multiprocessors);
    std::string wrong = fault(in, attention::Judge::both_rules, what);
#ifndef FLASHLADDER_GPU
    if (wrong.empty() && can_be_late(shape, multiprocessors)) {
        const Late late;
        wrong = fault(in, attention::Judge::both_rules, what);
    }
#endif
    CHECK_MESSAGE(wrong.empty(), wrong);
    return wrong.empty();
}

/// The same with as few batches as it takes for two tasks to make shares of heads that have ended.
AttentionShape with_heads_that_end(AttentionShape s, int multiprocessors) {
    const int lag = heads_that_take_turns(s) * blocks_of(s.n_k, keys_of_a_block(s.head_dim)) + multiprocessors;
    for (s.batch = 1; tasks_of(s) < lag + 2;) ++s.batch;
    return s;
}

TEST_CASE("EXERCISE 25.2: dQ is made in shares, each block of queries once, of complete sums") {
    std::uint64_t turn = test_seed();
    const auto queries = [&](int least, int most) { return drawn_length(B_r, least * B_r + 1, most * B_r, ++turn); };
    const auto keys = [&](int d, int blocks) {
        const int B_c = keys_of_a_block(d);
        return drawn_length(unit, (blocks - 1) * B_c + 1, (blocks - 1) * B_c + 65, ++turn);
    };
    const int d = test_seed() % 2 ? 64 : 128, other = 192 - d;
    for (const auto& [shape, multiprocessors] : {
             // Each block of threads has one task, whose share comes at the end.
             std::pair(shape_of(1, queries(6, 7), keys(d, 3), d), 40),
             {grouped(shape_of(3, queries(1, 2), keys(other, 2), other)), 4},
             // Several tasks each, whose shares all come at the end, and are more than there are blocks of threads.
             {shape_of(4, queries(4, 5), keys(64, 2), 64), 2},
             // Shares of heads that have ended, and at the end those that belong to no task.
             {with_heads_that_end(shape_of(5, queries(1, 2), keys(128, 2), 128), 2), 2},
             // Fewer blocks of queries than of keys.
             {of_batches(2, shape_of(2, queries(0, 1), keys(128, 3), 128)), 2},
             {shape_of(1, queries(1, 2), keys(other, 4), other), 3},
             // Heads that share K; many more queries than keys.
             {with_heads_that_end(grouped(shape_of(2, queries(2, 3), 1 + int(turn % 60), 64)), 1), 1},
             {causal(shape_of(2, queries(3, 4), keys(128, 2), 128)), 2},
             // Queries that see nothing, a step's and some of a step.
             {causal(of_batches(2, grouped(shape_of(2, 3 * B_r + queries(0, 2), 100 + int(turn % 28), d)))), 2},
         })
        if (!check_shares(shape, multiprocessors)) return;
}

TEST_CASE("agrees with the reference: lengths near the edges of steps and of blocks of keys") {
    check_lengths_near_edges([](int) { return B_r; }, keys_of_a_block);
}

TEST_CASE("causal: keys that no query of a step sees reach nobody, whatever they hold") {
    for (const int d : {64, 128})
        check_hidden_keys_reach_nobody(shape_of(1, 400, 400, d), keys_of_a_block(d), keys_of_a_block(d));
}

#ifndef FLASHLADDER_GPU
TEST_CASE_TEMPLATE("statistics: parts and their weights have the digits of a float", Element, __nv_bfloat16, __half) {
    using Rows = Statistics<Element, 8>;
    Rows of;
    std::mt19937_64 random(test_seed());
    std::uniform_real_distribution<double> exponent(-12, 25), fraction(1, 2);
    for (int n = 0; n < 1000; ++n) {
        const float x = float(std::ldexp(fraction(random), int(exponent(random)))) * (n % 2 ? 1 : -1), y = float(fraction(random));
        of.set(n % 8, x, y);
        double sums[2] = {};
        for (int part = 0; part < Rows::parts; ++part)
            for (int k = 0; k < 2; ++k) sums[k] += double(Rows::weight(part)) * float(of.rows[n % 8][k * Rows::parts + part]);
        CAPTURE(x);
        CHECK(std::abs(sums[0] - x) <= std::ldexp(std::abs(x), -23));
        CHECK(std::abs(sums[1] - y) <= std::ldexp(y, -23));
    }
}

TEST_CASE("has no races: a consumer passes a step while its products of the head before are under way") {
    AttentionShape shape = causal(shape_of(4, 150, 100, 64));  // slots of queries come round, and heads share K
    shape.kv_heads = 1;
    const std::string report = race_of(backward_inputs(shape, Values::normal, test_seed()));
    CHECK_MESSAGE(report.empty(), report);
}

TEST_CASE("in whatever order blocks run, dK and dV have the same bits, and dQ is within the rule") {
    check_whatever_order();
}
#endif

}  // namespace
}  // namespace flashladder::attention_backward
