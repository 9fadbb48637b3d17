// The emulator's rules for one access of a warp against what a GPU's counters said.
#include "emulator/warp_access.h"

#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "harness/project_root.h"
#include "../test_seed.h"

namespace flashladder {
namespace {

using emulator::Access;

TEST_CASE("counts: wavefronts and conflicts as an H100 has them, for several hundred patterns of addresses") {
    const auto measured =
        nlohmann::json::parse(std::ifstream(project_root() + "/tests/emulator/shared_wavefronts.json"));
    REQUIRE(measured.at("patterns").size() == 390);
    for (const auto& pattern : measured.at("patterns")) {
        emulator::WarpAccess access;
        for (unsigned lane = 0; lane < 32; ++lane) {
            const int offset = pattern.at("offsets").at(lane);
            if (offset < 0) continue;
            access.lanes |= 1u << lane;
            access.address[lane] = 1024 + static_cast<std::uintptr_t>(offset);
        }
        const Access kind = pattern.at("access") == "read" ? Access::read : Access::write;
        const auto result = emulator::shared_wavefronts(access, pattern.at("bytes"), kind);
        CAPTURE(pattern.dump());
        CHECK(result.needed + result.extra == pattern.at("wavefronts"));
        CHECK(result.extra == pattern.at("conflicts"));
    }
}

TEST_CASE("counts: wavefronts that are remembered are those of any access with the same pattern") {
    std::mt19937_64 random(test_seed());
    for (int round = 0; round < 20000; ++round) {
        const std::size_t bytes = std::size_t(1) << random() % 5, span = 1 + random() % 40,
                          before = random() % 4 * bytes;
        const Access kind = random() % 2 ? Access::read : Access::write;
        const std::uintptr_t begin = 4096 + random() % 64 * bytes;
        emulator::WarpAccess access, moved;
        access.lanes = random() % 2 ? ~0u : static_cast<emulator::Lanes>(random() | 1u << random() % 32);
        moved.lanes = access.lanes;
        for (unsigned lane = 0; lane < 32; ++lane) {
            access.address[lane] = begin + random() % span * bytes;
            moved.address[lane] = access.address[lane] - before;
        }
        const auto expected = emulator::shared_wavefronts(moved, bytes, kind);
        const auto known = emulator::known_wavefronts(access, emulator::pattern_of(access), bytes, kind, before);
        REQUIRE(known.needed == expected.needed);
        REQUIRE(known.extra == expected.extra);
    }
}

TEST_CASE("counts: distinct bytes and sectors of any addresses, in any order") {
    std::mt19937_64 random(test_seed());
    for (int round = 0; round < 2000; ++round) {
        const std::size_t bytes = 1 + random() % 16, alignment = random() % 2 ? bytes : 1, span = 1 + random() % 600;
        emulator::WarpAccess access;
        std::set<std::uintptr_t> touched, touched_sectors;
        for (unsigned lane = 0; lane < 32; ++lane) {
            if (random() % 4 == 0) continue;
            const std::uintptr_t address = (4096 + random() % span) / alignment * alignment;
            access.lanes |= 1u << lane;
            access.address[lane] = address;
            for (std::size_t i = 0; i < bytes; ++i) {
                touched.insert(address + i);
                touched_sectors.insert((address + i) / 32);
            }
        }
        REQUIRE(emulator::distinct_bytes(access, bytes) == touched.size());
        REQUIRE(emulator::sectors(access, bytes) == touched_sectors.size());
    }
}

}  // namespace
}  // namespace flashladder
