// The kernels of tutorial_kernels.cu against plain loops, on fresh inputs and awkward sizes. Where sums are formed in
// another order, the inputs are small whole numbers: all sums are exact then, and the GPU and the emulator must agree
// bit for bit. With FLASHLADDER_CHECKSUMS set in the environment, a line for each kernel says so: compare those of the
// two backends.
#include "tutorial_kernels.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "../test_seed.h"

namespace flashladder {
namespace {

using Matrix = std::vector<float>;
using Random = std::mt19937_64;

int draw(Random& random, int low, int high) { return low + int(random() % unsigned(high - low + 1)); }

Matrix whole_numbers(Random& random, std::size_t n, int low, int high) {
    Matrix x(n);
    for (float& value : x) value = float(draw(random, low, high));
    return x;
}

Matrix expected_matmul(const Matrix& A, const Matrix& B, int M, int N, int K) {
    Matrix C(std::size_t(M) * N);
    for (int i = 0; i < M; ++i)
        for (int k = 0; k < K; ++k)
            for (int j = 0; j < N; ++j) C[i * N + j] += A[i * K + k] * B[k * N + j];
    return C;
}

Matrix expected_transpose(const Matrix& x, int rows, int columns) {
    Matrix y(x.size());
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < columns; ++j) y[j * rows + i] = x[i * columns + j];
    return y;
}

template <class Real>
std::vector<Real> expected_softmax(const Matrix& x, int columns, Real scale) {
    std::vector<Real> y;
    for (auto row = x.begin(); row != x.end(); row += columns) {
        const Real m = *std::max_element(row, row + columns);
        Real l = 0;
        for (int j = 0; j < columns; ++j) l += std::exp2(scale * (row[j] - m));
        for (int j = 0; j < columns; ++j) y.push_back(std::exp2(scale * (row[j] - m)) / l);
    }
    return y;
}

TEST_CASE("tutorial: matrix product through tiles in shared memory") {
    Random random(test_seed());
    struct Size {
        int M, N, K;
    };
    std::vector<Size> sizes = {{1, 1, 1}, {16, 16, 16}, {17, 31, 33}, {5, 70, 15}, {64, 3, 100}};
    sizes.push_back({draw(random, 1, 50), draw(random, 1, 50), draw(random, 1, 50)});
    for (const auto [M, N, K] : sizes) {
        CAPTURE(M);
        CAPTURE(N);
        CAPTURE(K);
        const Matrix A = whole_numbers(random, std::size_t(M) * K, -8, 8);
        const Matrix B = whole_numbers(random, std::size_t(K) * N, -8, 8);
        CHECK(matmul(A, B, M, N, K) == expected_matmul(A, B, M, N, K));
    }
}

TEST_CASE("tutorial: sum with shuffles and atomicAdd") {
    Random random(test_seed());
    for (const int n : {1, 31, 32, 640, 641, 5000, draw(random, 1, 5000)}) {
        CAPTURE(n);
        const Matrix x = whole_numbers(random, n, -1000, 1000);
        double expected = 0;
        for (const float value : x) expected += value;
        CHECK(sum(x) == expected);
    }
}

TEST_CASE("tutorial: histogram with atomics on shared and global memory") {
    Random random(test_seed());
    for (const int n : {1, 100, 4097, draw(random, 1, 4000)}) {
        CAPTURE(n);
        std::vector<unsigned char> bytes(n);
        std::vector<unsigned> expected(256);
        for (unsigned char& byte : bytes) ++expected[byte = static_cast<unsigned char>(random() & random())];  // uneven
        CHECK(histogram(bytes) == expected);
    }
}

TEST_CASE("tutorial: transpose through a padded tile") {
    Random random(test_seed());
    struct Size {
        int rows, columns;
    };
    std::vector<Size> sizes = {{1, 1}, {32, 32}, {33, 31}, {1, 100}, {70, 2}};
    sizes.push_back({draw(random, 1, 100), draw(random, 1, 100)});
    for (const auto [rows, columns] : sizes) {
        CAPTURE(rows);
        CAPTURE(columns);
        const Matrix x = whole_numbers(random, std::size_t(rows) * columns, -100000, 100000);
        CHECK(transpose(x, rows, columns) == expected_transpose(x, rows, columns));
    }
}

TEST_CASE("tutorial: softmax, a block a row") {
    Random random(test_seed());
    std::normal_distribution<float> normal(0, 10);
    const double log2_e = std::log2(std::exp(1.0));
    for (const int columns : {1, 2, 63, 64, 65, 300, draw(random, 1, 300)}) {
        CAPTURE(columns);
        Matrix x(std::size_t(9) * columns);
        for (float& value : x) value = normal(random);
        const Matrix y = softmax(x, 9, columns, float(log2_e));
        const std::vector<double> expected = expected_softmax<double>(x, columns, log2_e);
        double error = 0;
        for (std::size_t i = 0; i < y.size(); ++i) {
            const double e = std::abs(y[i] - expected[i]) / expected[i];
            if (!(e <= error)) error = e;  // so that NaN stays
        }
        CHECK(error <= 1e-5);  // scores up to 80 apart, each rounded to a part in 2^24 before it becomes an exponent
    }
}

template <class T>
std::uint64_t checksum(const std::vector<T>& values) {  // FNV-1a
    std::uint64_t hash = 0xCBF29CE484222325u;
    const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
    for (std::size_t i = 0; i < values.size() * sizeof(T); ++i) hash = (hash ^ bytes[i]) * 0x100000001B3u;
    return hash;
}

template <class T>
void compare(const char* kernel, const std::vector<T>& result, const std::vector<T>& expected) {
    CAPTURE(kernel);
    CHECK(checksum(result) == checksum(expected));
    if (std::getenv("FLASHLADDER_CHECKSUMS"))
        std::printf("checksum %s %016llx\n", kernel, static_cast<unsigned long long>(checksum(result)));
}

TEST_CASE("tutorial: the same bits on every backend") {
    Random random(20240229);
    const int M = 100, N = 77, K = 130;
    const Matrix A = whole_numbers(random, M * K, -8, 8), B = whole_numbers(random, K * N, -8, 8);
    compare("matmul", matmul(A, B, M, N, K), expected_matmul(A, B, M, N, K));

    const Matrix x = whole_numbers(random, 10001, -1000, 1000);
    float total = 0;
    for (const float value : x) total += value;
    compare<float>("sum", {sum(x)}, {total});

    std::vector<unsigned char> bytes(9999);
    std::vector<unsigned> counts(256);
    for (unsigned char& byte : bytes) ++counts[byte = static_cast<unsigned char>(random() & random())];
    compare("histogram", histogram(bytes), counts);

    const Matrix y = whole_numbers(random, 123 * 45, -100000, 100000);
    compare("transpose", transpose(y, 123, 45), expected_transpose(y, 123, 45));

    // Powers of two, none more than 2^12 from its row's largest, and at most 500 of them: their sum is exact too.
    const Matrix scores = whole_numbers(random, 20 * 500, -6, 6);
    compare("softmax", softmax(scores, 20, 500, 1), expected_softmax<float>(scores, 500, 1));
}

}  // namespace
}  // namespace flashladder
