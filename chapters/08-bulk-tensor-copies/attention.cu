// Rung 08: bulk tensor copies. One thread asks for a whole tile, and a barrier tells when its bytes have come.
//
// Idea      TMA copies a box of a tensor to shared memory, swizzled as rung 06 wants it. A map, made on the host, says
//           where rows, heads and batches lie and where the tensor ends; a barrier (mbarrier) counts the bytes.
// Saves     what the 128 threads of rung 07 do for each tile: addresses, comparisons with N, an instruction for every
//           16 bytes. Tensors may have any strides, rows past the end read as 0 and are not written.
// Costs     four maps to make on the host; phases to keep in mind: a barrier serves every round of its slot anew.
// Source    PTX ISA, "cp.async.bulk.tensor", "mbarrier"; FlashAttention-3 (Shah et al., 2024), section 3.1, loads so
// Supports  bf16, f16; d 64, 128; any N_q and N_k; causal; grouped-query heads; LSE; any strides; sm_90a
#include "operations/attention/launch_forward.h"
#include "operations/attention/stage.h"
#include "ptx/fence.h"
#include "ptx/mbarrier.h"
#include "ptx/tensor_map.h"
#include "ptx/tma.h"
#include "tile/copy.h"
#include "tile/multiply.h"
#include "tile/online_softmax.h"
#include "tile/swizzled.h"

