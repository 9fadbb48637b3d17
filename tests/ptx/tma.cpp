// TMA: boxes of 1 to 5 dimensions, every swizzle, coordinates inside and outside the tensor; sums; refused maps.
#include <doctest/doctest.h>

#include <cstring>
#include <map>
#include <sstream>
#include <string>

#include "../test_seed.h"
#include "elements.h"
#include "recorded.h"

namespace flashladder {
namespace {

std::size_t elements(const Box& box) {
    std::size_t n = 1;
    for (int i = 0; i < box.rank; ++i) n *= std::size_t(box.extents[i]);
    return n;
}

/// Calls visit(element of the box, its index in the box) for all, the innermost dimension fastest.
template <class Visit>
void for_each_element(const Box& box, Visit visit) {
    int n = 1;
    for (int i = 0; i < box.rank; ++i) n *= box.shape[i];
    for (int e = 0; e < n; ++e) {
        int index[5] = {}, rest = e;
        for (int i = 0; i < box.rank; ++i) {
            index[i] = rest % box.shape[i];
            rest /= box.shape[i];
        }
        visit(e, index);
    }
}

/// Where in the tensor; -1 if outside.
std::ptrdiff_t place_in_tensor(const Box& box, const BoxCoordinates& origin, const int* index) {
    std::ptrdiff_t place = 0;
    for (int i = box.rank - 1; i >= 0; --i) {
        const int x = origin.at[i] + index[i];
        if (x < 0 || x >= box.extents[i]) return -1;
        place = place * box.extents[i] + x;
    }
    return place;
}

/// Where in the tile: rows as wide as the swizzle, and of the byte address, bits 4 to 6 are exclusive-ored with 7 to 9,
/// as many as the swizzle has.
std::size_t place_in_tile(const Box& box, int element) {
    const int row = element / box.shape[0], column = element % box.shape[0];
    const int width = box.swizzle == 0 ? box.shape[0] * 2 : 16 << box.swizzle;
    const int byte = row * width + column * 2;
    return std::size_t(byte ^ ((byte >> 7 & ((1 << box.swizzle) - 1)) << 4)) / 2;
}

void check_box(const std::string& name, const Box& box, Random& random, bool record) {
    INFO(name, ", swizzle ", box.swizzle);
    const Bits16 tensor = any_bits(random, elements(box));
    const MovedBox moved = move_box(tensor, box);
    Bits16 shared(box_window, box_poison), stored(tensor.size(), 0);
    for_each_element(box, [&](int element, const int* index) {
        const std::ptrdiff_t from = place_in_tensor(box, box.load_at, index),
                             to = place_in_tensor(box, box.store_at, index);
        const std::uint16_t value = from < 0 ? 0 : tensor[std::size_t(from)];
        shared[place_in_tile(box, element)] = value;
        if (to >= 0 && box.store) stored[std::size_t(to)] = value;
    });
    CHECK(moved.shared == shared);
    CHECK(moved.tensor == stored);
    if (!record) return;
    check_recorded("tma " + name + ", swizzle " + std::to_string(box.swizzle) + ": shared memory", moved.shared);
    check_recorded("tma " + name + ", swizzle " + std::to_string(box.swizzle) + ": tensor", moved.tensor);
}

/// The innermost extent of the box is that of the swizzle, or 64 elements without.
std::map<std::string, Box> boxes(int swizzle) {
    const int row = swizzle == 0 ? 64 : 8 << swizzle;
    return {
        {"1d inside", {1, {256}, {row}, swizzle, {{row}}, {{0}}}},
        {"1d ragged end", {1, {200}, {row}, swizzle, {{200 - row / 2}}, {{184}}}},
        {"2d inside", {2, {128, 96}, {row, 64}, swizzle, {{64, 32}}, {{0, 5}}}},
        {"2d ragged end", {2, {96, 80}, {row, 64}, swizzle, {{96 - row / 2, 48}}, {{8, 70}}}},
        {"2d negative", {2, {96, 80}, {row, 64}, swizzle, {{-8, -5}}, {{16, 9}}}},
        {"2d all outside", {2, {96, 80}, {row, 8}, swizzle, {{0, 100}}, {{0, 80}}}},
        {"2d one row", {2, {128, 96}, {row, 1}, swizzle, {{0, 95}}, {{8, 2}}}},
        {"3d", {3, {64, 40, 5}, {row, 16, 3}, swizzle, {{0, 30, 3}}, {{0, 2, 4}}}},
        {"4d", {4, {64, 20, 3, 2}, {row, 10, 2, 2}, swizzle, {{0, -3, 1, 0}}, {{0, 3, 0, 1}}}},
        {"5d", {5, {64, 6, 3, 2, 3}, {row, 4, 2, 1, 2}, swizzle, {{0, 3, -1, 1, 2}}, {{0, 0, 2, 0, 0}}}},
        {"2d box larger than the tensor", {2, {64, 20}, {row, 24}, swizzle, {{0, 0}}, {{0, 0}}}},
    };
}

TEST_CASE("TMA: boxes of every rank, inside and outside, with every swizzle") {
    if (device_architecture() < 90) return;
    for (const auto seed : {recorded_seed, static_cast<unsigned long long>(test_seed())}) {
        Random random(seed);
        for (int swizzle = 0; swizzle <= 3; ++swizzle)
            for (const auto& [name, box] : boxes(swizzle)) check_box(name, box, random, seed == recorded_seed);
    }
}

TEST_CASE("TMA: a box narrower than the swizzle has rows that are as far apart as the swizzle is wide") {
    if (device_architecture() < 90) return;
    Random random(recorded_seed);
    for (int swizzle = 1; swizzle <= 3; ++swizzle)
        for (int columns = 8; columns < 8 << swizzle; columns += 8)
            check_box("narrow " + std::to_string(columns),
                      {2, {96, 80}, {columns, 40}, swizzle, {{24, 3}}, {{0, 0}}, false}, random, true);
}

TEST_CASE("TMA: with a dimension more of the same stride a box ends behind any row, in loads and in stores") {
    if (device_architecture() < 90) return;
    constexpr int rows_of_tensor = 20;
    Random random(test_seed());
    Bits16 tensor(rows_of_tensor * ending_columns);
    for (std::uint16_t& x : tensor) x = static_cast<std::uint16_t>(1 + random() % 60000);
    for (const auto& [first, rows] : {std::pair(0, 8), {12, 8}, {3, 5}, {0, 1}, {19, 1}, {13, 7}, {0, 0}, {7, 0}, {20, 0}}) {
        INFO(rows, " rows from ", first);
        const MovedBox moved = move_ending_box(tensor, first, rows);
        Bits16 loaded(ending_rows * ending_columns, 0), stored(tensor.size(), 0);
        for (int x = 0; x < rows * ending_columns; ++x)
            loaded[std::size_t(x)] = stored[std::size_t(first * ending_columns + x)] =
                tensor[std::size_t(first * ending_columns + x)];
        CHECK(std::equal(loaded.begin(), loaded.end(), moved.shared.begin()));
        CHECK(moved.shared[loaded.size()] == box_poison);
        CHECK(moved.tensor == stored);
    }
}

// What a GPU answers to a box at odd places: an illegal instruction ends the process, so that each place needs one of
// its own. FLASHLADDER_PROBE="load 1 -5" chooses what begins there, and the column and row.
TEST_CASE("TMA probe" * doctest::skip()) {
    const char* probe = std::getenv("FLASHLADDER_PROBE");
    REQUIRE(probe);
    std::istringstream words(probe);
    std::string what;
    BoxCoordinates at{};
    words >> what >> at.at[0] >> at.at[1];
    const bool store = what == "store";
    REQUIRE((words && (store || what == "load")));
    Box box{2, {96, 80}, {64, 40}, 0, {{24, 3}}, {{0, 0}}, store};
    (store ? box.store_at : box.load_at) = at;
    Random random(recorded_seed);
    check_box(probe, box, random, false);
}

TEST_CASE("TMA: boxes and runs that are added, and runs that are stored") {
    if (device_architecture() < 90) return;
    for (const auto seed : {recorded_seed, static_cast<unsigned long long>(test_seed())}) {
        Random random(seed);
        constexpr std::size_t n = add_rows * add_columns;
        Floats x(2 * n), expected(4 * n, 0.0f);
        for (float& value : x) value = float(draw(random, -1000, 1000));
        for (int block = 0; block < 2; ++block)
            for (int row = 0; row < add_rows; ++row)
                for (int column = 0; column < add_columns; ++column) {
                    const int i = row * add_columns + column;
                    const float value = x[block * n + i] + 1;
                    expected[(1 + block) * n + i] = value;
                    expected[3 * n + i] += value;
                    const int to_row = row + 1, to_column = column + 4 * block;
                    if (to_row < add_rows && to_column < add_columns)
                        expected[to_row * add_columns + to_column] += value;
                }
        const Floats found = add_boxes(x);
        CHECK(found == expected);
        if (seed == recorded_seed) check_recorded("tma add", found);
    }
}

/// What the driver refuses, and what looks odd but is allowed.
std::map<std::string, std::pair<MapRequest, bool>> map_requests() {
    std::map<std::string, std::pair<MapRequest, bool>> requests;
    const auto add = [&](const char* name, bool allowed, auto change) {
        MapRequest request;
        change(request);
        requests[name] = {request, allowed};
    };
    add("plain", true, [](MapRequest&) {});
    add("address a multiple of 16", true, [](MapRequest& r) { r.address_offset = 16; });
    add("address a multiple of 8", false, [](MapRequest& r) { r.address_offset = 8; });
    add("no address", true, [](MapRequest& r) { r.no_address = true; });
    add("map a multiple of 64", true, [](MapRequest& r) { r.map_offset = 64; });
    add("map a multiple of 32", true, [](MapRequest& r) { r.map_offset = 32; });
    add("rank 0", false, [](MapRequest& r) { r.rank = 0; });
    add("rank 5", true, [](MapRequest& r) { r.rank = 5; });
    add("rank 6", false, [](MapRequest& r) { r.rank = 6; });
    add("extent 0", false, [](MapRequest& r) { r.extents[1] = 0; });
    add("extent 2^32", true, [](MapRequest& r) { r.extents[1] = 1ull << 32; });
    add("extent 2^32 + 1", false, [](MapRequest& r) { r.extents[1] = (1ull << 32) + 1; });
    add("stride a multiple of 8", false, [](MapRequest& r) { r.strides[0] = 136; });
    add("stride a multiple of 16", true, [](MapRequest& r) { r.strides[0] = 144; });
    add("stride 0", true, [](MapRequest& r) { r.strides[0] = 0; });
    add("stride smaller than a row", true, [](MapRequest& r) { r.strides[0] = 64; });
    add("strides not ascending", true, [](MapRequest& r) { r.rank = 3, r.strides[1] = 64; });
    add("stride 2^40", false, [](MapRequest& r) { r.strides[0] = 1ull << 40; });
    add("stride 2^40 - 16", true, [](MapRequest& r) { r.strides[0] = (1ull << 40) - 16; });
    add("box 0", false, [](MapRequest& r) { r.box[1] = 0; });
    add("box 256", true, [](MapRequest& r) { r.box[1] = 256; });
    add("box 257", false, [](MapRequest& r) { r.box[1] = 257; });
    add("box larger than the tensor", true, [](MapRequest& r) { r.extents[1] = 3; });
    add("box row of 8 bytes", false, [](MapRequest& r) { r.box[0] = 4; });
    add("box row of 24 bytes", false, [](MapRequest& r) { r.box[0] = 12; });
    add("box row of 16 bytes", true, [](MapRequest& r) { r.box[0] = 8; });
    add("box row of 512 bytes", true, [](MapRequest& r) { r.box[0] = 256; });
    add("box of 128 KiB", true, [](MapRequest& r) { r.box[0] = r.box[1] = 256; });
    add("box of 256 KiB", false, [](MapRequest& r) { r.rank = 3, r.box[0] = r.box[1] = 256, r.box[2] = 2; });
    add("element stride 0", false, [](MapRequest& r) { r.element_strides[1] = 0; });
    add("element stride 9", false, [](MapRequest& r) { r.element_strides[1] = 9; });
    add("no such type", false, [](MapRequest& r) { r.type = 99; });
    add("no such swizzle", false, [](MapRequest& r) { r.swizzle = 9; });
    for (int swizzle = 1; swizzle <= 3; ++swizzle) {
        const std::string width = std::to_string(16 << swizzle);
        add(("swizzle of " + width + " bytes, row as wide").c_str(), true,
            [&](MapRequest& r) { r.swizzle = swizzle, r.box[0] = 8u << swizzle; });
        add(("swizzle of " + width + " bytes, row wider").c_str(), false,
            [&](MapRequest& r) { r.swizzle = swizzle, r.box[0] = (8u << swizzle) + 8; });
        add(("swizzle of " + width + " bytes, row of 16").c_str(), true,
            [&](MapRequest& r) { r.swizzle = swizzle, r.box[0] = 8; });
    }
    return requests;
}

TEST_CASE("TMA: maps that are refused, and the driver's code") {
    if (device_architecture() < 90) return;
    for (const auto& [name, request] : map_requests()) {
        INFO(name);
        const int code = try_map(request.first);
        CHECK(code == (request.second ? 0 : 1));  // CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE
        check_recorded("map: " + name, &code, sizeof code);
    }
}

}  // namespace
}  // namespace flashladder
