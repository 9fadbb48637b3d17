// Rung 09: warpgroup MMA. The tensor cores of Hopper, driven by 128 threads at once, with operands from shared memory.
//
// Idea      wgmma multiplies a (64, 16) by a (16, n) matrix for four warps together. B, and A if wanted, come from shared
//           memory as TMA left them: a descriptor of 64 bits says where. The instruction runs on while the threads do;
//           they wait for it as they wait for a copy.
// Saves     ldmatrix, with its registers and issue slots; mma.sync reaches two thirds of what wgmma does. A block is small
//           enough for four on a multiprocessor: while one waits, others multiply.
// Costs     registers that nobody may touch while a product is under way: fence, commit, wait.
// Source    PTX ISA, "Asynchronous warpgroup level matrix instructions"; FlashAttention-3 (Shah et al., 2024)
// Supports  bf16, f16; d 64, 128; any N_q and N_k; causal; grouped-query heads; LSE; any strides; sm_90a
#include "operations/attention/forward_maps.h"
#include "operations/attention/launch_forward.h"
#include "operations/attention/stage.h"
#include "ptx/fence.h"
#include "ptx/wgmma.h"
#include "tile/copy.h"
#include "tile/multiply.h"
#include "tile/online_softmax.h"

namespace flashladder::attention {
namespace {

/// Warpgroups of a block, each with 64 queries; keys of a tile; slots of the rings of K and V.
template <int warpgroups_, int B_c_, int stages_>
struct Config {
    static constexpr int warpgroups = warpgroups_, B_c = B_c_, stages = stages_;
    static constexpr int B_r = 64 * warpgroups, threads = 128 * warpgroups;
};
template <int warpgroups, int B_c, int stages>
struct Variant : Config<warpgroups, B_c, stages> {};

template <class Element, int d, class Config>
struct Shared {
    using QueryTile = tile::SharedTile<Element, 64, d, tile::Swizzled<128>>;  // of a warpgroup
    using KeyTile = tile::SharedTile<Element, Config::B_c, d, tile::Swizzled<128>>;
    alignas(1024) Element Q[Config::warpgroups][QueryTile::elements];  // and, in the end, O
    Element K[Config::stages][KeyTile::elements], V[Config::stages][KeyTile::elements];
    ptx::Barrier Q_full, K_full[Config::stages], V_full[Config::stages];
};

/// The elements of an accumulator in the order of wgmma's registers, which is that of mma.m16n8k16: a warp has 16 rows.
template <int columns>
__device__ __forceinline__ auto registers(tile::Accumulator<16, columns>& C) -> float (&)[columns / 2] {
    return reinterpret_cast<float(&)[columns / 2]>(C.fragment);
}

// EXERCISE 9.2 Build: the products, by wgmma. `begin_multiply_transposed` begins S = Q K^T, `begin_multiply` O += P V;
// both return while the tensor cores are at work. `wait` returns when all products are done that this warpgroup has
// begun, C among them: C may be read then, and what they read may be overwritten. Q, K and V are tiles in shared memory
// as TMA has left them, P is in registers. All 128 threads of a warpgroup call them together. The starter is right, and
// slow: rung 08's mma.sync, which has nothing to wait for.
// STARTER template <class QueryTile, class KeyTile, int B_c>
// STARTER __device__ __forceinline__ void begin_multiply_transposed(tile::Accumulator<16, B_c>& S, const QueryTile& Q,
// STARTER                                                           const KeyTile& K) {
// STARTER     tile::fill(S, 0);
// STARTER     tile::multiply_transposed(S, Q, threadIdx.x % 128 / 32 * 16, K);
// STARTER }
// STARTER
// STARTER template <class Element, class ValueTile, int B_c, int d>
// STARTER __device__ __forceinline__ void begin_multiply(tile::Accumulator<16, d>& O, tile::Operand<Element, 16, B_c>& P,
// STARTER                                                const ValueTile& V) {
// STARTER     tile::multiply(O, P, V);
// STARTER }
// STARTER
// STARTER template <int columns>
// STARTER __device__ __forceinline__ void wait(tile::Accumulator<16, columns>& C) {
// STARTER     (void)C;
// STARTER }
// A tile lies in panels of 64 columns, 128 bytes a row; eight rows, 1024 bytes, are what the swizzle repeats after.
constexpr unsigned row_bytes = 128, group_bytes = 8 * row_bytes;

/// The 16 columns from `column` on of a tile, all rows: an operand whose index k runs along the rows, as in Q K^T.
template <class Tile>
__device__ __forceinline__ ptx::Descriptor columns_of(const Tile& tile, int column) {
    const unsigned begin = column / 64 * Tile::rows * row_bytes + column % 64 * sizeof(typename Tile::Element);
    // 16 columns are two chunks side by side: the first distance is not looked at. Eight rows further: group_bytes.
    return ptx::matrix_descriptor(tile.data, 16, group_bytes, ptx::Swizzle::bytes_128) + begin;
}

/// The 16 rows from `row` on of a tile, all columns: an operand whose index k runs from row to row, as in P V.
template <class Tile>
__device__ __forceinline__ ptx::Descriptor rows_of(const Tile& tile, int row) {
    // n runs along a row, through 64 columns of a panel and then to the next panel; k goes on by eight rows.
    constexpr unsigned panel_bytes = Tile::rows * row_bytes;
    return ptx::matrix_descriptor(tile.data, panel_bytes, group_bytes, ptx::Swizzle::bytes_128) + row * row_bytes;
}

/// Begins S = Q K^T, (64, B_c), with both operands in shared memory. By a warpgroup.
template <class QueryTile, class KeyTile, int B_c>
__device__ __forceinline__ void begin_multiply_transposed(tile::Accumulator<16, B_c>& S, const QueryTile& Q,
                                                          const KeyTile& K) {
    ptx::wgmma_fence(registers(S));
#pragma unroll
    for (int k = 0; k < QueryTile::columns; k += 16)
        ptx::wgmma<typename QueryTile::Element>(registers(S), columns_of(Q, k), columns_of(K, k), k > 0);
    ptx::wgmma_commit();
}

/// Begins O += P V, (64, d), with P in registers: the accumulator that S was, rounded, is the operand. By a warpgroup.
template <class Element, class ValueTile, int B_c, int d>
__device__ __forceinline__ void begin_multiply(tile::Accumulator<16, d>& O, tile::Operand<Element, 16, B_c>& P,
                                               const ValueTile& V) {
    ptx::pin(P.fragment);
    ptx::wgmma_fence(registers(O));
#pragma unroll
    for (int k = 0; k < B_c; k += 16)
        ptx::wgmma<Element, ptx::Major::mn>(registers(O), P.fragment[0][k / 16], rows_of(V, k), true);
    ptx::wgmma_commit();
}

/// Until the products are done that this warpgroup has begun, C among them: C may be read then, and what they read may
/// be overwritten. By a warpgroup.
template <int columns>
__device__ __forceinline__ void wait(tile::Accumulator<16, columns>& C) {
    ptx::wgmma_wait<0>(registers(C));
}
// END 9.2

/// Block (i, h, b) owns 64 queries of one head for each of its warpgroups. Thread 0 asks for all tiles.
template <class Element, int d, bool causal, class Config>
__global__ void __launch_bounds__(Config::threads)
    warpgroup_flash(const __grid_constant__ ForwardMaps<typename Shared<Element, d, Config>::QueryTile,
                                                        typename Shared<Element, d, Config>::KeyTile> maps,
                    float* lse, int N_q, int N_k, int group, float scale_log2) {
    constexpr int B_r = Config::B_r, B_c = Config::B_c, stages = Config::stages;
    using Memory = Shared<Element, d, Config>;
    Memory& smem = *dynamic_shared<Memory>();
    const int warpgroup = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 128, 0);  // the same in all lanes: nvcc now knows
    const typename Memory::QueryTile Q_smem{smem.Q[warpgroup]};
    const int head = blockIdx.y, batch = blockIdx.z, kv_head = head / group;
    const int i = blockIdx.x * B_r, end = causal ? min(N_k, i + B_r + N_k - N_q) : N_k;
    const int T_c = (max(end, 0) + B_c - 1) / B_c;  // blocks of keys: none behind the diagonal
    const int first_row = threadIdx.x / 32 * 16;    // of the warp
    const int last_key = i + first_row + N_k - N_q;  // that the warp's first row sees, if causal; others see more

