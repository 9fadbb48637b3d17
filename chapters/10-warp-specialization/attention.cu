// Rung 10: warp specialization. Some warps only load, the others only compute; nobody waits for everybody.
//
// Idea      one thread, the producer, asks for tiles as soon as their slots are free. Consumers, warpgroups of 64
//           queries, wait for what has come. Each slot has two barriers: full, which its bytes complete, and empty, at
//           which the consumers arrive when they have read it. No barrier of all threads stands in the loop.
// Saves     K and V are fetched once for all consumers of a block, and no consumer waits for another one: while one is
//           at its softmax the tensor cores belong to the others.
// Costs     a warpgroup without a use for its registers: it gives them to the consumers (setmaxnreg).
// Source    FlashAttention-3 (Shah et al., 2024), section 3.1, without its overlap; ThunderKittens (Spector et al.)
// Supports  bf16, f16; d 64, 128; any N_q and N_k; causal; grouped-query heads; LSE; any strides; sm_90a
#include "operations/attention/forward_maps.h"
#include "operations/attention/launch_forward.h"
#include "operations/attention/stage.h"
#include "ptx/elect.h"
#include "ptx/fence.h"
#include "ptx/named_barrier.h"
#include "ptx/setmaxnreg.h"
#include "tile/copy.h"
#include "tile/online_softmax.h"
#include "tile/warpgroup.h"

