// Rung 07: async copies. Tiles are fetched while others are computed with; nobody waits for memory with idle hands.
//
// Idea      cp.async copies 16 bytes from device to shared memory without a register, and the thread goes on. K and V
//           have rings of `stages` slots each. As soon as a slot is free the block asks for the tile that comes next in
//           it, and waits for K_j and for V_j only when it needs them.
// Saves     the wait: rung 06 asks for K_j and V_j when it needs them, and all four warps stand still until they come.
// Costs     shared memory for every stage; a tile too many in flight is a block too few on the multiprocessor.
// Source    PTX ISA, "cp.async"; FlashAttention-2 (Dao, 2023) fetches V_j under Q_i K_j^T and K_j+1 under the softmax
// Supports  bf16, f16; d 64, 128; any N_q and N_k; causal; grouped-query heads; LSE; sm_80 and newer
#include "operations/attention/launch_forward.h"
#include "operations/attention/stage.h"
#include "ptx/cp_async.h"
#include "tile/copy.h"
#include "tile/multiply.h"
#include "tile/online_softmax.h"
#include "tile/swizzled.h"

namespace flashladder::attention {
namespace {

constexpr int warps = 4, threads = 32 * warps;

/// Queries and keys of a block's tiles, slots of the rings of K and V, and whether Q_i stays in registers.
template <int B_r_, int B_c_, int stages_, bool Q_in_registers_>
struct Config {
    static constexpr int B_r = B_r_, B_c = B_c_, stages = stages_;
    static constexpr bool Q_in_registers = Q_in_registers_;
};

/// The same, to see what others cost: they may need more registers than there are.
template <int B_r, int B_c, int stages, bool Q_in_registers>
struct Variant : Config<B_r, B_c, stages, Q_in_registers> {};

/// Slots for `stages` tiles, one after the other.
template <class Tile, int stages>
struct Ring {
    static constexpr int elements = stages * Tile::elements;
    typename Tile::Element* data;

