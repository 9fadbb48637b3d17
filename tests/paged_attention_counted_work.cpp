// What every finished rung of paged attention must do and no more: it loads what sequences have, and plans what keeps all
// multiprocessors busy. Not for chapters, where another way to the right result is as good.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <functional>
#include <tuple>

#include "launch.h"
#include "operations/attention/parts.h"
#include "operations/paged_attention/plan.h"
#include "paged_attention_suite.h"

namespace flashladder::paged_attention {
namespace {

TEST_CASE("counted: of K and V the rows of pages that sequences have, once for each tile of queries; an entry a box") {
    std::mt19937_64 random(test_seed());
    for (const int head_dim : stage_under_test().supports.head_dims)
        for (const int page_size : {16, 64, 256}) {
            const Case c = case_of(random, {int(random() % 700), 0, int(random() % 300)}, page_size, head_dim,
                                   1 + int(random() % 9), random() % 2, 12, 2);
            StageCounts counts = count_stage(stage_under_test(), inputs_of_case(c, Values::normal, random()));
            const std::uint64_t row = std::uint64_t(head_dim) * 2, keys = loaded_rows(c),
                                queries = c.shape.lse_elements();
            check_count("bytes of K that are read", counts.tensors["K"].read.requested_bytes, keys * row, c.words());
            check_count("bytes of V that are read", counts.tensors["V"].read.requested_bytes, keys * row, c.words());
            check_count("bytes of the block table that are read", counts.tensors["block_table"].read.requested_bytes,
                        2 * 4 * boxes_with_keys(c), c.words());
            check_count("bytes of O that are written", counts.tensors["O"].written.requested_bytes, queries * row,
                        c.words());
            check_count("bytes of LSE that are written", counts.tensors["lse"].written.requested_bytes, queries * 4,
                        c.words());
            check_count("bytes beyond inputs and outputs", counts.peak_scratch_bytes,
                        stage_under_test().scratch_bytes(c.shape), c.words());
        }
}

/// The parts that the stage under test has planned for a head: its scratch memory begins with them, and ends with how many
/// they are and a counter.
std::vector<PlannedPart> planned_for(const Case& c) {
    const DeviceProblem problem(stage_under_test(), inputs_of_case(c, Values::normal, test_seed()));
    stage_under_test().launch(problem.data());
    check_cuda(cudaDeviceSynchronize(), "launch");
    std::vector<char> scratch(stage_under_test().scratch_bytes(c.shape));
    check_cuda(cudaMemcpy(scratch.data(), problem.data().scratch, scratch.size(), cudaMemcpyDeviceToHost), "scratch");
    int planned = 0;
    std::memcpy(&planned, scratch.data() + scratch.size() - 2 * sizeof(int), sizeof planned);
    std::vector<PlannedPart> plan(std::size_t(std::clamp(planned, 0, int(scratch.size() / sizeof(PlannedPart)))));
    std::memcpy(plan.data(), scratch.data(), plan.size() * sizeof(PlannedPart));
    return plan;
}

/// When the last multiprocessor is done, in steps, if whoever is free takes the next part.
int time_of(const std::vector<int>& steps, int heads, int multiprocessors) {
    std::vector<int> busy(std::size_t(multiprocessors), 0);
    for (const int of_part : steps)
        for (int head = 0; head < heads; ++head) *std::ranges::min_element(busy) += of_part + steps_of_a_part;
    return std::ranges::max(busy);
}
/// The same for the best of all plans with parts of one size, of fewest_blocks at least, longest first.
int best_time(const std::vector<int>& blocks, int heads, int multiprocessors) {
    int best = INT_MAX;
    const int longest = std::ranges::max(blocks);
    for (int of_longest = 1; of_longest <= std::max(longest / fewest_blocks, 1); ++of_longest) {
        const int most = std::max((longest + of_longest - 1) / of_longest, 1);
        std::vector<int> steps;
        for (const int T : blocks)
            for (int part = 0, parts = std::max((T + most - 1) / most, 1); part < parts; ++part)
                steps.push_back(std::max((part + 1) * T / parts - part * T / parts, 1));
        std::ranges::sort(steps, std::greater());
        best = std::min(best, time_of(steps, heads, multiprocessors));
    }
    return best;
}

TEST_CASE("planned: each block of keys once, the longest parts first, and all multiprocessors are busy to the end") {
    std::mt19937_64 random(test_seed());
    struct Problem {
        int multiprocessors, n_q, kv_heads;
        std::vector<int> lengths;
    };
    const auto up_to = [&](int n) { return int(random() % unsigned(n)) + 1; };
    std::vector<Problem> problems = {
        {7, 1, 2, {6000 + up_to(1000)}},                                     // one alone
        {9, 1, 4, {1300, 1300, 1300, 1300}},                                 // all alike
        {11, 1, 2, {5000, up_to(200), up_to(200), up_to(200), up_to(200)}},  // one is long
        {4, 40, 1, {30 + up_to(20), 900 + up_to(200), 0}}};                  // several tiles
    // Of any lengths: no rule is near the best for all of them, but by and large it has to be.
    const std::size_t by_itself = problems.size();
    for (int drawn = 0; drawn < 8; ++drawn)
        problems.push_back({5, 1, 2, {up_to(2000), up_to(2000), up_to(2000), 0, up_to(2000)}});
    int time_of_drawn = 0, best_of_drawn = 0;
    for (std::size_t n = 0; n < problems.size(); ++n) {
        const auto& [multiprocessors, n_q, kv_heads, lengths] = problems[n];
        const VirtualGpu gpu(multiprocessors);
        const Case c = case_of(random, lengths, 64, 64, n_q, n_q > 1, 4 * kv_heads, kv_heads);
        const std::vector<PlannedPart> plan = planned_for(c);
        const int tiles_of_sequence = attention::blocks_of_queries(c.shape), queries = attention::packing_of(c.shape).queries();
        std::vector<int> blocks, done(lengths.size() * std::size_t(tiles_of_sequence), 0);
        for (const int N_k : lengths)
            for (int tile = 0; tile < tiles_of_sequence; ++tile) {
                const int behind = std::min((tile + 1) * queries, n_q);
                const int seen = c.shape.causal ? std::max(behind + N_k - n_q, 0) : N_k;
                blocks.push_back((seen + attention::block_of_keys - 1) / attention::block_of_keys);
            }
        std::vector<PlannedPart> by_place = plan;
        std::ranges::sort(by_place, {}, [](const PlannedPart& x) {
            return std::tuple(x.sequence, x.tile_of_queries, x.part);
        });
        for (const PlannedPart& x : by_place) {
            const std::size_t place = std::size_t(x.sequence * tiles_of_sequence + x.tile_of_queries);
            REQUIRE_MESSAGE(place < done.size(), c.words());
            const int behind_last = (lengths[std::size_t(x.sequence)] + attention::block_of_keys - 1) / attention::block_of_keys;
            CHECK_MESSAGE(x.first == (blocks[place] > 0 ? done[place] : behind_last), c.words());
            done[place] += x.steps;
        }
        for (std::size_t place = 0; place < done.size(); ++place)
            CHECK_MESSAGE(done[place] == std::max(blocks[place], 1), "blocks of keys of tile ", place, ": ", c.words());
        std::vector<int> steps;
        for (const PlannedPart& x : plan) steps.push_back(x.steps);
        CHECK_MESSAGE(std::ranges::is_sorted(steps, std::greater()), c.words());
        const int time = time_of(steps, kv_heads, multiprocessors), best = best_time(blocks, kv_heads, multiprocessors);
        if (n >= by_itself)
            time_of_drawn += time, best_of_drawn += best;
        else
            CHECK_MESSAGE(time <= best + best / 10 + 2,
                          fmt::format("the busiest multiprocessor has {} steps, {} are enough: {}", time, best, c.words()));
    }
    CHECK_MESSAGE(time_of_drawn <= best_of_drawn + best_of_drawn / 10,
                  fmt::format("of drawn lengths: the busiest multiprocessors have {} steps in all, {} are enough",
                              time_of_drawn, best_of_drawn));
}

}  // namespace
}  // namespace flashladder::paged_attention
