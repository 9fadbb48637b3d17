// copy_in, copy_in_async, copy_out, store and store_rows: which rows move, and that nothing else changes.
#include <doctest/doctest.h>

#include <algorithm>

#include "../ptx/elements.h"
#include "../test_seed.h"
#include "cases.h"

namespace flashladder {
namespace {

constexpr int heads = 3;

/// Rows of a head, by the first row of the tile within it and what is left from there.
struct Piece {
    int N, first;
};
std::vector<Piece> pieces(int rows) {
    return {{rows, 0}, {rows + 1, rows}, {2 * rows - 1, rows}, {rows - 1, 0}, {1, 0}, {2 * rows + 3, 5}, {3, 7}};
}

TEST_CASE("copy_in, copy_in_async: the rows of its head, and 0 behind them though the next head begins there") {
    Random random(test_seed());
    for (const CopyCase& c : copy_cases())
        for (const Piece& piece : pieces(c.rows))
            for (int head = 0; head < heads; ++head) {
                INFO(c.layout, ", ", c.rows, " x ", c.columns, ", head ", head, " of ", piece.N, " rows, from ",
                     piece.first);
                const Bits16 tensor = any_bits(random, std::size_t(heads) * piece.N * c.columns);
                const unsigned first_row = unsigned(head * piece.N + piece.first), end = unsigned((head + 1) * piece.N);
                for (const auto copy_in : {c.copy_in, c.copy_in_async}) {
                    const Bits16 tile = copy_in(tensor, 0, first_row, end);
                    for (std::size_t i = 0; i < tile.size(); ++i) {
                        const std::size_t row = first_row + i / c.columns;
                        const bool guard = i >= std::size_t(c.rows) * c.columns;
                        REQUIRE(tile[i] == (guard ? poison : row < end ? tensor[first_row * c.columns + i] : 0));
                    }
                }
            }
}

TEST_CASE("copy_out: the rows of its head, and not one of the next") {
    Random random(test_seed());
    for (const CopyCase& c : copy_cases())
        for (const Piece& piece : pieces(c.rows))
            for (int head = 0; head < heads; ++head) {
                INFO(c.layout, ", ", c.rows, " x ", c.columns, ", head ", head, " of ", piece.N, " rows, from ",
                     piece.first);
                const Bits16 tile = any_bits(random, std::size_t(c.rows) * c.columns);
                const int first_row = head * piece.N + piece.first, end = (head + 1) * piece.N;
                const Bits16 tensor = c.copy_out(tile, 0, unsigned(first_row), unsigned(end), heads * piece.N);
                for (int row = 0; row < heads * piece.N; ++row)
                    for (int column = 0; column < c.columns; ++column) {
                        const bool inside = row >= first_row && row < end && row < first_row + c.rows;
                        REQUIRE(tensor[row * c.columns + column] ==
                                (inside ? tile[(row - first_row) * c.columns + column] : poison));
                    }
            }
}

TEST_CASE("copy_in, copy_in_async and copy_out: row numbers up to 2^32, offsets beyond it") {
    Random random(test_seed());
    for (const CopyCase& c : copy_cases()) {
        INFO(c.layout, ", ", c.rows, " x ", c.columns);
        const unsigned first_row = 0u - unsigned(c.rows) - 16, rows = unsigned(c.rows) - 3;
        const Bits16 tensor = any_bits(random, std::size_t(rows) * c.columns);
        Bits16 tile, expected = tensor;
        expected.resize(std::size_t(c.rows) * c.columns, 0);
        for (const auto copy_in : {c.copy_in, c.copy_in_async}) {
            REQUIRE_NOTHROW(tile = copy_in(tensor, first_row, first_row, first_row + rows));  // all else is out of bounds
            tile.resize(expected.size());
            REQUIRE(tile == expected);
        }
        REQUIRE(c.copy_out(tile, first_row, first_row, first_row + rows, int(rows)) == tensor);
    }
}

TEST_CASE("store: rounded, at its rows and columns, and nowhere else") {
    Random random(test_seed());
    std::normal_distribution<float> normal;
    for (const StoreCase& c : store_cases())
        for (int first_row = 0; first_row + 2 * c.rows <= c.tile_rows; first_row += 8)
            for (int first_column = 0; first_column + c.columns <= c.tile_columns; first_column += 8) {
                INFO(c.layout, ", ", c.rows, " x ", c.columns, " at ", first_row, ", ", first_column);
                Floats C(std::size_t(2) * c.rows * c.columns);
                for (float& x : C) x = normal(random);
                const Bits16 tile = c.store(C, first_row, first_column);
                for (int row = 0; row < c.tile_rows; ++row)
                    for (int column = 0; column < c.tile_columns; ++column) {
                        const int i = row - first_row, j = column - first_column;
                        const bool inside = i >= 0 && i < 2 * c.rows && j >= 0 && j < c.columns;
                        REQUIRE(tile[row * c.tile_columns + column] ==
                                (inside ? to_bits(c.element, C[i * c.columns + j]) : poison));
                    }
            }
}

TEST_CASE("store_rows: each row once, and none behind the end") {
    Random random(test_seed());
    Floats values(64);
    for (float& x : values) x = float(random() % 100000);
    for (const unsigned skipped : {0u, 0u - 100})
        for (const unsigned first_row : {0u, 5u})
            for (unsigned n = 0; n <= 70; ++n) {
                INFO("first row ", first_row, ", ", n, " rows behind row ", skipped);
                const Floats vector = store_rows(values, skipped, skipped + first_row, skipped + n, 80);
                for (unsigned i = 0; i < vector.size(); ++i) {
                    const bool inside = i >= first_row && i < first_row + 64 && i < n;
                    REQUIRE(vector[i] == (inside ? values[i - first_row] : -1));
                }
            }
}

}  // namespace
}  // namespace flashladder