    /// The slot of tile t, of all that come one after the other.
    __device__ Tile operator[](int t) const {
        const int slot = t % stages;
        return {data + slot * Tile::elements};
    }
};

/// Asks for rows `first_row` on of `tensor`; from row N on the tile will be 0. Waits for nothing.
template <class Tile>
__device__ __forceinline__ void copy_in_async(const Tile& tile, const typename Tile::Element* tensor,
                                              unsigned first_row, unsigned N) {
    // EXERCISE 7.1 The tile by cp.async, 16 bytes a copy: neighbouring threads take neighbouring chunks of a row, and
    // the places are the tile's. Waits for nothing and commits nothing. The starter is right, and slow: the bytes pass
    // through registers, and the thread stands still until they are there.
    // TODO: your code, instead of this.
    tile::copy_in<threads>(tile, tensor, first_row, N);
    // END 7.1
}

/// Block (i, h, b) owns B_r queries of one head, each of its warps a quarter of them.
template <class Element, int d, bool causal, class Config>
__global__ void __launch_bounds__(threads) async_flash(const Element* Q, const Element* K, const Element* V, Element* O,
                                                       float* lse, int N_q, int N_k, int group, float scale_log2) {
    constexpr int B_r = Config::B_r, B_c = Config::B_c, stages = Config::stages, rows = B_r / warps;  // of a warp
    using KeyTile = tile::SharedTile<Element, B_c, d, tile::SwizzledFor<d>>;
    const tile::SharedTile<Element, B_r, d, tile::SwizzledFor<d>> Q_smem{dynamic_shared<Element>()};  // O at the end
    const Ring<KeyTile, stages> K_smem{Q_smem.data + Q_smem.elements}, V_smem{K_smem.data + K_smem.elements};
    const unsigned head = blockIdx.z * gridDim.y + blockIdx.y, kv_head = head / group;
    const unsigned q_rows = head * N_q, kv_rows = kv_head * N_k;  // of the heads before
    const int i = blockIdx.x * B_r, end = causal ? min(N_k, i + B_r + N_k - N_q) : N_k;
    const int T_c = (max(end, 0) + B_c - 1) / B_c;  // blocks of keys: none behind the diagonal
    const int first_row = threadIdx.x / 32 * rows;
    const int last_key = i + first_row + N_k - N_q;  // that the warp's first row sees, if causal; others see more

    // EXERCISE 7.2 Build: the ring. All T_c blocks of keys and values pass through the `stages` slots of K_smem and of
    // V_smem. A slot takes its next tile as soon as it has been read; K_j is waited for before S, V_j behind it, and
    // none sooner; what does not exist is not asked for. The starter is right, and slow: it asks for K_j and V_j when it
    // needs them, as in rung 06.
    // TODO: your code, instead of this.
    tile::Operand<Element, rows, d> Q_reg;
    tile::Accumulator<rows, d> O_reg;
    tile::fill(O_reg, 0);
    tile::OnlineSoftmax<rows> softmax;
    copy_in_async(Q_smem, Q, q_rows + i, q_rows + N_q);
    ptx::cp_async_commit();
    for (int t = 0; t < T_c; ++t) {
        const int j = t * B_c;
        copy_in_async(K_smem[0], K, kv_rows + j, kv_rows + N_k);
        copy_in_async(V_smem[0], V, kv_rows + j, kv_rows + N_k);
        ptx::cp_async_commit();
        ptx::cp_async_wait<0>();
        __syncthreads();  // the tiles are there
        if (Config::Q_in_registers && t == 0) tile::load(Q_reg, Q_smem, first_row);
        tile::Accumulator<rows, B_c> S_reg;
        tile::fill(S_reg, 0);
        if constexpr (Config::Q_in_registers) tile::multiply_transposed(S_reg, Q_reg, K_smem[0]);
        else tile::multiply_transposed(S_reg, Q_smem, first_row, K_smem[0]);
        tile::multiply_all(S_reg, scale_log2);
        if (causal && j + B_c - 1 > last_key) tile::hide_right_of(S_reg, last_key - j);
        if (!causal && j + B_c > N_k) tile::hide_columns(S_reg, N_k - j);
        softmax.update(S_reg, O_reg);
        const auto P_reg = tile::to_operand<Element>(S_reg);
        softmax.add(P_reg);
        tile::multiply(O_reg, P_reg, V_smem[0]);
        __syncthreads();  // K_j and V_j are about to be overwritten
    }
    // END 7.2

    const auto lse_rows = softmax.finish(O_reg);
    if (lse) tile::store_rows(lse, lse_rows, q_rows + i + first_row, q_rows + N_q);
    ptx::cp_async_wait<0>();  // without a step, Q_i may still be on its way
    __syncthreads();
    tile::store(Q_smem, O_reg, first_row);
    __syncthreads();
    tile::copy_out<threads>(O, Q_smem, q_rows + i, q_rows + N_q);
}

template <class Element, int d, bool causal, class Config>
void launch_config(const ForwardArgs& args) {
    constexpr std::size_t elements = (Config::B_r + 2 * Config::stages * Config::B_c) * d;
    launch_forward<Element>(async_flash<Element, d, causal, Config>, args, Config::B_r, threads,
                            elements * sizeof(Element));
}

void launch(const ForwardArgs& args) {
    with_types_of(args.shape, [&]<class Element, int d, bool causal>() {
        launch_config<Element, d, causal, Config<128, 64, 2, d == 64>>(args);
    });
}
template <int stages>
void launch_stages(const ForwardArgs& args) {
    with_d_of(args.shape, [&]<int d>() {
        launch_config<__nv_bfloat16, d, false, Variant<128, 64, stages, d == 64>>(args);
    });
}

std::size_t scratch_bytes(const AttentionShape&) { return 0; }

const Support supports{.stage = "07-async-copies", .head_dims = {64, 128}, .dtypes = {DType::bf16, DType::f16},
                       .causal = true, .lse = true, .grouped_query = true};
const Registration registrations[] = {
    {{supports, launch, scratch_bytes}},
    {{supports.for_variant("1 stage"), launch_stages<1>, scratch_bytes}},
    {{supports.for_variant("3 stages"), launch_stages<3>, scratch_bytes}},
    {{supports.for_variant("4 stages"), launch_stages<4>, scratch_bytes}},
    {{supports.for_variant("6 stages"), launch_stages<6>, scratch_bytes}},
};

}  // namespace
}  // namespace flashladder::attention
