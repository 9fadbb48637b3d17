// Host functions around the kernels: inputs in, result out. Matrices are row-major.
#pragma once

#include <vector>

namespace flashladder {

/// C = A B, A is (M, K), B is (K, N).
std::vector<float> matmul(const std::vector<float>& A, const std::vector<float>& B, int M, int N, int K);
float sum(const std::vector<float>& x);
/// How often each byte occurs.
std::vector<unsigned> histogram(const std::vector<unsigned char>& bytes);
/// From (rows, columns) to (columns, rows).
std::vector<float> transpose(const std::vector<float>& x, int rows, int columns);
/// Each row becomes 2^(scale x) over the sum of it; with log2_e as scale, the softmax.
std::vector<float> softmax(const std::vector<float>& x, int rows, int columns, float scale);

}  // namespace flashladder
