// Tiles by TMA: which rows of which head move, wherever they lie, and that nothing else changes.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "../ptx/elements.h"
#include "../test_seed.h"
#include "cases.h"
#include "launch.h"

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#endif

namespace flashladder {
namespace {

constexpr int batches = 2, heads = 3;

/// Tensors of n rows, by how they lie; strides are multiples of 16 bytes.
std::map<std::string, Tensor> tensors(int n, int columns) {
    const std::int64_t c = columns, N = n;
    return {{"heads first", {batches, heads, n, heads * N * c, N * c, c}},
            {"sequence first", {batches, heads, n, heads * N * c, c, heads * c}},
            {"one of three packed", {batches, heads, n, 3 * heads * N * c, c, 3 * heads * c}},
            {"padded rows", {batches, heads, n, heads * N * (c + 24), N * (c + 24), c + 24}},
            {"padded heads and batches", {batches, heads, n, heads * (N * c + 8) + 16, N * c + 8, c}},
            {"batches inside heads", {batches, heads, n, N * c, batches * N * c, c}}};
}

std::size_t place(const Tensor& t, const TileAt& at, int row, int column) {
    return std::size_t(at.batch * t.batch_stride + at.head * t.head_stride + (at.row + row) * t.row_stride + column);
}
std::size_t memory_of(const Tensor& t, int columns) {
    return place(t, {t.n - 1, t.heads - 1, t.batch - 1}, 0, columns);
}

/// Lengths of a head, and rows where tiles begin.
struct Piece {
    int n, first, second;
};
std::vector<Piece> pieces(int rows) {
    return {{rows, 0, 0}, {2 * rows + 3, rows, 2 * rows}, {rows - 1, 0, rows}, {1, 0, 5}, {rows + 9, 7, 1}};
}

/// Calls visit for every case, piece and way to lie, with heads and batches that take turns.
void for_each(const std::function<void(const GlobalCase&, const Tensor&, const TileAt&, const TileAt&)>& visit) {
    if (!has_tma()) return;
    int turn = 0;
    for (const GlobalCase& c : global_cases())
        for (const Piece& piece : pieces(c.rows))
            for (const auto& [name, tensor] : tensors(piece.n, c.columns)) {
                const TileAt first{piece.first, turn % heads, turn % batches},
                    second{piece.second, (turn + 1) % heads, (turn + 1) % batches};
                ++turn;
                INFO(name, ", n ", piece.n, ", tile of ", c.rows, " x ", c.columns, ", swizzle ", c.swizzle,
                     ", from row ", first.row, " of head ", first.head, " of batch ", first.batch, ", then row ",
                     second.row);
                visit(c, tensor, first, second);
            }
}

TEST_CASE("load by TMA: the rows of its head, wherever they lie, and 0 behind them; twice with one barrier") {
    Random random(test_seed());
    for_each([&](const GlobalCase& c, const Tensor& tensor, const TileAt& first, const TileAt& second) {
        const Bits16 memory = any_bits(random, memory_of(tensor, c.columns));
        const Bits16 found = c.load(memory, tensor, first, second);
        Bits16 expected;
        for (const TileAt& at : {first, second}) {
            for (int row = 0; row < c.rows; ++row)
                for (int column = 0; column < c.columns; ++column)
                    expected.push_back(at.row + row < tensor.n ? memory[place(tensor, at, row, column)] : 0);
            expected.insert(expected.end(), guard, poison);
        }
        REQUIRE(found == expected);
    });
}

TEST_CASE("store by TMA: the rows of its head, wherever they lie, and nothing else") {
    Random random(test_seed());
    for_each([&](const GlobalCase& c, const Tensor& tensor, const TileAt& at, const TileAt&) {
        const Bits16 tile = any_bits(random, std::size_t(c.rows) * c.columns);
        Bits16 expected(memory_of(tensor, c.columns), poison);
        for (int i = 0; i < c.rows * c.columns; ++i)
            if (at.row + i / c.columns < tensor.n)
                expected[place(tensor, at, i / c.columns, i % c.columns)] = tile[std::size_t(i)];
        REQUIRE(c.store(tile, tensor, at, expected.size()) == expected);
    });
}

/// Tensors that are wider than a tile, whole tiles or not, with something between their rows; and places in them, of which
/// some reach beyond the last row and the last column.
void for_each_wide(const std::function<void(const GlobalCase&, const Tensor&, const TileAt&, const TileAt&)>& visit) {
    if (!has_tma()) return;
    for (const GlobalCase& c : global_cases())
        for (const int columns : {2 * c.columns, 2 * c.columns + 8, 3 * c.columns - 8}) {
            const int n = c.rows + 3;
            const std::int64_t row = columns + 16, head = n * row;
            const Tensor tensor{batches, heads, n, heads * head, head, row, columns};
            for (const int column : {0, 8, c.columns, columns - c.columns, columns - 8, columns + 8}) {
                INFO("tile of ", c.rows, " x ", c.columns, " from column ", column, " of ", columns);
                visit(c, tensor, {0, 1, 0, column}, {5, 2, 1, std::max(columns - column, 0)});
            }
        }
}

TEST_CASE("load by TMA: from a column of a wider tensor on, and 0 behind the last one") {
    Random random(test_seed());
    for_each_wide([&](const GlobalCase& c, const Tensor& tensor, const TileAt& first, const TileAt& second) {
        const Bits16 memory = any_bits(random, memory_of(tensor, tensor.columns));
        const Bits16 found = c.load(memory, tensor, first, second);
        Bits16 expected;
        for (const TileAt& at : {first, second}) {
            for (int row = 0; row < c.rows; ++row)
                for (int column = at.column; column < at.column + c.columns; ++column)
                    expected.push_back(at.row + row < tensor.n && column < tensor.columns
                                           ? memory[place(tensor, at, row, column)]
                                           : 0);
            expected.insert(expected.end(), guard, poison);
        }
        REQUIRE(found == expected);
    });
}

TEST_CASE("store by TMA: from a column of a wider tensor on, and nothing behind the last one") {
    Random random(test_seed());
    for_each_wide([&](const GlobalCase& c, const Tensor& tensor, const TileAt& first, const TileAt& second) {
        for (const TileAt& at : {first, second}) {
            const Bits16 tile = any_bits(random, std::size_t(c.rows) * c.columns);
            Bits16 expected(memory_of(tensor, tensor.columns), poison);
            for (int i = 0; i < c.rows * c.columns; ++i) {
                const int row = i / c.columns, column = at.column + i % c.columns;
                if (at.row + row < tensor.n && column < tensor.columns)
                    expected[place(tensor, at, row, column)] = tile[std::size_t(i)];
            }
            REQUIRE(c.store(tile, tensor, at, expected.size()) == expected);
        }
    });
}

/// Calls visit for every case of way_cases(), with places in three heads, of which some reach beyond the end.
void for_each_store(const std::function<void(const WayCase&, const Tensor&, const std::vector<TileAt>&)>& visit) {
    if (!has_tma()) return;
    for (const WayCase& c : way_cases())
        for (const int n : {1, c.rows, 5 * c.rows, 3 * c.rows + 5})
            for (const auto& [name, tensor] : tensors(n, c.columns)) {
                INFO(name, ", n ", n, ", tile of ", c.rows, " x ", c.columns);
                visit(c, tensor, {{0, 1, 0}, {2 * c.rows, 1, 0}, {c.rows, 2, 1}});
            }
}

TEST_CASE("store_by_way_of: what registers hold, rounded, to the rows of its head and nowhere else; three times") {
    Random random(test_seed());
    for_each_store([&](const WayCase& c, const Tensor& tensor, const std::vector<TileAt>& places) {
        const Bits16 C =
            whole_elements(random, c.element, std::size_t(stored_tiles * storing_warps) * c.rows * c.columns);
        Floats values;
        for (const auto bits : C) values.push_back(float(from_bits(c.element, bits)));
        Bits16 expected(memory_of(tensor, c.columns), poison);
        for (int tile = 0; tile < stored_tiles; ++tile)
            for (int row = 0; row < storing_warps * c.rows; ++row)
                for (int column = 0; places[tile].row + row < tensor.n && column < c.columns; ++column)
                    expected[place(tensor, places[tile], row, column)] =
                        C[std::size_t((tile * storing_warps * c.rows + row) * c.columns + column)];
        REQUIRE(c.store(values, tensor, places, expected.size()) == expected);
    });
}

#ifndef FLASHLADDER_GPU
TEST_CASE("store_by_way_of: has no races") {
    for_each_store([&](const WayCase& c, const Tensor& tensor, const std::vector<TileAt>& places) {
        const Floats C(std::size_t(stored_tiles * storing_warps) * c.rows * c.columns, 1);
        const std::string report =
            emulator::find_race([&] { c.store(C, tensor, places, memory_of(tensor, c.columns)); });
        REQUIRE_MESSAGE(report.empty(), report);
    });
}
#endif

TEST_CASE("load by TMA: a tensor that all heads and batches share, with strides of 0") {
    if (!has_tma()) return;
    Random random(test_seed());
    for (const GlobalCase& c : global_cases()) {
        const Tensor tensor{batches, heads, c.rows, 0, 0, c.columns};
        const Bits16 memory = any_bits(random, memory_of(tensor, c.columns));
        const Bits16 found = c.load(memory, tensor, {0, 2, 1}, {0, 0, 0});
        CHECK(std::equal(memory.begin(), memory.end(), found.begin()));
        CHECK(std::equal(memory.begin(), memory.end(), found.begin() + c.rows * c.columns + guard));
    }
}

TEST_CASE("tensor maps: addresses and strides that are no multiples of 16 bytes are refused") {
    if (!has_tma()) return;
    for (const GlobalCase& c : global_cases()) {
        INFO(c.rows, " x ", c.columns);
        const Tensor good{1, 2, 4, 8 * c.columns, 4 * c.columns, c.columns};
        CHECK_NOTHROW(c.make(good, 0));
        CHECK_NOTHROW(c.make(good, 16));
        for (const int bytes : {2, 4, 8}) CHECK_THROWS_AS(c.make(good, bytes), CudaError);
        for (std::int64_t Tensor::*stride : {&Tensor::batch_stride, &Tensor::head_stride, &Tensor::row_stride}) {
            Tensor bad = good;
            bad.*stride += 4;
            CHECK_THROWS_AS(c.make(bad, 0), CudaError);
        }
    }
}

}  // namespace
}  // namespace flashladder
