// Rung 27c. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "launch.h"
#include "ring_attention_suite.h"

namespace flashladder::ring_attention {
namespace {

using std::size_t;

constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();

Data inputs_of_case(const Case& c, std::uint64_t seed) {
    return data_of(attention::make_inputs(c.shape, Values::normal, seed), c.ranks, true);
}

// ---- one round of one rank, with what the rounds before have left

/// Of a rank's shard: O and LSE of its rows.
struct Rows {
    std::vector<float> O, lse;
};
/// What lies in between, where a rank has it.
void put(const Ranks& ranks, int rank, const Rows& rows) {
    const State state = ranks.state(rank);
    check_cuda(cudaMemcpy(state.O, rows.O.data(), rows.O.size() * 4, cudaMemcpyHostToDevice), "O in between");
    check_cuda(cudaMemcpy(state.lse, rows.lse.data(), rows.lse.size() * 4, cudaMemcpyHostToDevice), "LSE in between");
}
/// What a round leaves: rows that are complete are in O and LSE, others lie in between.
Rows after_round(const Ranks& ranks, int rank, int round) {
    constexpr float not_written = -12345;
    const AttentionShape s = ranks.shard();
    const std::vector<float> nobody(s.lse_elements(), not_written);
    check_cuda(cudaMemcpy(ranks.args.ranks[size_t(rank)].lse, nobody.data(), nobody.size() * 4, cudaMemcpyHostToDevice),
               "LSE that nobody has written");
    stage_under_test().launch_round(ranks.round(rank, round));
    check_cuda(cudaDeviceSynchronize(), "a round");
    Rows rows{std::vector<float>(s.q_elements()), std::vector<float>(s.lse_elements())};
    const State state = ranks.state(rank);
    check_cuda(cudaMemcpy(rows.O.data(), state.O, rows.O.size() * 4, cudaMemcpyDeviceToHost), "O in between");
    check_cuda(cudaMemcpy(rows.lse.data(), state.lse, rows.lse.size() * 4, cudaMemcpyDeviceToHost), "LSE in between");
    const Data out = ranks.outputs();
    const size_t d = size_t(s.head_dim), first = size_t(rank) * s.lse_elements();
    for (size_t r = 0; r < rows.lse.size(); ++r) {
        const float lse = out.tensors.at("lse")[first + r];
        if (lse == not_written) continue;
        rows.lse[r] = lse;
        std::copy_n(out.tensors.at("O").begin() + std::ptrdiff_t((first + r) * d), d,
                    rows.O.begin() + std::ptrdiff_t(r * d));
    }
    return rows;
}
/// As if no round had found a key for any row.
Rows without_keys(const AttentionShape& shard) {
    return {std::vector<float>(shard.q_elements(), 0), std::vector<float>(shard.lse_elements(), -infinity)};
}

// ---- 27c.1

/// With K = 0, so that all keys that are seen have the same weight, and V that tells halves of the shard apart: what is
/// wrong with the first row that has seen other keys than it should have; "" if nothing is.
std::string wrong_keys(const Case& c, int rank, int round) {
    Data data = inputs_of_case(c, test_seed());
    const size_t d = size_t(c.shape.head_dim), n = size_t(c.rows_of_shard());
    std::ranges::fill(data.tensors.at("K"), 0.0f);
    std::vector<float>& V = data.tensors.at("V");
    for (size_t x = 0; x < V.size(); ++x) V[x] = x % d == (x / d % n < n / 2 ? 0 : 1);
    const Ranks ranks(c, data);
    put(ranks, rank, without_keys(ranks.shard()));
    Rows rows;
    try {
        rows = after_round(ranks, rank, round);
    } catch (const CudaError& error) {
        return error.what();
    }
    const int other = (rank - round + c.ranks) % c.ranks;
    for (size_t i = 0; i < n; ++i) {
        const int query = position_of(int(i), rank, c.ranks, int(n), c.shape.causal);
        int expected[2] = {};
        for (size_t j = 0; j < n; ++j) {
            const int key = position_of(int(j), other, c.ranks, int(n), c.shape.causal);
            expected[j < n / 2 ? 0 : 1] += !c.shape.causal || key <= query;
        }
        const double all = rows.lse[i] == -infinity ? 0 : std::exp(double(rows.lse[i]));
        for (const size_t half : {0, 1}) {
            const double found = all == 0 ? 0 : double(rows.O[i * d + half]) * all;
            if (std::abs(found - expected[half]) <= 0.02 * std::max(1, expected[half])) continue;
            return fmt::format("rank {} with the keys of rank {}: row {} of {}, which is query {}, has seen {:.3g} of the "
                               "{} half of these keys, expected {} ({})",
                               rank, other, i, n, query, found, half == 0 ? "first" : "second", expected[half], c.words());
        }
    }
    return "";
}

TEST_CASE("EXERCISE 27c.1: which queries of a rank see which keys of another") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const bool causal : {true, false})
        for (const int ranks : {2, 3, 2 + int(random() % 4)}) {
            const Case c = case_of(ranks, drawn_length(64, 10, 160, turn++), int(random() % 2 + 1) * 64, causal);
            for (int rank = 0; rank < ranks; ++rank)
                for (int round = 0; round < ranks; ++round) {
                    const std::string wrong = wrong_keys(c, rank, round);
                    CHECK_MESSAGE(wrong.empty(), wrong);
                    if (!wrong.empty()) return;
                }
        }
}

