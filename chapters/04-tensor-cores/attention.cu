// Rung 04: tensor cores. One instruction of a warp multiplies 16 x 16 by 16 x 8; float lanes do no product any more.
//
// Idea      ldmatrix brings 8 x 8 matrices from shared memory in the layout that mma takes. S and O stay in the one
//           that mma gives: the softmax works there, and P, rounded to 16 bits, is already what mma takes as A.
// Saves     2048 multiply-adds an instruction instead of 32, half the bytes, and P's way through shared memory.
// Costs     rows of a tile lie a multiple of 128 bytes apart, so the 8 rows of a matrix share their banks: rung 06.
// A block   is one warp: how several share a block is rung 05. It has 32 queries, two tiles of 16, so that what it
//           reads of K_j and V_j serves two mma; with four, O alone would take 256 registers at d = 128.
// Source    PTX ISA, "mma" and "ldmatrix"; FlashAttention-2 (Dao, 2023) has S, P and O in registers like this
// Supports  bf16, f16; d 64, 128; any N_q and N_k; causal; grouped-query heads; LSE; sm_80 and newer
#include "operations/attention/launch_forward.h"
#include "operations/attention/stage.h"
#include "ptx/ldmatrix.h"
#include "ptx/mma.h"

namespace flashladder::attention {
namespace {

constexpr int warp = 32;        // threads of a block
constexpr int k = 16;           // of mma m16n8k16: columns of A; it has as many rows
constexpr int n = 8;            // columns of B and of the accumulator
constexpr int tiles = 2;        // of 16 queries, that the warp owns
constexpr int B_r = tiles * k;  // 32 queries
constexpr int width = 8;        // elements in 16 bytes: a row of an 8 x 8 matrix

/// Keys of a block: at d = 128, O and Q take 192 registers and leave room for 16 columns of S.
__host__ __device__ constexpr int keys_a_block(int d) { return d == 64 ? 32 : 16; }

// clang-format off
// What lane l = 4 g + t holds of the 16 x 8 floats of an accumulator c, and of the 16 x 16 elements of A:
//
//  column  0 1     2 3     4 5     6 7              0 1   2 3   4 5   6 7     8 9  10 11 12 13 14 15
//        +-------+-------+-------+-------+        +-----+-----+-----+-----++-----+-----+-----+-----+
//  row g | t = 0 | t = 1 | t = 2 | t = 3 | c[0 1] | t=0 | t=1 | t=2 | t=3 || t=0 | t=1 | t=2 | t=3 |  a[0] | a[2]
//        +-------+-------+-------+-------+        +-----+-----+-----+-----++-----+-----+-----+-----+
//  g + 8 | t = 0 | t = 1 | t = 2 | t = 3 | c[2 3] | t=0 | t=1 | t=2 | t=3 || t=0 | t=1 | t=2 | t=3 |  a[1] | a[3]
//        +-------+-------+-------+-------+        +-----+-----+-----+-----++-----+-----+-----+-----+
//
// An a[] is two elements, the left one low. Two accumulators side by side are an A: each lane has the same places.
// B (16 x 8): b[0] is rows 2 t and 2 t + 1 of column g, b[1] rows 2 t + 8 and 2 t + 9.
// clang-format on
template <int columns> using Accumulators = float[tiles][columns / n][4];
template <int columns> using Fragments = std::uint32_t[tiles][columns / k][4];  // of A

/// Two floats as the two elements of a register.
template <class Element>
__device__ std::uint32_t pack(float low, float high) {
    const Element pair[2] = {Element(low), Element(high)};
    std::uint32_t bits;
    memcpy(&bits, pair, sizeof bits);
    return bits;
}

/// Maximum and sum over the quad, the four lanes 4 g to 4 g + 3, that shares a row.
__device__ float row_max(float x) {
    for (int lanes = 1; lanes < 4; lanes *= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, lanes));
    return x;
}
__device__ float row_sum(float x) {
    for (int lanes = 1; lanes < 4; lanes *= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, lanes);
    return x;
}

/// Rows of d elements into a tile, neighbouring lanes 16 bytes apart; rows past the end become 0.
template <int d, class Element>
__device__ void load_tile(Element* tile_smem, const Element* tensor, int first_row, int tile_rows, int N) {
#pragma unroll
    for (int e = threadIdx.x; e < tile_rows * d / width; e += warp) {
        const int r = e / (d / width), x = e % (d / width) * width;
        uint4 values{0, 0, 0, 0};
        if (first_row + r < N) values = *reinterpret_cast<const uint4*>(tensor + std::size_t(first_row + r) * d + x);
        *reinterpret_cast<uint4*>(tile_smem + r * d + x) = values;
    }
}
/// And B_r rows back, without those past the end.
template <int d, class Element>
__device__ void store_tile(Element* tensor, const Element* tile_smem, int first_row, int N) {
    for (int e = threadIdx.x; e < B_r * d / width; e += warp) {
        const int r = e / (d / width), x = e % (d / width) * width;
        if (first_row + r >= N) continue;
        const uint4 values = *reinterpret_cast<const uint4*>(tile_smem + r * d + x);
        *reinterpret_cast<uint4*>(tensor + std::size_t(first_row + r) * d + x) = values;
    }
}

/// The online softmax of rung 03 on one row of a lane, h = 0: row g, c[0] and c[1] of each accumulator; h = 1: row
/// g + 8, c[2] and c[3]. Columns from `seen` on are hidden.
template <int d, int B_c>
__device__ void softmax_row(float (&S_reg)[B_c / n][4], float (&O_reg)[d / n][4], float& m, float& l, int h, bool hides,
                            int seen, float scale) {
    const int t = threadIdx.x % 4;
    float m_new = m, l_ij = 0;
#pragma unroll
    for (int c = 0; c < B_c / n * 2; ++c) {  // this lane's columns: 2 t and 2 t + 1 of every 8
        float& s = S_reg[c / 2][2 * h + c % 2];
        s = hides && c / 2 * n + 2 * t + c % 2 >= seen ? -INFINITY : scale * s;
        m_new = fmaxf(m_new, s);
    }
    m_new = row_max(m_new);
    const float reference = m_new == -INFINITY ? 0 : m_new;  // a query that has seen no key yet: P = exp(-inf) = 0
#pragma unroll
    for (int c = 0; c < B_c / n * 2; ++c) {
        float& p = S_reg[c / 2][2 * h + c % 2];
        p = expf(p - reference);
        l_ij += p;
    }
    const float rescale = expf(m - reference);
    l = rescale * l + l_ij;  // of this lane's columns; the quad adds up at the end
#pragma unroll
    for (int x = 0; x < d / n * 2; ++x) O_reg[x / 2][2 * h + x % 2] *= rescale;
    m = m_new;
}

/// 16 columns of P as A: two accumulators, of the left 8 columns and of the right 8.
template <class Element>
__device__ void to_operand(std::uint32_t (&a)[4], const float (&left)[4], const float (&right)[4]) {
    // EXERCISE 4.2 The 16 columns of P, rounded, as A: each of a lane's eight floats where the drawing above has it. The
    // starter's A is 0.
    // TODO: your code, instead of this.
    a[0] = a[1] = a[2] = a[3] = 0;
    // END 4.2
}

// EXERCISE 4.4 Build: both products, by ldmatrix and mma. S_reg += Q_i K_j^T: Q_reg[r][x / k] is an A, of 16 queries
// and of their elements x to x + 15. O_reg += P V_j: the softmax has left P in accumulators, which `to_operand` makes
// an A of. K_smem and V_smem are (B_c, d). Each 8 x 8 matrix of them is fetched once, and serves both tiles of queries.
// The starter is right, and slow: rung 03's multiply-adds, and A's elements by shuffles from the lanes that hold them.
// TODO: your code, instead of this.
/// Of A, row g + 8 h, column x: the lane of the quad that holds it tells the others.
template <class Element>
__device__ float of_quad(const std::uint32_t (&a)[4], int h, int x) {
    const std::uint32_t bits = __shfl_sync(0xFFFFFFFFu, a[h + x / 8 * 2], threadIdx.x / 4 * 4 + x % 8 / 2);
    Element pair[2];
    memcpy(pair, &bits, sizeof bits);
    return float(pair[x % 2]);
}
template <class Element, int d, int B_c>
__device__ void multiply_scores(Accumulators<B_c>& S_reg, const Fragments<d>& Q_reg, const Element* K_smem) {
    for (int x = 0; x < d; ++x) {
        float q[tiles * 2];
        for (int r = 0; r < tiles * 2; ++r) q[r] = of_quad<Element>(Q_reg[r / 2][x / k], r % 2, x % k);
        for (int c = 0; c < B_c / n * 2; ++c) {  // this lane's columns
            const float element = float(K_smem[(c / 2 * n + threadIdx.x % 4 * 2 + c % 2) * d + x]);
            for (int r = 0; r < tiles * 2; ++r) S_reg[r / 2][c / 2][r % 2 * 2 + c % 2] += q[r] * element;
        }
    }
}
template <class Element, int d, int B_c>
__device__ void add_weighted_values(Accumulators<d>& O_reg, const Accumulators<B_c>& P_reg, const Element* V_smem) {
    for (int c = 0; c < B_c; ++c) {
        float p[tiles * 2];
        for (int r = 0; r < tiles * 2; ++r) {
            std::uint32_t a[4];
            to_operand<Element>(a, P_reg[r / 2][c / k * 2], P_reg[r / 2][c / k * 2 + 1]);
            p[r] = of_quad<Element>(a, r % 2, c % k);
        }
        for (int x = 0; x < d / n * 2; ++x) {
            const float element = float(V_smem[c * d + x / 2 * n + threadIdx.x % 4 * 2 + x % 2]);
            for (int r = 0; r < tiles * 2; ++r) O_reg[r / 2][x / 2][r % 2 * 2 + x % 2] += p[r] * element;
        }
    }
}
// END 4.4

/// Block (i, h, b), one warp, owns 32 queries of one head.
template <class Element, int d, bool causal>
__global__ void __launch_bounds__(warp) tensor_core_flash(const Element* Q, const Element* K, const Element* V, Element* O,
                                                          float* lse, int N_q, int N_k, int group, float scale) {
    constexpr int B_c = keys_a_block(d);
    auto* Q_smem = dynamic_shared<Element>();  // (B_r, d); O at the end
    Element* K_smem = Q_smem + B_r * d;        // (B_c, d)
    Element* V_smem = K_smem + B_c * d;        // (B_c, d)
    const std::size_t head = blockIdx.z * gridDim.y + blockIdx.y, kv_head = head / group;
    Q += head * N_q * d, O += head * N_q * d, K += kv_head * N_k * d, V += kv_head * N_k * d;
    const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    const int i = blockIdx.x * B_r, diagonal = N_k - N_q;
    const int end = causal ? min(N_k, i + B_r + diagonal) : N_k;

    load_tile<d>(Q_smem, Q, i, B_r, N_q);
    __syncwarp();
    Fragments<d> Q_reg;
    // EXERCISE 4.1 Q_reg[r][x / k] becomes A of rows 16 r to 16 r + 15 of Q_i, columns x to x + 15: four 8 x 8
    // matrices, by one ldmatrix. To which row does this lane point, and at which of its columns? The starter's lanes
    // all point to the same.
    // TODO: your code, instead of this.
    for (int x = 0; x < d; x += k)
        for (int r = 0; r < tiles; ++r) ptx::ldmatrix(Q_reg[r][x / k], Q_smem + r * k * d + x);
    // END 4.1
    Accumulators<d> O_reg = {};
    float m[tiles * 2], l[tiles * 2] = {};  // of rows g, g + 8, g + 16, g + 24
    for (float& row : m) row = -INFINITY;

    for (int j = 0; j < end; j += B_c) {
        load_tile<d>(K_smem, K, j, B_c, N_k);
        load_tile<d>(V_smem, V, j, B_c, N_k);
        __syncwarp();  // the tiles are there
        Accumulators<B_c> S_reg = {};
        multiply_scores<Element, d, B_c>(S_reg, Q_reg, K_smem);
        const bool hides = j + B_c > N_k || (causal && j + B_c - 1 > i + diagonal);
#pragma unroll
        for (int r = 0; r < tiles * 2; ++r) {
            const int seen = causal ? min(N_k, i + r * 8 + g + diagonal + 1) : N_k;  // keys that this query sees
            softmax_row<d, B_c>(S_reg[r / 2], O_reg[r / 2], m[r], l[r], r % 2, hides, seen - j, scale);
        }
        add_weighted_values<Element, d, B_c>(O_reg, S_reg, V_smem);
        __syncwarp();  // K_j and V_j are about to be overwritten
    }

    // EXERCISE 4.3 O = O_reg / l leaves in whole rows, 16 bytes a lane: by way of O_smem, (B_r, d), where Q_i was, and
    // `store_tile`. Who else reads and writes there, and when have they? The starter is right, and slow: lanes store
    // what they have, 4 bytes each.
    // TODO: your code, instead of this.
    for (int r = 0; r < tiles * 2; ++r) {
        const float l_row = row_sum(l[r]), inverse = l_row == 0 ? 0 : 1 / l_row;
        const int row = r * 8 + g;  // of the tile
        if (i + row >= N_q) continue;
        for (int x = 0; x < d / n; ++x) {
            const float* c = O_reg[r / 2][x] + r % 2 * 2;  // columns x * n + 2 t and the next
            auto* O_pair = reinterpret_cast<std::uint32_t*>(O + std::size_t(i + row) * d + x * n + 2 * t);
            *O_pair = pack<Element>(inverse * c[0], inverse * c[1]);
        }
        if (lse && t == 0) lse[head * N_q + i + row] = l_row == 0 ? -INFINITY : m[r] + logf(l_row);
    }
    // END 4.3
}

template <class Element, int d, bool causal>
void launch_tensor_cores(const ForwardArgs& args) {
    const AttentionShape& s = args.shape;
    const dim3 grid((s.n_q + B_r - 1) / B_r, s.heads, s.batch);
    const std::size_t shared_bytes = sizeof(Element) * d * (B_r + 2 * keys_a_block(d));  // Q_i, K_j, V_j
    launch_kernel(tensor_core_flash<Element, d, causal>, {grid, warp, shared_bytes, args.stream},
                  static_cast<const Element*>(args.Q), static_cast<const Element*>(args.K), static_cast<const Element*>(args.V),
                  static_cast<Element*>(args.O), args.lse, s.n_q, s.n_k, s.heads / s.kv_heads, args.scale);
}

const Support supports{.stage = "04-tensor-cores", .head_dims = {64, 128}, .dtypes = {DType::bf16, DType::f16}, .causal = true,
                       .lse = true, .grouped_query = true};

std::size_t scratch_bytes(const AttentionShape&) { return 0; }

void launch(const ForwardArgs& args) {
    with_types_of(args.shape, [&]<class Element, int d, bool causal>() { launch_tensor_cores<Element, d, causal>(args); });
}

const Registration registration({supports, launch, scratch_bytes});

}  // namespace
}  // namespace flashladder::attention
