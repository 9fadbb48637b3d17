// Rung 01: FlashAttention's Algorithm 1 in about a hundred lines, line by line.
//
// Idea      Never store S and P. Walk over blocks of keys and values; keep, for every query, the largest score m and the
//           sum l seen so far, and correct what was summed up whenever a larger score appears ("online softmax").
// Saves     the N_q x N_k matrices: memory is O(N). Costs: O, l and m go through device memory once a block of keys, and one
//           block of 32 threads works on a whole head.
// Source    FlashAttention (Dao et al., 2022), Algorithm 1; in the spirit of flash-attention-minimal
// Supports  float; d 32, 64, 96, 128; any N_q and N_k
#include "harness/stage.h"
#include "launch.h"

namespace flashladder {
namespace {

constexpr int B_r = 32;  // rows of a block of queries; also the threads of a block: thread r owns row r
constexpr int B_c = 32;  // rows of a block of keys and values

/// Row r of a tile, by thread r; the rows past the end are nobody's.
__device__ void copy_row(float* tile, const float* tensor, int first_row, int rows, int d) {
    const int r = threadIdx.x;
    if (first_row + r >= rows) return;
    for (int x = 0; x < d; ++x) tile[r * d + x] = tensor[std::size_t(first_row + r) * d + x];
}

/// One block owns one (batch, head).
__global__ void minimal_flash(const float* Q, const float* K, const float* V, float* O, float* l, float* m, int N_q, int N_k,
                              int d, float scale) {
    float* Q_i = dynamic_shared<float>();  // (B_r, d)
    float* K_j = Q_i + B_r * d;            // (B_c, d)
    float* V_j = K_j + B_c * d;            // (B_c, d)
    float* S = V_j + B_c * d;              // (B_r, B_c), first S, then P
    const std::size_t head = blockIdx.x;
    Q += head * N_q * d, O += head * N_q * d, l += head * N_q, m += head * N_q;
    K += head * N_k * d, V += head * N_k * d;
    const int r = threadIdx.x;
    const int T_r = (N_q + B_r - 1) / B_r, T_c = (N_k + B_c - 1) / B_c;

    for (int row = r; row < N_q; row += B_r) {  // line 2: O = 0, l = 0, m = -infinity, in device memory
        for (int x = 0; x < d; ++x) O[std::size_t(row) * d + x] = 0;
        l[row] = 0;
        m[row] = -INFINITY;
    }
    for (int j = 0; j < T_c; ++j) {           // line 5: every block of keys and values
        copy_row(K_j, K, j * B_c, N_k, d);    // line 6
        copy_row(V_j, V, j * B_c, N_k, d);
        __syncthreads();                      // everybody reads everybody's rows below
        const int keys = min(B_c, N_k - j * B_c);

        for (int i = 0; i < T_r; ++i) {       // line 7: every block of queries
            const int row = i * B_r + r;
            if (row >= N_q) break;            // this thread has no row in the last block; no barrier is left in this loop
            copy_row(Q_i, Q, i * B_r, N_q, d);  // line 8; this thread alone reads row r
            float* O_row = O + std::size_t(row) * d;
            const float m_old = m[row], l_old = l[row];

            float m_ij = -INFINITY, l_ij = 0;   // lines 9, 10: this row of S, its maximum; P and its sum
            for (int c = 0; c < keys; ++c) {
                float dot = 0;
                for (int x = 0; x < d; ++x) dot += Q_i[r * d + x] * K_j[c * d + x];
                S[r * B_c + c] = scale * dot;
            }
            // EXERCISE 1.1 Find the largest score m_ij of the row, replace S by P = exp(S - m_ij), add P up to l_ij.
            // STARTER m_ij = 0;
            // STARTER for (int c = 0; c < keys; ++c) l_ij += S[r * B_c + c] = expf(S[r * B_c + c]);
            for (int c = 0; c < keys; ++c) m_ij = fmaxf(m_ij, S[r * B_c + c]);
            for (int c = 0; c < keys; ++c) l_ij += S[r * B_c + c] = expf(S[r * B_c + c] - m_ij);
            // END 1.1

            // EXERCISE 1.2 Line 11: merge m_ij and l_ij with the m_old and l_old of the blocks before. P was taken relative
            // to m_ij, l_old relative to m_old: bring both to m_new before you add.
            // STARTER const float m_new = m_ij;
            // STARTER const float l_new = l_ij;
            const float m_new = fmaxf(m_old, m_ij);
            const float l_new = expf(m_old - m_new) * l_old + expf(m_ij - m_new) * l_ij;
            // END 1.2

            for (int x = 0; x < d; ++x) {       // line 12: rescale O, add P V
                float PV = 0;
                for (int c = 0; c < keys; ++c) PV += S[r * B_c + c] * V_j[c * d + x];
                // EXERCISE 1.3 O_row[x] was divided by l_old and is relative to m_old. Undo both, add P V, divide by l_new.
                // STARTER O_row[x] = expf(m_ij - m_new) * PV / l_new;
                O_row[x] = (l_old * expf(m_old - m_new) * O_row[x] + expf(m_ij - m_new) * PV) / l_new;
                // END 1.3
            }
            l[row] = l_new, m[row] = m_new;     // line 13
        }
        __syncthreads();                      // K_j and V_j are about to be overwritten
    }
}

const Support supports{.stage = "01-minimal-flash", .head_dims = {32, 64, 96, 128}};

/// l and m of every row.
std::size_t scratch_bytes(const AttentionShape& s) { return 2 * sizeof(float) * s.batch * s.heads * std::size_t(s.n_q); }

void launch(const ForwardArgs& args) {
    const auto& [batch, heads, kv_heads, N_q, N_k, d, causal, dtype] = args.shape;
    const unsigned batch_heads = batch * heads;
    auto* l = static_cast<float*>(args.scratch);
    float* m = l + std::size_t(batch_heads) * N_q;
    const std::size_t shared_bytes = sizeof(float) * (B_r * d + 2 * B_c * d + B_r * B_c);
    launch_kernel(minimal_flash, {batch_heads, B_r, shared_bytes, args.stream}, static_cast<const float*>(args.Q),
                  static_cast<const float*>(args.K), static_cast<const float*>(args.V), static_cast<float*>(args.O), l, m, N_q,
                  N_k, d, args.scale);
}

const Registration registration({supports, launch, scratch_bytes});

}  // namespace
}  // namespace flashladder
