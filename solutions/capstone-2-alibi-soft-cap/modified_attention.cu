// Capstone 2: ALiBi and a soft cap, in tensor cores. What is asked for: chapters/capstone-2-alibi-soft-cap/README.md.
//
// Supports  bf16; d 64, 128; any N_q and N_k; ALiBi, a soft cap, both or none; grouped-query heads; LSE; sm_80
#include <cuda_bf16.h>

#include "launch.h"
#include "operations/modified_attention/stage.h"
#include "ptx/cp_async.h"
#include "tile/copy.h"
#include "tile/copy_async.h"
#include "tile/multiply.h"
#include "tile/online_softmax.h"
#include "tile/swizzled.h"

namespace flashladder::modified_attention {
namespace {

// EXERCISE capstone-2.1 Build: the whole kernel, and launch(), which starts it. The contract is the README beside this
// file.
// STARTER void launch([[maybe_unused]] const Args& args) {}
// Rung 07, whose scores pass through modify() between their product and their softmax. A lane knows row and column of what
// it holds, so the scores never leave its registers. All constants are in base 2, and computed on the host.
using Element = __nv_bfloat16;
constexpr int warps = 4, threads = 32 * warps, stages = 2;
constexpr int B_r = 64, B_c = 64, rows = B_r / warps;  // rows: of a warp
constexpr float log2_e = 1.44269504089f;

/// From q . k to a score in base 2. tanh(x) = 1 - 2 / (1 + e^2x), so that c tanh(s / c) is cap - 2 cap / (1 + 2^(s exponent)).
struct Scores {
    float scale;          // without a cap
    float cap, exponent;  // with it: c log2(e), and 2 log2(e) / c times what scales q . k
    const float* slopes;  // (heads); null: none
};

/// Slots for `stages` tiles, one after the other.
template <class Tile>
struct Ring {
    static constexpr int elements = stages * Tile::elements;
    Element* data;
    __device__ Tile operator[](int t) const { return {data + t % stages * Tile::elements}; }
};

/// Asks for rows `first_row` on of `tensor`; from row N on the tile will be 0. Waits for nothing.
template <class Tile>
__device__ __forceinline__ void copy_in_async(const Tile& tile, const Element* tensor, unsigned first_row, unsigned N) {
    constexpr int chunks = Tile::columns / tile::chunk, rows_at_once = threads / chunks;
    const int row = threadIdx.x / chunks, column = threadIdx.x % chunks * tile::chunk;
    const Element* source = tensor + std::size_t(first_row + row) * Tile::columns + column;
#pragma unroll
    for (int r = 0; r < Tile::rows; r += rows_at_once)
        ptx::cp_async<16>(tile.at(row, column) + r * Tile::stride, source + r * Tile::columns,
                          first_row + row + r < N ? 16 : 0);
}

/// Products q . k become scores in base 2. `distance` is that of row 0 and column 0: where the query stands, less the key.
template <bool capped, int columns>
__device__ __forceinline__ void modify(tile::Accumulator<rows, columns>& S, const Scores& f, float slope, int distance) {
    const float bias = slope * float(distance + tile::row_of(0, 0) - tile::column_of(0, 0));  // of this lane's first element
#pragma unroll
    for (int c = 0; c < columns / 8; ++c)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            float& s = S.fragment[0][c][e];
            s = capped ? f.cap - __fdividef(2 * f.cap, 1 + ptx::ex2_approx(s * f.exponent)) : s * f.scale;
            s -= bias + slope * float(e / 2 * 8 - 8 * c - e % 2);
        }
}

/// Block (i, h, b) owns B_r queries of one head, each of its warps 16 of them.
template <int d, bool capped>
__global__ void __launch_bounds__(threads) modified_flash(const Element* Q, const Element* K, const Element* V, Element* O,
                                                          float* lse, int N_q, int N_k, int group, Scores scores) {
    using KeyTile = tile::SharedTile<Element, B_c, d, tile::SwizzledFor<d>>;
    const tile::SharedTile<Element, B_r, d, tile::SwizzledFor<d>> Q_smem{dynamic_shared<Element>()};  // O at the end
    const Ring<KeyTile> K_smem{Q_smem.data + Q_smem.elements}, V_smem{K_smem.data + K_smem.elements};
    const unsigned head = blockIdx.z * gridDim.y + blockIdx.y, kv_head = head / group;
    const unsigned q_rows = head * N_q, kv_rows = kv_head * N_k;  // of the heads before
    const int i = blockIdx.x * B_r, end = min(N_k, i + B_r + N_k - N_q);
    const int T_c = (max(end, 0) + B_c - 1) / B_c;  // tiles of keys: none behind the diagonal
    const int first_row = threadIdx.x / 32 * rows;
    const int own = i + first_row + N_k - N_q;  // the key where the warp's first query stands
    const float slope = scores.slopes ? scores.slopes[blockIdx.y] * log2_e : 0;

    const auto ask_for = [&](const KeyTile& slot, const Element* tensor, int t) {  // tile t of K or V
        if (t < T_c) copy_in_async(slot, tensor, kv_rows + t * B_c, kv_rows + N_k);
        ptx::cp_async_commit();  // of nothing too: the waits count groups
    };
    constexpr int younger = 2 * (stages - 1);  // groups than the one that a step waits for, K_j or V_j
    copy_in_async(Q_smem, Q, q_rows + i, q_rows + N_q);
#pragma unroll
    for (int t = 0; t < stages; ++t) {  // all slots but V's last, which has its turn in the first step
        ask_for(K_smem[t], K, t);
        if (t < stages - 1) ask_for(V_smem[t], V, t);
    }
    tile::Accumulator<rows, d> O_reg;
    tile::fill(O_reg, 0);
    tile::OnlineSoftmax<rows> softmax;
    for (int t = 0; t < T_c; ++t) {
        const int j = t * B_c;
        ptx::cp_async_wait<younger>();
        __syncthreads();  // K_j is there; and nobody reads V_(j-1) any more
        ask_for(V_smem[t + stages - 1], V, t + stages - 1);
        tile::Accumulator<rows, B_c> S_reg;
        tile::fill(S_reg, 0);
        tile::multiply_transposed(S_reg, Q_smem, first_row, K_smem[t]);
        ptx::cp_async_wait<younger>();
        __syncthreads();  // V_j is there; and nobody reads K_j any more
        ask_for(K_smem[t + stages], K, t + stages);
        modify<capped>(S_reg, scores, slope, own - j);
        if (j + B_c - 1 > own) tile::hide_right_of(S_reg, own - j);
        softmax.update(S_reg, O_reg);
        const auto P_reg = tile::to_operand<Element>(S_reg);
        softmax.add(P_reg);
        tile::multiply(O_reg, P_reg, V_smem[t]);
    }
    const auto lse_rows = softmax.finish(O_reg);
    if (lse) tile::store_rows(lse, lse_rows, q_rows + i + first_row, q_rows + N_q);
    ptx::cp_async_wait<0>();  // without a step, Q_i may still be on its way
    __syncthreads();
    tile::store(Q_smem, O_reg, first_row);
    __syncthreads();
    tile::copy_out<threads>(O, Q_smem, q_rows + i, q_rows + N_q);
}

template <int d>
void launch_d(const Args& args) {
    const attention::AttentionShape& s = args.shape;
    const float scale = args.scale * log2_e, c = args.soft_cap;
    const Scores scores{scale, c * log2_e, c > 0 ? 2 * scale / c : 0, args.slopes};
    const dim3 grid((s.n_q + B_r - 1) / B_r, s.heads, s.batch);
    constexpr std::size_t bytes = sizeof(Element) * (B_r + 2 * stages * B_c) * d;
    launch_kernel(c > 0 ? modified_flash<d, true> : modified_flash<d, false>, {grid, threads, bytes, args.stream},
                  static_cast<const Element*>(args.Q), static_cast<const Element*>(args.K),
                  static_cast<const Element*>(args.V), static_cast<Element*>(args.O), args.lse, s.n_q, s.n_k, s.heads / s.kv_heads, scores);
}

void launch(const Args& args) { args.shape.head_dim == 64 ? launch_d<64>(args) : launch_d<128>(args); }
// END capstone-2.1

const Support supports{.attention = {.stage = "capstone-2-alibi-soft-cap", .head_dims = {64, 128}, .dtypes = {DType::bf16},
                                     .lse = true, .grouped_query = true},
                       .alibi = true, .soft_cap = true};
const Registration registration({supports, launch});

}  // namespace
}  // namespace flashladder::modified_attention
