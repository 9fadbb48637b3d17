// Rung 12: overlap. The softmax of one block of keys runs while the tensor cores multiply for others.
//
// Idea      within a warpgroup: S of a block and O += P V of the block before are begun together, and the softmax
//           starts as soon as S is there, under the other product. Between warpgroups: they take turns to begin
//           products, so that one computes exponentials while another one has the tensor cores. Blocks with a mask
//           come first, in steps of their own, and the scale goes into the exponential: what hides must be short.
// Saves     the time in which tensor cores wait for exponentials, and exponentials for tensor cores.
// Costs     registers for S, P and O at once: at d 128 two consumers instead of three.
// Source    FlashAttention-3 (Shah et al., 2024), sections 3.1 and 3.2
// Supports  bf16, f16; d 64, 128; any N_q and N_k; causal; grouped-query heads; LSE; any strides; scale > 0; sm_90a
#include "operations/attention/forward_block.h"
#include "operations/attention/forward_maps.h"
#include "operations/attention/launch_forward.h"
#include "operations/attention/stage.h"
#include "operations/attention/task_order.h"
#include "ptx/elect.h"
#include "ptx/named_barrier.h"
#include "ptx/setmaxnreg.h"
#include "tile/online_softmax.h"
#include "tile/warpgroup.h"

namespace flashladder::attention {
namespace {

constexpr int warpgroup = 128;  // threads

/// What hides the softmax: products of other warpgroups, which take turns; the warpgroup's own; both; nothing.
enum class Overlap { none, ping_pong, intra, both };

/// Consumers of a block; keys of a tile; slots of the rings of K and V; whether the scale goes into the exponential.
template <int consumers_, int B_c_, int stages_, Overlap overlap_, bool fused_ = true>
struct Config {
    static constexpr int consumers = consumers_, B_c = B_c_, stages = stages_;
    static constexpr bool fused = fused_;
    static constexpr bool ping_pong = overlap_ == Overlap::ping_pong || overlap_ == Overlap::both;
    static constexpr bool intra = overlap_ == Overlap::intra || overlap_ == Overlap::both;
    static constexpr int B_r = 64 * consumers, threads = warpgroup * (1 + consumers);
    static constexpr int producer_registers = consumers == 3 ? 32 : 40, consumer_registers = consumers == 3 ? 160 : 232;
};

template <class Element, int d_, class Config_>
struct Tiles {
    using Config = Config_;
    static constexpr int d = d_;
    using QueryTile = tile::SharedTile<Element, 64, d, tile::Swizzled<128>>;   // of a consumer
    using OutputTile = tile::SharedTile<Element, 16, d, tile::Swizzled<128>>;  // of a warp
    using KeyTile = tile::SharedTile<Element, Config::B_c, d, tile::Swizzled<128>>;
    using Maps = ForwardMaps<QueryTile, KeyTile, OutputTile>;
    alignas(1024) Element Q[2][Config::consumers][QueryTile::elements];  // this task's, and the next one's
    Element K[Config::stages][KeyTile::elements], V[Config::stages][KeyTile::elements];
    Element O[4 * Config::consumers][OutputTile::elements];
};

/// What is to be done: B_r queries from query i on, against T_c blocks of keys. A task without keys has one block too,
/// of keys that nobody sees: so each has a first step.
struct Task {
    int i, head, kv_head, batch, T_c;
};

struct Problem {
    int N_q, N_k, group;    // queries, keys; heads that share a K and V
    lcsf::TaskOrder order;  // rung 11's
    float scale_log2;
    float* lse;
    unsigned* taken;  // how many tasks of the dynamic schedule have been asked for

    template <bool causal, class Config>
    __device__ __forceinline__ Task task(int n) const {
        const auto [block, head, batch] = order.place<causal>(n);
        const int i = block * Config::B_r, end = causal ? min(N_k, i + Config::B_r + N_k - N_q) : N_k;
        return {i, head, head / group, batch, max((end + Config::B_c - 1) / Config::B_c, 1)};
    }
};

/// Consumers begin products one after the other: 0, 1, ..., 0, ... All threads of a consumer call these.
template <class Config>
struct Turns {
    int consumer;

