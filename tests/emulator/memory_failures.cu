// Accesses that a thread may not make: each is found, and told with kernel, block, thread, place and source line.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "device_array.h"
#include "failure.h"
#include "launch.h"
#include "ptx/cp_async.h"

namespace flashladder {
namespace {

// One thread of one block fails, in a grid and a block of two dimensions.
const LaunchConfig config{{2, 3}, {8, 4}};
const std::string culprit_block = "(1, 2, 0) of (2, 3, 1)", culprit_thread = "(5, 3, 0) of (8, 4, 1)";

__device__ bool is_culprit() { return blockIdx.x == 1 && blockIdx.y == 2 && threadIdx.x == 5 && threadIdx.y == 3; }

Expected expect(cudaError_t code, const char* kind, const char* kernel) {
    return {code, kind, kernel, culprit_block, culprit_thread};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// ---- device memory

template <class T>
__global__ void read_one(const T* p, T* result, int* line) {
    if (!is_culprit()) return;
    *line = __LINE__ + 1;
    *result = *p;
}

template <class T>
__global__ void write_one(T* p, T value, int* line) {
    if (!is_culprit()) return;
    *line = __LINE__ + 1;
    *p = value;
}

__global__ void add_to_one(float* p, int* line) {
    if (!is_culprit()) return;
    *line = __LINE__ + 1;
    atomicAdd(p, 1.0f);
}

__global__ void add_vector(int* line) {
    __shared__ float4 sum;
    if (!is_culprit()) return;
    *line = __LINE__ + 1;
    atomicAdd(&sum, make_float4(1, 1, 1, 1));
}

__global__ void read_volatile(const volatile float* p, float* result, int* line) {
    if (!is_culprit()) return;
    *line = __LINE__ + 1;
    *result = *p;
}

__global__ void write_volatile(volatile float* p, int* line) {
    if (!is_culprit()) return;
    *line = __LINE__ + 1;
    *p = 1;
}

/// Reads, writes and an atomic of the float at `p` fail alike. Returns what is said of a read.
std::string check_place(float* p, cudaError_t code, const char* kind, const std::string& place) {
    const DeviceArray<float> result(1);
    char address[32];
    std::snprintf(address, sizeof address, " at %#zx: ", reinterpret_cast<std::size_t>(p));
    Report report = check_failure(expect(code, kind, "write_one"), __FILE__,
                                  [&](int* line) { launch_kernel(write_one<float>, config, p, 1, line); });
    CHECK(contains(report.words, "4-byte write"));
    CHECK(contains(report.words, place));
    if (p) CHECK(contains(report.words, address));
    report = check_failure(expect(code, kind, "write_volatile"), __FILE__,
                           [&](int* line) { launch_kernel(write_volatile, config, p, line); });
    CHECK(contains(report.words, "4-byte write"));
    report = check_failure(expect(code, kind, "read_volatile"), __FILE__,
                           [&](int* line) { launch_kernel(read_volatile, config, p, result.data(), line); });
    CHECK(contains(report.words, "4-byte read"));
    report = check_failure(expect(code, kind, "add_to_one"), __FILE__,
                           [&](int* line) { launch_kernel(add_to_one, config, p, line); });
    CHECK(contains(report.words, place));
    report = check_failure(expect(code, kind, "read_one"), __FILE__,
                           [&](int* line) { launch_kernel(read_one<float>, config, p, result.data(), line); });
    CHECK(contains(report.words, "4-byte read"));
    CHECK(contains(report.words, place));
    CHECK(std::isnan(result.download()[0]));  // the read came to nothing
    return report.words;
}

TEST_CASE("failure: an atomicAdd of four floats in shared memory") {
    check_failure(expect(cudaErrorLaunchFailure, "wrong memory", "add_vector"), __FILE__,
                  [&](int* line) { launch_kernel(add_vector, config, line); });
}

TEST_CASE("failure: just past an allocation") {
    const DeviceArray<float> x(100);
    const std::string words =
        check_place(x.data() + 100, cudaErrorIllegalAddress, "out of bounds", "byte 400 of allocation");
    CHECK(contains(words, "which has 400 bytes"));
    CHECK(contains(words, "allocated at tests/emulator/device_array.h:"));
}

TEST_CASE("failure: just past an allocation that has a name, and after it was freed") {
    float* x = nullptr;
    REQUIRE(cudaMalloc(&x, 400) == cudaSuccess);
    emulator::name_allocation(x, "K");
    check_place(x + 100, cudaErrorIllegalAddress, "out of bounds", "byte 400 of K, which has 400 bytes");
    cudaFree(x);
    check_place(x + 7, cudaErrorIllegalAddress, "use after free", "byte 28 of K, which has 400 bytes and was freed");
}

TEST_CASE("failure: half past an allocation") {
    char* bytes = nullptr;
    REQUIRE(cudaMalloc(&bytes, 10) == cudaSuccess);
    check_place(reinterpret_cast<float*>(bytes + 8), cudaErrorIllegalAddress, "out of bounds", "byte 8 of allocation");
    cudaFree(bytes);
}

TEST_CASE("failure: just before an allocation") {
    const DeviceArray<float> x(100);
    check_place(x.data() - 1, cudaErrorIllegalAddress, "out of bounds", "byte -4 of allocation");
}

TEST_CASE("failure: between two allocations") {
    const DeviceArray<float> x(100), y(100);
    const std::ptrdiff_t apart = y.data() - x.data();
    REQUIRE(apart > 0);
    const std::ptrdiff_t mebibyte = (1 << 20) / sizeof(float);
    check_place(x.data() + apart / 2, cudaErrorIllegalAddress, "out of bounds", "of allocation");
    // No run over the end of one may land in the other: all of the space in between belongs to the first.
    for (const std::ptrdiff_t i : {101l, mebibyte, apart / 3, apart - 65})
        check_place(x.data() + i, cudaErrorIllegalAddress, "out of bounds", "which has 400 bytes");
}

TEST_CASE("failure: before one that has a name, with another before it") {
    float *q = nullptr, *k = nullptr;
    REQUIRE(cudaMalloc(&q, 400) == cudaSuccess);
    REQUIRE(cudaMalloc(&k, 400) == cudaSuccess);
    emulator::name_allocation(q, "Q"), emulator::name_allocation(k, "K");
    check_place(k - 128, cudaErrorIllegalAddress, "out of bounds", "byte -512 of K, which has 400 bytes");
    check_place(q + 200, cudaErrorIllegalAddress, "out of bounds", "byte 800 of Q, which has 400 bytes");
    cudaFree(k);
    check_place(k - 128, cudaErrorIllegalAddress, "out of bounds", "of Q, which has 400 bytes");
    cudaFree(q);
}

TEST_CASE("failure: far outside") {
    const DeviceArray<float> x(100);
    check_place(x.data() + (std::size_t(100) << 28), cudaErrorIllegalAddress, "out of bounds",
                "no device allocation is near");
    check_place(reinterpret_cast<float*>(0x7FFF'FFFF'FFFF'0000), cudaErrorIllegalAddress, "out of bounds",
                "neither device nor shared memory");
    check_place(reinterpret_cast<float*>(0xFFFF'FFFF'FFFF'FFF0), cudaErrorIllegalAddress, "out of bounds",
                "neither device nor shared memory");
}

TEST_CASE("failure: use after free") {
    float* x = nullptr;
    REQUIRE(cudaMalloc(&x, 400) == cudaSuccess);
    REQUIRE(cudaFree(x) == cudaSuccess);
    check_place(x + 7, cudaErrorIllegalAddress, "use after free", "byte 28 of allocation");
    CHECK(contains(check_place(x, cudaErrorIllegalAddress, "use after free", "allocation"), "was freed"));
}

TEST_CASE("failure: a null pointer") {
    check_place(nullptr, cudaErrorIllegalAddress, "null pointer", "");
    check_place(static_cast<float*>(nullptr) + 100, cudaErrorIllegalAddress, "null pointer", "");
}

TEST_CASE("failure: a pointer to the host's memory") {
    std::vector<float> on_the_heap(100, 5.0f);
    float on_the_stack = 5;
    check_place(on_the_heap.data(), cudaErrorIllegalAddress, "out of bounds", "host's memory");
    check_place(&on_the_stack, cudaErrorIllegalAddress, "out of bounds", "host's memory");
    CHECK(on_the_heap[0] == 5);
    CHECK(on_the_stack == 5);
}

// ---- calls

__device__ __forceinline__ void store_inlined(float* p, int* line) {
    *line = __LINE__ + 1;
    *p = 1;
}
template <int depth>
__device__ __attribute__((noinline)) void store_deeply(float* p, int* lines) {
    lines[2] = __LINE__ + 1;
    if constexpr (depth > 0) return store_deeply<depth - 1>(p, lines), void(*lines = *lines);
    store_inlined(p, lines);
}
template <int depth>
__global__ void call_and_store(float* p, int* lines) {
    if (!is_culprit()) return;
    lines[1] = __LINE__ + 1;
    store_deeply<depth>(p, lines);
}
__device__ __attribute__((noinline)) void meet_inside(int* lines) {
    lines[0] = __LINE__ + 1;
    __shfl_sync(1u << 31, 1, 0);
    *lines = *lines;
}
__global__ void call_and_meet(int* lines) {
    if (!is_culprit()) return;
    lines[1] = __LINE__ + 1;
    meet_inside(lines);
    *lines = *lines;
}

std::string called_at(int line) {
    return line ? "\n  called at  tests/emulator/memory_failures.cu:" + std::to_string(line) : "";
}

TEST_CASE("failure: in a function, inlined or not, who has called it") {
    const Expected expected = expect(cudaErrorIllegalAddress, "null pointer", "call_and_store");
    Report report = check_failure(expected, __FILE__, [&](int* lines) {
        launch_kernel(call_and_store<0>, config, static_cast<float*>(nullptr), lines);
    });
    CHECK(contains(report.words, called_at(report.lines[2] + 1) + called_at(report.lines[1])));
    report = check_failure(expected, __FILE__, [&](int* lines) {
        launch_kernel(call_and_store<9>, config, static_cast<float*>(nullptr), lines);
    });
    const int call = report.lines[2];  // of the function by itself
    CHECK(contains(report.words, called_at(call + 1) + called_at(call) + called_at(call) + called_at(call) +
                                     called_at(report.lines[1])));
    CHECK(!contains(report.words, called_at(call) + called_at(call) + called_at(call) + called_at(call)));
    report = check_failure(expect(cudaErrorLaunchFailure, "wrong mask", "call_and_meet"), __FILE__,
                           [&](int* lines) { launch_kernel(call_and_meet, config, lines); });
    CHECK(contains(report.words, called_at(report.lines[1])));
}

// ---- alignment

template <class T>
__global__ void copy_one(const T* from, T* to, int* line) {
    if (!is_culprit()) return;
    *line = __LINE__ + 1;
    *to = *from;
}

/// `p` is misaligned for T, to read and to write; other_than_T is where it is not.
template <class T>
void check_misaligned(void* p, void* aligned) {
    const std::string size = std::to_string(sizeof(T));
    const std::string why = "not a multiple of " + size;
    const DeviceArray<T> result(1);
    Report report =
        check_failure(expect(cudaErrorMisalignedAddress, "misaligned", "write_one"), __FILE__,
                      [&](int* line) { launch_kernel(write_one<T>, config, static_cast<T*>(p), T(), line); });
    CHECK(contains(report.words, size + "-byte write"));
    CHECK(contains(report.words, why));
    report = check_failure(expect(cudaErrorMisalignedAddress, "misaligned", "read_one"), __FILE__, [&](int* line) {
        launch_kernel(read_one<T>, config, static_cast<T*>(p), result.data(), line);
    });
    CHECK(contains(report.words, size + "-byte read"));
    report = check_failure(expect(cudaErrorMisalignedAddress, "misaligned", "copy_one"), __FILE__, [&](int* line) {
        launch_kernel(copy_one<T>, config, static_cast<T*>(p), static_cast<T*>(aligned), line);
    });
    CHECK(contains(report.words, size + "-byte read"));
    report = check_failure(expect(cudaErrorMisalignedAddress, "misaligned", "copy_one"), __FILE__, [&](int* line) {
        launch_kernel(copy_one<T>, config, static_cast<T*>(aligned), static_cast<T*>(p), line);
    });
    CHECK(contains(report.words, size + "-byte write"));
}

TEST_CASE("failure: misaligned") {
    const DeviceArray<char> x(100);
    check_misaligned<short>(x.data() + 1, x.data());
    check_misaligned<float>(x.data() + 2, x.data());
    check_misaligned<float>(x.data() + 5, x.data());
    check_misaligned<double>(x.data() + 4, x.data());
    check_misaligned<float2>(x.data() + 12, x.data());
#ifndef __clang__  // copies them part by part
    check_misaligned<float4>(x.data() + 4, x.data());
    check_misaligned<float4>(x.data() + 24, x.data());
    check_misaligned<int4>(x.data() + 8, x.data());
#endif
    auto* odd = reinterpret_cast<float*>(x.data() + 6);
    const Report report = check_failure(expect(cudaErrorMisalignedAddress, "misaligned", "add_to_one"), __FILE__,
                                        [&](int* line) { launch_kernel(add_to_one, config, odd, line); });
    CHECK(contains(report.words, "4-byte atomic"));
}

__global__ void read_static_at(int byte, float* result, int* line) {
    __shared__ float shared[32];
    shared[threadIdx.y * blockDim.x + threadIdx.x] = 1;
    __syncthreads();
    if (!is_culprit()) return;
    // In one expression with the place of `shared`, clang 23 sees what may come, and reads byte by byte.
    const auto* at = reinterpret_cast<const float*>(reinterpret_cast<const char*>(shared) + byte);
    *line = __LINE__ + 1;
    *result = *at;
}

TEST_CASE("failure: misaligned in shared memory") {
    const DeviceArray<float> result(1);
    for (const int byte : {1, 2, 42}) {
        const Report report =
            check_failure(expect(cudaErrorMisalignedAddress, "misaligned", "read_static_at"), __FILE__,
                          [&](int* line) { launch_kernel(read_static_at, config, byte, result.data(), line); });
        CHECK(contains(report.words, "4-byte read"));
    }
}

// ---- accesses without a size of their own

#ifndef __clang__  // as above; and an older one leaves copies to memcpy, which nobody checks

/// Copied as pieces of 16, 8, 4, 2 and 1 bytes where it starts at a multiple of 16.
struct Odd {
    char bytes[31];
};

__global__ void read_odd_from_shared(Odd* to, int* line) {
    auto* shared = dynamic_shared<Odd>();
    if (!is_culprit()) return;
    *line = __LINE__ + 1;
    *to = *shared;
}

TEST_CASE("failure: a struct of which a part lies outside") {
    struct Piece {
        int begin, bytes;
    };
    const DeviceArray<Odd> other(std::vector<Odd>(1));
    for (const auto [begin, bytes] : {Piece{0, 16}, Piece{16, 8}, Piece{24, 4}, Piece{28, 2}, Piece{30, 1}}) {
        CAPTURE(begin);
        const DeviceArray<char> x(begin + bytes - 1);  // all but the last byte of the piece
        auto* odd = reinterpret_cast<Odd*>(x.data());
        const std::string place = "byte " + std::to_string(begin) + " of allocation";
        Report report =
            check_failure(expect(cudaErrorIllegalAddress, "out of bounds", "copy_one"), __FILE__,
                          [&](int* line) { launch_kernel(copy_one<Odd>, config, odd, other.data(), line); });
        CHECK(contains(report.words, std::to_string(bytes) + "-byte read"));
        CHECK(contains(report.words, place));
        report = check_failure(expect(cudaErrorIllegalAddress, "out of bounds", "copy_one"), __FILE__,
                               [&](int* line) { launch_kernel(copy_one<Odd>, config, other.data(), odd, line); });
        CHECK(contains(report.words, std::to_string(bytes) + "-byte write"));
        CHECK(contains(report.words, place));
    }
    const LaunchConfig with_shared{config.grid, config.block, sizeof(Odd)};
    const Report report =
        check_failure(expect(cudaErrorLaunchFailure, "uninitialised shared memory", "read_odd_from_shared"), __FILE__,
                      [&](int* line) { launch_kernel(read_odd_from_shared, with_shared, other.data(), line); });
    CHECK(contains(report.words, "16-byte read"));
}

/// There is no value in a register that could be copied piece by piece: a load and a store.
__global__ void load_vector(const float4* p, float* result, int* line) {
    if (!is_culprit()) return;
    *line = __LINE__ + 1;
    const float4 v = *p;
    *result = v.x + v.y + v.z + v.w;
}
__global__ void store_vector(float4* p, float x, int* line) {
    if (!is_culprit()) return;
    const float4 v = make_float4(x, 2 * x, 3 * x, 4 * x);
    *line = __LINE__ + 1;
    *p = v;
}

TEST_CASE("failure: misaligned float4, by way of registers") {
    const DeviceArray<float> x(std::vector<float>(100, 1.0f)), result(1);
    auto* p = reinterpret_cast<float4*>(x.data() + 2);
    Report report = check_failure(expect(cudaErrorMisalignedAddress, "misaligned", "load_vector"), __FILE__,
                                  [&](int* line) { launch_kernel(load_vector, config, p, result.data(), line); });
    CHECK(contains(report.words, "16-byte read"));
    report = check_failure(expect(cudaErrorMisalignedAddress, "misaligned", "store_vector"), __FILE__,
                           [&](int* line) { launch_kernel(store_vector, config, p, 1, line); });
    CHECK(contains(report.words, "16-byte write"));
}

// ---- vectors between device and shared memory

/// Element `first` of one is where a vector is read, of the other where it is written.
__global__ void copy_to_shared(const float* from, int first, int first_shared, int* line) {
    auto* shared = dynamic_shared<float>();
    if (!is_culprit()) return;
    *line = __LINE__ + 1;
    *reinterpret_cast<float4*>(&shared[first_shared]) = *reinterpret_cast<const float4*>(&from[first]);
}
__global__ void copy_from_shared(float* to, int first, int first_shared, int* line) {
    auto* shared = dynamic_shared<float>();
    for (int i = 0; i < 16; ++i) shared[i] = i;
    if (!is_culprit()) return;
    *line = __LINE__ + 1;
    *reinterpret_cast<float4*>(&to[first]) = *reinterpret_cast<const float4*>(&shared[first_shared]);
}

TEST_CASE("failure: a float4 on its way to or from shared memory") {
    struct Case {
        int first, first_shared;
        cudaError_t code;
        const char *kind, *to_shared, *from_shared;
    };
    const Case cases[] = {
        {2, 4, cudaErrorMisalignedAddress, "misaligned", "16-byte read", "16-byte write"},
        {4, 3, cudaErrorMisalignedAddress, "misaligned", "16-byte write", "16-byte read"},
        {16, 4, cudaErrorIllegalAddress, "out of bounds", "16-byte read", "16-byte write"},
        {4, 16, cudaErrorIllegalAddress, "out of bounds", "16-byte write", "16-byte read"},
    };
    for (const Case& c : cases) {
        CAPTURE(c.first);
        CAPTURE(c.first_shared);
        const DeviceArray<float> x(std::vector<float>(18, 1.0f));  // 4 1/2 vectors
        const LaunchConfig with_shared{config.grid, config.block, 18 * sizeof(float)};
        const Report in = check_failure(expect(c.code, c.kind, "copy_to_shared"), __FILE__, [&](int* line) {
            launch_kernel(copy_to_shared, with_shared, x.data(), c.first, c.first_shared, line);
        });
        CHECK(contains(in.words, c.to_shared));
        const Report out = check_failure(expect(c.code, c.kind, "copy_from_shared"), __FILE__, [&](int* line) {
            launch_kernel(copy_from_shared, with_shared, x.data(), c.first, c.first_shared, line);
        });
        CHECK(contains(out.words, c.from_shared));
    }
}

#endif  // __clang__

// ---- shared memory

__global__ void write_dynamic(int i, int* line) {
    auto* shared = dynamic_shared<float>();
    if (!is_culprit()) return;
    *line = __LINE__ + 1;
    shared[i] = 1;
}

TEST_CASE("failure: past the dynamic shared memory, and before it") {
    const int near_end = int(config.block.x), far = 50000;
    for (const int n : {0, 1, 100})
        for (const int i : {n, n + near_end, n + far, -1, -200}) {
            CAPTURE(n);
            CAPTURE(i);
            const Report report = check_failure(
                expect(cudaErrorIllegalAddress, "out of bounds", "write_dynamic"), __FILE__, [&](int* line) {
                    launch_kernel(write_dynamic, {config.grid, config.block, n * sizeof(float)}, i, line);
                });
            CHECK(contains(report.words, "byte " + std::to_string(4 * i) + " of the block's " + std::to_string(4 * n) +
                                             " bytes of dynamic shared memory"));
        }
}

__global__ void read_dynamic(int i, float* result, int* line) {
    auto* shared = dynamic_shared<float>();
    if (threadIdx.x != 0 || threadIdx.y != 2) shared[threadIdx.y * blockDim.x + threadIdx.x] = 1;  // all but number 16
    __syncthreads();
    if (!is_culprit()) return;
    *line = __LINE__ + 1;
    *result = shared[i];
}

__global__ void read_static(int i, float* result, int* line) {
    __shared__ float shared[32];
    if (threadIdx.x != 0 || threadIdx.y != 2) shared[threadIdx.y * blockDim.x + threadIdx.x] = 1;
    __syncthreads();
    if (!is_culprit()) return;
    *line = __LINE__ + 1;
    *result = shared[i];
}

TEST_CASE("failure: shared memory that nobody has written") {
    const DeviceArray<float> result(1);
    const LaunchConfig with_shared{config.grid, config.block, 33 * sizeof(float)};
    for (const int i : {16, 32}) {
        const Report report =
            check_failure(expect(cudaErrorLaunchFailure, "uninitialised shared memory", "read_dynamic"), __FILE__,
                          [&](int* line) { launch_kernel(read_dynamic, with_shared, i, result.data(), line); });
        CHECK(contains(report.words, "byte " + std::to_string(4 * i) + " of the block's 132 bytes of dynamic"));
        CHECK(contains(report.words, "which no thread of the block has written"));
    }
    const Report report =
        check_failure(expect(cudaErrorLaunchFailure, "uninitialised shared memory", "read_static"), __FILE__,
                      [&](int* line) { launch_kernel(read_static, config, 16, result.data(), line); });
    CHECK(contains(report.words, "static shared memory"));
    CHECK(contains(report.words, "4-byte read"));
    const DeviceArray<int> line(1);
    CHECK_NOTHROW(launch_kernel(read_dynamic, with_shared, 15, result.data(), line.data()));
    CHECK_NOTHROW(launch_kernel(read_static, config, 17, result.data(), line.data()));
}

enum class Unwritten { by_store, by_cp_async, by_own_cp_async, behind_a_barrier, never };

/// Thread 40 writes what thread 5 reads too early, where that comes first.
__global__ void read_early(Unwritten way, const int* values, int* result, int* lines) {
    __shared__ int shared[64];
    if (threadIdx.x == 40 && way != Unwritten::never && way != Unwritten::by_own_cp_async) {
        for (int i = 0; i < 100; ++i) __nanosleep(20);
        lines[1] = __LINE__ + (way == Unwritten::by_cp_async ? 1 : 3);
        if (way == Unwritten::by_cp_async) ptx::cp_async<4>(&shared[7], values);
        ptx::cp_async_commit();
        if (way != Unwritten::by_cp_async) shared[7] = 1;
    }
    if (threadIdx.x == 5) {
        lines[1] = way == Unwritten::by_own_cp_async ? __LINE__ + 1 : lines[1];
        if (way == Unwritten::by_own_cp_async) ptx::cp_async<4>(&shared[7], values);
        lines[0] = __LINE__ + 1;
        result[0] = shared[way == Unwritten::behind_a_barrier ? 6 : 7];
        lines[2] = 1;
    }
    if (way == Unwritten::behind_a_barrier) {
        __syncthreads();
        shared[6] = 1;
    }
    if (way == Unwritten::never)
        while (*(volatile int*)&lines[2] == 0) {
        }
}

TEST_CASE("failure: shared memory that is written too late") {
    const DeviceArray<int> result(1), values(std::vector<int>(4, 1));
    for (const auto way :
         {Unwritten::by_store, Unwritten::by_cp_async, Unwritten::by_own_cp_async, Unwritten::behind_a_barrier,
          Unwritten::never}) {
        CAPTURE(int(way));
        const WithPatience patience(10000);
        const Report report = check_failure(
            {cudaErrorLaunchFailure, "uninitialised shared memory", "read_early", "", "(5, 0, 0) of (64, 1, 1)"},
            __FILE__, [&](int* lines) {
                launch_kernel(read_early, {3, 64}, way, values.data(), result.data(), lines);
            });
        CHECK(report.lines[2] == 0);  // the thread has not gone on
        const std::string place = "tests/emulator/memory_failures.cu:" + std::to_string(report.lines[1]);
        if (way == Unwritten::by_store) {
            CHECK(contains(report.words, ", written only later: a barrier is missing, or the index is another's\n"));
            CHECK(contains(report.words, "written    later, by thread (40, 0, 0) at " + place));
            CHECK(contains(report.words, "missing    a barrier between the two"));
        } else if (way == Unwritten::by_cp_async) {
            CHECK(contains(report.words, "written    later, by cp_async, issued at " + place));
            CHECK(contains(report.words, "missing    a wait for it, or a barrier behind that wait, between the two"));
        } else if (way == Unwritten::by_own_cp_async) {
            CHECK(contains(report.words, "written    later, by cp_async, issued at " + place));
            CHECK(contains(report.words, "missing    a wait for it between the two"));
        } else {
            CHECK(!contains(report.words, "later"));
        }
    }
}

__global__ void read_half_written(int written, float* result, int* line) {
    auto* shared = dynamic_shared<float>();
    shared[written] = 1;
    *line = __LINE__ + 1;
    *result = reinterpret_cast<double*>(shared)[0];
}

TEST_CASE("failure: shared memory of which a part is not written") {
    const DeviceArray<float> result(1);
    for (const int written : {0, 1})
        check_failure({cudaErrorLaunchFailure, "uninitialised shared memory", "read_half_written", "", ""}, __FILE__,
                      [&](int* line) {
                          launch_kernel(read_half_written, {2, 1, 8}, written, result.data(), line);
                      });
}

__global__ void read_leftovers(bool of_static, int* line) {
    __shared__ int fixed[1];
    auto* shared = dynamic_shared<int>();
    if (blockIdx.x == 0) {
        fixed[0] = shared[0] = 1;
    } else {
        const int* leftover = of_static ? fixed : shared;
        *line = __LINE__ + 1;
        shared[1] = *leftover;
    }
}

TEST_CASE("failure: what another block left in shared memory") {
    const WithMultiprocessors restore(1);
    for (const bool of_static : {false, true})
        check_failure(
            {cudaErrorLaunchFailure, "uninitialised shared memory", "read_leftovers", "(1, 0, 0) of (2, 1, 1)", ""},
            __FILE__, [&](int* line) {
                launch_kernel(read_leftovers, {2, 1, 8}, of_static, line);
            });
}

// ---- hooks that a compiler calls now and then, or only another one: called by hand

#define DECLARE_HOOKS(n)                           \
    void __tsan_unaligned_read##n(void*);          \
    void __tsan_unaligned_write##n(void*);         \
    void __tsan_unaligned_volatile_read##n(void*); \
    void __tsan_unaligned_volatile_write##n(void*);
extern "C" {
DECLARE_HOOKS(2)
DECLARE_HOOKS(4)
DECLARE_HOOKS(8)
DECLARE_HOOKS(16)
void __tsan_read_range(void*, std::size_t);
void __tsan_write_range(void*, std::size_t);
void* __tsan_memcpy(void*, const void*, std::size_t);
void* __tsan_memmove(void*, const void*, std::size_t);
void* __tsan_memset(void*, int, std::size_t);
}

using Hook = void (*)(void*);

__global__ void call_hook(Hook hook, bool in_this_line, char* p, int* line) {
    if (!is_culprit()) return;
    if (in_this_line) *line = __LINE__ + 1;
    hook(p);
    line[1] = 0;  // or the call would be a jump, and its line unknown
}

/// A hook for `n` bytes at an odd address: the last of them past the end, then none.
void check_hook(Hook hook, std::size_t n, const std::string& access, bool in_this_line = true) {
    CAPTURE(n);
    CAPTURE(access);
    const DeviceArray<char> x(n);
    const Report report = check_failure(
        expect(cudaErrorIllegalAddress, "out of bounds", "call_hook"), __FILE__,
        [&](int* line) { launch_kernel(call_hook, config, hook, in_this_line, x.data() + 1, line); });
    CHECK(contains(report.words, access));
    const DeviceArray<char> y(n + 1);
    const DeviceArray<int> lines(3);
    CHECK_NOTHROW(launch_kernel(call_hook, config, hook, false, y.data() + 1, lines.data()));
}

TEST_CASE("failure: accesses that need no alignment") {
#define CHECK_HOOKS(n)                                               \
    check_hook(__tsan_unaligned_read##n, n, "-byte read");           \
    check_hook(__tsan_unaligned_write##n, n, "-byte write");         \
    check_hook(__tsan_unaligned_volatile_read##n, n, "-byte read");  \
    check_hook(__tsan_unaligned_volatile_write##n, n, "-byte write");
    CHECK_HOOKS(2)
    CHECK_HOOKS(4)
    CHECK_HOOKS(8)
    CHECK_HOOKS(16)
    for (const std::size_t n : {3, 31, 50}) {
        static std::size_t bytes;
        bytes = n;
        check_hook([](void* p) { __tsan_read_range(p, bytes); }, n, "-byte read", false);
        check_hook([](void* p) { __tsan_write_range(p, bytes); }, n, "-byte write", false);
        static char own[50];
        check_hook([](void* p) { __tsan_memcpy(own, p, bytes); }, n, "-byte read", false);
        check_hook([](void* p) { __tsan_memcpy(p, own, bytes); }, n, "-byte write", false);
        check_hook([](void* p) { __tsan_memmove(own, p, bytes); }, n, "-byte read", false);
        check_hook([](void* p) { __tsan_memmove(p, own, bytes); }, n, "-byte write", false);
        check_hook([](void* p) { __tsan_memset(p, 0, bytes); }, n, "-byte write", false);
    }
}

/// Thread 0 sets a flag that is no volatile one: only the hook can let it run.
__global__ void wait_in_hook(Hook hook, int* flag, int* seen) {
    if (threadIdx.x == 0) *flag = 1;
    for (int i = 0; i < 100000 && *flag == 0; ++i) hook(flag);
    seen[threadIdx.x] = *flag;
}

TEST_CASE("volatile: without alignment too, others may run") {
    for (const Hook hook : {__tsan_unaligned_volatile_read4, __tsan_unaligned_volatile_write4}) {
        const DeviceArray<int> flag(std::vector<int>{0}), seen(64);
        launch_kernel(wait_in_hook, {1, 64}, hook, flag.data(), seen.data());
        CHECK(seen.download() == std::vector<int>(64, 1));
    }
}

// ---- what the checks must not mistake for a failure

TEST_CASE("failure: none, at the edges of what is allowed") {
    const DeviceArray<float> x(100), result(1);
    const DeviceArray<int> line(1);
    for (const int i : {0, 99}) {
        CHECK_NOTHROW(launch_kernel(write_one<float>, config, x.data() + i, 1, line.data()));
        CHECK_NOTHROW(launch_kernel(read_one<float>, config, x.data() + i, result.data(), line.data()));
        CHECK_NOTHROW(launch_kernel(add_to_one, config, x.data() + i, line.data()));
        CHECK_NOTHROW(launch_kernel(write_dynamic, {config.grid, config.block, 400}, i, line.data()));
    }
    CHECK_NOTHROW(
        launch_kernel(write_one<float4>, config, reinterpret_cast<float4*>(x.data() + 96), float4(), line.data()));
}

}  // namespace
}  // namespace flashladder
