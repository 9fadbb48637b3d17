// Where the elements of a tile lie in shared memory: what every layout promises, and what the swizzled ones are for.
#include <doctest/doctest.h>

#include <set>

#include "cases.h"

namespace flashladder {
namespace {

constexpr int chunk = 8, group_bytes = 16, groups = 8;  // 4 of the 32 banks answer a chunk: 8 groups of banks

TEST_CASE("layouts: every element has a place of its own, within the tile, and chunks stay whole") {
    for (const LayoutCase& c : layout_cases()) {
        INFO(c.layout, ", ", c.rows, " x ", c.columns);
        const std::vector<int> offset = c.offsets();
        CHECK(c.elements == c.rows * c.columns);
        REQUIRE(std::set(offset.begin(), offset.end()).size() == offset.size());
        for (std::size_t i = 0; i < offset.size(); ++i) {
            REQUIRE(offset[i] >= 0);
            REQUIRE(offset[i] < c.elements);
            REQUIRE(offset[i] - offset[i - i % chunk] == int(i % chunk));
            REQUIRE(offset[i - i % chunk] % chunk == 0);
        }
    }
}

TEST_CASE("layouts: a row 8 further is 8 strides further") {
    for (const LayoutCase& c : layout_cases()) {
        INFO(c.layout, ", ", c.rows, " x ", c.columns);
        const std::vector<int> offset = c.offsets();
        for (int i = 0; i < (c.rows - 8) * c.columns; ++i)
            REQUIRE(offset[i + 8 * c.columns] - offset[i] == 8 * c.stride);
    }
}

/// The PTX manual, "Swizzling modes": bits of the address from 4 on are changed by as many from 7 on.
int swizzled(int address, int bytes) { return address ^ (address >> 7 & (bytes / group_bytes - 1)) << 4; }

TEST_CASE("layouts: these are the places that the PTX manual gives them") {
    for (const LayoutCase& c : layout_cases()) {
        INFO(c.layout, ", ", c.rows, " x ", c.columns);
        const std::vector<int> offset = c.offsets();
        const int bytes = c.swizzle == 0 ? c.columns * 2 : c.swizzle;  // of a row of a panel
        for (int row = 0; row < c.rows; ++row)
            for (int column = 0; column < c.columns; ++column) {
                const int panel = column * 2 / bytes * c.rows * bytes, address = row * bytes + column * 2 % bytes;
                const int expected = panel + (c.swizzle == 0 ? address : swizzled(address, c.swizzle));
                REQUIRE(offset[row * c.columns + column] * 2 == expected);
            }
    }
}

TEST_CASE("layouts: a swizzle spreads any 8 rows of a column of chunks over all banks; without it they meet few") {
    for (const LayoutCase& c : layout_cases()) {
        INFO(c.layout, ", ", c.rows, " x ", c.columns);
        const std::vector<int> offset = c.offsets();
        for (int column = 0; column < c.columns; column += chunk)
            for (int row = 0; row + 8 <= c.rows; ++row) {
                std::set<int> met;
                for (int r = row; r < row + 8; ++r)
                    met.insert(offset[r * c.columns + column] * 2 / group_bytes % groups);
                const int unswizzled = c.columns * 2 >= 128 ? 1 : 128 / (c.columns * 2);
                REQUIRE(int(met.size()) == (c.swizzle == 0 ? unswizzled : groups));
            }
    }
}

TEST_CASE("layouts: SwizzledFor is the widest one that divides a row") {
    for (const auto& [columns, bytes] : widest_swizzles()) {
        CAPTURE(columns);
        CHECK(columns * 2 % bytes == 0);
        CHECK(bytes <= 128);
        CHECK((bytes == 128 || columns * 2 % (2 * bytes) != 0));
    }
}

}  // namespace
}  // namespace flashladder
