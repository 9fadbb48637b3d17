// What a GPU leaves undefined, or answers with a hang or a code without words: the emulator says what is wrong, where,
// and who waits for what.
#include "../emulator/failure.h"

#include <doctest/doctest.h>

#include <string>

#include "../emulator/device_array.h"
#include "../test_seed.h"
#include "launch.h"
#include "ptx/cluster.h"
#include "ptx/cp_async.h"
#include "ptx/fence.h"
#include "ptx/ldmatrix.h"
#include "ptx/mbarrier.h"
#include "ptx/mma.h"
#include "ptx/named_barrier.h"
#include "ptx/setmaxnreg.h"
#include "ptx/tensor_map.h"
#include "ptx/tma.h"
#include "ptx/wgmma.h"

namespace flashladder {
namespace {

using T = __nv_bfloat16;

constexpr std::size_t shared_bytes = 65536;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Launches one block of a kernel that notes the line where it will fail. `words` is part of what the report says.
template <class... Parameters, class... Arguments>
Report check(void (*kernel)(Parameters...), const char* name, unsigned threads, cudaError_t code, const char* kind,
             const std::string& words, const Arguments&... arguments) {
    const Report report = check_failure({code, kind, name, "(0, 0, 0) of (1, 1, 1)", ""}, __FILE__, [&](int* lines) {
        launch_kernel(kernel, {1, threads, shared_bytes}, arguments..., lines);
    });
    INFO(emulator::last_report());
    CHECK_MESSAGE(contains(report.words, words), report.words);
    return report;
}

/// Of 20 seeds, how many make the launch fail so.
template <class Launch>
int count_failures(const char* kind, const Launch& launch) {
    int failures = 0;
    for (int i = 0; i < 20; ++i) {
        emulator::reseed(test_seed() + unsigned(i));
        try {
            launch();
        } catch (const CudaError& error) {
            CHECK_MESSAGE(last_report().kind == kind, error.what());
            ++failures;
        }
    }
    return failures;
}

// ---- warps

__global__ void load_matrix(unsigned offset, unsigned written, int* lines) {
    auto* tile = dynamic_shared<unsigned char>();
    for (unsigned i = threadIdx.x; i < written; i += blockDim.x) tile[i] = 0;
    __syncwarp();
    std::uint32_t matrices[4];
    lines[0] = __LINE__ + 1;
    ptx::ldmatrix(matrices, tile + threadIdx.x * 16 + offset);
}

TEST_CASE("failure: ldmatrix") {
    check(load_matrix, "load_matrix", 32, cudaErrorMisalignedAddress, "misaligned", "ldmatrix of 16 bytes", 8u, 1024u);
    check(load_matrix, "load_matrix", 32, cudaErrorLaunchFailure, "uninitialised shared memory",
          "byte 500 of the block's 65536 bytes of dynamic shared memory", 0u, 500u);
    check(load_matrix, "load_matrix", 32, cudaErrorIllegalAddress, "out of bounds", "bytes of dynamic shared memory",
          unsigned(shared_bytes), 1024u);
    check(load_matrix, "load_matrix", 20, cudaErrorLaunchFailure, "missing lanes", "only 0x000fffff are there", 0u,
          1024u);
}

// ---- cp.async

__global__ void copy(const float* x, int offset, int valid, int* lines) {
    auto* tile = dynamic_shared<float>();
    lines[0] = __LINE__ + 1;
    ptx::cp_async<16>(tile, x + offset, valid);
    ptx::cp_async_commit();
    ptx::cp_async_wait<0>();
}

TEST_CASE("failure: cp.async") {
    const DeviceArray<float> x(64);
    check(copy, "copy", 1, cudaErrorMisalignedAddress, "misaligned", "cp_async of 16 bytes", x.data(), 1, 16);
    check(copy, "copy", 1, cudaErrorIllegalAddress, "out of bounds", "which has 256 bytes", x.data(), 64, 16);
    check(copy, "copy", 1, cudaErrorLaunchFailure, "wrong size", "of which 17 are valid", x.data(), 0, 17);
}

__global__ void copy_without_wait(const float* x, float* y) {
    auto* tile = dynamic_shared<float>();
    ptx::cp_async<4>(&tile[threadIdx.x], &x[threadIdx.x]);
    ptx::cp_async_commit();
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x];
}

TEST_CASE("failure: cp.async without a wait is found, if not by every seed") {
    const DeviceArray<float> x(std::vector<float>(64, 1.0f)), y(64);
    CHECK(count_failures("uninitialised shared memory", [&] {
              launch_kernel(copy_without_wait, {1, 64, shared_bytes}, x.data(), y.data());
          }) > 2);
}

// ---- named barriers

__global__ void meet(int id, int threads, int others, int* lines) {
    lines[0] = __LINE__ + 1;
    ptx::named_barrier_sync(id, threadIdx.x < 32 ? threads : others);
}
__global__ void meet_by_half_warps(int* lines) {
    if (threadIdx.x % 32 >= 16) return;
    lines[0] = __LINE__ + 1;
    ptx::named_barrier_sync(1, 32);
}
__global__ void wait_for_more(int threads, int* lines) {
    lines[1] = __LINE__ + 1;
    ptx::named_barrier_sync(2, threads);
}

TEST_CASE("failure: named barriers") {
    check(meet, "meet", 64, cudaErrorLaunchFailure, "wrong barrier", "0 is that of __syncthreads()", 0, 64, 64);
    check(meet, "meet", 64, cudaErrorLaunchFailure, "wrong barrier", "with number 16", 16, 64, 64);
    check(meet, "meet", 64, cudaErrorLaunchFailure, "wrong count", "no multiple of 32", 1, 40, 40);
    check(meet, "meet", 64, cudaErrorLaunchFailure, "wrong count", "others came to barrier 1 for", 1, 64, 96);
    check(meet_by_half_warps, "meet_by_half_warps", 64, cudaErrorLaunchFailure, "missing lanes",
          "named_barrier_sync takes all 32 lanes of a warp, but only 0x0000ffff are there");
    const Report report = check(wait_for_more, "wait_for_more", 64, cudaErrorLaunchTimeout, "deadlock",
                                "barrier 2: 32 of 96 threads are missing", 96);
    CHECK(contains(report.words, "64 threads wait for named_barrier_sync at tests/ptx/failures.cu:" +
                                     std::to_string(report.lines[1])));
    CHECK(contains(report.words, "; 64 threads wait for named barrier 2: 32 of 96 threads are missing\n"));
    check(wait_for_more, "wait_for_more", 64, cudaErrorLaunchTimeout, "deadlock",
          "64 of 128 threads are missing, some warps of a warpgroup among them", 128);
}

// ---- mbarriers

enum class Misuse { not_initialised, no_arrivals, too_many_arrivals, wrong_parity, too_many_bytes };

__global__ void misuse_barrier(Misuse misuse, int* lines) {
    __shared__ ptx::Barrier barrier;
    if (misuse == Misuse::no_arrivals) {
        lines[0] = __LINE__ + 1;
        ptx::barrier_init(barrier, 0);
    }
    if (misuse != Misuse::not_initialised) ptx::barrier_init(barrier, 1);
    if (misuse == Misuse::wrong_parity) {
        lines[0] = __LINE__ + 1;
        ptx::barrier_wait(barrier, 2);
    }
    if (misuse == Misuse::too_many_arrivals) {
        ptx::barrier_arrive_expect_tx(barrier, 16);
        lines[0] = __LINE__ + 1;
        ptx::barrier_arrive(barrier);
    }
    lines[0] = __LINE__ + 1;
    ptx::barrier_arrive_expect_tx(barrier, 1 << 20);
}

TEST_CASE("failure: mbarriers") {
    const auto fails = [](Misuse misuse, const char* kind, const char* words) {
        check(misuse_barrier, "misuse_barrier", 1, cudaErrorLaunchFailure, kind, words, misuse);
    };
    fails(Misuse::not_initialised, "no barrier", "it was not initialised");
    fails(Misuse::no_arrivals, "wrong count", "with 0 arrivals");
    fails(Misuse::too_many_arrivals, "too many arrivals", "whose phase expects 1, all of which have come");
    fails(Misuse::wrong_parity, "wrong parity", "2, neither 0 nor 1");
    fails(Misuse::too_many_bytes, "too many bytes", "with 1048576 bytes");
}

/// Thread 0 loads; all wait for the phase after `completed` others, for one arrival more than there is. Thread 0 has waited
/// for the first `seen` of these.
__global__ void wait_for_ever(const float* x, unsigned expected, int completed, int seen, int* lines) {
    auto* tile = dynamic_shared<float>();
    auto& barrier = *reinterpret_cast<ptx::Barrier*>(tile + 1024);
    if (threadIdx.x == 0) {
        ptx::barrier_init(barrier, 2);
        ptx::fence_barrier_init();
        for (int i = 0; i < completed; ++i) {
            for (int arrivals = 0; arrivals < 2; ++arrivals) ptx::barrier_arrive(barrier);
            if (i < seen) ptx::barrier_wait(barrier, i % 2);
        }
        ptx::barrier_arrive_expect_tx(barrier, expected);
        ptx::bulk_load(tile, x, 256, barrier);
    }
    __syncthreads();
    lines[1] = __LINE__ + 1;
    ptx::barrier_wait(barrier, completed % 2);
}

TEST_CASE("failure: deadlock at an mbarrier, with what is missing") {
    const DeviceArray<float> x(64);
    Report report =
        check(wait_for_ever, "wait_for_ever", 40, cudaErrorLaunchTimeout, "deadlock",
              "the barrier at byte 4096 of dynamic shared memory, phase 0 (parity 0): 1 of 2 arrivals and 16 "
              "bytes are missing",
              x.data(), 272u, 0, 0);
    CHECK(!contains(report.words, "is over"));
    CHECK(contains(report.words,
                   "40 threads wait for barrier_try_wait at tests/ptx/failures.cu:" + std::to_string(report.lines[1])));
    check(wait_for_ever, "wait_for_ever", 40, cudaErrorLaunchTimeout, "deadlock",
          "phase 3 (parity 1): 1 of 2 arrivals and 0 bytes are missing; phase 2 (parity 0) is over, and nobody has waited "
          "for it\n",
          x.data(), 256u, 3, 2);
    check(wait_for_ever, "wait_for_ever", 40, cudaErrorLaunchTimeout, "deadlock",
          "phase 3 (parity 1): 1 of 2 arrivals and 0 bytes are missing\n", x.data(), 256u, 3, 3);
    check(wait_for_ever, "wait_for_ever", 40, cudaErrorLaunchTimeout, "deadlock",
          "1 of 2 arrivals are missing, and 16 bytes more have come than were announced", x.data(), 240u, 0, 0);
}

/// All wait for the phase before the one that the load completes, which is over.
__global__ void wait_for_the_phase_before(const float* x, float* y) {
    auto* tile = dynamic_shared<float>();
    auto& barrier = *reinterpret_cast<ptx::Barrier*>(tile + 1024);
    if (threadIdx.x == 0) {
        ptx::barrier_init(barrier, 1);
        ptx::fence_barrier_init();
        ptx::barrier_arrive_expect_tx(barrier, 256);
        ptx::bulk_load(tile, x, 256, barrier);
    }
    __syncthreads();
    ptx::barrier_wait(barrier, 1);
    y[threadIdx.x] = tile[threadIdx.x];
}

TEST_CASE("failure: what a bulk copy brings is read behind a wait with the other parity") {
    const DeviceArray<float> x(std::vector<float>(64, 1.0f)), y(64);
    int too_early = 0, for_ever = 0;  // by when the copy arrives
    for (int i = 0; i < 200; ++i) {
        emulator::reseed(test_seed() + unsigned(i));
        CHECK_THROWS_AS(launch_kernel(wait_for_the_phase_before, {1, 64, shared_bytes}, x.data(), y.data()), CudaError);
        const std::string& report = emulator::last_report();
        const bool early = contains(report, ", written only later: a wait for it is missing or has the other parity, or the "
                                            "index is another's\n");
        too_early += early;
        for_ever += !early;
        CHECK_MESSAGE((early || contains(report, "; phase 0 (parity 0) is over, and nobody has waited for it\n")), report);
    }
    CHECK(too_early > 2);
    CHECK(for_ever > 0);
}

__device__ void wait_for(ptx::Barrier& barrier, unsigned parity, int* lines) {
    lines[1] = __LINE__ + 1;
    ptx::barrier_wait(barrier, parity);
}

/// Warp 0 waits for warp 1, which waits for two arrivals of which one has come.
__global__ void wait_for_who_waits(int* lines) {
    __shared__ ptx::Barrier barrier[2];
    if (threadIdx.x == 0) {
        ptx::barrier_init(barrier[0], 1);
        ptx::barrier_init(barrier[1], 2);
        ptx::barrier_arrive(barrier[0]);  // its first phase is over
        ptx::barrier_arrive(barrier[1]);
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        wait_for(barrier[0], 1, lines);
    } else {
        lines[2] = __LINE__ + 1;
        wait_for(barrier[1], 0, lines);
        ptx::barrier_arrive(barrier[0]);
    }
}

TEST_CASE("failure: deadlock at mbarriers, with the calls that have led there, and first who lacks some arrivals alone") {
    const Report report = check(wait_for_who_waits, "wait_for_who_waits", 64, cudaErrorLaunchTimeout, "deadlock",
                                "phase 0 (parity 0): 1 of 2 arrivals and 0 bytes are missing");
    const std::string place = "tests/ptx/failures.cu:";
    const std::string first = "32 threads wait for barrier_try_wait at " + place + std::to_string(report.lines[1]) +
                              ", first (32, 0, 0)\n    called at  " + place + std::to_string(report.lines[2]) +
                              "\n    the barrier at byte ";
    const std::size_t at = report.words.find(first);
    CHECK_MESSAGE(at != std::string::npos, report.words);
    CHECK(at < report.words.find("first (0, 0, 0)\n    called at  " + place));
    CHECK(report.words.find("first (0, 0, 0)\n    called at  " + place) != std::string::npos);
}

/// A wait that is two phases late looks like one that is on time for the phase after: it waits for ever.
__global__ void wait_too_late(int* lines) {
    __shared__ ptx::Barrier barrier;
    if (threadIdx.x == 0) {
        ptx::barrier_init(barrier, 1);
        ptx::barrier_arrive(barrier);
        ptx::barrier_arrive(barrier);
    }
    __syncthreads();
    lines[1] = __LINE__ + 1;
    ptx::barrier_wait(barrier, 0);
}

TEST_CASE("failure: a wait that is two phases late") {
    check(wait_too_late, "wait_too_late", 32, cudaErrorLaunchTimeout, "deadlock",
          "phase 2 (parity 0): 1 of 1 arrivals");
}

// ---- TMA

enum class TmaMisuse {
    unaligned_tile,
    wrong_rank,
    no_map,
    map_begins_early,
    no_barrier_fence,
    no_proxy_fence,
    no_commit,
    no_wait,
    over_the_end,
    no_wait_for_load,
    negative_store,
    odd_store,
    odd_load,
    sum_of_bf16
};

__global__ void misuse_tma(const __grid_constant__ CUtensorMap map, const __grid_constant__ CUtensorMap other_map,
                           TmaMisuse misuse, int* lines) {
    auto* tile = dynamic_shared<unsigned char>();
    __shared__ ptx::Barrier loaded;
    for (unsigned i = threadIdx.x; i < 2048; i += blockDim.x) reinterpret_cast<int*>(tile)[i] = 0;
    if (threadIdx.x == 0) {
        ptx::barrier_init(loaded, 1);
        if (misuse != TmaMisuse::no_barrier_fence) ptx::fence_barrier_init();
    }
    if (misuse != TmaMisuse::no_proxy_fence || threadIdx.x != 7) ptx::fence_proxy_async();
    __syncthreads();
    if (threadIdx.x != 0) return;
    ptx::barrier_arrive_expect_tx(loaded, 64 * 128);
    if (misuse == TmaMisuse::unaligned_tile) {
        lines[0] = __LINE__ + 1;
        ptx::tma_load(tile + 512, map, loaded, {0, 0});
    }
    if (misuse == TmaMisuse::wrong_rank) {
        lines[0] = __LINE__ + 1;
        ptx::tma_load(tile, map, loaded, {0, 0, 0});
    }
    if (misuse == TmaMisuse::no_map) {
        lines[0] = __LINE__ + 1;
        ptx::tma_load(tile, other_map, loaded, {0, 0});
    }
    if (misuse == TmaMisuse::map_begins_early) {
        lines[0] = __LINE__ + 1;
        ptx::tma_load(tile, other_map, loaded, {0, 8});  // what it asks for is there
    }
    if (misuse == TmaMisuse::odd_load) {
        lines[0] = __LINE__ + 1;
        ptx::tma_load(tile, map, loaded, {-1, 0});
    }
    if (misuse == TmaMisuse::over_the_end) {
        lines[0] = __LINE__ + 1;
        ptx::tma_load(tile + shared_bytes - 4096, map, loaded, {0, 0});
    }
    if (misuse == TmaMisuse::no_barrier_fence || misuse == TmaMisuse::no_wait_for_load) {
        lines[0] = __LINE__ + 1;
        ptx::tma_load(tile, map, loaded, {0, 0});
        return;
    }
    if (misuse == TmaMisuse::sum_of_bf16) {
        lines[0] = __LINE__ + 1;
        ptx::tma_reduce_add(map, tile, {0, 0});
    }
    const int first_row = misuse == TmaMisuse::negative_store ? -8 : 0;
    const int first_column = misuse == TmaMisuse::odd_store ? 4 : 0;
    lines[0] = __LINE__ + 1;
    ptx::tma_store(map, tile, {first_column, first_row});
    if (misuse == TmaMisuse::no_commit) return;
    ptx::bulk_commit();
    if (misuse == TmaMisuse::no_wait) return;
    ptx::bulk_wait_read<0>();
}

TEST_CASE("failure: TMA") {
    const DeviceArray<std::uint16_t> x(std::vector<std::uint16_t>(64 * 64, 0));
    const auto map = ptx::make_tensor_map<T, 2>(reinterpret_cast<const T*>(x.data()), {64, 64}, {128}, {64, 64},
                                                ptx::Swizzle::bytes_128);
    const CUtensorMap no_map{};
    const auto fails = [&](TmaMisuse misuse, cudaError_t code, const char* kind, const char* words) {
        check(misuse_tma, "misuse_tma", 64, code, kind, words, map, no_map, misuse);
    };
    fails(TmaMisuse::unaligned_tile, cudaErrorMisalignedAddress, "misaligned", "no multiple of 1024");
    fails(TmaMisuse::wrong_rank, cudaErrorIllegalInstruction, "wrong rank",
          "with 3 coordinates, for a tensor map of rank 2");
    fails(TmaMisuse::negative_store, cudaErrorIllegalInstruction, "wrong coordinates",
          "tma_store at (0, -8): a store may not begin before the tensor");
    fails(TmaMisuse::odd_store, cudaErrorIllegalInstruction, "wrong coordinates", "tma_store at (4, 0): the first one");
    fails(TmaMisuse::odd_load, cudaErrorIllegalInstruction, "wrong coordinates", "tma_load at (-1, 0): the first one");
    fails(TmaMisuse::sum_of_bf16, cudaErrorIllegalInstruction, "wrong type",
          "tma_reduce_add adds floats, and the map has elements of 2 bytes");
    fails(TmaMisuse::no_map, cudaErrorIllegalInstruction, "no tensor map", "has not made");
    const auto early = ptx::make_tensor_map<T, 2>(reinterpret_cast<const T*>(x.data() - 8 * 64), {64, 72}, {128}, {64, 64},
                                                  ptx::Swizzle::bytes_128);
    check(misuse_tma, "misuse_tma", 64, cudaErrorIllegalAddress, "out of bounds", "where there is no memory", map, early,
          TmaMisuse::map_begins_early);
    fails(TmaMisuse::no_proxy_fence, cudaErrorLaunchFailure, "missing fence",
          "which thread (7, 0, 0) has stored to with no fence_proxy_async() since");
    fails(TmaMisuse::over_the_end, cudaErrorIllegalAddress, "out of bounds", "byte 61440 of the block's 65536 bytes");
}

TEST_CASE("TMA reads what was stored without a fence, if the emulator is told not to mind") {
    const DeviceArray<std::uint16_t> x(std::vector<std::uint16_t>(64 * 64, 1));
    const auto map = ptx::make_tensor_map<T, 2>(reinterpret_cast<const T*>(x.data()), {64, 64}, {128}, {64, 64},
                                                ptx::Swizzle::bytes_128);
    const DeviceArray<int> lines(3);
    emulator::settings().proxy_fences = false;
    CHECK_NOTHROW(launch_kernel(misuse_tma, {1, 64, shared_bytes}, map, map, TmaMisuse::no_proxy_fence, lines.data()));
    emulator::settings().proxy_fences = true;
    CHECK(x.download() == std::vector<std::uint16_t>(64 * 64, 0));
}

TEST_CASE("failure: TMA, with what is under way when a thread or the block ends") {
    const DeviceArray<std::uint16_t> x(std::vector<std::uint16_t>(64 * 64, 0));
    const auto map = ptx::make_tensor_map<T, 2>(reinterpret_cast<const T*>(x.data()), {64, 64}, {128}, {64, 64},
                                                ptx::Swizzle::bytes_128);
    const auto fails = [&](TmaMisuse misuse) {
        return count_failures("unfinished", [&] {
            const DeviceArray<int> lines(3);
            launch_kernel(misuse_tma, {1, 64, shared_bytes}, map, map, misuse, lines.data());
        });
    };
    CHECK(fails(TmaMisuse::no_commit) == 20);
    CHECK(fails(TmaMisuse::no_wait) == 20);
    CHECK(fails(TmaMisuse::no_wait_for_load) > 2);
}

__global__ void signal_unknown_barrier(const float* x, int* lines) {
    auto* tile = dynamic_shared<float>();
    __shared__ ptx::Barrier loaded;
    ptx::barrier_init(loaded, 1);
    ptx::barrier_arrive_expect_tx(loaded, 16);
    lines[0] = __LINE__ + 1;
    ptx::bulk_load(tile, x, 16, loaded);
    ptx::barrier_wait(loaded, 0);
}

TEST_CASE("failure: a barrier that the async proxy does not know of") {
    const DeviceArray<float> x(64);
    check(signal_unknown_barrier, "signal_unknown_barrier", 1, cudaErrorLaunchFailure, "missing fence",
          "has initialised with no fence_barrier_init() since", x.data());
}

__global__ void signal_unknown_barriers(const __grid_constant__ CUtensorMap map, bool fenced) {
    auto* tile = dynamic_shared<unsigned char>();
    __shared__ ptx::Barrier loaded;
    if (threadIdx.x == 0) {
        ptx::barrier_init(loaded, 1);
        if (fenced || ptx::cluster_rank() == 0) ptx::fence_barrier_init();
    }
    ptx::cluster_sync();
    if (threadIdx.x == 0) ptx::barrier_arrive_expect_tx(loaded, 64 * 128);
    ptx::cluster_sync();
    if (threadIdx.x == 0 && ptx::cluster_rank() == 0) ptx::tma_load_multicast(tile, map, loaded, {0, 0}, 3);
    ptx::barrier_wait(loaded, 0);
    ptx::cluster_sync();
}

TEST_CASE("failure: a barrier that the async proxy does not know of, in another block of the cluster") {
    const DeviceArray<std::uint16_t> x(std::vector<std::uint16_t>(64 * 64, 0));
    const auto map = ptx::make_tensor_map<T, 2>(reinterpret_cast<const T*>(x.data()), {64, 64}, {128}, {64, 64},
                                                ptx::Swizzle::bytes_128);
    const auto failures = [&](bool fenced) {
        return count_failures("missing fence", [&] {
            launch_kernel(signal_unknown_barriers, {2, 32, shared_bytes, nullptr, 2}, map, fenced);
        });
    };
    CHECK(failures(true) == 0);
    CHECK(failures(false) == 20);
}

__global__ void copy_no_bytes(float* x) {
    auto* tile = dynamic_shared<float>();
    __shared__ ptx::Barrier loaded;
    ptx::barrier_init(loaded, 1);
    ptx::fence_barrier_init();
    ptx::barrier_arrive_expect_tx(loaded, 0);
    ptx::bulk_load(tile, x, 0, loaded);
    ptx::barrier_wait(loaded, 0);
    ptx::bulk_store(x, tile, 0);
    ptx::bulk_commit();
    ptx::bulk_wait<0>();
}

TEST_CASE("a bulk copy of no bytes does nothing") {
    const DeviceArray<float> x(std::vector<float>(4, 7));
    CHECK_NOTHROW(launch_kernel(copy_no_bytes, {1, 1, shared_bytes}, x.data()));
    CHECK(x.download() == std::vector<float>(4, 7));
}

TEST_CASE("failure: maps are refused with the driver's code, and told what limit they break") {
    const DeviceArray<T> x(64 * 64);
    const auto refusal = [&](std::uint64_t stride, std::uint32_t columns, ptx::Swizzle swizzle, std::uint32_t rows = 64,
                             std::uint64_t extent = 64, int first = 0) -> std::string {
        try {
            ptx::make_tensor_map<T, 2>(x.data() + first, {64, extent}, {stride}, {columns, rows}, swizzle);
        } catch (const CudaError& error) {
            CHECK(error.code == cudaErrorInvalidValue);
            return error.what();
        }
        return "";
    };
    const auto check_told = [](const std::string& found, const std::string& limit) {
        CHECK(found == "making a tensor map: " + limit + ": cudaErrorInvalidValue: invalid argument");
    };
    using enum ptx::Swizzle;
    CHECK(refusal(128, 64, bytes_128) == "");
    check_told(refusal(128, 128, bytes_128),
               "a row of the box is 128 elements, 256 bytes, and the swizzle is 128 bytes wide");
    check_told(refusal(128, 72, bytes_128),
               "a row of the box is 72 elements, 144 bytes, and the swizzle is 128 bytes wide");
    check_told(refusal(120, 64, bytes_128), "the stride of dimension 1 is 120 bytes, no multiple of 16");
    check_told(refusal(128, 4, none), "a row of the box is 8 bytes, no multiple of 16");
    check_told(refusal(128, 64, bytes_128, 257), "the box has 257 elements in dimension 1, and may have 1 to 256");
    check_told(refusal(128, 0, none), "the box has 0 elements in dimension 0, and may have 1 to 256");
    check_told(refusal(128, 64, bytes_128, 64, 0), "the tensor has no element in dimension 1");
    check_told(refusal(128, 64, bytes_128, 64, 64, 1), "the tensor does not begin at a multiple of 16 bytes");
}

// ---- setmaxnreg

__global__ void increase_first(int* lines) {
    lines[0] = __LINE__ + 1;
    ptx::registers_increase<64>();
}
__global__ void ask_for_too_many(int* lines) {
    lines[1] = __LINE__ + 1;
    if (threadIdx.x < 128)
        ptx::registers_decrease<40>();
    else
        ptx::registers_increase<240>();
}

__global__ void ask_by_so_many_warps(unsigned warps) {
    if (threadIdx.x / 32 < warps) ptx::registers_decrease<24>();
}

TEST_CASE("failure: setmaxnreg takes four warps") {
    const auto failures = [](unsigned warps) {
        return count_failures("missing warps", [&] { launch_kernel(ask_by_so_many_warps, {1, 256}, warps); });
    };
    CHECK(failures(1) == 20);
    CHECK(failures(4) == 0);
    CHECK(failures(7) == 20);
}

TEST_CASE("failure: setmaxnreg") {
    check(increase_first, "increase_first", 384, cudaErrorLaunchFailure, "wrong direction",
          "registers_increase to 64 registers, but the thread has 168");
    check(ask_for_too_many, "ask_for_too_many", 384, cudaErrorLaunchTimeout, "deadlock",
          "each thread wants 240 registers and has 168; the block has");
}

// ---- wgmma

enum class WgmmaMisuse {
    none,
    no_fence,
    a_overwritten,
    d_overwritten,
    d_scaled,
    d_read,
    unaligned,
    lanes_disagree,
    warps_disagree,
    no_proxy_fence,
    no_commit,
    no_wait
};

__global__ void misuse_wgmma(WgmmaMisuse misuse, float* first, int* lines) {
    auto* tile = dynamic_shared<unsigned char>();
    for (unsigned i = threadIdx.x; i < 8192; i += blockDim.x) reinterpret_cast<int*>(tile)[i] = 0;
    if (misuse != WgmmaMisuse::no_proxy_fence) ptx::fence_proxy_async();
    __syncthreads();
    float d[32] = {};
    std::uint32_t a[4] = {};
    unsigned offset = 0;
    if (misuse == WgmmaMisuse::lanes_disagree) offset = threadIdx.x % 32 == 3 ? 32 : 0;
    if (misuse == WgmmaMisuse::warps_disagree) offset = threadIdx.x / 32 == 3 ? 32 : 0;
    if (misuse == WgmmaMisuse::unaligned) {
        lines[0] = __LINE__ + 1;
        ptx::matrix_descriptor(tile + 8, 16, 1024, ptx::Swizzle::bytes_128);
    }
    const auto b = ptx::matrix_descriptor(tile, 16, 1024, ptx::Swizzle::bytes_128) + offset;
    if (misuse != WgmmaMisuse::no_fence) ptx::wgmma_fence(d);
    lines[0] = __LINE__ + 1;
    ptx::wgmma<T>(d, a, b, false);
    if (misuse != WgmmaMisuse::no_commit) ptx::wgmma_commit();
    if (misuse == WgmmaMisuse::no_wait) return;
    if (misuse == WgmmaMisuse::a_overwritten) a[1] = 5;
    if (misuse == WgmmaMisuse::d_overwritten) d[30] = 5;
    if (misuse == WgmmaMisuse::d_scaled) d[30] *= 0.125f;
    if (misuse == WgmmaMisuse::d_read) first[threadIdx.x] = d[0];
    __syncthreads();
    ptx::wgmma_wait<0>(d);
    if (misuse == WgmmaMisuse::none) first[threadIdx.x] = d[0];
}

TEST_CASE("failure: wgmma") {
    const DeviceArray<float> first(128);
    const auto fails = [&](WgmmaMisuse misuse, const char* kind, const char* words, unsigned threads = 128,
                           cudaError_t code = cudaErrorLaunchFailure) {
        check(misuse_wgmma, "misuse_wgmma", threads, code, kind, words, misuse, first.data());
    };
    fails(WgmmaMisuse::no_fence, "missing fence", "no wgmma_fence()");
    fails(WgmmaMisuse::unaligned, "misaligned", "a matrix descriptor with start", 128, cudaErrorMisalignedAddress);
    fails(WgmmaMisuse::lanes_disagree, "lanes disagree", "different descriptors");
    fails(WgmmaMisuse::warps_disagree, "warps disagree", "descriptors to a wgmma");
    fails(WgmmaMisuse::no_proxy_fence, "missing fence", "has stored to with no fence_proxy_async() since");
}

TEST_CASE("failure: wgmma takes four warps") {
    const DeviceArray<float> first(128);
    const DeviceArray<int> lines(3);
    CHECK(count_failures("missing warps", [&] {
              launch_kernel(misuse_wgmma, {1, 96, shared_bytes}, WgmmaMisuse::none, first.data(), lines.data());
          }) == 20);
}

TEST_CASE("failure: registers that the tensor core has are touched before the wait") {
    const DeviceArray<float> first(128);
    const DeviceArray<int> lines(3);
    const auto fails = [&](WgmmaMisuse misuse, const char* kind) {
        return count_failures(kind, [&] {
            launch_kernel(misuse_wgmma, {1, 128, shared_bytes}, misuse, first.data(), lines.data());
        });
    };
    CHECK(fails(WgmmaMisuse::none, "") == 0);
    CHECK(fails(WgmmaMisuse::a_overwritten, "register in use") > 2);
    CHECK(fails(WgmmaMisuse::d_overwritten, "register in use") > 2);
    CHECK(fails(WgmmaMisuse::d_scaled, "register in use") > 2);
    CHECK(fails(WgmmaMisuse::no_wait, "unfinished") == 20);
    CHECK(fails(WgmmaMisuse::no_commit, "unfinished") == 20);
    int nans = 0;
    for (unsigned i = 0; i < 20; ++i) {
        emulator::reseed(test_seed() + i);
        launch_kernel(misuse_wgmma, {1, 128, shared_bytes}, WgmmaMisuse::d_read, first.data(), lines.data());
        for (const float x : first.download()) nans += std::isnan(x);
    }
    CHECK(nans > 100);
}

TEST_CASE("a seed decides when asynchronous operations happen, and another seed otherwise") {
    const DeviceArray<float> first(128);
    const DeviceArray<int> lines(3);
    const auto run = [&](std::uint64_t seed) {
        emulator::reseed(seed);
        launch_kernel(misuse_wgmma, {1, 128, shared_bytes}, WgmmaMisuse::d_read, first.data(), lines.data());
        std::vector<bool> too_early;
        for (const float x : first.download()) too_early.push_back(std::isnan(x));
        return too_early;
    };
    int different = 0;
    for (std::uint64_t i = 0; i < 20; ++i) {
        const std::vector<bool> once = run(test_seed() + i);
        CHECK(run(test_seed() + i) == once);
        different += run(test_seed() + i + 1) != once;
    }
    CHECK(different > 2);
}

// ---- clusters

enum class ClusterMisuse { static_shared, no_such_block, return_early, unwritten, wait_for_ever, no_arrival, second_arrival };

__global__ void misuse_cluster(ClusterMisuse misuse, int* lines) {
    auto* values = dynamic_shared<int>();
    __shared__ int static_value;
    if (misuse == ClusterMisuse::wait_for_ever && blockIdx.x == 1) {
        lines[1] = __LINE__ + 1;
        ptx::named_barrier_sync(1, 64);
    }
    if (misuse == ClusterMisuse::static_shared) {
        lines[0] = __LINE__ + 1;
        ptx::map_to_block(&static_value, 0);
    }
    if (misuse == ClusterMisuse::no_such_block) {
        lines[0] = __LINE__ + 1;
        ptx::map_to_block(values, 2);
    }
    values[threadIdx.x] = 0;
    if (misuse == ClusterMisuse::no_arrival) {
        lines[0] = __LINE__ + 1;
        ptx::cluster_wait();
    }
    if (misuse == ClusterMisuse::second_arrival) {
        ptx::cluster_arrive();
        for (int i = 0; i < 50; ++i) __nanosleep(100);  // meanwhile all others have arrived, by most seeds
        lines[0] = __LINE__ + 1;
        ptx::cluster_arrive();
    }
    ptx::cluster_sync();
    int* other = ptx::map_to_block(values, ptx::cluster_rank() ^ 1);
    if (misuse == ClusterMisuse::return_early) {
        ptx::cluster_sync();
        if (blockIdx.x == 1) return;
        for (int i = 0; i < 1000; ++i) __nanosleep(100);
    }
    if (misuse == ClusterMisuse::unwritten) {
        ptx::cluster_sync();
        if (blockIdx.x == 0) lines[0] = __LINE__ + 1;
        values[0] = other[blockIdx.x == 0 ? 100 : 0];
    }
    values[1] = other[threadIdx.x];
    ptx::cluster_sync();
}

TEST_CASE("failure: clusters") {
    const auto fails = [](ClusterMisuse misuse, cudaError_t code, const char* kind, const char* words) {
        const Report report = check_failure({code, kind, "misuse_cluster", "", ""}, __FILE__, [&](int* lines) {
            launch_kernel(misuse_cluster, {2, 32, 4096, nullptr, 2}, misuse, lines);
        });
        CHECK_MESSAGE(contains(report.words, words), report.words);
    };
    fails(ClusterMisuse::static_shared, cudaErrorIllegalAddress, "out of bounds", "not in dynamic shared memory");
    fails(ClusterMisuse::no_such_block, cudaErrorLaunchFailure, "no such block", "block 2 of a cluster of 2");
    fails(ClusterMisuse::unwritten, cudaErrorLaunchFailure, "uninitialised shared memory",
          "4-byte read at byte 400 of the 4096 bytes of dynamic shared memory of block 1 of the cluster");
    fails(ClusterMisuse::return_early, cudaErrorLaunchFailure, "block has returned", "4-byte read at byte");
    fails(ClusterMisuse::no_arrival, cudaErrorLaunchFailure, "no arrival", "no cluster_arrive() before");
    fails(ClusterMisuse::second_arrival, cudaErrorLaunchFailure, "too many arrivals", "cluster_arrive() twice");
    fails(ClusterMisuse::wait_for_ever, cudaErrorLaunchTimeout, "deadlock",
          "32 threads wait for cluster_wait at tests/ptx/failures.cu");
    CHECK_THROWS_WITH_AS(launch_kernel(misuse_cluster, {3, 32, 4096, nullptr, 2}, ClusterMisuse::unwritten, nullptr),
                         doctest::Contains("wrong cluster"), CudaError);
}

// One thread arrives and returns, as it may. The last to arrive notes that before, and who has waited looks.
__global__ void arrive_and_return(int* noted) {
    const bool last = blockIdx.x == 1 && threadIdx.x == 1;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        ptx::cluster_arrive();
        return;
    }
    if (last) {
        for (int i = 0; i < 300; ++i) __nanosleep(100);
        atomicExch(noted, 1);
    }
    ptx::cluster_sync();
    if (!last && atomicAdd(noted, 0) != 1) atomicExch(noted + 1, 1);
}

TEST_CASE("a thread that arrives at a cluster's barrier and returns counts once") {
    for (unsigned i = 0; i < 20; ++i) {
        emulator::reseed(test_seed() + i);
        const DeviceArray<int> noted(std::vector<int>(2, 0));
        launch_kernel(arrive_and_return, {2, 32, 0, nullptr, 2}, noted.data());
        CHECK(noted.download() == std::vector<int>{1, 0});
    }
}

}  // namespace
}  // namespace flashladder
