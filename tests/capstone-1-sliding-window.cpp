// Capstone 1: a window that is somewhere in its tiles, and what lies outside of it, which nobody may pay for.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "harness/run.h"
#include "modified_attention_suite.h"

namespace flashladder::modified_attention {
namespace {

using attention::Values;

[[maybe_unused]] const StrictBarriers strict_barriers;

constexpr int block = 64;  // queries, and keys, in which targets are counted

/// All weights, by shapes of which the first are the simplest.
void check_weights(const std::vector<Shape>& shapes) {
    std::uint64_t seed = test_seed();
    for (const Shape& shape : shapes) {
        const std::string wrong = wrong_weights(shape, Values::normal, seed++);
        CHECK_MESSAGE(wrong.empty(), wrong);
        if (!wrong.empty()) break;  // what is wrong with the next ones is likely the same
    }
}

Shape windowed(int n_q, int n_k, int window, int head_dim = 64) {
    Shape s = shape_of(1, n_q, n_k, head_dim);
    s.window = window;
    return s;
}

TEST_CASE("EXERCISE capstone-1.1: queries see the keys up to their own, by a window of them all") {
    check_weights({windowed(20, 20, 20), windowed(1, 1, 1), windowed(64, 64, 64), windowed(100, 100, 100, 128),
                   windowed(70, 150, 150), windowed(150, 70, 70)});
}

TEST_CASE("EXERCISE capstone-1.1: and no key before their window, wherever it begins") {
    std::mt19937_64 random(test_seed());
    std::vector<Shape> shapes = {windowed(20, 20, 5), windowed(64, 64, 1), windowed(150, 150, 64),
                                 windowed(150, 150, 65), windowed(150, 150, 63)};
    for (int i = 0; i < 6; ++i) {  // any residue of the window, and of the keys before the first query
        const int n_q = drawn_length(random, block, 1, 150), n_k = drawn_length(random, block, 1, 250);
        shapes.push_back(windowed(n_q, n_k, drawn_length(random, block, 1, n_k), i % 2 ? 128 : 64));
    }
    check_weights(shapes);
}

TEST_CASE("EXERCISE capstone-1.1: what a query does not see counts for nothing, however large its score") {
    std::mt19937_64 random(test_seed());
    for (const int head_dim : {64, 128, 64, 128}) {
        const Shape s = windowed(100, 100, 1 + int(random() % 60), head_dim);
        const std::string wrong = fault_with_hidden_scores(s, int(random() % 100), random());
        CHECK_MESSAGE(wrong.empty(), wrong);
    }
}

TEST_CASE("EXERCISE capstone-1.1: O, and LSE, of heads that share keys") {
    std::mt19937_64 random(test_seed());
    Shape grouped = windowed(40, 40, 30);
    grouped.heads = 6, grouped.kv_heads = 2;
    check_weights({grouped});
    for (const int head_dim : {64, 128}) {
        Shape s = windowed(100, 170, drawn_length(random, block, 1, 170), head_dim);
        s.batch = 2, s.heads = 6, s.kv_heads = 2;
        const std::string wrong = fault(s, Values::growing_maximum, random());
        CHECK_MESSAGE(wrong.empty(), wrong);
    }
}

TEST_CASE("windows of every residue, and larger than all keys") {
    std::mt19937_64 random(test_seed());
    for (int i = 0; i < 8; ++i) {
        const int window = 1 + (int(test_seed() % 64) + 8 * i + int(random() % 8)) % 64 + block * int(random() % 3);
        const std::string wrong = fault(windowed(130, 200, window, i % 2 ? 64 : 128), Values::normal, random());
        CHECK_MESSAGE(wrong.empty(), wrong);
    }
    for (const int window : {200, 201, std::numeric_limits<int>::max()}) {
        const std::string wrong = fault(windowed(130, 200, window), Values::normal, random());
        CHECK_MESSAGE(wrong.empty(), wrong);
    }
}

TEST_CASE("keys that no query sees reach nobody") {
    std::mt19937_64 random(test_seed());
    for (const int head_dim : {64, 128}) {
        const int n_q = drawn_length(random, block, 1, 150), window = drawn_length(random, block, 1, 100),
                  unseen = 40 + int(random() % 100);
        const Shape s = windowed(n_q, unseen + window - 1 + n_q, window, head_dim);
        Data data = make_inputs(s, Values::normal, random(), true);
        const Data expected = run(stage_under_test(), data);
        for (const char* name : {"K", "V"})
            std::fill_n(data.tensors.at(name).begin(), unseen * head_dim, std::numeric_limits<float>::quiet_NaN());
        const Data found = run(stage_under_test(), data);
        for (const auto& [name, width] : {std::pair("O", head_dim), {"lse", 1}}) {
            const auto [now, before] = std::ranges::mismatch(found.tensors.at(name), expected.tensors.at(name));
            const bool same = now == found.tensors.at(name).end();
            CHECK_MESSAGE(
                same,
                fmt::format(
                    "{} of query {} is {} with NaN in keys 0 to {}, expected {} as before: {} ({})", name,
                    (now - found.tensors.at(name).begin()) / width, same ? 0 : *now, unseen - 1, same ? 0 : *before,
                    same || std::isnan(*now) ? "no query sees these"
                                             : "other bits each time, as if sums were added up in any order",
                    to_string(s)));
        }
    }
}

#ifndef FLASHLADDER_GPU
/// Windows that are narrow, that end at tiles, that are all.
std::vector<Shape> counted_shapes() {
    std::mt19937_64 random(test_seed());
    std::vector<Shape> all;
    for (const int head_dim : {64, 128})
        for (const int window : {1, 64, 100 + int(random() % 50), 512})
            all.push_back(windowed(512, 512, window, head_dim));
    all.push_back(windowed(drawn_length(random, block, 100, 300), 400, 1 + int(random() % 200)));
    all.push_back(windowed(300, 100, 30));
    return all;
}

TEST_CASE("counted: Q is read once and O written once; of K and V what 64 queries see, and no key more") {
    for (const Shape& s : counted_shapes()) {
        const StageCounts counts = counts_of(s);
        const auto rows = [&](const char* tensor, bool written) {
            const auto found = counts.tensors.find(tensor);
            if (found == counts.tensors.end()) return 0.0;
            return double((written ? found->second.written : found->second.read).requested_bytes) / double(s.head_dim) /
                   4;
        };
        const double Q = rows("Q", false), K_and_V = rows("K", false) + rows("V", false),
                     keys = 2 * double(keys_of_blocks(s, block));
        if (s.n_q % block == 0) {  // else counts may take what few lanes ask of one tensor for the other's
            check_at_most("rows of Q that are asked for", Q, s.n_q, s);
            check_at_most(fmt::format("rows of K and V that are asked for ({:.0f} of K, {:.0f} of V)", rows("K", false),
                                      rows("V", false)),
                          K_and_V, keys, s);
        }
        check_at_most("rows of Q, K and V that are asked for", Q + K_and_V, s.n_q + keys, s);
        check_at_most("rows of O that are written", rows("O", true), s.n_q, s);
        check_at_most("rows of O that are read", rows("O", false), 0, s);
    }
}

TEST_CASE("counted: exponentials of the tiles that are visited, divisions of the rows, few bank conflicts") {
    for (const Shape& s : counted_shapes()) {
        const StageCounts counts = counts_of(s);
        const emulator::Work work = counts.work.total();
        // Tiles of 64 x 64, and two more, for a window need not begin or end with one. Beside a score's, few exponentials.
        const double tiles = double(keys_of_blocks(s, block)) / block + 2 * ((s.n_q + block - 1) / block);
        check_at_most("exponentials", double(work.exponentials), 1.6 * block * block * tiles, s);
        check_at_most("divisions", double(work.divisions), 16.0 * ((s.n_q + block - 1) / block * block), s);
        if (emulator::optimised_by_clang) continue;  // it copies a float4 part by part; a learner's kernel is not optimised
        const emulator::SharedWork shared = work.all_shared();
        check_at_most("wavefronts of shared memory that are bank conflicts", double(shared.conflicts),
                      0.1 * double(shared.wavefronts), s);
        for (const char* tensor : {"Q", "K", "V", "O"})
            if (const auto found = counts.tensors.find(tensor); found != counts.tensors.end())
                check_at_most(fmt::format("sectors of {} that are moved", tensor),
                              double(found->second.read.sectors + found->second.written.sectors),
                              double(found->second.read.requested_bytes + found->second.written.requested_bytes) / 32,
                              s);
    }
}

TEST_CASE("counted: twice as many queries and keys with the same window are twice the work, not four times") {
    const auto wavefronts = [](int n) { return double(counts_of(windowed(n, n, 64)).work.total().all_shared().wavefronts); };
    check_at_most("wavefronts of shared memory, where N = 256 has half as many queries", wavefronts(512), 2.5 * wavefronts(256),
                  windowed(512, 512, 64));
}

TEST_CASE("counted: a block of threads for every 128 queries of a head, or more, so that one head fills the card") {
    const Shape s = windowed(512, 512, 100);
    const StageCounts counts = counts_of(s);
    double blocks = 0;
    for (const auto& launch : counts.work.launches)
        blocks = std::max(blocks, double(launch.grid.x) * launch.grid.y * launch.grid.z);
    CHECK_MESSAGE((blocks >= 4),
                  fmt::format("blocks of threads: found {}, expected at least 4, one for every 128 queries ({})",
                              blocks, to_string(s)));
}
#endif

}  // namespace
}  // namespace flashladder::modified_attention
