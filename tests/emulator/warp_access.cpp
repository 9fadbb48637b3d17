// The emulator's rules for one access of a warp against what a GPU's counters said.
#include "emulator/warp_access.h"

#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/inputs.h"

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

}  // namespace
}  // namespace flashladder
