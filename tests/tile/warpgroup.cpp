// Products of a warpgroup, and the descriptors that they are made with. Whole numbers: one wrong element is seen.
#include <doctest/doctest.h>

#include "../ptx/elements.h"
#include "../test_seed.h"
#include "cases.h"

namespace flashladder {
namespace {

constexpr int rows = 128;  // of two warpgroups

/// C + A B in double; element (k, j) of B is B[k * row + j * column].
std::vector<double> product(Element element, const Bits16& A, const Bits16& B, int row, int column, int columns,
                            int depth, const Floats& C) {
    std::vector<double> D(C.begin(), C.end()), b;
    for (const auto bits : B) b.push_back(from_bits(element, bits));
    for (int i = 0; i < rows; ++i)
        for (int k = 0; k < depth; ++k) {
            const double a = from_bits(element, A[i * depth + k]);
            for (int j = 0; j < columns; ++j) D[i * columns + j] += a * b[k * row + j * column];
        }
    return D;
}

void check_equal(const Floats& found, const std::vector<double>& expected) {
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) REQUIRE(found[i] == expected[i]);
}

TEST_CASE("begin_multiply, begin_multiply_transposed: two warpgroups, one product after the other and both at a time") {
    if (!has_warpgroups()) return;
    Random random(test_seed());
    for (const WarpgroupCase& c : warpgroup_cases())
        for (const bool together : {false, true}) {
            INFO(c.keys, " keys, d ", c.d, ", together ", together);
            const Bits16 A = whole_elements(random, c.element, std::size_t(rows) * c.d),
                         B_t = whole_elements(random, c.element, std::size_t(c.keys) * c.d),
                         P = whole_elements(random, c.element, std::size_t(rows) * c.keys),
                         B = whole_elements(random, c.element, std::size_t(c.keys) * c.d);
            Floats C(std::size_t(rows) * c.d);
            for (float& x : C) x = float(draw(random, -1000, 1000));
            const WarpgroupProducts found = c.multiply(A, B_t, P, B, C, together);
            const Floats zero(std::size_t(rows) * c.keys);
            check_equal(found.transposed, product(c.element, A, B_t, 1, c.d, c.keys, c.d, zero));
            check_equal(found.plain, product(c.element, P, B, c.d, 1, c.d, c.keys, C));
        }
}

TEST_CASE("wait: an operand in registers is free again, and an accumulator whole, while a later product goes on") {
    if (!has_warpgroups()) return;
    Random random(test_seed());
    for (const WarpgroupCase& c : warpgroup_cases()) {
        INFO(c.keys, " keys, d ", c.d);
        const Bits16 A = whole_elements(random, c.element, std::size_t(rows) * c.d),
                     B_t = whole_elements(random, c.element, std::size_t(c.keys) * c.d),
                     P = whole_elements(random, c.element, std::size_t(rows) * c.keys),
                     next_P = whole_elements(random, c.element, std::size_t(rows) * c.keys),
                     B = whole_elements(random, c.element, std::size_t(c.keys) * c.d);
        Floats C(std::size_t(rows) * c.d);
        for (float& x : C) x = float(draw(random, -1000, 1000));
        const WarpgroupProducts found = c.reuse(A, B_t, P, next_P, B, C);
        const Floats zero(std::size_t(rows) * c.keys);
        check_equal(found.transposed, product(c.element, A, B_t, 1, c.d, c.keys, c.d, zero));
        std::vector<double> expected(C.size());
        for (const Bits16* factor : {&P, &next_P, &P}) {
            const auto part = product(c.element, *factor, B, c.d, 1, c.d, c.keys, Floats(C.size()));
            for (std::size_t i = 0; i < part.size(); ++i) expected[i] += part[i];
        }
        for (std::size_t i = 0; i < C.size(); ++i) expected[i] += C[i];
        check_equal(found.plain, expected);
    }
}

/// Two matrices (rows / 2, columns) below each other, of which each is transposed.
Bits16 each_half_transposed(const Bits16& A, int columns) {
    constexpr int half = rows / 2;
    Bits16 A_t(A.size());
    for (int i = 0; i < rows; ++i)
        for (int k = 0; k < columns; ++k) A_t[(i / half * columns + k) * half + i % half] = A[i * columns + k];
    return A_t;
}

TEST_CASE("begin_multiply, _transposed, _of_transposed, both factors in shared memory: added to what is there or not") {
    if (!has_warpgroups()) return;
    Random random(test_seed());
    for (const SharedProductCase& c : shared_product_cases())
        for (const bool add : {true, false}) {
            INFO(c.columns, " columns, depth ", c.depth, ", factors ", int(c.factors), ", add ", add);
            const Bits16 A = whole_elements(random, c.element, std::size_t(rows) * c.depth),
                         B = whole_elements(random, c.element, std::size_t(c.depth) * c.columns);
            Floats C(std::size_t(rows) * c.columns);
            for (float& x : C) x = float(draw(random, -1000, 1000));
            const bool A_t = c.factors == Factors::first_transposed, B_t = c.factors == Factors::second_transposed;
            check_equal(c.multiply(A_t ? each_half_transposed(A, c.depth) : A, B, C, add),
                        product(c.element, A, B, B_t ? 1 : c.columns, B_t ? c.depth : 1, c.columns, c.depth,
                                add ? C : Floats(C.size())));
        }
}

TEST_CASE("columns_of, rows_of: the numbers that lesson 09 works out") {
    if (!has_warpgroups()) return;
    CHECK(describe_tile(0x4400).columns[80 / 16] == 0x4000'0040'0001'0642);
    CHECK(describe_tile(0x8400).rows[16 / 16] == 0x4000'0040'0200'08C0);
}

TEST_CASE("columns_of, rows_of: those of rung 09") {
    if (!has_warpgroups()) return;
    for (const unsigned address : {0x400u, 0x4400u, 0x20000u}) {
        const Descriptors found = describe_tile(address);
        CHECK(found.columns == found.columns_09);
        CHECK(found.rows == found.rows_09);
    }
}

}  // namespace
}  // namespace flashladder
