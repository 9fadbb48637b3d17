// cp.async: sizes, zero fill, groups.
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

TEST_CASE("cp.async: a ring of three stages, and a ragged end that is filled with 0") {
    for (const auto seed : {recorded_seed, static_cast<unsigned long long>(test_seed())}) {
        Random random(seed);
        for (const int bytes : {4, 8, 16})
            for (const std::size_t n : {1, 255, 256, 257, 1026, 1703}) {
                INFO("bytes ", bytes, ", n ", n);
                const Bits32 x = any_words(random, n), y = copy_through_ring(x, bytes);
                Bits32 expected(x);
                expected.resize(y.size(), 0);
                for (auto tile = expected.begin(); tile != expected.end(); tile += ring_tile)
                    std::reverse(tile, tile + ring_tile);
                REQUIRE(y == expected);
                if (seed == recorded_seed)
                    check_recorded("cp.async " + std::to_string(bytes) + " bytes, n " + std::to_string(n), y);
            }
    }
}

}  // namespace
}  // namespace flashladder
