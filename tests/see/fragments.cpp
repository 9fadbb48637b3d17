// docs/see/fragments.js: which lane holds which element, by the instructions and by common/tile; where an operand of
// wgmma lies, by what the emulator's wgmma reads.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "../test_seed.h"
#include "kernels.h"
#include "vectors.h"

namespace flashladder {
namespace {

using nlohmann::json;

std::string hex(std::uint64_t bits) {
    char text[19];
    std::snprintf(text, sizeof text, "0x%016llx", static_cast<unsigned long long>(bits));
    return text;
}

/// Both ways: of each element who holds it; of each lane what it holds, register by register. `of(thread, register,
/// half)` is the number of an element.
template <class Of>
void add_registers(Vectors& vectors, json query, int threads, int registers, int halves, int columns, int each, Of of) {
    const auto place = [&](int number) { return json{number / columns, number % columns}; };
    std::mt19937_64 random(test_seed());
    std::vector<int> seen;
    for (int thread = 0; thread < threads; ++thread) {
        json elements = json::array();
        for (int r = 0; r < registers; ++r) {
            json in_register = json::array();
            for (int half = 0; half < halves; ++half) {
                const int number = of(thread, r, half);
                seen.push_back(number);
                in_register.push_back(place(number));
                if (random() % static_cast<unsigned>(each) != 0) continue;
                json asked = query, answer = {{"warp", thread / 32}, {"lane", thread % 32}, {"register", r}};
                asked["row"] = number / columns, asked["column"] = number % columns;
                if (halves == 2) answer["half"] = half;
                vectors.add(asked, answer);
            }
            elements.push_back(in_register);
        }
        json asked = query;
        asked["warp"] = thread / 32, asked["lane"] = thread % 32;
        if (threads <= 32 || random() % 8 == 0) vectors.add(asked, {{"elements", elements}});
    }
    std::sort(seen.begin(), seen.end());
    for (std::size_t i = 0; i < seen.size(); ++i) REQUIRE(seen[i] == static_cast<int>(i));  // every element once
}

void add_all_registers(Vectors& vectors) {
    const RegisterMaps maps = record_registers();
    const auto of = [](const auto& map) {
        return [&map](int thread, int r, int half) {
            return map[static_cast<std::size_t>(thread)][static_cast<std::size_t>(r)][static_cast<std::size_t>(half)];
        };
    };
    add_registers(vectors, {{"what", "mma-A"}}, 32, 4, 2, 16, 1, of(maps.A));
    add_registers(vectors, {{"what", "mma-B"}}, 32, 2, 2, 8, 1, of(maps.B));
    add_registers(vectors, {{"what", "mma-C"}}, 32, 4, 1, 8, 1, of(maps.C));
    add_registers(vectors, {{"what", "ldmatrix"}}, 32, 4, 2, 8, 1, of(maps.ldmatrix));
    add_registers(vectors, {{"what", "ldmatrix-trans"}}, 32, 4, 2, 8, 1, of(maps.ldmatrix_trans));
    add_registers(vectors, {{"what", "wgmma-A"}}, 128, 4, 2, 16, 2, of(maps.wgmma_A));
    for (const int n : {64, 128, 176, 192, 256}) {
        const auto numbers = record_accumulator(n);
        add_registers(vectors, {{"what", "wgmma-D"}, {"n", n}}, 128, n / 2, 1, n, n / 2,
                      [&](int thread, int r, int) { return numbers[static_cast<std::size_t>(thread * n / 2 + r)]; });
    }
    // What mma has made of these A and B stands where C is said to be: so A, B and C are mma's.
    for (std::size_t lane = 0; lane < 32; ++lane)
        for (std::size_t r = 0; r < 4; ++r) {
            const int row = maps.C[lane][r][0] / 8, column = maps.C[lane][r][0] % 8;
            int sum = 0;
            for (int k = 0; k < 16; ++k) sum += (row * 16 + k) * (k * 8 + column);
            CHECK(maps.product[lane][r] == float(sum));
        }
}

/// A tile in panels of `swizzle` bytes a row, 16 if it is not swizzled, as an operand: along its columns (K-major) or
/// rows.
struct Tile {
    bool is_A, mn_major;
    int swizzle, n, depth;
    unsigned start;
    int from;

