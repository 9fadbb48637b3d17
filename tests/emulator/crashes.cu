// What no hook sees and the processor refuses, and exceptions: reported as all else, and the program goes on.
#include <doctest/doctest.h>

#include <csignal>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "device_array.h"
#include "failure.h"
#include "launch.h"

namespace flashladder {
namespace {

__device__ bool is_culprit() { return blockIdx.x == 2 && threadIdx.x == 40; }

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

template <class T>
Report check(void (*kernel)(T, int*), T parameter, cudaError_t code, const char* kind, const char* name) {
    return check_failure({code, kind, name, "(2, 0, 0) of (4, 1, 1)", "(40, 0, 0) of (64, 1, 1)"}, __FILE__,
                         [&](int* lines) {
                             launch_kernel(kernel, {4, 64}, parameter, lines);
                         });
}

__device__ __forceinline__ int divide_inlined(int numerator, int divisor, int* lines) {
    lines[0] = __LINE__ + 1;
    return numerator / divisor;
}
__global__ void divide(int* operands, int* lines) {
    if (!is_culprit()) return;
    lines[1] = __LINE__ + 1;
    operands[2] = divide_inlined(operands[0], operands[1], lines);
}

#ifdef __x86_64__  // arm64 gives 0
TEST_CASE("failure: a whole number divided by zero") {
    for (const auto& numbers : {std::vector{7, 0, 0}, {std::numeric_limits<int>::min(), -1, 0}}) {
        const DeviceArray<int> operands(numbers);
        const Report report = check(divide, operands.data(), cudaErrorLaunchFailure, "division by zero", "divide");
        CHECK(contains(report.words, "called at  tests/emulator/crashes.cu:" + std::to_string(report.lines[1])));
    }
    const DeviceArray<int> operands(std::vector{7, 2, 0}), lines(3);
    CHECK_NOTHROW(launch_kernel(divide, {4, 64}, operands.data(), lines.data()));
    CHECK(operands.download()[2] == 3);
}
#endif

/// Each call takes another 8 KB.
__attribute__((noinline)) int descend(int depth, int* lines) {
    volatile int local[2048];
    local[depth] = depth;
    return depth == 0 ? 0 : descend(depth - 1, lines) + local[depth];
}
__global__ void recurse(int depth, int* lines) {
    if (is_culprit()) lines[1] = descend(depth, lines);
}
__global__ void take_much(int i, int* lines) {
    if (!is_culprit()) return;
    volatile int local[100'000];
    local[i] = 1;
    lines[2] = local[i];
}

TEST_CASE("failure: a stack that is too small") {
    Report report = check(recurse, 1000, cudaErrorLaunchFailure, "stack overflow", "recurse");
    CHECK(contains(report.words, "take more than the "));
    CHECK(contains(report.source, "tests/emulator/crashes.cu:"));
    // The whole of it may lie beyond the neighbour's.
    const DeviceArray<int> lines(3);
    CHECK_THROWS_AS(launch_kernel(take_much, {4, 64}, 99'999, lines.data()), CudaError);
    CHECK(last_report().kind == "stack overflow");
    CHECK(contains(last_report().source, "tests/emulator/crashes.cu:"));
    check_gpu_works();
    CHECK_NOTHROW(launch_kernel(recurse, {4, 64}, 5, lines.data()));
}

/// Writes behind its array. Compilers that guard the stack, as this file is compiled, see it at the function's end.
__attribute__((noinline)) void fill(int n, int* lines) {
    volatile int local[8];
    volatile int* const p = local;  // or the index would be looked at
    for (int i = 0; i < n; ++i) p[i] = -1;
    lines[1] = local[3];
}
__global__ void smash(int n, int* lines) {
    if (!is_culprit()) return;
    lines[0] = __LINE__ + 1;
    fill(n, lines);
    lines[2] = 1;
}

TEST_CASE("failure: a stack that is smashed") {
    const DeviceArray<int> lines(3);
    CHECK_NOTHROW(launch_kernel(smash, {4, 64}, 8, lines.data()));
    for (int times = 0; times < 2; ++times) {
        CHECK_THROWS_AS(launch_kernel(smash, {4, 64}, 12, lines.data()), CudaError);
        const Report report = last_report();
        CHECK(report.kind == "stack smashed");
        CHECK(report.kernel == "smash");
        CHECK(report.thread == "(40, 0, 0) of (64, 1, 1)");
        CHECK(contains(report.source, "tests/emulator/crashes.cu:"));
    }
    check_gpu_works();
}

/// Inline assembly has no hook.
__global__ void store_unseen(int* p, int* lines) {
    if (!is_culprit()) return;
#if defined(__x86_64__)
    lines[0] = __LINE__ + 1;
    asm volatile("movl $1, (%0)" : : "r"(p) : "memory");
#elif defined(__aarch64__)
    lines[0] = __LINE__ + 1;
    asm volatile("str wzr, [%0]" : : "r"(p) : "memory");
#endif
}

TEST_CASE("failure: a wild access that no hook has seen") {
    check(store_unseen, static_cast<int*>(nullptr), cudaErrorIllegalAddress, "null pointer", "store_unseen");
    const Report report = check(store_unseen, reinterpret_cast<int*>(0x7FFF'FFFF'F000 / 2), cudaErrorIllegalAddress,
                                "out of bounds", "store_unseen");
    CHECK(contains(report.words, "0x3ffffffff800"));
}

enum class Throw { own, of_the_library };

__global__ void throw_one(Throw what, int* lines) {
    if (!is_culprit()) return;
    const std::vector<int> none;
    lines[1] = __LINE__ + 1;
    if (what == Throw::of_the_library) lines[1] = none.at(threadIdx.x);
    lines[0] = __LINE__ + 1;
    throw std::runtime_error("our words");
}

TEST_CASE("failure: an exception in a kernel") {
    CHECK(contains(check(throw_one, Throw::own, cudaErrorLaunchFailure, "exception", "throw_one").words, "our words"));
    const Report report = check(throw_one, Throw::of_the_library, cudaErrorLaunchFailure, "exception", "throw_one");
    CHECK(contains(report.words, "vector"));
    CHECK(report.source == "tests/emulator/crashes.cu:" + std::to_string(report.lines[1]));  // not the library's
}

TEST_CASE("failure: the program's own handlers of signals are back after a launch") {
    const auto own = [](int) {};
    for (const int signal : {SIGFPE, SIGSEGV, SIGBUS, SIGABRT}) {
        const auto before = std::signal(signal, own);
        const DeviceArray<int> lines(3);
        CHECK_NOTHROW(launch_kernel(recurse, {4, 64}, 5, lines.data()));
        CHECK_THROWS_AS(launch_kernel(store_unseen, {4, 64}, static_cast<int*>(nullptr), lines.data()), CudaError);
        CHECK((std::signal(signal, before) == +own));
    }
}

}  // namespace
}  // namespace flashladder
