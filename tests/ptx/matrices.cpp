// ldmatrix, stmatrix, mma.sync and ex2.approx against what the PTX manual says of them.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "../test_seed.h"
#include "elements.h"
#include "recorded.h"

namespace flashladder {
namespace {

constexpr int pitch = matrix_pitch / 2;  // elements

/// Which element of matrix m lane l holds, in the low or the high half of its register.
std::size_t place(int m, int lane, int half, bool transposed) {
    const int i = lane / 4, j = lane % 4 * 2 + half;
    return std::size_t((8 * m + (transposed ? j : i)) * pitch + (transposed ? i : j));
}

TEST_CASE("ldmatrix and stmatrix: every element of 1, 2 and 4 matrices, as it lies and transposed") {
    for (const auto seed : {recorded_seed, static_cast<unsigned long long>(test_seed())}) {
        Random random(seed);
        for (const int n : {1, 2, 4})
            for (const bool transposed : {false, true}) {
                INFO("n ", n, ", transposed ", transposed);
                const Bits16 memory = any_bits(random, std::size_t(8 * n * pitch));
                const Bits32 registers = load_matrices(memory, n, transposed);
                Bits16 stored(memory.size(), 0);
                for (int m = 0; m < n; ++m)
                    for (int lane = 0; lane < 32; ++lane)
                        for (int half = 0; half < 2; ++half) {
                            const std::size_t i = place(m, lane, half, transposed);
                            stored[i] = memory[i];
                            REQUIRE(std::uint16_t(registers[lane * n + m] >> (16 * half)) == memory[i]);
                        }
                const std::string name = std::to_string(n) + (transposed ? " transposed" : "");
                if (seed == recorded_seed) check_recorded("ldmatrix " + name, registers);
                if (device_architecture() < 90) continue;
                CHECK(store_matrices(registers, n, transposed) == stored);
                if (seed == recorded_seed) check_recorded("stmatrix " + name, stored);
            }
    }
}

/// D in double.
std::vector<double> product(Element element, const Bits16& A, const Bits16& B, const Floats& C) {
    std::vector<double> D(C.begin(), C.end());
    for (int i = 0; i < 16; ++i)
        for (int j = 0; j < 8; ++j)
            for (int k = 0; k < 16; ++k)
                D[i * 8 + j] += double(from_bits(element, A[i * 16 + k])) * from_bits(element, B[k * 8 + j]);
    return D;
}

TEST_CASE("mma: whole numbers are multiplied and added exactly") {
    for (const auto seed : {recorded_seed, static_cast<unsigned long long>(test_seed())})
        for (const Element element : {Element::bf16, Element::f16}) {
            Random random(seed);
            const Bits16 A = whole_elements(random, element, 256), B = whole_elements(random, element, 128);
            Floats C(128);
            for (float& c : C) c = float(draw(random, -1000, 1000));
            const Floats D = multiply_in_warp(element, A, B, C);
            const std::vector<double> expected = product(element, A, B, C);
            for (int i = 0; i < 128; ++i) REQUIRE(D[i] == expected[i]);
            if (seed == recorded_seed) check_recorded(element == Element::bf16 ? "mma bf16" : "mma f16", D);
        }
}

TEST_CASE("mma: other numbers within the rounding of float") {
    Random random(test_seed());
    for (const Element element : {Element::bf16, Element::f16})
        for (int time = 0; time < 20; ++time) {
            const Bits16 A = normal_elements(random, element, 256), B = normal_elements(random, element, 128);
            const Floats D = multiply_in_warp(element, A, B, Floats(128, 0.5f));
            const std::vector<double> expected = product(element, A, B, Floats(128, 0.5f));
            for (int i = 0; i < 128; ++i) REQUIRE(!(std::fabs(D[i] - expected[i]) > 2e-5));
        }
}

TEST_CASE("ex2.approx: within 2^-22, and 0 where float has only subnormal numbers") {
    Random random(test_seed());
    Floats x = {0,    -0.0f, 1,   -1,   10,       127.9f,    -125.9f, -126, -126.1f,
                -140, -200,  128, 1000, INFINITY, -INFINITY, 1e-40f,  NAN};
    for (int i = 0; i < 5000; ++i) x.push_back(float(double(random() % 1000000) / 1000000 * 254 - 126));
    const Floats y = powers_of_two(x);
    for (std::size_t i = 0; i < x.size(); ++i) {
        INFO("x ", x[i]);
        const double expected = std::exp2(double(x[i]));
        if (std::isnan(x[i]))
            CHECK(std::isnan(y[i]));
        else if (expected < std::ldexp(1.0, -126))
            CHECK(y[i] == 0);
        else if (expected > 3.4028235e38)
            CHECK(y[i] == INFINITY);
        else
            CHECK(!(std::fabs(y[i] - expected) > std::ldexp(expected, -22)));
    }
}

}  // namespace
}  // namespace flashladder