    // EXERCISE 12.2 wait() returns when this consumer may begin products; pass() lets the next one, and goes on at
    // once. open() comes before all turns of a block, and close() behind them. None of them does anything if
    // !Config::ping_pong. The starter has no turns: all begin when they like.
    // TODO: your code, instead of this.
    __device__ __forceinline__ void open() const {}
    __device__ __forceinline__ void wait() const {}
    __device__ __forceinline__ void pass() const {}
    __device__ __forceinline__ void close() const {}
    // END 12.2
};

/// A consumer, 128 threads: 64 queries of each task against all keys that come.
template <bool causal, class Memory, class Maps>
struct Consumer {
    using Config = typename Memory::Config;
    using KeyTile = typename Memory::KeyTile;
    using Scores = tile::Accumulator<16, Config::B_c>;

    Memory& smem;
    const Maps& maps;
    const Problem& p;
    int consumer, warp, lane;
    Turns<Config> turns = {consumer};
    lcsf::RingPosition<2> query = {};
    lcsf::RingPosition<Config::stages> key = {}, value = {};  // V_j is read a step later than K_j
    tile::Operand<typename KeyTile::Element, 16, Config::B_c> P_reg = {};
    tile::Accumulator<16, Memory::d> O_reg = {};
    tile::OnlineSoftmax<16, tile::SumsByLanes> softmax = {};

    __device__ __forceinline__ auto Q_i() const { return typename Memory::QueryTile{smem.Q[query.slot][consumer]}; }
    __device__ __forceinline__ void hide(Scores& S_reg, int first_row, int j) {
        if (causal) tile::hide_right_of(S_reg, first_row + p.N_k - p.N_q - j);
        if (!causal) tile::hide_columns(S_reg, p.N_k - j);
    }
    /// S becomes P = 2^(scale S - scale m), one multiply-add and one exponential an element; m is of scores as they
    /// are. Returns by what the O of the blocks before is to be multiplied.
    __device__ __forceinline__ tile::RowValues<16> weigh(Scores& S_reg) {
        const float scale = Config::fused ? p.scale_log2 : 1;
        if (!Config::fused) tile::multiply_all(S_reg, p.scale_log2);
        const auto m_new = tile::row_max(S_reg, softmax.m);
        tile::RowValues<16> rescale;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const float shift = fmaxf(m_new.value[0][h] * scale, tile::lowest);  // finite where no key is seen
            float sums[2] = {0, 0};  // two, as each addition waits for the one before it
#pragma unroll
            for (int c = 0; c < Config::B_c / 8; ++c)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    float& s = S_reg.fragment[0][c][2 * h + e];
                    sums[e] += s = ptx::ex2_approx(fmaf(s, scale, -shift));
                }
            float &m = softmax.m.value[0][h], &l = softmax.l.l.value[0][h];
            rescale.value[0][h] = ptx::ex2_approx((m - m_new.value[0][h]) * scale);
            m = m_new.value[0][h];
            l = l * rescale.value[0][h] + (sums[0] + sums[1]);
        }
        return rescale;
    }

    // EXERCISE 12.3 Build: S, softmax and O += P V of the blocks of keys, the last one first: a call of first_step(),
    // one of step() for each further block, one of last_step(). S of a block and P V of the block before are begun
    // together, in one turn. The softmax runs while P V is under way; if !Config::intra, when nothing is. The starter
    // does one thing after the other, as rung 11.
    // TODO: your code, instead of this.
    __device__ __forceinline__ void first_step(int first_row, int j) { step<true>(first_row, j); }
    template <bool masked>
    __device__ __forceinline__ void step(int first_row, int j) {
        Scores S_reg;
        smem.K_ring.wait_full(key);
        turns.wait();
        tile::begin_multiply_transposed(S_reg, Q_i(), KeyTile{smem.K[key.slot]});
        turns.pass();
        tile::wait<0>(S_reg);
        if (lane == 0) smem.K_ring.release(key);
        key.advance();
        if (masked) hide(S_reg, first_row, j);
        tile::multiply_rows(O_reg, weigh(S_reg));
        P_reg = tile::to_operand<typename KeyTile::Element>(S_reg);
        smem.V_ring.wait_full(value);
        tile::begin_multiply(O_reg, P_reg, KeyTile{smem.V[value.slot]});
        tile::wait<0>(O_reg, P_reg);
        if (lane == 0) smem.V_ring.release(value);
        value.advance();
    }
    __device__ __forceinline__ void last_step() {}
    // END 12.3

