// Tiles in registers: every operation on every element, against the same on a matrix.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "../ptx/elements.h"
#include "../test_seed.h"
#include "cases.h"

namespace flashladder {
namespace {

Floats normal_floats(Random& random, std::size_t n) {
    Floats x(n);
    std::normal_distribution<float> normal;
    for (float& value : x) value = 3 * normal(random);
    return x;
}

Floats range(int first, int last) {
    Floats x;
    for (int i = first; i <= last; ++i) x.push_back(float(i));
    return x;
}

/// Every element of C after the change must be `expected(old value, row, column, index of the parameter)`. `row` counts
/// from the warp's first row.
template <class Expected>
void check_change(Change change, const Floats& parameters_of_all, Expected expected) {
    Random random(test_seed());
    for (const RegisterCase& c : register_cases()) {
        const int rows = 2 * c.rows;
        const Floats C = normal_floats(random, std::size_t(rows) * c.columns),
                     row_values = normal_floats(random, std::size_t(rows));
        const int most = std::max(c.rows, c.columns) + 3;
        const Floats parameters = parameters_of_all.empty() ? range(-most, most) : parameters_of_all;
        const Floats changed = c.change(change, C, row_values, parameters);
        for (std::size_t i = 0; i < changed.size(); ++i) {
            const std::size_t element = i % C.size();
            const int row = int(element) / c.columns, column = int(element) % c.columns;
            const float parameter = parameters[i / C.size()];
            INFO(c.rows, " x ", c.columns, ", parameter ", parameter, ", row ", row, ", column ", column);
            expected(changed[i], C[element], row_values[std::size_t(row)], parameter, row % c.rows, column);
        }
    }
}

TEST_CASE("registers: row_of and column_of are those of the PTX manual") {
    const Places found = places();
    for (int thread = 0; thread < 64; ++thread) {
        const int g = thread % 32 / 4, t = thread % 4;
        const std::vector<int> rows = {g, g + 8, g + 16, g + 24};
        for (int i = 0; i < 4; ++i) REQUIRE(found.rows[thread * 4 + i] == rows[i]);
        for (int c = 0; c < 4; ++c) {
            const std::vector<int> columns = {8 * c + 2 * t, 8 * c + 2 * t + 1, 8 * c + 2 * t, 8 * c + 2 * t + 1};
            for (int e = 0; e < 4; ++e) REQUIRE(found.columns[thread * 16 + c * 4 + e] == columns[e]);
        }
    }
}

TEST_CASE("registers: fill, multiply_all, multiply_rows") {
    check_change(Change::fill, {-1.5f, 0}, [](float x, float, float, float value, int, int) { REQUIRE(x == value); });
    check_change(Change::multiply_all, {0.37f},
                 [](float x, float old, float, float factor, int, int) { REQUIRE(x == old * factor); });
    check_change(Change::multiply_rows, {0},
                 [](float x, float old, float factor, float, int, int) { REQUIRE(x == old * factor); });
}

TEST_CASE("registers: hide_columns, from columns before the tile to columns behind it") {
    check_change(Change::hide_columns, {}, [](float x, float old, float, float first, int, int column) {
        REQUIRE(x == (column >= first ? -INFINITY : old));
    });
}

TEST_CASE("registers: hide_right_of, from diagonals that hide all to diagonals that hide nothing") {
    check_change(Change::hide_right_of, {}, [](float x, float old, float, float diagonal, int row, int column) {
        REQUIRE(x == (column > row + diagonal ? -INFINITY : old));
    });
}

TEST_CASE("registers: hide_rows, from rows before the tile to rows behind it") {
    check_change(Change::hide_rows, {}, [](float x, float old, float, float first, int row, int) {
        REQUIRE(x == (row >= first ? -INFINITY : old));
    });
}

TEST_CASE("registers: hide_below, from diagonals that hide all to diagonals that hide nothing") {
    check_change(Change::hide_below, {}, [](float x, float old, float, float diagonal, int row, int column) {
        REQUIRE(x == (row > column + diagonal ? -INFINITY : old));
    });
}

/// 2^x, within what ex2.approx promises.
void check_power(float found, float x) {
    const double expected = std::exp2(double(x));
    REQUIRE(!(std::fabs(found - expected) > std::ldexp(expected, -22)));
}

TEST_CASE("registers: exponentials, relative to each row's maximum") {
    check_change(Change::exponentials, {0},
                 [](float x, float old, float m, float, int, int) { check_power(x, old - m); });
}

TEST_CASE("registers: exponentials of hidden elements are 0") {
    for (const RegisterCase& c : register_cases()) {
        const Floats C(std::size_t(2) * c.rows * c.columns, -INFINITY);
        for (const float x : c.change(Change::exponentials, C, Floats(std::size_t(2) * c.rows, -3e38f), {0}))
            REQUIRE(x == 0);
    }
}

TEST_CASE("registers: row_max, wherever the largest element stands, in all lanes of the row") {
    Random random(test_seed());
    for (const RegisterCase& c : register_cases())
        for (int place = -1; place < c.columns; ++place) {
            INFO(c.rows, " x ", c.columns, ", the largest element in column ", place);
            const int rows = 2 * c.rows;
            Floats C = normal_floats(random, std::size_t(rows) * c.columns), m(std::size_t(rows), -100), expected(m);
            for (int row = 0; row < rows; ++row) {  // -1: what came before is larger
                expected[row] = 100.0f + float(row);
                (place < 0 ? m[row] : C[row * c.columns + place]) = expected[row];
            }
            const Floats found = c.row_max(C, m);
            for (int i = 0; i < rows * 4; ++i) REQUIRE(found[i] == expected[i / 4]);
        }
}

TEST_CASE("registers: row_max of small and of hidden elements is no larger than they are") {
    for (const RegisterCase& c : register_cases()) {
        const std::size_t rows = std::size_t(2) * c.rows;
        for (const float x : c.row_max(Floats(rows * c.columns, -2e38f), Floats(rows, -3e38f))) REQUIRE(x == -2e38f);
        for (const float x : c.row_max(Floats(rows * c.columns, -INFINITY), Floats(rows, -3e38f))) REQUIRE(x == -3e38f);
    }
}

TEST_CASE("registers: multiply_elements multiplies each by the one in its place") {
    Random random(test_seed());
    for (const RegisterCase& c : register_cases()) {
        const std::size_t n = std::size_t(2) * c.rows * c.columns;
        const Floats C = normal_floats(random, n), B = normal_floats(random, n), found = c.multiply_elements(C, B);
        for (std::size_t i = 0; i < n; ++i) {
            INFO(c.rows, " x ", c.columns, ", element ", i);
            REQUIRE(found[i] == C[i] * B[i]);
        }
    }
}

TEST_CASE("registers: to_operand rounds each element, and moves none") {
    Random random(test_seed());
    for (const RegisterCase& c : register_cases())
        for (const Element element : {Element::bf16, Element::f16}) {
            if (!c.to_operand) continue;
            const Floats C = normal_floats(random, std::size_t(2) * c.rows * c.columns);
            const Bits16 A = c.to_operand(element, C);
            for (std::size_t i = 0; i < A.size(); ++i) {
                INFO(c.rows, " x ", c.columns, ", element ", i);
                REQUIRE(A[i] == to_bits(element, C[i]));
            }
        }
}

TEST_CASE("registers: values of rows") {
    Random random(test_seed());
    const Floats values = normal_floats(random, 64), others = normal_floats(random, 64);
    const Floats filled = change_rows(RowChange::fill, values, others, 2.5f);
    const Floats multiplied = change_rows(RowChange::multiply_rows, values, others, 0);
    const Floats rescale = change_rows(RowChange::rescale_factor, values, others, 0);
    for (int i = 0; i < 64 * 4; ++i) {
        REQUIRE(filled[i] == 2.5f);
        REQUIRE(multiplied[i] == values[i / 4] * others[i / 4]);
        check_power(rescale[i], values[i / 4] - others[i / 4]);
    }
}

}  // namespace
}  // namespace flashladder
