// The ring of common/lcsf/ring.h: what goes in comes out, in its order, whoever lags; and on the emulator, that without
// one of its parts this would not be so, and is reported.
#include <doctest/doctest.h>

#include <random>

#include "../test_seed.h"
#include "cases.h"

#ifndef FLASHLADDER_GPU
#include <algorithm>

#include "emulator/emulator.h"
#endif

namespace flashladder {
namespace {

constexpr int warp_size = 32;

Words any_words(std::size_t n) {
    std::mt19937 random(static_cast<unsigned>(test_seed()));
    Words words(n);
    for (unsigned& word : words) word = static_cast<unsigned>(random());
    return words;
}

/// The sums of each lane of each consumer, in the order of the kernel.
Words expected_sums(const Words& tiles) {
    Words sums(consumer_warps * warp_size);
    for (int i = 0; i < int(sums.size()); ++i)
        for (std::size_t tile = 0; tile < tiles.size(); tile += tile_words)
            for (int word = tile_words - 1 - i % warp_size; word >= 0; word -= warp_size)
                sums[i] = 31 * sums[i] + tiles[tile + word];
    return sums;
}

TEST_CASE("ring: every tile reaches every consumer, in its order, round after round") {
    for (const RingCase& ring : ring_cases())
        for (const int tiles : {1, ring.slots, ring.slots + 1, 12 * ring.slots + 1}) {
            INFO(ring.describe(), ", ", tiles, " tiles");
            const Words words = any_words(std::size_t(tiles) * tile_words);
            CHECK(ring.run(words) == expected_sums(words));
        }
}

TEST_CASE("ring position: slots in turn, and a parity that changes with each round") {
    for (const Positions& ring : positions()) {
        const int n = 5 * ring.slots;
        const auto found = ring.of(n);
        INFO(ring.slots, " slots");
        for (int t = 0; t < n; ++t) {
            CHECK(found[2 * t] == t % ring.slots);
            CHECK(found[2 * t + 1] == t / ring.slots % 2);
        }
    }
}

#ifndef FLASHLADDER_GPU
constexpr int seeds = 5;

TEST_CASE("ring: no races, by any of several seeds") {
    for (const RingCase& ring : ring_cases())
        for (int i = 0; i < seeds; ++i) {
            emulator::reseed(test_seed() + std::uint64_t(i));
            const Words words = any_words(std::size_t(6 * ring.slots + 1) * tile_words);
            const std::string report = emulator::find_race([&] { ring.run(words); });
            CHECK_MESSAGE(report == "", ring.describe(), ": ", report);
        }
}

/// How reports of a fault may begin, and words that they contain. Barriers lie behind two tiles: full, full, empty, empty.
struct Verdict {
    std::vector<std::string> kinds, words = {};
};

Verdict verdict_of(Fault fault) {
    const std::string race = "race", unwritten = "uninitialised shared memory", many = "too many arrivals", dead = "deadlock";
    const std::string first_empty = "barrier at byte 528";
    switch (fault) {
        case Fault::no_wait_for_full: return {{race, unwritten}};
        case Fault::never_released: return {{dead}, {first_empty, "phase 0 (parity 0): 3 of 3 arrivals"}};
        case Fault::one_release_too_many_expected: return {{dead}, {first_empty, "phase 0 (parity 0): 1 of 4 arrivals"}};
        case Fault::producer_at_the_consumers_parity: return {{dead}, {first_empty, "phase 0 (parity 0): 3 of 3 arrivals"}};
        case Fault::released_early:
        case Fault::released_by_a_lane: return {{race}};
        // Rounds get mixed up: what comes of it first, the order decides.
        default: return {{race, many, unwritten, dead, "overtaken"}};
    }
}

TEST_CASE("ring: what is left out or done wrongly is reported, by each of several seeds") {
    for (const RingCase& ring : faulty_ring_cases())
        for (int i = 0; i < seeds; ++i) {
            emulator::reseed(test_seed() + std::uint64_t(i));
            const Words words = any_words(std::size_t(9) * tile_words);
            const std::string report = emulator::find_race([&] { ring.run(words); });
            INFO(ring.describe(), ", fault ", int(ring.fault), ": ", report);
            const Verdict verdict = verdict_of(ring.fault);
            CHECK(std::ranges::any_of(verdict.kinds, [&](const auto& kind) { return report.starts_with(kind); }));
            for (const std::string& word : verdict.words) CHECK(report.find(word) != std::string::npos);
        }
}
#endif

}  // namespace
}  // namespace flashladder