namespace flashladder::attention {
namespace {

constexpr int warps = 4, threads = 32 * warps;
constexpr int panel = 64;  // columns: 128 bytes, as wide as the swizzle, the most that a row of a box may have

/// Queries and keys of a block's tiles, slots of the rings of K and V, and whether Q_i stays in registers.
template <int B_r_, int B_c_, int stages_, bool Q_in_registers_>
struct Config {
    static constexpr int B_r = B_r_, B_c = B_c_, stages = stages_;
    static constexpr bool Q_in_registers = Q_in_registers_;
};

/// The shared memory of a block.
template <class Element, int d, class Config>
struct Shared {
    using QueryTile = tile::SharedTile<Element, Config::B_r, d, tile::Swizzled<128>>;
    using KeyTile = tile::SharedTile<Element, Config::B_c, d, tile::Swizzled<128>>;
    alignas(1024) Element Q[QueryTile::elements];  // and, in the end, O
    Element K[Config::stages][KeyTile::elements], V[Config::stages][KeyTile::elements];
    ptx::Barrier Q_full, K_full[Config::stages], V_full[Config::stages];
};

/// How TMA is to see a (batch, heads, n, columns of Tile) tensor: in boxes of a panel of Tile.
template <class Tile>
CUtensorMap map_of(const void* tensor, const Strides& strides, int batch, int heads, int n) {
    using Element = typename Tile::Element;
    // EXERCISE 8.1 A map with the tensor's four dimensions, columns first: how long they are, how far it is along each
    // but the first, what one copy moves, and in which order chunks lie in shared memory. The starter's has 8 elements.
    // TODO: your code, instead of this.
    const std::array<std::uint64_t, 4> extents{8, 1, 1, 1};
    const std::array<std::uint64_t, 3> distances{16, 16, 16};
    const std::array<std::uint32_t, 4> box{8, 1, 1, 1};
    return ptx::make_tensor_map<Element, 4>(static_cast<const Element*>(tensor), extents, distances, box,
                                            ptx::Swizzle::none);
    // END 8.1
}

/// Asks for the rows from `row` on of a head, in boxes of a panel; `full` counts their bytes. Rows past the end will be
/// 0. By one thread; waits for nothing.
template <class Tile>
__device__ __forceinline__ void load(const Tile& tile, const CUtensorMap& map, ptx::Barrier& full, int row, int head,
                                     int batch) {
#pragma unroll
    for (int column = 0; column < Tile::columns; column += panel)
        ptx::tma_load(tile.data + column * Tile::rows, map, full, {column, row, head, batch});
}

/// The tile to the rows from `row` on; rows past the end are not written. By one thread.
template <class Tile>
__device__ __forceinline__ void store(const CUtensorMap& map, const Tile& tile, int row, int head, int batch) {
#pragma unroll
    for (int column = 0; column < Tile::columns; column += panel)
        ptx::tma_store(map, tile.data + column * Tile::rows, {column, row, head, batch});
    ptx::bulk_commit();
    ptx::bulk_wait_read<0>();  // shared memory is not given back before it has been read
}

/// Block (i, h, b) owns B_r queries of one head, each of its warps a quarter of them. Thread 0 asks for all tiles.
template <class Element, int d, bool causal, class Config>
__global__ void __launch_bounds__(threads)
    bulk_flash(const __grid_constant__ CUtensorMap Q, const __grid_constant__ CUtensorMap K,
               const __grid_constant__ CUtensorMap V, const __grid_constant__ CUtensorMap O, float* lse, int N_q,
               int N_k, int group, float scale_log2) {
    constexpr int B_r = Config::B_r, B_c = Config::B_c, stages = Config::stages, rows = B_r / warps;  // of a warp
    using Memory = Shared<Element, d, Config>;
    Memory& smem = *dynamic_shared<Memory>();
    const typename Memory::QueryTile Q_smem{smem.Q};  // O at the end
    const int head = blockIdx.y, batch = blockIdx.z, kv_head = head / group;
    const int i = blockIdx.x * B_r, end = causal ? min(N_k, i + B_r + N_k - N_q) : N_k;
    const int T_c = (max(end, 0) + B_c - 1) / B_c;  // blocks of keys: none behind the diagonal
    const int first_row = threadIdx.x / 32 * rows;
    const int last_key = i + first_row + N_k - N_q;  // that the warp's first row sees, if causal; others see more

    // EXERCISE 8.3 Build: Q_i, and the tiles of K and V, by TMA. Thread 0 asks for them; Q_full, K_full[] and V_full[]
    // tell all threads that they have come. Block t of K goes to the slot smem.K[t % stages], of V to smem.V[t % stages],
    // as soon as nobody reads any more what is there: while a tile is multiplied with, two others are under way. The
    // arithmetic stands here already. The starter asks for nothing, and takes 0 for all elements.
    // TODO: your code, instead of this.
    for (int x = threadIdx.x; x < Memory::QueryTile::elements; x += threads) smem.Q[x] = Element(0.0f);
    for (int x = threadIdx.x; x < Memory::KeyTile::elements; x += threads)
        for (int slot = 0; slot < stages; ++slot) smem.K[slot][x] = smem.V[slot][x] = Element(0.0f);
    __syncthreads();
    tile::Operand<Element, rows, d> Q_reg;
    if (Config::Q_in_registers) tile::load(Q_reg, Q_smem, first_row);
    tile::Accumulator<rows, d> O_reg;
    tile::fill(O_reg, 0);
    tile::OnlineSoftmax<rows> softmax;
    for (int t = 0; t < T_c; ++t) {
        const int j = t * B_c, slot = t % stages;
        tile::Accumulator<rows, B_c> S_reg;
        tile::fill(S_reg, 0);
        const typename Memory::KeyTile K_smem{smem.K[slot]}, V_smem{smem.V[slot]};
        if constexpr (Config::Q_in_registers) tile::multiply_transposed(S_reg, Q_reg, K_smem);
        else tile::multiply_transposed(S_reg, Q_smem, first_row, K_smem);
        tile::multiply_all(S_reg, scale_log2);
        if (causal && j + B_c - 1 > last_key) tile::hide_right_of(S_reg, last_key - j);
        if (!causal && j + B_c > N_k) tile::hide_columns(S_reg, N_k - j);
        softmax.update(S_reg, O_reg);
        const auto P_reg = tile::to_operand<Element>(S_reg);
        softmax.add(P_reg);
        tile::multiply(O_reg, P_reg, V_smem);
    }
    // END 8.3

    const auto lse_rows = softmax.finish(O_reg);
    const unsigned q_rows = (batch * gridDim.y + head) * N_q;  // of the heads before
    if (lse) tile::store_rows(lse, lse_rows, q_rows + i + first_row, q_rows + N_q);
    __syncwarp();  // a warp's rows of Q_i are read by that warp alone
    tile::store(Q_smem, O_reg, first_row);
    // EXERCISE 8.2 TMA sees shared memory another way than loads and stores do (the async proxy). Let it see what the
    // threads have stored. The starter has the barrier of the threads alone.
    // TODO: your code, instead of this.
    __syncthreads();
    if (threadIdx.x == 0) store(O, Q_smem, i, head, batch);
    // END 8.2
}

template <class Element, int d, bool causal, class Config>
void launch_config(const ForwardArgs& args) {
    using Memory = Shared<Element, d, Config>;
    using QueryTile = typename Memory::QueryTile;
    using KeyTile = typename Memory::KeyTile;
    const AttentionShape& s = args.shape;
    const dim3 grid((s.n_q + Config::B_r - 1) / Config::B_r, s.heads, s.batch);
    launch_kernel(bulk_flash<Element, d, causal, Config>, {grid, dim3(threads), sizeof(Memory), args.stream},
                  map_of<QueryTile>(args.Q, args.Q_strides, s.batch, s.heads, s.n_q),
                  map_of<KeyTile>(args.K, args.K_strides, s.batch, s.kv_heads, s.n_k),
                  map_of<KeyTile>(args.V, args.V_strides, s.batch, s.kv_heads, s.n_k),
                  map_of<QueryTile>(args.O, args.O_strides, s.batch, s.heads, s.n_q), args.lse, s.n_q, s.n_k,
                  s.heads / s.kv_heads, args.scale * log2_e);
}

void launch(const ForwardArgs& args) {
    with_types_of(args.shape, [&]<class Element, int d, bool causal>() {
        launch_config<Element, d, causal, Config<128, 64, 2, d == 64>>(args);
    });
}

std::size_t scratch_bytes(const AttentionShape&) { return 0; }

const Registration registration{{{.stage = "08-bulk-tensor-copies", .head_dims = {64, 128},
                                  .dtypes = {DType::bf16, DType::f16}, .causal = true, .lse = true,
                                  .grouped_query = true, .strides = true, .compute_capability = 90},
                                 launch, scratch_bytes}};

}  // namespace
}  // namespace flashladder::attention
