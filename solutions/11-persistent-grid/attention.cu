// Rung 11: a persistent grid. As many blocks as run at once, and each takes one task after another.
//
// Idea      a task is what a block of rung 10 did. While the consumers finish one, the producer is at the next: its Q,
//           K and V come under the last softmax, and O leaves while the next scores are computed. Which task comes
//           when, and on which multiprocessor, is now ours to say.
// Saves     the start and the end of every block but one. Causal: long tasks begin first, and who is done takes the
//           next one, so that all multiprocessors end together.
// Costs     shared memory for O, which has its own now; a scheduler, and a word of scratch for it.
// Source    ThunderKittens (Spector et al., 2024), persistent grids and block orders; FlashAttention-3's schedulers
// Supports  bf16, f16; d 64, 128; any N_q and N_k; causal; grouped-query heads; LSE; any strides; sm_90a
#include <algorithm>

#include "lcsf/ring.h"
#include "operations/attention/forward_maps.h"
#include "operations/attention/launch_forward.h"
#include "operations/attention/stage.h"
#include "ptx/elect.h"
#include "ptx/fence.h"
#include "ptx/setmaxnreg.h"
#include "tile/copy.h"
#include "tile/online_softmax.h"
#include "tile/warpgroup.h"

namespace flashladder::attention {
namespace {

constexpr int warpgroup = 128;  // threads

/// Which tasks a block takes: one, as in rung 10; every gridDim.x-th; whichever nobody has taken yet.
enum class Schedule { one_each, fixed, dynamic };

/// Consumers of a block; keys of a tile; slots of the rings of K and V; blocks that share a multiprocessor.
template <int consumers_, int B_c_, int stages_, int blocks_, Schedule schedule_>
struct Config {
    static constexpr int consumers = consumers_, B_c = B_c_, stages = stages_, blocks = blocks_;
    static constexpr Schedule schedule = schedule_;
    static constexpr int B_r = 64 * consumers, threads = warpgroup * (1 + consumers);
    static constexpr int launch_registers = 65536 / (blocks * threads) / 8 * 8;  // as in rung 10
    static constexpr int producer_registers = consumers == 3 ? 32 : 40;          // a scheduler needs some
    static constexpr int most = (launch_registers * (1 + consumers) - producer_registers) / consumers / 8 * 8;
    static constexpr int consumer_registers = most < 240 ? most : 240;
};

template <class Element, int d, class Config_>
struct Shared {
    using Config = Config_;
    using QueryTile = tile::SharedTile<Element, 64, d, tile::Swizzled<128>>;   // of a consumer
    using OutputTile = tile::SharedTile<Element, 16, d, tile::Swizzled<128>>;  // of a warp
    using KeyTile = tile::SharedTile<Element, Config::B_c, d, tile::Swizzled<128>>;
    using Maps = ForwardMaps<QueryTile, KeyTile, OutputTile>;
    alignas(1024) Element Q[Config::consumers][QueryTile::elements], O[4 * Config::consumers][OutputTile::elements];
    Element K[Config::stages][KeyTile::elements], V[Config::stages][KeyTile::elements];
    lcsf::Ring<1> Q_ring[Config::consumers];
    lcsf::Ring<Config::stages> K_ring, V_ring;
    lcsf::Ring<2> task_ring;
    int task[2];
};

struct Problem {
    int N_q, N_k, heads, group;     // queries, keys; heads, and how many of them share a K and V
    int T_r, batch_heads, section;  // blocks of queries of a head; heads of all batches, and how many take turns
    float scale_log2;
    float* lse;
    unsigned* taken;  // how many tasks of the dynamic schedule have been asked for
    __device__ int tasks() const { return T_r * batch_heads; }
};

/// What is to be done: B_r queries from query i on, against T_c blocks of keys.
struct Task {
    int i, head, kv_head, batch, T_c;
};

/// Task n: which queries of which head.
template <bool causal, class Config>
__device__ __forceinline__ Task task_number(const Problem& p, int n) {
    // EXERCISE 11.1 Tasks come section by section: p.section heads, and in the last section what is left. In a section
    // heads take turns: a block of queries of each, then the next one of each. If causal, a head's last block comes
    // first, for it takes longest; else its first one. The starter has head after head, first block first.
    // STARTER const int batch_head = n / p.T_r, head = batch_head % p.heads, block = n % p.T_r;
    const int section = n / (p.section * p.T_r), rest = n % (p.section * p.T_r);
    const int first_head = section * p.section, heads = min(p.section, p.batch_heads - first_head);
    const int batch_head = first_head + rest % heads, head = batch_head % p.heads;
    const int block = causal ? p.T_r - 1 - rest / heads : rest / heads;
    // END 11.1
    const int i = block * Config::B_r;
    const int end = causal ? min(p.N_k, i + Config::B_r + p.N_k - p.N_q) : p.N_k;
    return {i, head, head / p.group, batch_head / p.heads, (max(end, 0) + Config::B_c - 1) / Config::B_c};
}

// EXERCISE 11.4 Dynamic: who is done takes the next task that nobody has taken. Block b begins with task b. Of those
// behind them `p.taken`, a word in device memory, counts how many have found a block; it is 0 at the launch. The
// producer asks, and four warps of each consumer want to know. Other schedules: fixed. The starter has that for all.
// STARTER /// The producer's, at the start of task n: which task this block does behind it.
// STARTER template <class Config>
// STARTER __device__ __forceinline__ int ask_for_next(const Problem& p, int n) {
// STARTER     return n + gridDim.x;
// STARTER }
// STARTER
// STARTER /// The producer's, at the end of a task: tells the consumers which one is next.
// STARTER template <class Memory>
// STARTER __device__ __forceinline__ void tell(Memory& smem, lcsf::RingPosition<2>& turn, int next) {}
// STARTER
// STARTER /// The consumers', each warp: the task behind task n, all lanes get it.
// STARTER template <class Memory>
// STARTER __device__ __forceinline__ int hear(Memory& smem, lcsf::RingPosition<2>& turn, int n) {
// STARTER     return n + gridDim.x;
// STARTER }
/// The producer's, at the start of task n: which task this block does behind it. The answer takes its time.
template <class Config>
__device__ __forceinline__ int ask_for_next(const Problem& p, int n) {
    if constexpr (Config::schedule == Schedule::dynamic) return gridDim.x + atomicAdd(p.taken, 1);
    return n + gridDim.x;
}

/// The producer's, at the end of a task: tells the consumers which one is next.
template <class Memory>
__device__ __forceinline__ void tell(Memory& smem, lcsf::RingPosition<2>& turn, int next) {
    if constexpr (Memory::Config::schedule == Schedule::dynamic) {
        smem.task_ring.wait_empty(turn);
        smem.task[turn.slot] = next;
        ptx::barrier_arrive(smem.task_ring.full[turn.slot]);
        turn.advance();
    }
}

/// The consumers', each warp: the task behind task n.
template <class Memory>
__device__ __forceinline__ int hear(Memory& smem, lcsf::RingPosition<2>& turn, int n) {
    int next = n + gridDim.x;
    if constexpr (Memory::Config::schedule == Schedule::dynamic) {
        smem.task_ring.wait_full(turn);
        next = smem.task[turn.slot];
        __syncwarp();  // all lanes have read it
        if (threadIdx.x % 32 == 0) smem.task_ring.release(turn);
        turn.advance();
    }
    return next;
}
// END 11.4

/// S = Q_i K_j^T, when K_j has come; its slot is given back.
template <class Memory, int B_c>
__device__ __forceinline__ void make_scores(Memory& smem, tile::Accumulator<16, B_c>& S_reg,
                                            const typename Memory::QueryTile& Q_smem,
                                            const lcsf::RingPosition<Memory::Config::stages>& key) {
    using KeyTile = typename Memory::KeyTile;
    const int lane = threadIdx.x % 32;
    smem.K_ring.wait_full(key);
    tile::begin_multiply_transposed(S_reg, Q_smem, KeyTile{smem.K[key.slot]});
    tile::wait<0>(S_reg);
    if (lane == 0) smem.K_ring.release(key);
}

/// P of S, where j is the first key, as in rung 10.
template <bool causal, class Memory, int B_c, int d, class Softmax>
__device__ __forceinline__ auto weigh(tile::Accumulator<16, B_c>& S_reg, tile::Accumulator<16, d>& O_reg,
                                      Softmax& softmax, const Problem& p, int j, int last_key) {
    tile::multiply_all(S_reg, p.scale_log2);
    if (causal && j + B_c - 1 > last_key) tile::hide_right_of(S_reg, last_key - j);
    if (!causal && j + B_c > p.N_k) tile::hide_columns(S_reg, p.N_k - j);
    softmax.update(S_reg, O_reg);
    softmax.add(S_reg);
    return tile::to_operand<typename Memory::KeyTile::Element>(S_reg);
}

/// O += P V_j, when V_j has come; its slot is given back.
template <class Memory, class Weights, int d>
__device__ __forceinline__ void add_values(Memory& smem, tile::Accumulator<16, d>& O_reg, Weights& P_reg,
                                           const lcsf::RingPosition<Memory::Config::stages>& key) {
    using KeyTile = typename Memory::KeyTile;
    const int lane = threadIdx.x % 32;
    smem.V_ring.wait_full(key);
    tile::begin_multiply(O_reg, P_reg, KeyTile{smem.V[key.slot]});
    tile::wait<0>(O_reg);
    if (lane == 0) smem.V_ring.release(key);
}

/// A warp's 16 rows of O, from row `first_row` of the task's head on, leave by way of `O_smem`, which is its own.
template <class Tile, int d>
__device__ __forceinline__ void send_O(const Tile& O_smem, const tile::Accumulator<16, d>& O_reg,
                                       const tile::TensorMap<Tile>& O, const Task& task, int first_row) {
    const int lane = threadIdx.x % 32;
    // EXERCISE 11.3 TMA takes its time to read O_smem. The warp need not wait for that now, if it does so when it comes
    // here again, with the next task's O. (Before the block ends, `consume` waits.) The starter waits at once.
    // STARTER tile::store(O_smem, O_reg, 0);
    // STARTER ptx::fence_proxy_async();
    // STARTER __syncwarp();
    // STARTER if (lane == 0) {
    // STARTER     tile::store(O, O_smem, first_row, task.head, task.batch);
    // STARTER     ptx::bulk_wait_read<0>();
    // STARTER }
    // STARTER __syncwarp();
    if (lane == 0) ptx::bulk_wait_read<0>();
    __syncwarp();
    tile::store(O_smem, O_reg, 0);
    ptx::fence_proxy_async();
    __syncwarp();
    if (lane == 0) tile::store(O, O_smem, first_row, task.head, task.batch);
    // END 11.3
}

// EXERCISE 11.2 Build: a block that takes one task after another. Barriers are made once, and so the rings go on. What
// the next task needs is asked for while this one is computed. The starter is right, and slow: a block does one task,
// as in rung 10, and the grid has a block for each.
// STARTER constexpr bool persistent = false;  // true: so many blocks as run at once; false: a block for each task
// STARTER
// STARTER /// The producer, one thread.
// STARTER template <bool causal, class Memory, class Maps>
// STARTER __device__ __forceinline__ void produce(Memory& smem, const Maps& maps, const Problem& p) {
// STARTER     using Config = typename Memory::Config;
// STARTER     using KeyTile = typename Memory::KeyTile;
// STARTER     lcsf::RingPosition<1> query;
// STARTER     lcsf::RingPosition<Config::stages> key;  // of V too: as many tiles go through both rings
// STARTER     const auto [i, head, kv_head, batch, T_c] = task_number<causal, Config>(p, blockIdx.x);
// STARTER     for (int c = 0; T_c > 0 && c < Config::consumers; ++c) {
// STARTER         smem.Q_ring[c].wait_empty(query);
// STARTER         const typename Memory::QueryTile Q_smem{smem.Q[c]};
// STARTER         tile::load(Q_smem, maps.Q, smem.Q_ring[c].full[0], i + c * 64, head, batch);
// STARTER     }
// STARTER     for (int t = 0; t < T_c; ++t, key.advance()) {
// STARTER         const int j = t * Config::B_c, slot = key.slot;
// STARTER         smem.K_ring.wait_empty(key);
// STARTER         tile::load(KeyTile{smem.K[slot]}, maps.K, smem.K_ring.full[slot], j, kv_head, batch);
// STARTER         smem.V_ring.wait_empty(key);
// STARTER         tile::load(KeyTile{smem.V[slot]}, maps.V, smem.V_ring.full[slot], j, kv_head, batch);
// STARTER     }
// STARTER }
// STARTER
// STARTER /// A consumer, 128 threads.
// STARTER template <bool causal, class Memory, class Maps>
// STARTER __device__ __forceinline__ void consume(Memory& smem, const Maps& maps, const Problem& p, int consumer) {
// STARTER     using Config = typename Memory::Config;
// STARTER     const int warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x % warpgroup / 32, 0);
// STARTER     const typename Memory::QueryTile Q_smem{smem.Q[consumer]};
// STARTER     const typename Memory::OutputTile O_smem{smem.O[consumer * 4 + warp]};
// STARTER     lcsf::RingPosition<1> query;
// STARTER     lcsf::RingPosition<Config::stages> key;
// STARTER     const auto task = task_number<causal, Config>(p, blockIdx.x);
// STARTER     const int first_row = task.i + consumer * 64 + warp * 16, last_key = first_row + p.N_k - p.N_q;
// STARTER     tile::Accumulator<16, Memory::QueryTile::columns> O_reg;
// STARTER     tile::fill(O_reg, 0);
// STARTER     tile::OnlineSoftmax<16, tile::SumsByLanes> softmax;
// STARTER     if (task.T_c > 0) smem.Q_ring[consumer].wait_full(query);
// STARTER     for (int t = 0; t < task.T_c; ++t, key.advance()) {
// STARTER         tile::Accumulator<16, Config::B_c> S_reg;
// STARTER         make_scores(smem, S_reg, Q_smem, key);
// STARTER         auto P_reg = weigh<causal, Memory>(S_reg, O_reg, softmax, p, t * Config::B_c, last_key);
// STARTER         add_values(smem, O_reg, P_reg, key);
// STARTER     }
// STARTER     const auto lse_rows = softmax.finish(O_reg);
// STARTER     const unsigned q_rows = (task.batch * p.heads + task.head) * p.N_q;
// STARTER     if (p.lse) tile::store_rows(p.lse, lse_rows, q_rows + first_row, q_rows + p.N_q);
// STARTER     send_O(O_smem, O_reg, maps.O, task, first_row);
// STARTER     if (threadIdx.x % 32 == 0) ptx::bulk_wait_read<0>();  // of shared memory that ends with the block
// STARTER }
constexpr bool persistent = true;

/// The producer, one thread: asks for all that its tasks need, and tells the consumers which tasks these are.
template <bool causal, class Memory, class Maps>
__device__ __forceinline__ void produce(Memory& smem, const Maps& maps, const Problem& p) {
    using Config = typename Memory::Config;
    lcsf::RingPosition<1> query;
    lcsf::RingPosition<Config::stages> key;  // of V too: as many tiles go through both rings
    lcsf::RingPosition<2> turn;
    for (int n = blockIdx.x, next; n < p.tasks(); n = next) {
        next = ask_for_next<Config>(p, n);
        const auto [i, head, kv_head, batch, T_c] = task_number<causal, Config>(p, n);
        for (int t = 0; t < T_c; ++t) {
            const int j = t * Config::B_c, slot = key.slot;
            smem.K_ring.wait_empty(key);
            tile::load(typename Memory::KeyTile{smem.K[slot]}, maps.K, smem.K_ring.full[slot], j, kv_head, batch);
            for (int c = 0; t == 0 && c < Config::consumers; ++c) {
                smem.Q_ring[c].wait_empty(query);
                const typename Memory::QueryTile Q_smem{smem.Q[c]};
                tile::load(Q_smem, maps.Q, smem.Q_ring[c].full[0], i + c * 64, head, batch);
            }
            smem.V_ring.wait_empty(key);
            tile::load(typename Memory::KeyTile{smem.V[slot]}, maps.V, smem.V_ring.full[slot], j, kv_head, batch);
            key.advance();
        }
        if (T_c > 0) query.advance();
        tell(smem, turn, next);
    }
}

/// A consumer, 128 threads: 64 queries of each task against all keys that come.
template <bool causal, class Memory, class Maps>
__device__ __forceinline__ void consume(Memory& smem, const Maps& maps, const Problem& p, int consumer) {
    using Config = typename Memory::Config;
    const int warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x % warpgroup / 32, 0), lane = threadIdx.x % 32;
    const typename Memory::QueryTile Q_smem{smem.Q[consumer]};
    const typename Memory::OutputTile O_smem{smem.O[consumer * 4 + warp]};
    lcsf::RingPosition<1> query;
    lcsf::RingPosition<Config::stages> key;
    lcsf::RingPosition<2> turn;
    for (int n = blockIdx.x; n < p.tasks();) {
        const auto task = task_number<causal, Config>(p, n);
        const int first_row = task.i + consumer * 64 + warp * 16, last_key = first_row + p.N_k - p.N_q;
        tile::Accumulator<16, Memory::QueryTile::columns> O_reg;
        tile::fill(O_reg, 0);
        tile::OnlineSoftmax<16, tile::SumsByLanes> softmax;
        if (task.T_c > 0) smem.Q_ring[consumer].wait_full(query);
        for (int t = 0; t < task.T_c; ++t) {
            tile::Accumulator<16, Config::B_c> S_reg;
            make_scores(smem, S_reg, Q_smem, key);
            if (lane == 0 && t == task.T_c - 1) smem.Q_ring[consumer].release(query);
            auto P_reg = weigh<causal, Memory>(S_reg, O_reg, softmax, p, t * Config::B_c, last_key);
            add_values(smem, O_reg, P_reg, key);
            key.advance();
        }
        if (task.T_c > 0) query.advance();
        n = hear(smem, turn, n);
        const auto lse_rows = softmax.finish(O_reg);
        const unsigned q_rows = (task.batch * p.heads + task.head) * p.N_q;
        if (p.lse) tile::store_rows(p.lse, lse_rows, q_rows + first_row, q_rows + p.N_q);
        send_O(O_smem, O_reg, maps.O, task, first_row);
    }
    if (lane == 0) ptx::bulk_wait_read<0>();  // of shared memory that ends with the block
}
// END 11.2

template <class Element, int d, bool causal, class Config>
__global__ void __launch_bounds__(Config::threads, Config::blocks)
    persistent_flash(const __grid_constant__ typename Shared<Element, d, Config>::Maps maps,
                     const __grid_constant__ Problem p) {
    auto& smem = *dynamic_shared<Shared<Element, d, Config>>();
    const int role = __shfl_sync(0xFFFFFFFFu, threadIdx.x / warpgroup, 0);
    if (threadIdx.x == 0) {
        constexpr int warps = 4 * Config::consumers;  // one lane of each releases
        for (auto& ring : smem.Q_ring) ring.init(1, 4);
        smem.K_ring.init(1, warps);
        smem.V_ring.init(1, warps);
        smem.task_ring.init(1, warps);
        ptx::fence_barrier_init();
    }
    __syncthreads();

    if (role == 0) {
        ptx::registers_decrease<Config::producer_registers>();
        if (threadIdx.x / 32 == 0 && ptx::elect_one()) produce<causal>(smem, maps, p);
    } else {
        ptx::registers_increase<Config::consumer_registers>();
        consume<causal>(smem, maps, p, role - 1);
    }
}

template <class Element, int d, bool causal, class Config>
void launch_config(const ForwardArgs& args, int section) {
    using Memory = Shared<Element, d, Config>;
    const AttentionShape& s = args.shape;
    const int T_r = (s.n_q + Config::B_r - 1) / Config::B_r, tasks = T_r * s.batch * s.heads;
    auto* taken = static_cast<unsigned*>(args.scratch);
    const Problem p{s.n_q, s.n_k, s.heads, s.heads / s.kv_heads, T_r, s.batch * s.heads, section, args.scale * log2_e,
                    args.lse, taken};
    const int resident = Config::blocks * device_attribute(cudaDevAttrMultiProcessorCount);
    const int blocks = !persistent || Config::schedule == Schedule::one_each ? tasks : std::min(tasks, resident);
    if (Config::schedule == Schedule::dynamic)
        check_cuda(cudaMemsetAsync(taken, 0, sizeof *taken, args.stream), "no task is taken");
    launch_kernel(persistent_flash<Element, d, causal, Config>,
                  {.grid = dim3(blocks), .block = Config::threads, .shared_bytes = sizeof(Memory),
                   .stream = args.stream, .blocks = Config::blocks},
                  forward_maps<typename Memory::QueryTile, typename Memory::KeyTile, typename Memory::OutputTile>(args),
                  p);
}

template <int d, Schedule schedule>
using Best = std::conditional_t<d == 64, Config<2, 64, 2, 2, schedule>, Config<3, 128, 2, 1, schedule>>;

/// Heads that take turns: so many that their K and V have room in two thirds of L2.
int heads_in_L2(const AttentionShape& s) {
    const double bytes = 2.0 * s.n_k * s.head_dim * bytes_per_element(s.dtype) * s.kv_heads / s.heads;
    return std::clamp(int(device_attribute(cudaDevAttrL2CacheSize) * 2.0 / 3 / bytes), 1, s.batch * s.heads);
}
/// If causal, long tasks of many heads come first, but of no more than L2 has room for; else one head after the other.
int best_section(const AttentionShape& s) { return s.causal ? heads_in_L2(s) : 1; }

void launch(const ForwardArgs& args) {
    with_types_of(args.shape, [&]<class Element, int d, bool causal>() {
        launch_config<Element, d, causal, Best<d, Schedule::dynamic>>(args, best_section(args.shape));
    });
}
std::size_t scratch_bytes(const AttentionShape&) { return sizeof(unsigned); }

const Support supports{.stage = "11-persistent-grid", .head_dims = {64, 128}, .dtypes = {DType::bf16, DType::f16},
                       .causal = true, .lse = true, .grouped_query = true, .strides = true, .compute_capability = 90};
const Registration registration({supports, launch, scratch_bytes});

}  // namespace
}  // namespace flashladder::attention