// ---- 27c.2

/// Kinds of rows: what lay there, and what this round brings.
enum class Parts { both, much_more_before, much_more_now, nothing_before, nothing_now, nothing, fresh };
constexpr const char* words_of(Parts parts) {
    switch (parts) {
        case Parts::both: return "both have weight";
        case Parts::much_more_before: return "what lay there has e^90 times the weight";
        case Parts::much_more_now: return "what lay there has e^-90 of the weight";
        case Parts::nothing_before: return "LSE of what lay there is -inf";
        case Parts::nothing_now: return "LSE of this round is -inf";
        case Parts::nothing: return "LSE of both is -inf";
        case Parts::fresh: return "round 0: what lies there is NaN";
    }
    return "";
}

/// What is wrong with a round, or "": O and LSE against those of the same round with nothing before it, merged in double.
std::string wrong_merge(const Case& c, Parts parts, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    Data data = inputs_of_case(c, seed);
    const size_t d = size_t(c.shape.head_dim);
    if (parts == Parts::nothing_now || parts == Parts::nothing)
        for (size_t x = 0; x < data.tensors.at("Q").size(); x += d) data.tensors.at("Q")[x] = 0x1p100f;
    if (parts == Parts::nothing_now || parts == Parts::nothing)
        for (size_t x = 0; x < data.tensors.at("K").size(); x += d) data.tensors.at("K")[x] = -0x1p100f;
    const int round = parts == Parts::fresh ? 0 : 1 + int(random() % unsigned(c.ranks - 1)), rank = int(random() % unsigned(c.ranks));
    const attention::Inputs whole = inputs_of(data);
    const AttentionShape s = shard_of(c.shape, c.ranks);

    // What this round brings, by the definition.
    attention::Inputs of_round{s, {}, {}, {}, whole.scale};
    const int other = (rank - round + c.ranks) % c.ranks;
    const auto shard_from = [&](const char* name, int from, size_t elements) {
        const auto first = data.tensors.at(name).begin() + std::ptrdiff_t(elements) * from;
        return std::vector<float>(first, first + std::ptrdiff_t(elements));
    };
    of_round.Q = shard_from("Q", rank, s.q_elements());
    of_round.K = shard_from("K", other, s.kv_elements()), of_round.V = shard_from("V", other, s.kv_elements());
    std::vector<size_t> all(s.lse_elements());
    for (size_t r = 0; r < all.size(); ++r) all[r] = r;
    attention::AttentionRows brought = reference_attention(of_round, all);
    if (parts == Parts::nothing_now || parts == Parts::nothing) {
        std::ranges::fill(brought.O, 0.0);
        std::ranges::fill(brought.lse, -double(infinity));
    }

    Rows before = without_keys(s);
    std::normal_distribution<float> normal;
    if (parts == Parts::fresh) {
        std::ranges::fill(before.O, nan), std::ranges::fill(before.lse, nan);
    } else if (parts != Parts::nothing_before && parts != Parts::nothing) {
        for (float& x : before.O) x = normal(random);
        for (size_t r = 0; r < before.lse.size(); ++r) {
            const double now = std::isinf(brought.lse[r]) ? 3 : brought.lse[r];
            const double more = parts == Parts::much_more_before ? 90 : parts == Parts::much_more_now ? -90 : normal(random);
            before.lse[r] = float(now + more);
        }
    }
    const Ranks ranks(c, data);
    put(ranks, rank, before);
    Rows found;
    try {
        found = after_round(ranks, rank, round);
    } catch (const CudaError& error) {
        return error.what();
    }
    for (size_t r = 0; r < all.size(); ++r) {
        const double lse_before = parts == Parts::fresh ? -double(infinity) : double(before.lse[r]), now = brought.lse[r];
        const double larger = std::max(lse_before, now);
        const double sum = std::isinf(larger) ? 0 : std::exp(lse_before - larger) + std::exp(now - larger);
        const double lse = sum == 0 ? -double(infinity) : larger + std::log(sum);
        const auto where = [&] {
            return fmt::format("({}; LSE before {:.4g}, of this round {:.4g}; row {} of rank {} in round {}; {})", words_of(parts),
                               parts == Parts::fresh ? nan : float(lse_before), now, r, rank, round, c.words());
        };
        if (!(found.lse[r] == lse || (!std::isinf(lse) && std::abs(found.lse[r] - lse) <= 2e-3 * std::max(1.0, std::abs(lse)))))
            return fmt::format("the merged LSE is {:.6g}, expected {:.6g} {}", found.lse[r], lse, where());
        for (size_t x = 0; x < d; ++x) {
            const double O_before = parts == Parts::fresh ? 0 : double(before.O[r * d + x]);
            const double expected = sum == 0 ? 0
                                             : (std::exp(lse_before - larger) * O_before +
                                                std::exp(now - larger) * brought.O[r * d + x]) / sum;
            if (!(std::abs(double(found.O[r * d + x]) - expected) <= 2e-2 * std::max(1.0, std::abs(expected))))
                return fmt::format("the merged O[{}] is {:.6g}, expected {:.6g}, of {:.4g} before and {:.4g} {}", x,
                                   found.O[r * d + x], expected, parts == Parts::fresh ? nan : float(O_before),
                                   brought.O[r * d + x], where());
        }
    }
    return "";
}

