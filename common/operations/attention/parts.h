// The keys in parts, as rung 27 has them: what comes of each, between the kernel that computes it and the merge.
#pragma once

#include <cstddef>

#include "operations/attention/problem.h"

namespace flashladder::attention {

/// Keys of a step.
constexpr int block_of_keys(int d) { return d == 256 ? 64 : 128; }

/// O and LSE of each part of the keys, for each row of the problem, in the order (batch, heads, N_q). Lives in the stage's
/// scratch memory.
template <class Float>
struct PartialResults {
    Float* O;    // (rows, parts, d)
    Float* LSE;  // (rows, parts), natural log; -infinity where a row sees no key of the part, and O is 0 there
    int rows, parts;

    /// Where LSE of a row and a part is, and d times that its O.
    __host__ __device__ std::size_t place(int row, int part) const { return std::size_t(row) * parts + part; }
};

inline std::size_t bytes_of_partial_results(const AttentionShape& s, int parts) {
    return s.lse_elements() * std::size_t(parts) * std::size_t(s.head_dim + 1) * sizeof(float);
}
inline PartialResults<float> partial_results(void* scratch, const AttentionShape& s, int parts) {
    float* O = static_cast<float*>(scratch);
    return {O, O + s.q_elements() * std::size_t(parts), int(s.lse_elements()), parts};
}

}  // namespace flashladder::attention
