// Threads that synchronise by barriers, in shared memory, and by flags in device memory.
#include <algorithm>
#include <vector>

#include "../emulator/device_array.h"
#include "launch.h"
#include "mutants.h"
#include "noting.h"
#include "ptx/memory_order.h"
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
        result[threadIdx.x] = values[threadIdx.x ^ 32];
        if (m == Rotate::no_barrier_at_the_end && i == rounds - 1) break;
        if (m != Rotate::no_barrier_after_reading) __syncthreads();
    }
}

enum class RotateInWarps { correct, no_syncwarp_before_reading, no_syncwarp_after_reading };

template <RotateInWarps m>
__global__ void rotate_in_warps_kernel(int* result, [[maybe_unused]] int* lines) {
    int* values = dynamic_shared<int>();
    values[threadIdx.x] = 0;
    __syncthreads();
    for (int i = 0; i < rounds; ++i) {
        NOTE(0);
        values[threadIdx.x] = i;
        if (m != RotateInWarps::no_syncwarp_before_reading) __syncwarp();
        NOTE(1);
        result[threadIdx.x] = values[threadIdx.x ^ 5];
        if (m != RotateInWarps::no_syncwarp_after_reading) __syncwarp();
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
    result[threadIdx.x] = values[threadIdx.x ^ 1];
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
            result[lane] = result[lane + 32] = values[31 - lane];
        }
    }
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
        result[threadIdx.x] = values[role][self ^ 32];
        ptx::named_barrier_sync(id, threads);
    }
}

template <auto kernel, unsigned n = threads, int last = rounds - 1>
bool run_in_block(int* lines) {
    const DeviceArray<int> result(n);
    launch_kernel(kernel, {1, n, n * sizeof(int)}, result.data(), lines);
    const std::vector<int> values = result.download();
    return std::all_of(values.begin(), values.end(), [](int value) { return value == last; });
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

template <auto kernel>
bool run_between_blocks(int* lines) {
    const DeviceArray<int> value(std::vector<int>{0}), result(std::vector<int>{0});
    const DeviceArray<unsigned> flag(std::vector<unsigned>{0});
    launch_kernel(kernel, {2, 1}, value.data(), flag.data(), result.data(), lines);
    return result.download() == std::vector<int>{5};
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
    constexpr unsigned blocks = 4;
    const DeviceArray<int> sum(std::vector<int>{0});
    launch_kernel(kernel, {blocks, 1}, sum.data(), lines);
    return sum.download() == std::vector<int>{blocks};
}

}  // namespace

std::vector<SyncKernel> thread_kernels() {
    const auto race = [](const char* missing, std::vector<int> lines = {0, 1}) {
        return std::vector{Verdict{"race", {std::string("missing    ") + missing}, std::move(lines)}};
    };
    const auto barrier = race("__syncthreads(), a named barrier or an mbarrier");
    const auto warp = race("__syncwarp() or __syncthreads()");
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
        {"narrow", "", run_in_block<narrow_kernel<Narrow::correct>, threads, 1>, {}},
        {"narrow", "no_barrier", run_in_block<narrow_kernel<Narrow::no_barrier>, threads, 1>, warp},
        {"hand_over", "", run_in_block<hand_over_kernel<HandOver::correct>>, {}},
        {"hand_over", "no_full_barrier", run_in_block<hand_over_kernel<HandOver::no_full_barrier>>, barrier},
        {"hand_over", "no_empty_barrier", run_in_block<hand_over_kernel<HandOver::no_empty_barrier>>, barrier},
        {"two_roles", "", run_in_block<two_roles_kernel<TwoRoles::correct>, 2 * threads>, {}},
        {"two_roles", "one_barrier_for_both",
         run_in_block<two_roles_kernel<TwoRoles::one_barrier_for_both>, 2 * threads>, barrier},
        {"pass_on", "", run_between_blocks<pass_on_kernel<PassOn::correct>>, {}},
        {"pass_on", "no_release", run_between_blocks<pass_on_kernel<PassOn::no_release>>, race(release)},
        {"pass_on", "no_acquire", run_between_blocks<pass_on_kernel<PassOn::no_acquire>>, race(release)},
        {"pass_on", "plain_flag", run_between_blocks<pass_on_kernel<PassOn::plain_flag>>, race(release, {2, 3})},
        {"pass_on_by_fences", "", run_between_blocks<pass_on_by_fences_kernel<PassOnByFences::correct>>, {}},
        {"pass_on_by_fences", "no_fence_before_the_flag",
         run_between_blocks<pass_on_by_fences_kernel<PassOnByFences::no_fence_before_the_flag>>, race(release)},
        {"pass_on_by_fences", "no_fence_behind_the_flag",
         run_between_blocks<pass_on_by_fences_kernel<PassOnByFences::no_fence_behind_the_flag>>, race(release)},
        {"add_up", "", run_add_up<add_up_kernel<AddUp::correct>>, {}},
        {"add_up", "no_atomic", run_add_up<add_up_kernel<AddUp::no_atomic>>, race(release, {1})},
    };
}

std::vector<SyncKernel> sync_kernels() {
    std::vector<SyncKernel> all = thread_kernels();
    for (const SyncKernel& kernel : async_kernels()) all.push_back(kernel);
    return all;
}

}  // namespace flashladder