TEST_CASE("EXERCISE 27c.2: a round is merged into what those before have left") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const Parts parts : {Parts::fresh, Parts::both, Parts::much_more_before, Parts::much_more_now, Parts::nothing_before,
                              Parts::nothing_now, Parts::nothing}) {
        const Case c = case_of(2 + int(random() % 2), drawn_length(64, 10, 150, turn), turn % 2 ? 64 : 128, false, 2, 1);
        ++turn;
        const std::string wrong = wrong_merge(c, parts, random());
        CHECK_MESSAGE(wrong.empty(), wrong);
        if (!wrong.empty()) return;
    }
    for (const bool causal : {false, true})
        if (!check_agrees(case_of(3, drawn_length(64, 10, 150, turn), causal ? 64 : 128, causal, 2, 1), Values::normal,
                          random()))
            return;
#ifndef FLASHLADDER_GPU
    const Case c = case_of(2, 100, 64, random() % 2, 2, 1);
    const Data data = inputs_of_case(c, random());
    const std::string race = emulator::find_race([&] { run(stage_under_test(), data); });
    CHECK_MESSAGE(race.empty(), race);
#endif
}

// ---- 27c.3

/// What is wrong with a launch between work of each rank's own stream: before it, which makes Q, K and V, and behind it,
/// which overwrites them and the scratch. "" if nothing is.
std::string wrong_launch(const Case& c, const Data& data, int times) {
    const Ranks ranks(c, data);
    const AttentionShape s = ranks.shard();
    const size_t bytes = s.kv_elements() * bytes_per_element(s.dtype);
    std::vector<DeviceBuffer> copies;
    try {
        for (const Rank& rank : ranks.args.ranks)
            for (const void* from : {rank.K, rank.V}) {
                DeviceBuffer& copy = copies.emplace_back(bytes, "copy of K or V");
                check_cuda(cudaMemcpy(copy.data(), from, bytes, cudaMemcpyDeviceToDevice), "a copy");
                check_cuda(cudaMemset(const_cast<void*>(from), 0xFF, bytes), "NaN");
            }
        check_cuda(cudaDeviceSynchronize(), "before");
        for (int i = 0; i < times; ++i) {
            for (int g = 0; g < c.ranks; ++g) {
                const Rank& rank = ranks.args.ranks[size_t(g)];
                const void* const to[] = {rank.K, rank.V};
                for (const size_t which : {0, 1})
                    check_cuda(cudaMemcpyAsync(const_cast<void*>(to[which]), copies[size_t(g) * 2 + which].data(), bytes,
                                               cudaMemcpyDeviceToDevice, rank.stream),
                               "K and V are made");
            }
            stage_under_test().launch(ranks.args);
            for (const Rank& rank : ranks.args.ranks) {
                for (const void* tensor : {rank.K, rank.V})
                    check_cuda(cudaMemsetAsync(const_cast<void*>(tensor), 0xFF, bytes, rank.stream),
                               "K and V are overwritten behind the launch");
                check_cuda(cudaMemsetAsync(rank.scratch, 0xFF, stage_under_test().scratch_bytes(c.shape, c.ranks), rank.stream),
                           "the scratch is overwritten behind the launch");
            }
        }
        for (const Rank& rank : ranks.args.ranks) check_cuda(cudaStreamSynchronize(rank.stream), "a rank");
    } catch (const CudaError& error) {
        return error.what();
    }
    const Data found = ranks.outputs(), expected = run(stage_under_test(), data);
    for (const char* name : {"O", "lse"})
        if (const auto [wrong, right] = std::ranges::mismatch(found.tensors.at(name), expected.tensors.at(name));
            wrong != found.tensors.at(name).end())
            return fmt::format("{}[{}] is {}, and {} where the ranks' streams have nothing else to do ({})", name,
                               wrong - found.tensors.at(name).begin(), *wrong, *right, c.words());
    return "";
}