    /// All steps of a task.
    __device__ __forceinline__ void compute(const Task& task, int first_row) {
        const int last_key = task.i + consumer * 64 + p.N_k - p.N_q;  // that all queries of this consumer see
        int j = (task.T_c - 1) * Config::B_c;
        softmax = {};
        tile::fill(O_reg, 0);
        smem.Q_ring[consumer].wait_full(query);
        first_step(first_row, j);
        j -= Config::B_c;
        // EXERCISE 12.1 Without a mask, only the first block can have keys that are not there. If causal, more blocks
        // may have keys that come too late for some query of this consumer: which? The starter masks no other block.
        // TODO: your code, instead of this.
        // END 12.1
#pragma unroll 1
        for (; j >= 0; j -= Config::B_c) step<false>(first_row, j);
        if (lane == 0) smem.Q_ring[consumer].release(query);
        query.advance();
        last_step();
    }
    __device__ __forceinline__ void store(const Task& task, int first_row) {
        const typename Memory::OutputTile O_smem{smem.O[consumer * 4 + warp]};
        if (Config::fused) tile::multiply_rows(softmax.m, tile::RowValues<16>{{{p.scale_log2, p.scale_log2}}});
        const auto lse_rows = softmax.finish(O_reg);
        const unsigned q_rows = (task.batch * p.order.heads + task.head) * p.N_q;
        if (p.lse) tile::store_rows(p.lse, lse_rows, q_rows + first_row, q_rows + p.N_q);
        tile::store_by_way_of(O_smem, O_reg, maps.O, first_row, task.head, task.batch);
    }
    __device__ __forceinline__ void consume() {
        turns.open();
        for (lcsf::TaskConsumer tasks; tasks.task < p.order.tasks();) {
            const Task task = p.task<causal, Config>(tasks.task);
            const int first_row = task.i + consumer * 64 + warp * 16;
            compute(task, first_row);
            tasks.advance(smem.tasks);
            store(task, first_row);
        }
        turns.close();
        if (lane == 0) ptx::bulk_wait_read<0>();
    }
};

/// Roles as in rung 10. Barriers and producer are rung 11's, but that blocks of keys come from the last to the first.
template <class Element, int d, bool causal, class Config>
__global__ void __launch_bounds__(Config::threads, 1)
    overlapped_flash(const __grid_constant__ typename Tiles<Element, d, Config>::Maps maps,
                     const __grid_constant__ Problem p) {
    using Memory = ForwardMemory<Tiles<Element, d, Config>>;
    auto& smem = *dynamic_shared<Memory>();
    const int role = __shfl_sync(0xFFFFFFFFu, threadIdx.x / warpgroup, 0);
    smem.init_barriers();
    if (role == 0) {
        ptx::registers_decrease<Config::producer_registers>();
        if (threadIdx.x / 32 == 0 && ptx::elect_one()) produce<causal>(smem, maps, p);
    } else {
        ptx::registers_increase<Config::consumer_registers>();
        const int warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x % warpgroup / 32, 0), lane = threadIdx.x % 32;
        Consumer<causal, Memory, typename Memory::Maps>{smem, maps, p, role - 1, warp, lane}.consume();
    }
}

template <class Element, int d, bool causal, class Config>
void launch_config(const ForwardArgs& args) {
    using Memory = ForwardMemory<Tiles<Element, d, Config>>;
    const AttentionShape& s = args.shape;
    const Problem p{s.n_q, s.n_k, s.heads / s.kv_heads, task_order(s, Config::B_r), args.scale * log2_e, args.lse,
                    static_cast<unsigned*>(args.scratch)};
    launch_persistent(
        overlapped_flash<Element, d, causal, Config>, args, p.order.tasks(), Config::threads, sizeof(Memory),
        forward_maps<typename Memory::QueryTile, typename Memory::KeyTile, typename Memory::OutputTile>(args), p);
}

template <int d, Overlap overlap, bool fused = true>
using Best = std::conditional_t<d == 64, Config<3, 128, 4, overlap, fused>, Config<2, 128, 2, overlap, fused>>;

void launch(const ForwardArgs& args) {
    with_types_of(args.shape, [&]<class Element, int d, bool causal>() {
        launch_config<Element, d, causal, Best<d, Overlap::both>>(args);
    });
}
std::size_t scratch_bytes(const AttentionShape&) { return sizeof(unsigned); }

const Support supports{.stage = "12-overlap", .head_dims = {64, 128}, .dtypes = {DType::bf16, DType::f16},
                       .causal = true, .lse = true, .grouped_query = true, .strides = true, .positive_scale = true,
                       .compute_capability = 90};
const Registration registration({supports, launch, scratch_bytes});

}  // namespace
}  // namespace flashladder::attention
