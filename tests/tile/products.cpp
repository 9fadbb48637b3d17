// Operands and products of a warp. Whole numbers, since their products and sums are exact: one wrong element is seen.
#include <doctest/doctest.h>

#include "../ptx/elements.h"
#include "../test_seed.h"
#include "cases.h"

namespace flashladder {
namespace {

TEST_CASE("load: every element of the operand, from any 8 rows and 8 columns on") {
    Random random(test_seed());
    for (const LoadCase& c : load_cases())
        for (int first_row = 0; first_row + 2 * c.rows <= c.tile_rows; first_row += 8)
            for (int first_column = 0; first_column + c.columns <= c.tile_columns; first_column += 8) {
                INFO(c.layout, ", ", c.rows, " x ", c.columns, " from ", first_row, ", ", first_column);
                const Bits16 tile = any_bits(random, std::size_t(c.tile_rows) * c.tile_columns);
                const Bits16 A = c.load(tile, first_row, first_column);
                for (int i = 0; i < 2 * c.rows * c.columns; ++i)
                    REQUIRE(A[i] == tile[(first_row + i / c.columns) * c.tile_columns + first_column + i % c.columns]);
            }
}

TEST_CASE("load_transposed: columns of the tile as rows of the operand, from any 8 columns on") {
    Random random(test_seed());
    for (const LoadCase& c : transposed_load_cases())
        for (int first_column = 0; first_column + 2 * c.rows <= c.tile_columns; first_column += 8) {
            INFO(c.layout, ", ", c.rows, " x ", c.columns, " from column ", first_column);
            const Bits16 tile = any_bits(random, std::size_t(c.tile_rows) * c.tile_columns);
            const Bits16 A = c.load(tile, 0, first_column);
            for (int i = 0; i < 2 * c.rows * c.columns; ++i)
                REQUIRE(A[i] == tile[i % c.columns * c.tile_columns + first_column + i / c.columns]);
        }
}

/// C + A B in double, where element (k, j) of B is B[k * row + j * column].
std::vector<double> product(const ProductCase& c, const Bits16& A, const Bits16& B, int row, int column,
                            const Floats& C, int first_row) {
    std::vector<double> D(C.begin(), C.end());
    std::vector<double> a, b;
    for (const auto bits : A) a.push_back(from_bits(c.element, bits));
    for (const auto bits : B) b.push_back(from_bits(c.element, bits));
    for (int i = 0; i < 2 * c.rows; ++i)
        for (int j = 0; j < c.columns; ++j)
            for (int k = 0; k < c.depth; ++k)
                D[i * c.columns + j] += a[(first_row + i) * c.depth + k] * b[k * row + j * column];
    return D;
}

void check_equal(const Floats& found, const std::vector<double>& expected) {
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) REQUIRE(found[i] == expected[i]);
}

TEST_CASE("multiply, multiply_transposed: added to what is there") {
    Random random(test_seed());
    for (const ProductCase& c : product_cases())
        for (const int first_row : {0, 8}) {
            INFO(c.layout, ", ", c.rows, " x ", c.columns, ", depth ", c.depth, ", from row ", first_row);
            const Bits16 A = whole_elements(random, c.element, std::size_t(2 * c.rows + 8) * c.depth);
            const Bits16 B_t = whole_elements(random, c.element, std::size_t(c.columns) * c.depth);
            const Bits16 B = whole_elements(random, c.element, std::size_t(c.columns) * c.depth);
            Floats C(std::size_t(2) * c.rows * c.columns);
            for (float& x : C) x = float(draw(random, -1000, 1000));
            const Products found = c.multiply(A, B_t, B, C, first_row);
            const auto transposed = product(c, A, B_t, 1, c.depth, C, first_row);
            check_equal(found.transposed, transposed);
            check_equal(found.transposed_from_shared, transposed);
            check_equal(found.plain, product(c, A, B, c.columns, 1, C, first_row));
        }
}

}  // namespace
}  // namespace flashladder