#ifndef FLASHLADDER_GPU
/// What waits that need not, in a launch that is right; "" if nothing does.
std::string waits_in_vain(const Case& c, const Data& data) {
    const Ranks ranks(c, data);
    const emulator::StreamLog log = emulator::log_streams([&] {
        for (const Rank& rank : ranks.args.ranks)  // says which stream is whose
            check_cuda(cudaMemsetAsync(rank.lse, 0, 4, rank.stream), "a mark");
        stage_under_test().launch(ranks.args);
        for (const Rank& rank : ranks.args.ranks) check_cuda(cudaMemsetAsync(rank.lse, 0, 4, rank.stream), "what comes behind");
    });
    if (log.host_waits > 0)
        return fmt::format("the host waits {} times in a launch, for a stream, an event or the device: it should put all of "
                           "it into streams, and go on ({})",
                           log.host_waits, c.words());
    std::map<unsigned, int> rank_of;
    std::vector<std::vector<size_t>> kernels(size_t(c.ranks)), copies(size_t(c.ranks));  // by rank
    std::vector<size_t> marks(size_t(c.ranks));  // the last ones
    for (size_t i = 0; i < log.works.size(); ++i) {
        const emulator::StreamWork& work = log.works[i];
        for (int g = 0; g < c.ranks; ++g) {
            const Rank& rank = ranks.args.ranks[size_t(g)];
            if (work.to == rank.lse) rank_of[work.stream] = g, marks[size_t(g)] = i;
            const auto *scratch = static_cast<const char*>(rank.scratch), *to = static_cast<const char*>(work.to);
            const bool is_copy = work.from && to >= scratch && to < scratch + stage_under_test().scratch_bytes(c.shape, c.ranks);
            if (is_copy) copies[size_t(g)].push_back(i);
        }
        const bool is_round = work.is_kernel && work.name.find("no_task_is_taken") == std::string::npos;
        if (is_round && rank_of.contains(work.stream)) kernels[size_t(rank_of.at(work.stream))].push_back(i);
    }
    for (int g = 0; g < c.ranks; ++g) {
        if (kernels[size_t(g)].size() != size_t(c.ranks))
            return fmt::format("rank {} has {} kernels on its stream, expected one a round, {} ({})", g,
                               kernels[size_t(g)].size(), c.ranks, c.words());
        if (copies[size_t(g)].size() != 2 * size_t(c.ranks - 1))
            return fmt::format("{} copies go to rank {}, expected a K and a V in each round but the last, {} ({})",
                               copies[size_t(g)].size(), g, 2 * (c.ranks - 1), c.words());
    }
    const auto ordered = [&](size_t a, size_t b) { return log.ordered(std::min(a, b), std::max(a, b)); };
    for (int round = 0; round < c.ranks; ++round)
        for (int g = 0; g < c.ranks; ++g) {
            const size_t kernel = kernels[size_t(g)][size_t(round)];
            for (int other = 0; other < c.ranks; ++other)
                if (other != g && ordered(kernel, kernels[size_t(other)][size_t(round)]))
                    return fmt::format("in round {} ranks {} and {} compute one after the other: something makes a stream wait "
                                       "for the other one's kernel ({})",
                                       round, std::min(g, other), std::max(g, other), c.words());
                else if (other != g && round > 0 && ordered(kernels[size_t(other)][size_t(round - 1)], kernel))
                    return fmt::format("the kernel of rank {} in round {} waits for that of rank {} in round {}, and need not: "
                                       "what it reads are copies ({})",
                                       g, round, other, round - 1, c.words());
                else if (other != g && round + 1 == c.ranks && ordered(kernels[size_t(other)][size_t(round)], marks[size_t(g)]))
                    return fmt::format("what comes into the stream of rank {} behind the launch waits for the last kernel of "
                                       "rank {}, and need not: that touches nothing of rank {} ({})",
                                       g, other, g, c.words());
            if (round + 1 == c.ranks) continue;
            for (int other = 0; other < g; ++other)
                if (ordered(copies[size_t(other)][size_t(2 * round)], copies[size_t(g)][size_t(2 * round)]))
                    return fmt::format("in round {} the copies to ranks {} and {} are one after the other: links are to be busy "
                                       "at the same time, so each rank's copies go into a stream of their own, "
                                       "links.copies(g) ({})",
                                       round, other, g, c.words());
            for (const int whose : {g, (g + c.ranks - 1) % c.ranks})
                for (const size_t which : {0, 1})
                    if (const size_t copy = copies[size_t(g)][size_t(2 * round) + which];
                        ordered(copy, kernels[size_t(whose)][size_t(round)]))
                        return fmt::format(
                            "the copy to rank {} in round {} and the kernel of rank {} in the same round are one after the "
                            "other: {} waits for the other, and need not, for both only read what is copied ({})",
                            g, round, whose, copy < kernels[size_t(whose)][size_t(round)] ? "the kernel, or the host," : "the copy",
                            c.words());
        }
    return "";
}
#endif

TEST_CASE("EXERCISE 27c.3: copies go on beneath kernels, and overwrite nothing that somebody needs") {
    std::mt19937_64 random(test_seed());
    for (const int ranks : {2, 3, 5, 1}) {
        const Case c = case_of(ranks, 10 + int(random() % 60), 64, random() % 2);
        const Data data = inputs_of_case(c, random());
        std::string wrong = wrong_launch(c, data, 2);
        if (wrong.empty()) wrong = fault(c, data);
#ifndef FLASHLADDER_GPU
        if (wrong.empty()) wrong = waits_in_vain(c, data);
#endif
        CHECK_MESSAGE(wrong.empty(), wrong);
        if (!wrong.empty()) return;
    }
}

}  // namespace
}  // namespace flashladder::ring_attention