    if (threadIdx.x == 0) {
        ptx::barrier_init(smem.Q_full, Config::warpgroups);
        for (int slot = 0; slot < stages; ++slot) {
            ptx::barrier_init(smem.K_full[slot], 1);
            ptx::barrier_init(smem.V_full[slot], 1);
        }
        ptx::fence_barrier_init();
    }
    __syncthreads();

    const auto ask_for_K = [&](int t) {  // block t, once its slot is free
        const typename Memory::KeyTile slot{smem.K[t % stages]};
        if (threadIdx.x == 0 && t < T_c) tile::load(slot, maps.K, smem.K_full[t % stages], t * B_c, kv_head, batch);
    };
    const auto ask_for_V = [&](int t) {
        const typename Memory::KeyTile slot{smem.V[t % stages]};
        if (threadIdx.x == 0 && t < T_c) tile::load(slot, maps.V, smem.V_full[t % stages], t * B_c, kv_head, batch);
    };
    if (threadIdx.x % 128 == 0) tile::load(Q_smem, maps.Q, smem.Q_full, i + warpgroup * 64, head, batch);
#pragma unroll
    for (int t = 0; t < stages; ++t) {
        ask_for_K(t);
        if (t < stages - 1) ask_for_V(t);
    }
    ptx::barrier_wait(smem.Q_full, 0);
    tile::Accumulator<16, d> O_reg;
    tile::fill(O_reg, 0);
    tile::OnlineSoftmax<16, tile::SumsByLanes> softmax;  // lanes add up: tensor cores are what there is least of now
    for (int t = 0; t < T_c; ++t) {
        const int j = t * B_c, slot = t % stages, parity = t / stages % 2;
        const typename Memory::KeyTile K_smem{smem.K[slot]}, V_smem{smem.V[slot]};
        ptx::barrier_wait(smem.K_full[slot], parity);
        __syncthreads();  // nobody reads V_(t-1) any more
        ask_for_V(t + stages - 1);
        tile::Accumulator<16, B_c> S_reg;
        begin_multiply_transposed(S_reg, Q_smem, K_smem);
        wait(S_reg);
        ptx::barrier_wait(smem.V_full[slot], parity);
        __syncthreads();  // nobody reads K_t any more
        ask_for_K(t + stages);
        tile::multiply_all(S_reg, scale_log2);
        if (causal && j + B_c - 1 > last_key) tile::hide_right_of(S_reg, last_key - j);
        if (!causal && j + B_c > N_k) tile::hide_columns(S_reg, N_k - j);
        softmax.update(S_reg, O_reg);
        softmax.add(S_reg);
        auto P_reg = tile::to_operand<Element>(S_reg);
        begin_multiply(O_reg, P_reg, V_smem);
        wait(O_reg);
    }