    int rows() const { return mn_major ? depth : n; }
    int columns() const { return mn_major ? n : depth; }
    unsigned row_bytes() const { return swizzle ? static_cast<unsigned>(swizzle) : 16; }
    unsigned panel_bytes() const { return static_cast<unsigned>(rows()) * row_bytes(); }
    OperandQuestion question() const {
        const unsigned group = 8 * row_bytes();  // of eight rows
        const int mode = swizzle == 128 ? 3 : swizzle == 64 ? 2 : swizzle == 32 ? 1 : 0;
        OperandQuestion q{is_A, mn_major, n, start, 0, 0, group, mode, rows() * columns()};
        const unsigned byte = static_cast<unsigned>(from) * 2;
        q.begin = mn_major ? static_cast<unsigned>(from) * row_bytes()
                           : byte / row_bytes() * panel_bytes() + byte % row_bytes();
        if (swizzle)
            q.leading = mn_major ? panel_bytes() : 16;
        else if (mn_major)
            q.leading = group, q.stride = panel_bytes();
        else
            q.leading = panel_bytes();
        return q;
    }
    json query() const {
        return {{"what", "operand"},
                {"operand", is_A ? "A" : "B"},
                {"major", mn_major ? "mn" : "k"},
                {"swizzle", swizzle},
                {"n", n},
                {"depth", depth},
                {"start", start},
                {"from", from}};
    }
};

void add_operand(Vectors& vectors, const Tile& tile, std::mt19937_64& random, int elements) {
    const OperandQuestion question = tile.question();
    const OperandAnswer found = record_operand(question);
    const auto address_of = [&](int row, int column) {
        return tile.start + static_cast<unsigned>(
                                address_in_tile(tile.columns() * 2, 0, tile.swizzle, tile.rows(), row, column * 2));
    };
    INFO(tile.query().dump());
    const std::uint64_t bits = found.descriptor;
    if (tile.swizzle == 128 && (tile.rows() == 64 || tile.rows() == 128) &&
        (tile.columns() == 64 || tile.columns() == 128))
        CHECK(hex(bits) == hex(tile_descriptor(tile.rows(), tile.columns(), tile.start, tile.mn_major, tile.from)));
    const json fields = {{"descriptor", hex(bits)},
                         {"begin", (bits & 0x3FFF) << 4},
                         {"leading", (bits >> 16 & 0x3FFF) << 4},
                         {"stride", (bits >> 32 & 0x3FFF) << 4},
                         {"mode", bits >> 62}};
    const auto add = [&](int row, int column, unsigned address, json mn, json k) {
        json query = tile.query(), answer = fields;
        query["row"] = row, query["column"] = column;
        answer["address"] = address, answer["mn"] = std::move(mn), answer["k"] = std::move(k);
        vectors.add(query, answer);
        query.erase("row"), query.erase("column");
        query["address"] = address + random() % 2;
        vectors.add(query, {{"row", row}, {"column", column}});
    };
    for (int mn = 0; mn < tile.n; ++mn)
        for (int k = 0; k < 16; ++k) {
            const int row = tile.mn_major ? tile.from + k : mn, column = tile.mn_major ? mn : tile.from + k;
            const unsigned address =
                tile.start + 2 * static_cast<unsigned>(found.element[static_cast<std::size_t>(mn * 16 + k)]);
            if (tile.swizzle) REQUIRE(address == address_of(row, column));
            if (random() % static_cast<unsigned>(tile.n * 16 / elements) == 0) add(row, column, address, mn, k);
        }
    for (int i = 0; tile.swizzle && i < 4; ++i) {  // of the tile, but not of this product
        const int row = static_cast<int>(random() % static_cast<unsigned>(tile.rows()));
        const int column = static_cast<int>(random() % static_cast<unsigned>(tile.columns()));
        const int k = (tile.mn_major ? row : column) - tile.from;
        if (k < 0 || k >= 16) add(row, column, address_of(row, column), nullptr, nullptr);
    }
}

void add_operands(Vectors& vectors) {
    std::mt19937_64 random(test_seed());
    // The two that lesson 09 works out.
    add_operand(vectors, {false, false, 128, 64, 128, 0x4400, 80}, random, 40);
    add_operand(vectors, {false, true, 128, 128, 64, 0x8400, 16}, random, 40);
    CHECK(hex(tile_descriptor(64, 128, 0x4400, false, 80)) == "0x4000004000010642");
    CHECK(hex(tile_descriptor(64, 128, 0x8400, true, 16)) == "0x40000040020008c0");
    const auto one_of = [&](auto... all) {
        const std::common_type_t<decltype(all)...> values[] = {all...};
        return values[random() % sizeof...(all)];
    };
    for (int i = 0; i < 120; ++i) {
        Tile tile{one_of(false, true),
                  one_of(false, true),
                  one_of(0, 32, 64, 128),
                  64,
                  one_of(16, 32, 64, 128),
                  one_of(0x400u, 0x1000u, 0x4400u, 0x8400u),
                  0};
        if (!tile.is_A) tile.n = one_of(64, 128, 176, 192, 256);
        tile.from = static_cast<int>(random() % static_cast<unsigned>(tile.depth / 16)) * 16;
        if (static_cast<unsigned>(tile.columns()) * 2 % tile.row_bytes() == 0) add_operand(vectors, tile, random, 8);
    }
}

TEST_CASE("see: fragments answers who holds an element, and where wgmma finds it") {
    Vectors vectors("fragments");
    add_all_registers(vectors);
    add_operands(vectors);
}

}  // namespace
}  // namespace flashladder
