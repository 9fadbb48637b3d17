// Threads that synchronise by barriers, in shared memory, and by flags in device memory.
#include <algorithm>
#include <vector>

#include "../emulator/device_array.h"
#include "launch.h"
#include "mutants.h"
#include "noting.h"
#include "ptx/ldmatrix.h"
#include "ptx/memory_order.h"
#include "ptx/mma.h"
#include "ptx/named_barrier.h"

namespace flashladder {
namespace {

constexpr unsigned threads = 64;
constexpr int rounds = 4;

// ---- shared memory

enum class Rotate { correct, no_barrier_before_reading, no_barrier_after_reading, no_barrier_at_the_end };

template <Rotate m>
__global__ void rotate_kernel(int* result, [[maybe_unused]] int* lines) {
    __shared__ int values[threads];
    values[threadIdx.x] = 0;
    __syncthreads();
    for (int i = 0; i < rounds; ++i) {
        NOTE(0);
        values[threadIdx.x] = i;
        if (m != Rotate::no_barrier_before_reading) __syncthreads();
        NOTE(1);
        result[blockIdx.x * blockDim.x + threadIdx.x] = values[threadIdx.x ^ 32];
        if (m == Rotate::no_barrier_at_the_end && i == rounds - 1) break;
        if (m != Rotate::no_barrier_after_reading) __syncthreads();
    }
}

enum class RotateInWarps { correct, no_syncwarp_before_reading, no_syncwarp_after_reading, vote_for_syncwarp };

template <RotateInWarps m>
__global__ void rotate_in_warps_kernel(int* result, [[maybe_unused]] int* lines) {
    int* values = dynamic_shared<int>();
    values[threadIdx.x] = 0;
    __syncthreads();
    for (int i = 0; i < rounds; ++i) {
        NOTE(0);
        values[threadIdx.x] = i;
        if (m == RotateInWarps::vote_for_syncwarp)
            __any_sync(0xFFFFFFFFu, i);
        else if (m != RotateInWarps::no_syncwarp_before_reading)
            __syncwarp();
        NOTE(1);
        result[blockIdx.x * blockDim.x + threadIdx.x] = values[threadIdx.x ^ 5];
        if (m != RotateInWarps::no_syncwarp_after_reading) __syncwarp();
    }
}

enum class Matrices { correct, no_syncwarp_before_ldmatrix, no_syncwarp_after_ldmatrix };

/// A lane writes a row, of which four others receive a part each. Neither ldmatrix nor mma orders these.
template <Matrices m, bool transposed>
__global__ void matrices_kernel(int* result, [[maybe_unused]] int* lines) {
    auto* rows = dynamic_shared<uint4>();
    std::uint32_t matrices[4];
    float sums[4] = {};
    rows[threadIdx.x] = {};
    __syncwarp();
    for (int i = 0; i < rounds; ++i) {
        const unsigned pair = i * 0x10001u;
        NOTE(0);
        rows[threadIdx.x] = {pair, pair, pair, pair};
        if (m != Matrices::no_syncwarp_before_ldmatrix) __syncwarp();
        NOTE(1);
        transposed ? ptx::ldmatrix_trans(matrices, &rows[threadIdx.x]) : ptx::ldmatrix(matrices, &rows[threadIdx.x]);
        ptx::mma_m16n8k16<__nv_bfloat16>(sums, matrices, {matrices[0], matrices[1]});
        if (m != Matrices::no_syncwarp_after_ldmatrix) __syncwarp();
    }
    result[blockIdx.x * blockDim.x + threadIdx.x] = matrices[threadIdx.x % 4] >> 16;
}

enum class StoreMatrices { correct, no_syncwarp_before_stmatrix, no_syncwarp_after_stmatrix };

/// The same the other way round.
template <StoreMatrices m, bool transposed>
__global__ void store_matrices_kernel(int* result, [[maybe_unused]] int* lines) {
    auto* rows = dynamic_shared<uint4>();
    rows[threadIdx.x] = {};
    __syncwarp();
    for (unsigned i = 0; i < rounds; ++i) {
        const std::uint32_t pair = i * 0x10001u, matrices[4] = {pair, pair, pair, pair};
        NOTE(1);
        transposed ? ptx::stmatrix_trans(&rows[threadIdx.x], matrices) : ptx::stmatrix(&rows[threadIdx.x], matrices);
        if (m != StoreMatrices::no_syncwarp_after_stmatrix) __syncwarp();
        NOTE(0);
        result[blockIdx.x * blockDim.x + threadIdx.x] = rows[threadIdx.x].w >> 16;
        if (m != StoreMatrices::no_syncwarp_before_stmatrix) __syncwarp();
    }
}

enum class Narrow { correct, no_barrier };

/// Two neighbours share a word, but no byte.
template <Narrow m>
__global__ void narrow_kernel(int* result, [[maybe_unused]] int* lines) {
    __shared__ unsigned short values[threads];
    values[threadIdx.x] = 0;
    __syncthreads();
    NOTE(0);
    values[threadIdx.x] = 1;
    if (m != Narrow::no_barrier) __syncthreads();
    NOTE(1);
    result[blockIdx.x * blockDim.x + threadIdx.x] = values[threadIdx.x ^ 1];
}

enum class Wide { correct, no_barrier };

/// Four words are written at once, of which another thread reads the last one.
template <Wide m>
__global__ void wide_kernel(int* result, [[maybe_unused]] int* lines) {
    __shared__ int4 values[threads];
    values[threadIdx.x] = {};
    __syncthreads();
    NOTE(0);
    values[threadIdx.x] = {0, 0, 0, 1};
    if (m != Wide::no_barrier) __syncthreads();
    NOTE(1);
    result[blockIdx.x * blockDim.x + threadIdx.x] = values[threadIdx.x ^ 32].w;
}

enum class HandOver { correct, no_full_barrier, no_empty_barrier };

/// One warp produces, the other one consumes.
template <HandOver m>
__global__ void hand_over_kernel(int* result, [[maybe_unused]] int* lines) {
    __shared__ int values[32];
    enum { full = 1, empty = 2 };
    const int lane = threadIdx.x % 32;
    if (threadIdx.x < 32) values[lane] = 0;
    __syncthreads();
    for (int i = 0; i < rounds; ++i) {
        if (threadIdx.x < 32) {
            if (m != HandOver::no_empty_barrier) ptx::named_barrier_sync(empty, threads);
            NOTE(0);
            values[lane] = i;
            if (m != HandOver::no_full_barrier) ptx::named_barrier_arrive(full, threads);
        } else {
            if (m != HandOver::no_empty_barrier) ptx::named_barrier_arrive(empty, threads);
            if (m != HandOver::no_full_barrier) ptx::named_barrier_sync(full, threads);
            NOTE(1);
            result[blockIdx.x * threads + lane] = result[blockIdx.x * threads + 32 + lane] = values[31 - lane];
        }
    }
}

enum class Broadcast { correct, no_barrier_after_reading };

/// Who reads together does not race.
template <Broadcast m>
__global__ void broadcast_kernel(int* result, [[maybe_unused]] int* lines) {
    __shared__ int value;
    for (int i = 0; i < rounds; ++i) {
        if (threadIdx.x == 0) {
            NOTE(0);
            value = i;
        }
        __syncthreads();
        NOTE(1);
        result[blockIdx.x * blockDim.x + threadIdx.x] = value;
        if (m == Broadcast::correct) __syncthreads();
    }
}

enum class ReusedBarrier { correct, no_barrier_between_the_pairs };

/// Two pairs of warps use one named barrier, one after the other, and the second reads what the first has written.
template <ReusedBarrier m>
__global__ void reused_barrier_kernel(int* result, int* lines) {
    __shared__ int values[threads], go;
    const int self = threadIdx.x % threads;
    if (threadIdx.x == 0) go = 0;
    __syncthreads();
    if (threadIdx.x < threads) {
        NOTE(0);
        values[self] = 1;
        ptx::named_barrier_sync(1, threads);
        if (self == 0) atomicExch(&go, 1);
    }
    if (m == ReusedBarrier::correct) __syncthreads();
    if (threadIdx.x >= threads) {
        wait_until([&] { return atomicAdd(&go, 0) != 0; }, lines);
        ptx::named_barrier_sync(1, threads);
        NOTE(1);
        result[blockIdx.x * 2 * threads + threadIdx.x] = result[blockIdx.x * 2 * threads + self] = values[self];
    }
}

enum class Relay {
    correct,
    written_then_read,
    read_then_written,
    written_then_added,
    word_then_byte,
    acquired_by_others_too
};

/// One thread reads what another one has written, once a flag says so; the flag itself orders nothing.
template <Relay m>
__global__ void relay_kernel(int* result, const unsigned* flag, int* lines) {
    __shared__ int value, go;
    if (threadIdx.x == 0) value = go = 0;
    __syncthreads();
    if (threadIdx.x < 32) {
        if (threadIdx.x == 0) {
            const int old = m == Relay::read_then_written ? value : 0;
            NOTE(0);
            value = old + 0x01010101;
            if (m == Relay::written_then_added) atomicAdd(&value, 0);
        }
        __syncwarp();
        if (m == Relay::written_then_read && threadIdx.x == 0) result[1] = value;
        if (m == Relay::word_then_byte && threadIdx.x == 0) reinterpret_cast<char&>(value) = 1;
        __syncwarp();
        if (threadIdx.x == 1) {
            if (m == Relay::correct) __threadfence_block();
            if (m == Relay::acquired_by_others_too) ptx::load_acquire(flag);
            atomicExch(&go, 1);
        }
    } else if (threadIdx.x == 32) {
        wait_until([&] { return atomicAdd(&go, 0) != 0; }, lines);
        if (m == Relay::correct) __threadfence_block();
        if (m == Relay::acquired_by_others_too) ptx::load_acquire(flag);
        if (m == Relay::written_then_added) {
            NOTE(1);
            result[0] = atomicAdd(&value, 0) & 0xFF;
        } else {
            NOTE(1);
            result[0] = reinterpret_cast<const char*>(&value)[3];
        }
    }
}

template <Relay m>
bool run_relay(int* lines) {
    const DeviceArray<int> result(2);
    const DeviceArray<unsigned> flag(std::vector<unsigned>{0});
    launch_kernel(relay_kernel<m>, {1, threads}, result.data(), flag.data(), lines);
    return result.download()[0] == 1;
}

enum class TwoRoles { correct, one_barrier_for_both };

/// Two pairs of warps, each with a barrier of its own.
template <TwoRoles m>
__global__ void two_roles_kernel(int* result, [[maybe_unused]] int* lines) {
    __shared__ int values[2][threads];
    const int role = threadIdx.x / threads, self = threadIdx.x % threads;
    const int id = m == TwoRoles::one_barrier_for_both ? 1 : 1 + role;
    values[role][self] = 0;
    __syncthreads();
    for (int i = 0; i < rounds; ++i) {
        NOTE(0);
        values[role][self] = i;
        ptx::named_barrier_sync(id, threads);
        NOTE(1);
        result[blockIdx.x * blockDim.x + threadIdx.x] = values[role][self ^ 32];
        ptx::named_barrier_sync(id, threads);
    }
}

/// More blocks than are resident, one after another in the same shared memory.
template <auto kernel, unsigned n = threads, int last = rounds - 1>
bool run_in_block(int* lines) {
    constexpr unsigned blocks = 6;
    const DeviceArray<int> result(blocks * n);
    launch_kernel(kernel, {blocks, n, n * sizeof(int)}, result.data(), lines);
    const std::vector<int> values = result.download();
    return std::all_of(values.begin(), values.end(), [](int value) { return value == last; });
}

/// A block of one warp, with a row of 16 bytes for each lane.
template <auto kernel>
bool run_matrices(int* lines) {
    constexpr unsigned blocks = 6, n = 32;
    const DeviceArray<int> result(blocks * n);
    launch_kernel(kernel, {blocks, n, n * sizeof(uint4)}, result.data(), lines);
    const std::vector<int> values = result.download();
    return std::all_of(values.begin(), values.end(), [](int value) { return value == rounds - 1; });
}

// ---- device memory

enum class PassOn { correct, no_release, no_acquire, plain_flag };

/// Block 0 writes for block 1.
template <PassOn m>
__global__ void pass_on_kernel(int* value, unsigned* flag, int* result, int* lines) {
    if (blockIdx.x == 0) {
        NOTE(0);
        value[0] = 5;
        NOTE(2);
        if (m == PassOn::plain_flag) *flag = 1;
        if (m == PassOn::no_release) atomicExch(flag, 1u);
        if (m == PassOn::correct || m == PassOn::no_acquire) ptx::store_release(flag, 1);
    } else {
        NOTE(3);
        wait_until([&] { return (m == PassOn::no_acquire ? *(volatile unsigned*)flag : ptx::load_acquire(flag)) != 0; },
                   lines);
        NOTE(1);
        *result = value[0];
    }
}

enum class Chain { correct, no_acquire_in_the_middle };

/// Block 0 writes for block 2, and block 1 hands the news on.
template <Chain m>
__global__ void chain_kernel(int* value, unsigned* flags, int* result, int* lines) {
    if (blockIdx.x == 0) {
        NOTE(0);
        value[0] = 5;
        ptx::store_release(&flags[0], 1);
    } else if (blockIdx.x == 1) {
        const bool acquires = m == Chain::correct;
        wait_until([&] { return (acquires ? ptx::load_acquire(&flags[0]) : *(volatile unsigned*)flags) != 0; }, lines);
        ptx::store_release(&flags[1], 1);
    } else {
        wait_until([&] { return ptx::load_acquire(&flags[1]) != 0; }, lines);
        NOTE(1);
        *result = value[0];
    }
}

enum class PassOnByFences { correct, no_fence_before_the_flag, no_fence_behind_the_flag };

template <PassOnByFences m>
__global__ void pass_on_by_fences_kernel(int* value, unsigned* flag, int* result, int* lines) {
    if (blockIdx.x == 0) {
        NOTE(0);
        value[0] = 5;
        if (m != PassOnByFences::no_fence_before_the_flag) __threadfence();
        *(volatile unsigned*)flag = 1;
    } else {
        wait_until([&] { return *(volatile unsigned*)flag != 0; }, lines);
        if (m != PassOnByFences::no_fence_behind_the_flag) __threadfence();
        NOTE(1);
        *result = value[0];
    }
}

template <auto kernel, unsigned blocks = 2>
bool run_between_blocks(int* lines) {
    const DeviceArray<int> value(std::vector<int>{0}), result(std::vector<int>{0});
    const DeviceArray<unsigned> flag(std::vector<unsigned>{0, 0});
    launch_kernel(kernel, {blocks, 1}, value.data(), flag.data(), result.data(), lines);
    return result.download() == std::vector<int>{5};
}

enum class CompareAndSwap { correct, used_besides, other_value_compared, stored, read_alone };

/// Additions of floats and doubles as they are made of atomicCAS: the first value is loaded by no atomic, but used only
/// if it is still there.
template <CompareAndSwap m, class T, class Bits>
__global__ void compare_and_swap_kernel(T* sum, T* seen, [[maybe_unused]] int* lines) {
    Bits* address = reinterpret_cast<Bits*>(sum);
    Bits assumed;
    if (m == CompareAndSwap::read_alone && blockIdx.x == 1) {
        NOTE(2);
        *seen = *sum;
        return;
    }
    NOTE(0);
    Bits old = *address;
    if (m == CompareAndSwap::stored && blockIdx.x == 1) *address = 1;
    if (m == CompareAndSwap::used_besides) {
        __syncthreads();
        seen[0] = 1;
    }
    if (m == CompareAndSwap::other_value_compared) ++old;
    do {
        assumed = old;
        T value;
        memcpy(&value, &assumed, sizeof value);
        ++value;
        Bits bits;
        memcpy(&bits, &value, sizeof bits);
        NOTE(1);
        old = atomicCAS(address, assumed, bits);
    } while (assumed != old);
}

template <CompareAndSwap m, class T, class Bits>
bool run_compare_and_swap(int* lines) {
    constexpr unsigned blocks = 6;
    const DeviceArray<T> sum(std::vector<T>{0}), seen(1);
    launch_kernel(compare_and_swap_kernel<m, T, Bits>, {blocks, threads}, sum.data(), seen.data(), lines);
    return sum.download()[0] == blocks * threads;
}

enum class LastBlock {
    correct,
    fenced_by_each,
    fenced_behind_too,
    no_fence,
    fence_behind_the_atomic,
    fenced_by_each_no_barrier,
    volatile_flag_no_fence_behind
};

/// Each block leaves its sums; the one that comes last, as a counter says, adds them up. CUDA's sample
/// threadFenceReduction does it like this, with a fence in front of the atomic and a barrier behind it.
template <LastBlock m>
__global__ void last_block_kernel(int* sums, unsigned* count, int* result, [[maybe_unused]] int* lines) {
    __shared__ bool is_last;
    constexpr bool by_each = m == LastBlock::fenced_by_each || m == LastBlock::fenced_by_each_no_barrier;
    if (by_each || threadIdx.x < 32) {
        NOTE(0);
        sums[blockIdx.x * threads + threadIdx.x] = 1;
    }
    if (by_each) __threadfence();
    if (m != LastBlock::fenced_by_each_no_barrier) __syncthreads();
    if (threadIdx.x == 0) {
        if (!by_each && m != LastBlock::no_fence && m != LastBlock::fence_behind_the_atomic) __threadfence();
        if (m == LastBlock::volatile_flag_no_fence_behind) {
            is_last = blockIdx.x == gridDim.x - 1;
            if (!is_last) atomicInc(count, gridDim.x);
            if (is_last) wait_until([&] { return *(volatile unsigned*)count == gridDim.x - 1; }, lines);
        } else {
            is_last = atomicInc(count, gridDim.x) == gridDim.x - 1;
        }
        if (m == LastBlock::fenced_behind_too || m == LastBlock::fence_behind_the_atomic) __threadfence();
    }
    __syncthreads();
    if (!is_last) return;
    int sum = 0;
    for (unsigned block = 0; block < gridDim.x; ++block) {
        NOTE(1);
        sum += sums[block * threads + threadIdx.x % 32];
    }
    result[threadIdx.x] = sum;
}

template <LastBlock m>
bool run_last_block(int* lines) {
    constexpr unsigned blocks = 4;  // all are resident: the last one may wait for the others
    const DeviceArray<int> sums(blocks * threads), result(threads);
    const DeviceArray<unsigned> count(std::vector<unsigned>{0});
    launch_kernel(last_block_kernel<m>, {blocks, threads}, sums.data(), count.data(), result.data(), lines);
    const std::vector<int> values = result.download();
    return std::all_of(values.begin(), values.end(), [](int value) { return value == blocks; });
}

enum class AddUp { correct, no_atomic };

/// All blocks add to one number.
template <AddUp m>
__global__ void add_up_kernel(int* sum, [[maybe_unused]] int* lines) {
    NOTE(0);
    if (m == AddUp::correct) atomicAdd(sum, 1);
    NOTE(1);
    if (m == AddUp::no_atomic) *sum += 1;
}

template <auto kernel>
bool run_add_up(int* lines) {
    constexpr unsigned blocks = 6;
    const DeviceArray<int> sum(std::vector<int>{0});
    launch_kernel(kernel, {blocks, 1}, sum.data(), lines);
    return sum.download() == std::vector<int>{blocks};
}

enum class SameValue { correct, other_value, other_value_later, other_byte, read_before, read_behind };

/// All threads of all blocks store the same: who comes last does not matter. A copy of many bytes too.
template <SameValue m>
__global__ void same_value_kernel(int* values, int* result, [[maybe_unused]] int* lines) {
    struct Many {
        int x[9];
    };
    __shared__ Many many;
    __shared__ int flag;
    __shared__ char byte;
    const int self = blockIdx.x * blockDim.x + threadIdx.x;
    flag = 5;
    byte = 5;
    __syncthreads();
    int was = 5;
    if (m == SameValue::read_before && threadIdx.x == 0) {
        NOTE(0);
        was = flag;
    }
    NOTE(1);
    flag = was;
    byte = m == SameValue::other_byte ? threadIdx.x : 5;
    if (m == SameValue::other_value_later && threadIdx.x == 40) {
        pass_time();
        NOTE(0);
        flag = 6;
    }
    const Many same = {{5, 5, 5, 5, 5, 5, 5, 5, 5}};
    many = same;
    NOTE(2);
    *values = m == SameValue::other_value ? self : 5;
    if (m == SameValue::read_behind && threadIdx.x == 0) {
        NOTE(0);
        result[self] = flag;
    }
    __syncthreads();
    result[self] = (flag + byte + many.x[8]) / 3;
}

template <auto kernel>
bool run_same_value(int* lines) {
    constexpr unsigned blocks = 6;
    const DeviceArray<int> value(std::vector<int>{0}), result(blocks * threads);
    launch_kernel(kernel, {blocks, threads}, value.data(), result.data(), lines);
    const std::vector<int> values = result.download();
    return value.download()[0] == 5 && std::all_of(values.begin(), values.end(), [](int x) { return x == 5; });
}

enum class Shift { correct, one_launch_for_two };

/// Two steps, in each of which a block takes what its neighbour has written in the step before.
__global__ void shift_kernel(int* x, int* y, int first_step, int last_step, [[maybe_unused]] int* lines) {
    const unsigned block = blockIdx.x, neighbour = (block + 1) % gridDim.x;
    for (int step = first_step; step <= last_step; ++step)
        if (step == 0) {
            NOTE(0);
            y[block] = x[neighbour];
            asm volatile("");  // or clang makes one line of both
        } else {
            NOTE(1);
            x[block] = y[neighbour];
        }
}

template <Shift m>
bool run_shift(int* lines) {
    const DeviceArray<int> x(std::vector<int>{0, 1, 2, 3, 4, 5}), y(6);
    if (m == Shift::one_launch_for_two)
        launch_kernel(shift_kernel, {6, 1}, x.data(), y.data(), 0, 1, lines);
    else
        for (int step = 0; step < 2; ++step) launch_kernel(shift_kernel, {6, 1}, x.data(), y.data(), step, step, lines);
    return x.download() == std::vector<int>{2, 3, 4, 5, 0, 1};
}

}  // namespace

std::vector<SyncKernel> thread_kernels() {
    const auto race = [](const char* missing, std::vector<int> lines = {0, 1}) {
        return std::vector{Verdict{"race", {std::string("missing    ") + missing}, std::move(lines)}};
    };
    const auto barrier = race("__syncthreads(), a named barrier or an mbarrier");
    const auto other_warps = race("another number, or a barrier between the two", {});  // who meet at the same barrier
    const std::vector either = {barrier.front(), other_warps.front()};
    const auto only_warp = race("__syncwarp() or __syncthreads(), if both");  // of the block
    const auto warp = race("__syncthreads(), or __syncwarp() if only lanes of this warp use it, if both");
    const char* release = "a release by the one block and an acquire by the other (store_release, load_acquire)";
    return {
        {"rotate", "", run_in_block<rotate_kernel<Rotate::correct>>, {}},
        {"rotate", "no_barrier_before_reading", run_in_block<rotate_kernel<Rotate::no_barrier_before_reading>>,
         barrier},
        {"rotate", "no_barrier_after_reading", run_in_block<rotate_kernel<Rotate::no_barrier_after_reading>>, barrier},
        {"rotate",
         "no_barrier_at_the_end",
         run_in_block<rotate_kernel<Rotate::no_barrier_at_the_end>>,
         {},
         "nothing is written behind the last round"},
        {"rotate_in_warps", "", run_in_block<rotate_in_warps_kernel<RotateInWarps::correct>>, {}},
        {"rotate_in_warps", "no_syncwarp_before_reading",
         run_in_block<rotate_in_warps_kernel<RotateInWarps::no_syncwarp_before_reading>>, warp},
        {"rotate_in_warps", "no_syncwarp_after_reading",
         run_in_block<rotate_in_warps_kernel<RotateInWarps::no_syncwarp_after_reading>>, warp},
        {"rotate_in_warps", "vote_for_syncwarp", run_in_block<rotate_in_warps_kernel<RotateInWarps::vote_for_syncwarp>>,
         warp},
#define MATRICES(m, trans) run_matrices<matrices_kernel<Matrices::m, trans>>
        {"matrices", "", MATRICES(correct, false), {}},
        {"matrices", "no_syncwarp_before_ldmatrix", MATRICES(no_syncwarp_before_ldmatrix, false), only_warp},
        {"matrices", "no_syncwarp_after_ldmatrix", MATRICES(no_syncwarp_after_ldmatrix, false), only_warp},
        {"matrices_trans", "", MATRICES(correct, true), {}},
        {"matrices_trans", "no_syncwarp_before_ldmatrix", MATRICES(no_syncwarp_before_ldmatrix, true), only_warp},
        {"matrices_trans", "no_syncwarp_after_ldmatrix", MATRICES(no_syncwarp_after_ldmatrix, true), only_warp},
#define STORE_MATRICES(m, trans) run_matrices<store_matrices_kernel<StoreMatrices::m, trans>>
        {"store_matrices", "", STORE_MATRICES(correct, false), {}, {}, true},
        {"store_matrices",
         "no_syncwarp_before_stmatrix",
         STORE_MATRICES(no_syncwarp_before_stmatrix, false),
         only_warp,
         {},
         true},
        {"store_matrices",
         "no_syncwarp_after_stmatrix",
         STORE_MATRICES(no_syncwarp_after_stmatrix, false),
         only_warp,
         {},
         true},
        {"store_matrices_trans", "", STORE_MATRICES(correct, true), {}, {}, true},
        {"store_matrices_trans",
         "no_syncwarp_before_stmatrix",
         STORE_MATRICES(no_syncwarp_before_stmatrix, true),
         only_warp,
         {},
         true},
        {"store_matrices_trans",
         "no_syncwarp_after_stmatrix",
         STORE_MATRICES(no_syncwarp_after_stmatrix, true),
         only_warp,
         {},
         true},
        {"narrow", "", run_in_block<narrow_kernel<Narrow::correct>, threads, 1>, {}},
        {"narrow", "no_barrier", run_in_block<narrow_kernel<Narrow::no_barrier>, threads, 1>, warp},
        {"wide", "", run_in_block<wide_kernel<Wide::correct>, threads, 1>, {}},
        {"wide", "no_barrier", run_in_block<wide_kernel<Wide::no_barrier>, threads, 1>, barrier},
        {"hand_over", "", run_in_block<hand_over_kernel<HandOver::correct>>, {}},
        {"hand_over", "no_full_barrier", run_in_block<hand_over_kernel<HandOver::no_full_barrier>>, either},
        {"hand_over", "no_empty_barrier", run_in_block<hand_over_kernel<HandOver::no_empty_barrier>>, either},
        {"broadcast", "", run_in_block<broadcast_kernel<Broadcast::correct>>, {}},
        {"broadcast", "no_barrier_after_reading", run_in_block<broadcast_kernel<Broadcast::no_barrier_after_reading>>,
         race("__sync")},
        {"reused_barrier", "", run_in_block<reused_barrier_kernel<ReusedBarrier::correct>, 2 * threads, 1>, {}},
        {"reused_barrier", "no_barrier_between_the_pairs",
         run_in_block<reused_barrier_kernel<ReusedBarrier::no_barrier_between_the_pairs>, 2 * threads, 1>, other_warps},
        {"relay", "", run_relay<Relay::correct>, {}},
        {"relay", "written_then_read", run_relay<Relay::written_then_read>, barrier},
        {"relay", "read_then_written", run_relay<Relay::read_then_written>, barrier},
        {"relay", "written_then_added", run_relay<Relay::written_then_added>,
         race("a barrier, or an atomic on both sides")},
        {"relay", "word_then_byte", run_relay<Relay::word_then_byte>, barrier},
        {"relay", "acquired_by_others_too", run_relay<Relay::acquired_by_others_too>, barrier},
        {"two_roles", "", run_in_block<two_roles_kernel<TwoRoles::correct>, 2 * threads>, {}},
        {"two_roles",
         "one_barrier_for_both",
         run_in_block<two_roles_kernel<TwoRoles::one_barrier_for_both>, 2 * threads>,
         either},
        {"pass_on", "", run_between_blocks<pass_on_kernel<PassOn::correct>>, {}},
        {"pass_on", "no_release", run_between_blocks<pass_on_kernel<PassOn::no_release>>, race(release)},
        {"pass_on", "no_acquire", run_between_blocks<pass_on_kernel<PassOn::no_acquire>>, race(release)},
        {"pass_on", "plain_flag", run_between_blocks<pass_on_kernel<PassOn::plain_flag>>, race(release, {2, 3})},
        {"chain", "", run_between_blocks<chain_kernel<Chain::correct>, 3>, {}},
        {"chain", "no_acquire_in_the_middle", run_between_blocks<chain_kernel<Chain::no_acquire_in_the_middle>, 3>,
         race(release)},
        {"pass_on_by_fences", "", run_between_blocks<pass_on_by_fences_kernel<PassOnByFences::correct>>, {}},
        {"pass_on_by_fences", "no_fence_before_the_flag",
         run_between_blocks<pass_on_by_fences_kernel<PassOnByFences::no_fence_before_the_flag>>, race(release)},
        {"pass_on_by_fences", "no_fence_behind_the_flag",
         run_between_blocks<pass_on_by_fences_kernel<PassOnByFences::no_fence_behind_the_flag>>, race(release)},
#define COMPARE_AND_SWAP(m) run_compare_and_swap<CompareAndSwap::m, float, unsigned>
        {"compare_and_swap", "", COMPARE_AND_SWAP(correct), {}},
        {"compare_and_swap_double", "", run_compare_and_swap<CompareAndSwap::correct, double, unsigned long long>, {}},
        {"compare_and_swap", "used_besides", COMPARE_AND_SWAP(used_besides), race("", {0})},
        {"compare_and_swap", "other_value_compared", COMPARE_AND_SWAP(other_value_compared), race("", {0, 1})},
        {"compare_and_swap", "stored", COMPARE_AND_SWAP(stored), race("", {})},
        {"compare_and_swap", "read_alone", COMPARE_AND_SWAP(read_alone), race("", {1, 2})},
#define LAST_BLOCK(m) "last_block", #m, run_last_block<LastBlock::m>
        {"last_block", "", run_last_block<LastBlock::correct>, {}},
        {"last_block_fenced_by_each", "", run_last_block<LastBlock::fenced_by_each>, {}},
        {"last_block_fenced_twice", "", run_last_block<LastBlock::fenced_behind_too>, {}},
        {LAST_BLOCK(no_fence), race(release)},
        {LAST_BLOCK(fence_behind_the_atomic), race(release)},
        {LAST_BLOCK(fenced_by_each_no_barrier), race(release)},
        {LAST_BLOCK(volatile_flag_no_fence_behind), race(release)},
        {"add_up", "", run_add_up<add_up_kernel<AddUp::correct>>, {}},
        {"add_up", "no_atomic", run_add_up<add_up_kernel<AddUp::no_atomic>>, race(release, {1})},
#define SAME_VALUE(m) "same_value", #m, run_same_value<same_value_kernel<SameValue::m>>
        {"same_value", "", run_same_value<same_value_kernel<SameValue::correct>>, {}},
        {SAME_VALUE(other_value), race("", {2})},
        {SAME_VALUE(other_value_later), race("__sync")},
        {SAME_VALUE(other_byte), race("__sync", {})},
        {SAME_VALUE(read_before), race("__sync", {1})},
        {SAME_VALUE(read_behind), race("__sync", {1})},
        {"shift", "", run_shift<Shift::correct>, {}},
        {"shift", "one_launch_for_two", run_shift<Shift::one_launch_for_two>, race(release)},
    };
}

std::vector<SyncKernel> sync_kernels() {
    std::vector<SyncKernel> all = thread_kernels();
    for (const SyncKernel& kernel : async_kernels()) all.push_back(kernel);
    return all;
}

}  // namespace flashladder
