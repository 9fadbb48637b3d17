// Rung 05: warp partitioning. Four warps share K_j and V_j; who owns what decides what they must tell one another.
//
// Idea      split-Q: each warp owns a quarter of the rows of Q_i, S and O, and reads all of K_j and V_j: no warp needs
//           another's results. split-K, as FlashAttention had it, cuts K_j and V_j instead: every warp has a piece of
//           every row, so in each step their maxima and their parts of O meet in shared memory.
// Saves     against rung 04, K_j and V_j are fetched once for 128 queries instead of 32; against split-K, the meetings.
// Costs     bank conflicts, as in rung 04: rung 06.
// Source    FlashAttention-2 (Dao, 2023), section 3.3 and figure 3
// Supports  bf16, f16; d 64, 128; any N_q and N_k; causal; grouped-query heads; LSE; sm_80 and newer
#include "operations/attention/launch_forward.h"
#include "operations/attention/stage.h"
#include "tile/copy.h"
#include "tile/multiply.h"
#include "tile/online_softmax.h"

namespace flashladder::attention {
namespace {

constexpr int warps = 4, threads = 32 * warps;

/// Queries and keys of a block's tiles.
template <int B_r_, int B_c_>
struct Blocks {
    static constexpr int B_r = B_r_, B_c = B_c_;
};
/// The same, to see what other sizes cost: they may need more registers than there are.
template <int B_r, int B_c>
struct Variant : Blocks<B_r, B_c> {};

template <int d> using SplitQ = Blocks<128, d == 64 ? 64 : 16>;  // as many keys as registers have room for S
using SplitK = Blocks<32, 64>;  // every warp has O of all queries: no room for more of these

/// Block (i, h, b) owns B_r queries of one head, each of its warps a quarter of them.
template <class Element, int d, bool causal, class Sizes>
__global__ void __launch_bounds__(threads) split_q_flash(const Element* Q, const Element* K, const Element* V,
                                                         Element* O, float* lse, int N_q, int N_k, int group,
                                                         float scale_log2) {
    constexpr int B_r = Sizes::B_r, B_c = Sizes::B_c;
    const tile::SharedTile<Element, B_r, d> Q_smem{dynamic_shared<Element>()};  // O at the end
    const tile::SharedTile<Element, B_c, d> K_smem{Q_smem.data + Q_smem.elements};
    const tile::SharedTile<Element, B_c, d> V_smem{K_smem.data + K_smem.elements};
    const unsigned head = blockIdx.z * gridDim.y + blockIdx.y, kv_head = head / group;
    const unsigned q_rows = head * N_q, kv_rows = kv_head * N_k;  // of the heads before
    const int i = blockIdx.x * B_r, end = causal ? min(N_k, i + B_r + N_k - N_q) : N_k;
    const auto load_keys = [&](int j) {  // K_j and V_j, by all threads
        tile::copy_in<threads>(K_smem, K, kv_rows + j, kv_rows + N_k);
        tile::copy_in<threads>(V_smem, V, kv_rows + j, kv_rows + N_k);
    };

    tile::copy_in<threads>(Q_smem, Q, q_rows + i, q_rows + N_q);
    // EXERCISE 5.2 Build: from here to O. Each warp owns a quarter of the rows of Q_i, of S and of O, and walks over
    // the keys before `end`, which load_keys(j) fetches for all four. At the end O, rounded, is in Q_smem, where all
    // threads may read it, and LSE in `lse`, if that is there. The starter is right, and slow: a thread owns a row, and
    // multiplies by itself what it fetches from device memory.
    // TODO: your code, instead of this.
    __syncthreads();  // Q_i is there
    for (int row = threadIdx.x; row < B_r; row += threads) {
        const int seen = causal ? min(N_k, i + row + N_k - N_q + 1) : N_k;
        float O_row[d] = {}, m = -INFINITY, l = 0;
        for (int key = 0; key < seen; ++key) {
            const std::size_t first = std::size_t(kv_rows + key) * d;
            float s = 0;
            for (int x = 0; x < d; ++x) s += scale_log2 * float(*Q_smem.at(row, x)) * float(K[first + x]);
            const float m_old = m, p = exp2f(s - (m = fmaxf(m, s))), rescale = exp2f(m_old - m);
            for (int x = 0; x < d; ++x) O_row[x] = rescale * O_row[x] + p * float(V[first + x]);
            l = rescale * l + p;
        }
        for (int x = 0; x < d; ++x) *Q_smem.at(row, x) = Element(l == 0 ? 0 : O_row[x] / l);
        if (lse && i + row < N_q) lse[q_rows + i + row] = l == 0 ? -INFINITY : tile::log_2 * m + logf(l);
    }
    __syncthreads();
    // END 5.2
    tile::copy_out<threads>(O, Q_smem, q_rows + i, q_rows + N_q);
}

/// Combines the warps' values of each row by `combine`; every warp gets them. `smem` is (warps, B_r).
template <int B_r, class Combine>
__device__ tile::RowValues<B_r> over_warps(tile::RowValues<B_r> values, float* smem, Combine combine) {
    // EXERCISE 5.1 Every warp has the values of its own keys alone: make of each row's four what `combine` makes of
    // them, in every warp. value[r][h] of a lane belongs to row tile::row_of(r, h), and all lanes of a quad have it.
    // The block meets before each call, so nobody reads `smem` any more. The starter leaves each warp with its own.
    // TODO: your code, instead of this.
    // END 5.1
    return values;
}

struct Max {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct Sum {
    __device__ float operator()(float a, float b) const { return a + b; }
};

/// A warp's part of O to shared memory, (B_r, d).
template <int d, int B_r>
__device__ void store_part(float* O_smem, const tile::Accumulator<B_r, d>& part_reg) {
#pragma unroll
    for (int r = 0; r < B_r / 16; ++r)
#pragma unroll
        for (int c = 0; c < d / 8; ++c)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                O_smem[tile::row_of(r, e / 2) * d + tile::column_of(c, e)] = part_reg.fragment[r][c][e];
}

/// Adds up the warps' parts of O, (warps, B_r, d) in shared memory: columns `first_column` on.
template <int d, int B_r, int columns>
__device__ void add_parts(tile::Accumulator<B_r, columns>& O_reg, const float* O_smem, int first_column) {
#pragma unroll
    for (int r = 0; r < B_r / 16; ++r)
#pragma unroll
        for (int c = 0; c < columns / 8; ++c)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int row = tile::row_of(r, e / 2), column = first_column + tile::column_of(c, e);
                for (int warp = 0; warp < warps; ++warp)
                    O_reg.fragment[r][c][e] += O_smem[(warp * B_r + row) * d + column];
            }
}

/// Block (i, h, b) owns B_r queries of one head; each of its warps a quarter of the keys of a step, and of O's columns.
template <class Element, int d, class Sizes>
__global__ void __launch_bounds__(threads) split_k_flash(const Element* Q, const Element* K, const Element* V,
                                                         Element* O, float* lse, int N_q, int N_k, int group,
                                                         float scale_log2) {
    constexpr int B_r = Sizes::B_r, B_c = Sizes::B_c, keys = B_c / warps, columns = d / warps;  // of a warp
    using Scores = tile::Accumulator<B_r, keys>;     // of all rows, for this warp's keys
    using Part = tile::Accumulator<B_r, d>;          // of O, from these keys
    using Output = tile::Accumulator<B_r, columns>;  // from all keys, this warp's columns
    const tile::SharedTile<Element, B_r, d> Q_smem{dynamic_shared<Element>()};  // O at the end
    const tile::SharedTile<Element, B_c, d> K_smem{Q_smem.data + Q_smem.elements};
    const tile::SharedTile<Element, B_c, d> V_smem{K_smem.data + K_smem.elements};
    float* O_smem = reinterpret_cast<float*>(V_smem.data + V_smem.elements);  // (warps, B_r, d)
    float* row_smem = O_smem + warps * B_r * d;                               // (warps, B_r)
    const int warp = threadIdx.x / 32;
    const tile::SharedTile<Element, keys, d> K_warp{K_smem.at(warp * keys, 0)}, V_warp{V_smem.at(warp * keys, 0)};
    const unsigned head = blockIdx.z * gridDim.y + blockIdx.y, kv_head = head / group;
    const unsigned q_rows = head * N_q, kv_rows = kv_head * N_k;  // of the heads before
    const int i = blockIdx.x * B_r;

    tile::copy_in<threads>(Q_smem, Q, q_rows + i, q_rows + N_q);
    Output O_reg;
    tile::fill(O_reg, 0);
    tile::OnlineSoftmax<B_r> softmax;  // m of all keys so far, l of this warp's
    for (int j = 0; j < N_k; j += B_c) {
        tile::copy_in<threads>(K_smem, K, kv_rows + j, kv_rows + N_k);
        tile::copy_in<threads>(V_smem, V, kv_rows + j, kv_rows + N_k);
        __syncthreads();  // the tiles are there
        Scores S_reg;
        tile::fill(S_reg, 0);
        tile::multiply_transposed(S_reg, Q_smem, 0, K_warp);
        tile::multiply_all(S_reg, scale_log2);
        if (j + B_c > N_k) tile::hide_columns(S_reg, N_k - j - warp * keys);
        const auto m_new = over_warps(tile::row_max(S_reg, softmax.m), row_smem, Max{});
        softmax.raise(m_new, O_reg);
        tile::exponentials(S_reg, m_new);
        const tile::Operand<Element, B_r, keys> P_reg = tile::to_operand<Element>(S_reg);
        softmax.add(P_reg);
        Part part_reg;
        tile::fill(part_reg, 0);
        tile::multiply(part_reg, P_reg, V_warp);
        store_part<d>(O_smem + warp * B_r * d, part_reg);
        __syncthreads();  // every warp's part is there; and K_j and V_j may be overwritten
        add_parts<d>(O_reg, O_smem, warp * columns);
    }

    const auto lse_rows = softmax.finish(O_reg, over_warps(softmax.sums(), row_smem, Sum{}));
    if (lse && warp == 0) tile::store_rows(lse, lse_rows, q_rows + i, q_rows + N_q);
    tile::store(Q_smem, O_reg, 0, warp * columns);
    __syncthreads();
    tile::copy_out<threads>(O, Q_smem, q_rows + i, q_rows + N_q);
}

/// Of Q_i, K_j and V_j.
constexpr std::size_t tile_bytes(int B_r, int B_c, int d) { return std::size_t(B_r + 2 * B_c) * d * 2; }

void launch_split_q(const ForwardArgs& args) {
    with_types_of(args.shape, [&]<class Element, int d, bool causal>() {
        constexpr int B_r = SplitQ<d>::B_r, B_c = SplitQ<d>::B_c;
        launch_forward<Element>(split_q_flash<Element, d, causal, SplitQ<d>>, args, B_r, threads,
                                tile_bytes(B_r, B_c, d));
    });
}

void launch_split_k(const ForwardArgs& args) {
    with_d_of(args.shape, [&]<int d>() {
        constexpr int B_r = SplitK::B_r, B_c = SplitK::B_c;
        constexpr std::size_t parts = sizeof(float) * warps * B_r * (d + 1);  // of O, and of a value for each row
        launch_forward<__nv_bfloat16>(split_k_flash<__nv_bfloat16, d, SplitK>, args, B_r, threads,
                                      tile_bytes(B_r, B_c, d) + parts);
    });
}

template <int B_r, int B_c>
void launch_variant(const ForwardArgs& args) {
    with_d_of(args.shape, [&]<int d>() {
        launch_forward<__nv_bfloat16>(split_q_flash<__nv_bfloat16, d, false, Variant<B_r, B_c>>, args, B_r, threads,
                                      tile_bytes(B_r, B_c, d));
    });
}

std::size_t scratch_bytes(const AttentionShape&) { return 0; }

const Support supports{.stage = "05-warp-partitioning", .head_dims = {64, 128}, .dtypes = {DType::bf16, DType::f16},
                       .causal = true, .lse = true, .grouped_query = true};
const Registration registrations[] = {
    {{supports, launch_split_q, scratch_bytes}},
    {{supports.for_variant("split-K"), launch_split_k, scratch_bytes}},
    {{supports.for_variant("64x64"), launch_variant<64, 64>, scratch_bytes}},
    {{supports.for_variant("64x128"), launch_variant<64, 128>, scratch_bytes}},
    {{supports.for_variant("128x64"), launch_variant<128, 64>, scratch_bytes}},
    {{supports.for_variant("128x128"), launch_variant<128, 128>, scratch_bytes}},
};

}  // namespace
}  // namespace flashladder::attention