    const auto lse_rows = softmax.finish(O_reg);
    const unsigned q_rows = (batch * gridDim.y + head) * N_q;  // of the heads before
    if (lse) tile::store_rows(lse, lse_rows, q_rows + i + first_row, q_rows + N_q);
    tile::store(Q_smem, O_reg, first_row % 64);
    ptx::fence_proxy_async();
    __syncthreads();
    if (threadIdx.x % 128 == 0) {
        tile::store(maps.O, Q_smem, i + warpgroup * 64, head, batch);
        ptx::bulk_wait_read<0>();
    }
}

template <class Element, int d, bool causal, class Config>
void launch_config(const ForwardArgs& args) {
    using Memory = Shared<Element, d, Config>;
    const AttentionShape& s = args.shape;
    const dim3 grid((s.n_q + Config::B_r - 1) / Config::B_r, s.heads, s.batch);
    launch_kernel(warpgroup_flash<Element, d, causal, Config>, {grid, dim3(Config::threads), sizeof(Memory), args.stream},
                  forward_maps<typename Memory::QueryTile, typename Memory::KeyTile>(args), args.lse, s.n_q, s.n_k,
                  s.heads / s.kv_heads, args.scale * log2_e);
}

void launch(const ForwardArgs& args) {
    with_types_of(args.shape, [&]<class Element, int d, bool causal>() {
        // EXERCISE 9.1 How many warpgroups, keys and stages, so that four blocks fit on a multiprocessor? S and O take
        // at most 96 registers of a thread. With that, as many keys as possible, then as many stages. The starter has
        // rung 08's.
        // STARTER launch_config<Element, d, causal, Config<2, 64, 2>>(args);
        launch_config<Element, d, causal, Config<1, d == 64 ? 128 : 64, 1>>(args);
        // END 9.1
    });
}
template <int warpgroups, int B_c, int stages>
void launch_variant(const ForwardArgs& args) {
    with_d_of(args.shape, [&]<int d>() {
        launch_config<__nv_bfloat16, d, false, Variant<warpgroups, B_c, stages>>(args);
    });
}

std::size_t scratch_bytes(const AttentionShape&) { return 0; }

const Support supports{.stage = "09-warpgroup-mma", .head_dims = {64, 128}, .dtypes = {DType::bf16, DType::f16},
                       .causal = true, .lse = true, .grouped_query = true, .strides = true, .compute_capability = 90};
const Registration registrations[] = {
    {{supports, launch, scratch_bytes}},
    {{supports.for_variant("64 keys, 2 stages"), launch_variant<1, 64, 2>, scratch_bytes}},
    {{supports.for_variant("128 keys"), launch_variant<1, 128, 1>, scratch_bytes}},
    {{supports.for_variant("128 keys, 2 stages"), launch_variant<1, 128, 2>, scratch_bytes}},
    {{supports.for_variant("176 keys"), launch_variant<1, 176, 1>, scratch_bytes}},
    {{supports.for_variant("2 warpgroups, 64 keys"), launch_variant<2, 64, 1>, scratch_bytes}},
    {{supports.for_variant("2 warpgroups, 128 keys, 2 stages"), launch_variant<2, 128, 2>, scratch_bytes}},
    {{supports.for_variant("3 warpgroups, 128 keys, 2 stages"), launch_variant<3, 128, 2>, scratch_bytes}},
};

}  // namespace
}  // namespace flashladder::attention
