// Clusters: barriers, distributed shared memory, multicast. And words with which blocks wait for each other.
#include <doctest/doctest.h>

#include <string>

#include "../test_seed.h"
#include "elements.h"
#include "recorded.h"

namespace flashladder {
namespace {

TEST_CASE("clusters: each block reads and writes another one's shared memory") {
    if (device_architecture() < 90) return;
    Random random(test_seed());
    for (const int size : {1, 2, 4}) {
        INFO("blocks per cluster ", size);
        Bits32 x(std::size_t(3 * size * cluster_threads)), expected(x.size());
        for (auto& word : x) word = std::uint32_t(random());
        for (std::size_t i = 0; i < x.size(); ++i) {
            const std::size_t block = i / cluster_threads, first = block / size * size;
            expected[i] = x[(first + (block + 1) % size) * cluster_threads + i % cluster_threads] + 1;
        }
        CHECK(read_next_block(x, size) == expected);
    }
}

TEST_CASE("clusters: each block loads a slice of every tile for all") {
    if (device_architecture() < 90) return;
    for (const auto seed : {recorded_seed, static_cast<unsigned long long>(test_seed())}) {
        Random random(seed);
        for (const int size : {1, 2, 4}) {
            INFO("blocks per cluster ", size);
            constexpr int tiles = 5;
            const std::size_t tile = std::size_t(size) * slice_elements;
            const Bits16 x = any_bits(random, tile * tiles), y = share_slices(x, size);
            Bits16 expected(y.size());
            for (std::size_t i = 0; i < y.size(); ++i) {
                const std::size_t in_all = i % (tile * tiles), row = in_all / 64, column = in_all % 64;
                expected[i] = x[row * 64 + (column ^ row % 8 * 8)];
            }
            CHECK(y == expected);
            if (seed == recorded_seed) check_recorded("multicast, " + std::to_string(size) + " blocks", y);
        }
    }
}

TEST_CASE("acquire and release: blocks go on one after another") {
    for (const int blocks : {1, 2, 17}) {
        const Bits32 seen = pass_along_blocks(blocks);
        for (int i = 0; i < blocks; ++i) CHECK(seen[i] == i + 1);
    }
}

}  // namespace
}  // namespace flashladder