namespace flashladder::attention {
namespace {

constexpr int warpgroup = 128;  // threads

/// Consumers of a block; keys of a tile; slots of the rings of K and V; blocks that share a multiprocessor.
template <int consumers_, int B_c_, int stages_, int blocks_>
struct Config {
    static constexpr int consumers = consumers_, B_c = B_c_, stages = stages_, blocks = blocks_;
    static constexpr int B_r = 64 * consumers, threads = warpgroup * (1 + consumers);
    // What a thread gets at the start, a multiple of 8: of 65536 registers, the same for all.
    static constexpr int launch_registers = 65536 / (blocks * threads) / 8 * 8;
    // What the producer does not need, the consumers share.
    static constexpr int producer_registers = 24;
    static constexpr int most = (launch_registers * (1 + consumers) - producer_registers) / consumers / 8 * 8;
    static constexpr int consumer_registers = most < 240 ? most : 240;
};
template <int consumers, int B_c, int stages, int blocks>
struct Variant : Config<consumers, B_c, stages, blocks> {};

template <class Element_, int d_, class Config_>
struct Shared {
    using Element = Element_;
    using Config = Config_;
    static constexpr int d = d_;
    using QueryTile = tile::SharedTile<Element, 64, d, tile::Swizzled<128>>;  // of a consumer
    using KeyTile = tile::SharedTile<Element, Config::B_c, d, tile::Swizzled<128>>;
    alignas(1024) Element Q[Config::consumers][QueryTile::elements];  // and, in the end, O
    Element K[Config::stages][KeyTile::elements], V[Config::stages][KeyTile::elements];
    ptx::Barrier Q_full[Config::consumers];
    ptx::Barrier K_full[Config::stages], K_empty[Config::stages], V_full[Config::stages], V_empty[Config::stages];
};

struct Problem {
    int N_q, N_k, heads, group;  // queries, keys; heads, and how many of them share a K and V
    float scale_log2;
    float* lse;
};

/// What a block has to do: B_r queries from query i on, against T_c blocks of keys.
struct Task {
    int i, head, kv_head, batch, T_c;
};

template <bool causal, class Config>
__device__ __forceinline__ Task task_of_block(const Problem& p) {
    const int i = blockIdx.x * Config::B_r, end = causal ? min(p.N_k, i + Config::B_r + p.N_k - p.N_q) : p.N_k;
    const int head = blockIdx.y, batch = blockIdx.z;
    return {i, head, head / p.group, batch, (max(end, 0) + Config::B_c - 1) / Config::B_c};
}

/// What a consumer makes of S = Q_i K_j^T, where j is the first key of the tile: P, the operand of P V_j. Scales, hides
/// what queries do not see, moves O and the sums to the new maximum. If causal, the warp's first row sees no key behind
/// `last_key`.
template <bool causal, class Element, int B_c, int d, class Softmax>
__device__ __forceinline__ auto weigh(tile::Accumulator<16, B_c>& S_reg, tile::Accumulator<16, d>& O_reg,
                                      Softmax& softmax, const Problem& p, int j, int last_key) {
    tile::multiply_all(S_reg, p.scale_log2);
    if (causal && j + B_c - 1 > last_key) tile::hide_right_of(S_reg, last_key - j);
    if (!causal && j + B_c > p.N_k) tile::hide_columns(S_reg, p.N_k - j);
    softmax.update(S_reg, O_reg);
    softmax.add(S_reg);
    return tile::to_operand<Element>(S_reg);
}

/// The last thing that a consumer does, when its threads have written O over its Q_i: these 64 rows go to O, from query
/// i on.
template <class Memory>
__device__ __forceinline__ void send_O(Memory& smem, const tile::TensorMap<typename Memory::QueryTile>& O,
                                       const Task& task, int consumer, int i) {
    // EXERCISE 10.1 TMA may read the 64 rows when all 128 threads of this consumer have written theirs. The other
    // consumers are elsewhere, and nobody waits for them. In the starter all meet, and one thread sends for all.
    // TODO: your code, instead of this.
    constexpr int consumers = Memory::Config::consumers;
    ptx::fence_proxy_async();
    ptx::named_barrier_sync(1, consumers * warpgroup);
    if (threadIdx.x != warpgroup) return;
    for (int c = 0; c < consumers; ++c)
        tile::store(O, typename Memory::QueryTile{smem.Q[c]}, i + c * 64, task.head, task.batch);
    ptx::bulk_wait_read<0>();
    // END 10.1
}

// EXERCISE 10.2 Build: a producer and its consumers. The kernel below calls these three functions: thread 0 makes the
// barriers; one thread is the producer, which asks for all tiles of the task, and does nothing else; 128 threads are a
// consumer, which computes 64 of the task's queries. The slots of K and those of V are rings: tile t goes into slot
// t % stages. Who waits, waits for a tile or for a slot, and for nobody else. The starter is right, and slow: as in
// rung 09 consumers ask for tiles themselves, and meet in each step; and they use one slot of each ring.
// TODO: your code, instead of this.
/// By one thread, before any other uses them.
template <class Memory>
__device__ __forceinline__ void init_barriers(Memory& smem) {
    for (auto& barrier : smem.Q_full) ptx::barrier_init(barrier, 1);
    ptx::barrier_init(smem.K_full[0], 1);
    ptx::barrier_init(smem.V_full[0], 1);
}
/// The producer, one thread.
template <class Memory, class Maps>
__device__ __forceinline__ void produce(Memory& smem, const Maps& maps, const Task& task) {}
/// A consumer, 128 threads.
template <bool causal, class Memory, class Maps>
__device__ __forceinline__ void consume(Memory& smem, const Maps& maps, const Problem& p, const Task& task,
                                        int consumer) {
    using KeyTile = typename Memory::KeyTile;
    constexpr int B_c = Memory::Config::B_c;
    const typename Memory::QueryTile Q_smem{smem.Q[consumer]};
    const KeyTile K_smem{smem.K[0]}, V_smem{smem.V[0]};
    const int warp = threadIdx.x % warpgroup / 32;
    const int i = task.i + consumer * 64, first_row = i + warp * 16;  // of the consumer, of the warp
    tile::Accumulator<16, Memory::d> O_reg;
    tile::fill(O_reg, 0);
    tile::OnlineSoftmax<16, tile::SumsByLanes> softmax;
    if (warp == 0 && ptx::elect_one())
        tile::load(Q_smem, maps.Q, smem.Q_full[consumer], task.i + consumer * 64, task.head, task.batch);
    ptx::barrier_wait(smem.Q_full[consumer], 0);
    for (int t = 0; t < task.T_c; ++t) {
        ptx::named_barrier_sync(15, Memory::Config::consumers * warpgroup);  // the slots are free
        if (threadIdx.x == warpgroup) {
            tile::load(K_smem, maps.K, smem.K_full[0], t * B_c, task.kv_head, task.batch);
            tile::load(V_smem, maps.V, smem.V_full[0], t * B_c, task.kv_head, task.batch);
        }
        tile::Accumulator<16, B_c> S_reg;
        ptx::barrier_wait(smem.K_full[0], t % 2);
        tile::begin_multiply_transposed(S_reg, Q_smem, K_smem);
        tile::wait<0>(S_reg);
        auto P_reg = weigh<causal, typename Memory::Element>(S_reg, O_reg, softmax, p, t * B_c,
                                                             first_row + p.N_k - p.N_q);
        ptx::barrier_wait(smem.V_full[0], t % 2);
        tile::begin_multiply(O_reg, P_reg, V_smem);
        tile::wait<0>(O_reg);
    }
    const auto lse_rows = softmax.finish(O_reg);
    const unsigned q_rows = (task.batch * p.heads + task.head) * p.N_q;  // of the heads before
    if (p.lse) tile::store_rows(p.lse, lse_rows, q_rows + first_row, q_rows + p.N_q);
    tile::store(Q_smem, O_reg, warp * 16);  // all 16 rows of the warp
    send_O(smem, maps.O, task, consumer, i);
}
// END 10.2

template <class Element, int d, bool causal, class Config>
__global__ void __launch_bounds__(Config::threads, Config::blocks)
    specialized_flash(const __grid_constant__ ForwardMaps<typename Shared<Element, d, Config>::QueryTile,
                                                          typename Shared<Element, d, Config>::KeyTile> maps,
                      const Problem p) {
    auto& smem = *dynamic_shared<Shared<Element, d, Config>>();
    const int role = __shfl_sync(0xFFFFFFFFu, threadIdx.x / warpgroup, 0);  // the same in all lanes: nvcc now knows
    const Task task = task_of_block<causal, Config>(p);

    if (threadIdx.x == 0) {
        init_barriers(smem);
        ptx::fence_barrier_init();
    }
    __syncthreads();

    if (role == 0) {
        ptx::registers_decrease<Config::producer_registers>();
        if (threadIdx.x / 32 == 0 && ptx::elect_one()) produce(smem, maps, task);
    } else {
        ptx::registers_increase<Config::consumer_registers>();
        consume<causal>(smem, maps, p, task, role - 1);
    }
}

template <class Element, int d, bool causal, class Config>
void launch_config(const ForwardArgs& args) {
    using Memory = Shared<Element, d, Config>;
    const AttentionShape& s = args.shape;
    const dim3 grid((s.n_q + Config::B_r - 1) / Config::B_r, s.heads, s.batch);
    const Problem problem{s.n_q, s.n_k, s.heads, s.heads / s.kv_heads, args.scale * log2_e, args.lse};
    launch_kernel(specialized_flash<Element, d, causal, Config>,
                  {.grid = grid, .block = Config::threads, .shared_bytes = sizeof(Memory), .stream = args.stream,
                   .blocks = Config::blocks},
                  forward_maps<typename Memory::QueryTile, typename Memory::KeyTile>(args), problem);
}

void launch(const ForwardArgs& args) {
    with_types_of(args.shape, [&]<class Element, int d, bool causal>() {
        using Best = std::conditional_t<d == 64, Config<2, 64, 2, 2>, Config<3, 128, 2, 1>>;
        launch_config<Element, d, causal, Best>(args);
    });
}

void launch_1_stage(const ForwardArgs& args) {
    with_d_of(args.shape, [&]<int d>() {
        using OneStage = std::conditional_t<d == 64, Variant<2, 64, 1, 2>, Variant<3, 128, 1, 1>>;
        launch_config<__nv_bfloat16, d, false, OneStage>(args);
    });
}
template <int d, int consumers, int B_c, int stages, int blocks>
void launch_variant(const ForwardArgs& args) {
    launch_config<__nv_bfloat16, d, false, Variant<consumers, B_c, stages, blocks>>(args);
}

std::size_t scratch_bytes(const AttentionShape&) { return 0; }

const Support supports{.stage = "10-warp-specialization", .head_dims = {64, 128}, .dtypes = {DType::bf16, DType::f16},
                       .causal = true, .lse = true, .grouped_query = true, .strides = true, .compute_capability = 90};
Support variant(int d, std::string name) {
    Support s = supports.for_variant(std::move(name));
    s.head_dims = {d};
    return s;
}
const Registration registrations[] = {
    {{supports, launch, scratch_bytes}},
    {{supports.for_variant("1 stage"), launch_1_stage, scratch_bytes}},
    {{variant(64, "3 stages"), launch_variant<64, 2, 64, 3, 2>, scratch_bytes}},
    {{variant(64, "4 stages"), launch_variant<64, 2, 64, 4, 2>, scratch_bytes}},
    {{variant(64, "1 block of 2, 128 keys"), launch_variant<64, 2, 128, 2, 1>, scratch_bytes}},
    {{variant(64, "1 block of 3, 128 keys"), launch_variant<64, 3, 128, 2, 1>, scratch_bytes}},
    {{variant(64, "1 block of 4"), launch_variant<64, 4, 64, 2, 1>, scratch_bytes}},
    {{variant(128, "64 keys"), launch_variant<128, 3, 64, 2, 1>, scratch_bytes}},
    {{variant(128, "64 keys, 4 stages"), launch_variant<128, 3, 64, 4, 1>, scratch_bytes}},
    {{variant(128, "2 consumers, 1 stage"), launch_variant<128, 2, 128, 1, 1>, scratch_bytes}},
    {{variant(128, "2 consumers"), launch_variant<128, 2, 128, 2, 1>, scratch_bytes}},
    {{variant(128, "2 consumers, 3 stages"), launch_variant<128, 2, 128, 3, 1>, scratch_bytes}},
};

}  // namespace
}  // namespace flashladder::attention
