// Rung 16: FlashAttention's Algorithm 4, line by line: no P in device memory, as each tile of it is made where it is used.
//
// Idea      Keys outside. A block of keys has its dK and dV on chip while all queries pass by; for each of their blocks P comes
//           anew from Q, K and LSE, and dQ, to which all keys add, is read, added to and written
// Saves     the N_q x N_k matrix: memory is O(N). Costs: Q, O, dO and dQ travel once a block of keys, and one warp works on a
//           whole head
// Source    FlashAttention (Dao et al., 2022), Algorithm 4 (appendix B.4), with LSE for its l and m; Theorem 5, second half
// Supports  float; d 64, 128; causal; any N_q and N_k
#include <stdexcept>

#include "launch.h"
#include "operations/attention_backward/stage.h"

namespace flashladder::attention_backward {
namespace {

constexpr int threads = 32;  // of a block: all of them go over the elements of a tile, neighbours over neighbours

/// Shared memory of a block, in bytes, for blocks of B queries and B keys: K_j, V_j, dK_j, dV_j, Q_i, dO_i, P, LSE_i, D_i.
constexpr int shared_bytes(int B, int d) { return 4 * (4 * B * (d + 1) + 2 * B * d + B * B + 2 * B); }

/// Rows of d floats into a tile whose rows are d + 1 apart.
__device__ void load(float* tile, const float* tensor, int rows, int d) {
    for (int e = threadIdx.x; e < rows * d; e += threads) tile[e / d * (d + 1) + e % d] = tensor[e];
}

/// Sum of one value of each lane; every lane gets it.
__device__ float warp_sum(float x) {
    for (int lanes = threads / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, lanes);
    return x;
}

/// One block owns one (batch, head).
__global__ void recompute(const float* Q, const float* K, const float* V, const float* O, const float* dO, const float* lse,
                          float* dQ, float* dK, float* dV, int N_q, int N_k, int d, int B, bool causal, float scale) {
    const int wide = d + 1;  // floats from row to row of the tiles that are loaded: rows start in different banks
    float* K_j = dynamic_shared<float>();  // (B, wide)
    float* V_j = K_j + B * wide;           // (B, wide)
    float* Q_i = V_j + B * wide;           // (B, wide)
    float* dO_i = Q_i + B * wide;          // (B, wide)
    float* dK_j = dO_i + B * wide;         // (B, d), without scale
    float* dV_j = dK_j + B * d;            // (B, d)
    float* P = dV_j + B * d;               // (B, B), first P, then dS
    float* lse_i = P + B * B;              // (B)
    float* D_i = lse_i + B;                // (B)
    const std::size_t head = blockIdx.x;
    Q += head * N_q * d, O += head * N_q * d, dO += head * N_q * d, dQ += head * N_q * d, lse += head * N_q;
    K += head * N_k * d, V += head * N_k * d, dK += head * N_k * d, dV += head * N_k * d;

    for (std::size_t e = threadIdx.x; e < std::size_t(N_q) * d; e += threads) dQ[e] = 0;  // line 5, in device memory
    for (int j = 0; j < N_k; j += B) {  // line 6: j and i are first rows, not numbers of blocks
        const int keys = min(B, N_k - j);
        load(K_j, K + std::size_t(j) * d, keys, d);  // line 7
        load(V_j, V + std::size_t(j) * d, keys, d);
        for (int e = threadIdx.x; e < keys * d; e += threads) dK_j[e] = dV_j[e] = 0;  // line 8
        const int first_query = causal ? max(0, j - (N_k - N_q)) : 0;  // that sees a key of this block
        for (int i = first_query / B * B; i < N_q; i += B) {           // line 9
            const int queries = min(B, N_q - i);
            load(Q_i, Q + std::size_t(i) * d, queries, d);  // line 10
            load(dO_i, dO + std::size_t(i) * d, queries, d);
            for (int r = threadIdx.x; r < queries; r += threads) lse_i[r] = lse[i + r];
            __syncthreads();  // the tiles are there
            for (int r = 0; r < queries; ++r) {  // line 19: D = rowsum(dO O), for each block of keys anew
                float sum = 0;
                for (int x = threadIdx.x; x < d; x += threads) sum += dO_i[r * wide + x] * O[std::size_t(i + r) * d + x];
                sum = warp_sum(sum);
                if (threadIdx.x == 0) D_i[r] = sum;
            }
            // EXERCISE 16.1 How many keys of this block query i + r sees, from the block's first one on; 0 or less if none. The
            // starter lets it see all, also where the mask is causal.
            // STARTER const auto keys_of = [=](int) { return keys; };
            const auto keys_of = [=](int r) { return causal ? min(keys, i + r + (N_k - N_q) + 1 - j) : keys; };
            // END 16.1
            __syncthreads();  // D is there

            // EXERCISE 16.3 Build: lines 11 to 20 and 22 for this tile. P from Q_i, K_j and lse_i; dV_j grows by P^T dO_i; dS,
            // from dP = dO_i V_j^T and D_i, goes where P was, for line 21; dK_j grows by dS^T Q_i, and gets scale at the end.
            // Query r sees the first keys_of(r) keys; the other elements of P hold anything, NaN too. Hardly a bank conflict,
            // for each B. The starter is right, but a thread owns a key, and rows of dK_j start in the same bank.
            // STARTER for (int c = threadIdx.x; c < keys; c += threads)
            // STARTER     for (int r = 0; r < queries; ++r) {
            // STARTER         if (c >= keys_of(r)) continue;
            // STARTER         float s = 0, dP = 0;
            // STARTER         for (int x = 0; x < d; ++x) s += Q_i[r * wide + x] * K_j[c * wide + x];
            // STARTER         for (int x = 0; x < d; ++x) dP += dO_i[r * wide + x] * V_j[c * wide + x];
            // STARTER         const float p = expf(scale * s - lse_i[r]), dS = p * (dP - D_i[r]);
            // STARTER         for (int x = 0; x < d; ++x) dV_j[c * d + x] += p * dO_i[r * wide + x];
            // STARTER         for (int x = 0; x < d; ++x) dK_j[c * d + x] += dS * Q_i[r * wide + x];
            // STARTER         P[r * B + c] = dS;
            // STARTER     }
            // STARTER __syncthreads();  // dS is there
            for (int e = threadIdx.x; e < queries * B; e += threads) {  // lines 11 to 13
                const int r = e / B, c = e % B;
                if (c >= keys_of(r)) continue;
                float S = 0;
                for (int x = 0; x < d; ++x) S += Q_i[r * wide + x] * K_j[c * wide + x];
                P[e] = expf(scale * S - lse_i[r]);
            }
            __syncthreads();  // P is there
            for (int e = threadIdx.x; e < keys * d; e += threads) {  // line 16
                const int c = e / d, x = e % d;
                float sum = 0;
                for (int r = 0; r < queries; ++r)
                    if (c < keys_of(r)) sum += P[r * B + c] * dO_i[r * wide + x];
                dV_j[e] += sum;
            }
            __syncthreads();  // P is about to be overwritten
            for (int e = threadIdx.x; e < queries * B; e += threads) {  // lines 17 to 20
                const int r = e / B, c = e % B;
                if (c >= keys_of(r)) continue;
                float dP = 0;
                for (int x = 0; x < d; ++x) dP += dO_i[r * wide + x] * V_j[c * wide + x];
                P[e] *= dP - D_i[r];
            }
            __syncthreads();  // dS is there
            for (int e = threadIdx.x; e < keys * d; e += threads) {  // line 22
                const int c = e / d, x = e % d;
                float sum = 0;
                for (int r = 0; r < queries; ++r)
                    if (c < keys_of(r)) sum += P[r * B + c] * Q_i[r * wide + x];
                dK_j[e] += sum;
            }
            // END 16.3
            for (int r = 0; r < queries; ++r)  // line 21
                for (int x = threadIdx.x; x < d; x += threads) {
                    float sum = 0;  // of dS K_j, one element
                    for (int c = 0; c < keys_of(r); ++c) sum += P[r * B + c] * K_j[c * wide + x];
                    // EXERCISE 16.2 What this block of keys has to say of dQ, of which other blocks have their part, too. The
                    // starter leaves only the last of them.
                    // STARTER dQ[std::size_t(i + r) * d + x] = scale * sum;
                    dQ[std::size_t(i + r) * d + x] += scale * sum;
                    // END 16.2
                }
            __syncthreads();  // all tiles are about to be overwritten
        }
        // line 24
        for (int e = threadIdx.x; e < keys * d; e += threads) dK[std::size_t(j) * d + e] = scale * dK_j[e];
        for (int e = threadIdx.x; e < keys * d; e += threads) dV[std::size_t(j) * d + e] = dV_j[e];
    }
}

/// The largest block whose tiles fit into M bytes.
int block_rows(int M, int d) {
    for (const int B : {64, 32, 16})
        if (shared_bytes(B, d) <= M) return B;
    return 0;
}

const Support supports{.stage = "16-recomputation", .head_dims = {64, 128}, .causal = true, .deterministic = true};

std::size_t scratch_bytes(const AttentionShape&) { return 0; }

void launch(const BackwardArgs& args) {
    const AttentionShape& s = args.shape;
    const int M = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin), B = block_rows(M, s.head_dim);
    if (B == 0) throw std::invalid_argument(supports.stage + ": the device has only " + std::to_string(M) + " bytes of shared memory a block");
    const auto in = [](const void* tensor) { return static_cast<const float*>(tensor); };
    const auto out = [](void* tensor) { return static_cast<float*>(tensor); };
    launch_kernel(recompute, {unsigned(s.batch) * s.heads, threads, std::size_t(shared_bytes(B, s.head_dim)), args.stream},
                  in(args.Q), in(args.K), in(args.V), in(args.O), in(args.dO), args.lse, out(args.dQ), out(args.dK), out(args.dV),
                  s.n_q, s.n_k, s.head_dim, B, s.causal, args.scale);
}

const Registration registration({supports, launch, scratch_bytes});

}  // namespace
}  // namespace flashladder::attention_backward
