// Named barriers, mbarriers, elect.sync and setmaxnreg.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "../test_seed.h"
#include "elements.h"
#include "recorded.h"

namespace flashladder {
namespace {

Bits32 any_words(Random& random, std::size_t n) {
    Bits32 x(n);
    for (auto& word : x) word = std::uint32_t(random());
    return x;
}

TEST_CASE("named barriers: warps meet in pairs, each pair as often as it likes") {
    Random random(test_seed());
    constexpr int rounds = 5;
    const Bits32 x = any_words(random, pairs_threads);
    Bits32 expected = x;
    for (int i = 0; i < pairs_threads; ++i)
        if (!(i & 32)) {
            const int meetings = rounds + i / 64;
            expected[i] = expected[i + 32] = (x[i] + x[i + 32]) << (meetings - 1);
        }
    CHECK(exchange_between_pairs(x, rounds) == expected);
}

void check_ring(Signal signal, const char* name) {
    for (const auto seed : {recorded_seed, static_cast<unsigned long long>(test_seed())}) {
        Random random(seed);
        for (const int tiles : {1, 2, 3, 9}) {
            INFO(name, ", tiles ", tiles);
            const Bits32 x = any_words(random, std::size_t(tiles * ring_threads)), y = pass_through_ring(x, signal);
            Bits32 expected = x;
            for (auto tile = expected.begin(); tile != expected.end(); tile += ring_threads)
                std::reverse(tile, tile + ring_threads);
            expected.push_back(signal == Signal::mbarrier ? tiles : 0);
            REQUIRE(y == expected);
            if (seed == recorded_seed) check_recorded(std::string(name) + ", tiles " + std::to_string(tiles), y);
        }
    }
}

TEST_CASE("named barriers: one half of the block arrives, the other one waits") {
    check_ring(Signal::named_barrier, "named barriers");
}

TEST_CASE("mbarriers: a ring of two stages, full and empty") {
    if (device_architecture() < 90) return;
    check_ring(Signal::mbarrier, "mbarriers");
}

TEST_CASE("elect.sync: one lane of each warp") {
    if (device_architecture() < 90) return;
    const Bits32 elected = elect_in_warps(3);
    for (const std::uint32_t warp : elected) CHECK(warp == 1);  // lane 0
    check_recorded("elect", elected);
}

TEST_CASE("setmaxnreg: registers move between warpgroups") {
    if (device_architecture() != 90) return;
    const Bits32 y = move_registers();
    for (std::size_t i = 0; i < y.size(); ++i) CHECK(y[i] == (i < 128 ? i : 2 * i));
}

}  // namespace
}  // namespace flashladder
