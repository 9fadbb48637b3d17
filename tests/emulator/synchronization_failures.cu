// Barriers that not all reach, warp instructions with lanes missing, threads that wait for ever.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "device_array.h"
#include "failure.h"
#include "launch.h"

namespace flashladder {
namespace {

constexpr unsigned all_lanes = 0xFFFFFFFFu;

// Every kernel here is launched with two blocks, of which the second one fails. It notes lines[0], where the report
// must find the culprit, or lines[1] and [2], where threads wait.
__device__ bool in_good_block() { return blockIdx.x == 0; }

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
std::string place(int line) { return "tests/emulator/synchronization_failures.cu:" + std::to_string(line); }

template <class T>
Report check(void (*kernel)(T, int*), T parameter, unsigned threads, cudaError_t code, const char* kind,
             const char* name, const char* thread = "") {
    return check_failure({code, kind, name, "(1, 0, 0) of (2, 1, 1)", thread}, __FILE__, [&](int* lines) {
        launch_kernel(kernel, {2, threads}, parameter, lines);
    });
}

// ---- barriers

template <class T>
Report check_barrier(void (*kernel)(T, int*), T parameter, const char* name) {
    const WithStrictBarriers restore;
    return check(kernel, parameter, 64, cudaErrorLaunchFailure, "a barrier not reached by all", name);
}

__global__ void return_early(unsigned first_gone, int* lines) {
    if (in_good_block() || threadIdx.x >= first_gone) return;
    lines[0] = __LINE__ + 1;
    __syncthreads();
}

TEST_CASE("failure: some have returned before the barrier") {
    Report report = check_barrier(return_early, 63u, "return_early");
    CHECK(contains(report.words, "63 threads wait in __syncthreads at " + report.source));
    CHECK(contains(report.words, "thread (63, 0, 0) has returned"));
    report = check_barrier(return_early, 1u, "return_early");
    CHECK(contains(report.words, "1 thread waits in __syncthreads at " + report.source));
}

__global__ void return_between(unsigned last, int* lines) {
    if (in_good_block()) return;
    __syncthreads();
    if (threadIdx.x == last) return;
    lines[0] = __LINE__ + 1;
    __syncthreads_or(1);
}

TEST_CASE("failure: one returns between two barriers") {
    const Report report = check_barrier(return_between, 17u, "return_between");
    CHECK(contains(report.words, "63 threads wait in __syncthreads_or at " + report.source));
    CHECK(contains(report.words, "thread (17, 0, 0) has returned"));
}

__global__ void barrier_in_each_branch(unsigned first_else, int* lines) {
    if (in_good_block()) return;
    if (threadIdx.x < first_else) {
        lines[1] = __LINE__ + 1;
        __syncthreads();
    } else {
        lines[2] = __LINE__ + 1;
        __syncthreads_count(1);
    }
}

__global__ void same_barrier_in_each_branch(unsigned first_else, int* lines) {
    if (in_good_block()) return;
    if (threadIdx.x < first_else) {
        lines[1] = __LINE__ + 1;
        __syncthreads();
    } else {
        lines[2] = __LINE__ + 1;
        __syncthreads();
    }
}

__global__ void barriers_in_one_line(unsigned first_else, int* lines) {
    if (in_good_block()) return;
    lines[1] = lines[2] = __LINE__ + 1;
    threadIdx.x < first_else ? __syncthreads() : __syncthreads();
}

/// Of 64 threads, those from `first_else` on come to the other one. The source is where somebody came to another
/// barrier than the first one did: the order decides in which of the two lines.
void check_two_barriers(const Report& report, unsigned first_else, const std::string& one, const std::string& other) {
    const std::string one_place = place(report.lines[1]), other_place = place(report.lines[2]);
    const std::string first = first_else == 1 ? "thread 0 waits"
                                              : "threads 0 to " + std::to_string(first_else - 1) + " wait",
                      second = first_else == 63 ? "thread 63" : "threads " + std::to_string(first_else) + " to 63";
    CHECK(contains(report.words,
                   first + " in " + one + " at " + one_place + ", " + second + " in " + other + " at " + other_place));
    CHECK((report.source == one_place || report.source == other_place));
}

/// What is wrong by strict rules alone runs through, and more than once.
template <class T>
void check_allowed(void (*kernel)(T, int*), T parameter) {
    const DeviceArray<int> lines(3);
    CHECK_NOTHROW(launch_kernel(kernel, {2, 64}, parameter, lines.data()));
    check_gpu_works();
}

TEST_CASE("barriers that are no failure: some have returned, or come to another line") {
    for (const unsigned first_gone : {1u, 20u, 63u}) check_allowed(return_early, first_gone);
    for (const unsigned last : {0u, 17u, 63u}) check_allowed(return_between, last);
    for (const unsigned first_else : {1u, 20u, 32u, 63u}) {
        check_allowed(same_barrier_in_each_branch, first_else);
        check_allowed(barriers_in_one_line, first_else);
    }
}

TEST_CASE("failure: a barrier with a predicate in one branch, and one without in the other") {
    for (const unsigned first_else : {1u, 20u, 32u, 63u})
        check_two_barriers(check(barrier_in_each_branch, first_else, 64, cudaErrorLaunchFailure,
                                 "a barrier not reached by all", "barrier_in_each_branch"),
                           first_else, "__syncthreads", "__syncthreads_count");
}

TEST_CASE("failure: a barrier in each branch") {
    for (const unsigned first_else : {1u, 20u, 63u}) {
        const auto check_both = [&](auto kernel, const char* name, const char* other) {
            check_two_barriers(check_barrier(kernel, first_else, name), first_else, "__syncthreads", other);
        };
        check_both(barrier_in_each_branch, "barrier_in_each_branch", "__syncthreads_count");
        check_both(same_barrier_in_each_branch, "same_barrier_in_each_branch", "__syncthreads");
        check_both(barriers_in_one_line, "barriers_in_one_line", "__syncthreads");
    }
}

__global__ void barriers_by_turns(unsigned turns, int* lines) {
    if (in_good_block()) return;
    if (threadIdx.x % turns) {
        lines[1] = __LINE__ + 1;
        __syncthreads();
    } else {
        lines[2] = __LINE__ + 1;
        __syncthreads();
    }
}

TEST_CASE("failure: a barrier in each branch, by every other thread") {
    const Report report = check_barrier(barriers_by_turns, 2u, "barriers_by_turns");
    CHECK(contains(report.words, "32 of threads 0 to 62 wait in __syncthreads at " + place(report.lines[2]) +
                                     ", 32 of threads 1 to 63 in __syncthreads at " + place(report.lines[1])));
}

// ---- deadlocks

/// `one` and `other` say who waits for what, and who is the first of these.
void check_deadlock(const Report& report, const std::string& one, const std::string& other) {
    for (int i = 1; i <= 2; ++i) {
        std::string words = i == 1 ? one : other;
        words.insert(words.find(", first"), " at " + place(report.lines[i]));
        CHECK(contains(report.words, words));
    }
    CHECK(report.thread == "");  // nobody alone is to blame
}

__global__ void half_never_arrive(int delta, int* lines) {
    if (in_good_block()) return;
    if (threadIdx.x % 2 == 0) {
        lines[1] = __LINE__ + 1;
        __syncthreads();
    } else {
        lines[2] = __LINE__ + 1;
        __shfl_xor_sync(all_lanes, threadIdx.x, delta);
    }
}

TEST_CASE("failure: deadlock, half wait at the barrier and half for them in a shuffle") {
    const Report report = check(half_never_arrive, 1, 64, cudaErrorLaunchTimeout, "deadlock", "half_never_arrive");
    check_deadlock(report, "32 threads wait for __syncthreads, first (0, 0, 0)",
                   "32 threads wait for __shfl_xor_sync, first (1, 0, 0)");
    CHECK(contains(report.words, "0 of 64 threads have returned"));
}

__global__ void one_lane_elsewhere(unsigned thread, int* lines) {
    if (in_good_block() || threadIdx.x >= 50) return;  // of the second warp, 18 lanes stay
    if (threadIdx.x == thread) {
        lines[1] = __LINE__ + 1;
        __syncthreads();
    } else if (threadIdx.x >= 32) {
        lines[2] = __LINE__ + 1;
        __syncwarp();
    }
}

TEST_CASE("failure: deadlock, a lane is missing at __syncwarp") {
    const Report report = check(one_lane_elsewhere, 40u, 64, cudaErrorLaunchTimeout, "deadlock", "one_lane_elsewhere");
    check_deadlock(report, "1 thread waits for __syncthreads, first (40, 0, 0)",
                   "17 threads wait for __syncwarp, first (32, 0, 0)");
    CHECK(contains(report.words, "46 of 64 threads have returned"));
    CHECK(!contains(report.words, "can run"));
}

/// Two instructions that say that they are in one place are told apart by name.
__global__ void wait_in_one_place(unsigned mask, int* lines) {
    if (in_good_block()) return;
    lines[1] = lines[2] = __LINE__ + 1;
    const auto where = emulator::Where::current();
    if (threadIdx.x % 2 == 0)
        __syncthreads(where);
    else
        __syncwarp(mask, where);
}

TEST_CASE("failure: deadlock, who waits for what is told apart") {
    const Report report =
        check(wait_in_one_place, all_lanes, 64, cudaErrorLaunchTimeout, "deadlock", "wait_in_one_place");
    check_deadlock(report, "32 threads wait for __syncthreads, first (0, 0, 0)",
                   "32 threads wait for __syncwarp, first (1, 0, 0)");
}

// ---- warp instructions

__global__ void leave_self_out(unsigned mask, int* lines) {
    if (in_good_block() || threadIdx.x != 13) return;
    lines[0] = __LINE__ + 1;
    __shfl_sync(mask, 1, 0);
}
__global__ void leave_self_out_of_vote(unsigned mask, int* lines) {
    if (in_good_block() || threadIdx.x != 13) return;
    lines[0] = __LINE__ + 1;
    __any_sync(mask, 1);
}
__global__ void leave_self_out_of_sync(unsigned mask, int* lines) {
    if (in_good_block() || threadIdx.x != 13) return;
    lines[0] = __LINE__ + 1;
    __syncwarp(mask);
}

TEST_CASE("failure: a mask that does not name the caller") {
    const auto check_mask = [](void (*kernel)(unsigned, int*), const char* name, const char* instruction) {
        const Report report =
            check(kernel, 0xFFFF'DFFFu, 32, cudaErrorLaunchFailure, "wrong mask", name, "(13, 0, 0) of (32, 1, 1)");
        CHECK(contains(report.words, "lane 13 calls " + std::string(instruction) + " with mask 0xffffdfff"));
    };
    check_mask(leave_self_out, "leave_self_out", "__shfl_sync");
    check_mask(leave_self_out_of_vote, "leave_self_out_of_vote", "__any_sync");
    check_mask(leave_self_out_of_sync, "leave_self_out_of_sync", "__syncwarp");
}

/// Lane 9 of the second warp reads lane 10, which is not of the mask, has returned, or never was.
__global__ void read_a_stranger(unsigned mask, int* lines) {
    const unsigned lane = threadIdx.x % 32;
    if (in_good_block() || threadIdx.x < 32 || !(mask >> lane & 1)) return;
    lines[0] = __LINE__ + 1;
    __shfl_sync(mask, 1, lane == 9 ? 10 : 0);
}
__global__ void read_the_departed(unsigned mask, int* lines) {
    const unsigned lane = threadIdx.x % 32;
    if (in_good_block() || threadIdx.x < 32 || lane >= 10) return;
    lines[0] = __LINE__ + 1;
    __shfl_down_sync(mask, 1, 1);
}

TEST_CASE("failure: a shuffle reads a lane that takes no part") {
    const std::string words = "lane 9 reads lane 10 through ";
    Report report = check(read_a_stranger, 0x3FFu, 64, cudaErrorLaunchFailure, "missing lane", "read_a_stranger",
                          "(41, 0, 0) of (64, 1, 1)");
    CHECK(contains(report.words, words + "__shfl_sync"));
    report = check(read_the_departed, all_lanes, 64, cudaErrorLaunchFailure, "missing lane", "read_the_departed",
                   "(41, 0, 0) of (64, 1, 1)");
    CHECK(contains(report.words, words + "__shfl_down_sync"));
    report = check(read_the_departed, all_lanes, 42, cudaErrorLaunchFailure, "missing lane", "read_the_departed",
                   "(41, 0, 0) of (42, 1, 1)");
    CHECK(contains(report.words, words + "__shfl_down_sync"));
}

__global__ void bad_width(int width, int* lines) {
    if (in_good_block()) return;
    lines[0] = __LINE__ + 1;
    __shfl_sync(all_lanes, 1, 0, width);
}

TEST_CASE("failure: a width that is no power of two up to 32") {
    for (const int width : {0, -4, 3, 24, 64}) {
        const Report report = check(bad_width, width, 32, cudaErrorLaunchFailure, "wrong width", "bad_width");
        CHECK(contains(report.words, "width " + std::to_string(width)));
    }
}

__global__ void mix_instructions(int parity, int* lines) {
    if (in_good_block()) return;
    if (int(threadIdx.x % 2) == parity) {
        lines[1] = __LINE__ + 1;
        __shfl_sync(all_lanes, 1, 0);
    } else {
        lines[2] = __LINE__ + 1;
        __shfl_up_sync(all_lanes, 1, 0);
    }
}

__global__ void mix_masks(unsigned mask, int* lines) {
    if (in_good_block()) return;
    if (mask >> threadIdx.x & 1) {
        lines[1] = __LINE__ + 1;
        __ballot_sync(mask, 1);
        __syncthreads();  // so that these lanes do not return: others could then go on without them
    } else {
        lines[2] = __LINE__ + 1;
        __ballot_sync(all_lanes, 1);
        __syncthreads();
    }
}

TEST_CASE("failure: lanes of a warp meet in different instructions") {
    Report report = check(mix_instructions, 1, 32, cudaErrorLaunchFailure,
                          "lanes of one warp meet in different instructions", "mix_instructions");
    CHECK(contains(report.words, "__shfl_sync with mask 0xffffffff"));
    CHECK(contains(report.words, "__shfl_up_sync with mask 0xffffffff"));
    CHECK((report.source == place(report.lines[1]) || report.source == place(report.lines[2])));
    // Masks may overlap while their lanes can still come: a tile of 8 lanes, then one of 16. These never do.
    report = check(mix_masks, 0xFFFF0000u, 32, cudaErrorLaunchTimeout, "deadlock", "mix_masks");
    CHECK(contains(report.words, "16 threads wait for __ballot_sync"));
    CHECK(contains(report.words, "16 threads wait for __syncthreads"));
}

// ---- livelocks

/// Nobody sets the flag.
__global__ void wait_for_nobody(volatile int* flag, int* lines) {
    if (in_good_block()) return;
    for (int i = 0; i < 4; ++i) __syncthreads();  // who has waited once does not seem to wait for ever
    if (threadIdx.x == 3) {
        lines[0] = __LINE__ + 1;
        while (*flag == 0) {
        }
    }
    lines[1] = __LINE__ + 1;
    __syncthreads();
}

TEST_CASE("failure: livelock, a flag that nobody sets") {
    const DeviceArray<int> flag(std::vector<int>{0});
    const Report report = check(wait_for_nobody, static_cast<volatile int*>(flag.data()), 8, cudaErrorLaunchTimeout,
                                "livelock", "wait_for_nobody", "(3, 0, 0) of (8, 1, 1)");
    CHECK(contains(report.words, "7 threads wait for __syncthreads at " + place(report.lines[1])));
    CHECK(contains(report.words, "1 thread can run, last seen at " + report.source + ", first (3, 0, 0)"));
}

/// Every thread wants the lock that one of them has taken and keeps.
__global__ void never_unlock(int* lock, int* lines) {
    if (in_good_block()) return;
    lines[0] = __LINE__ + 1;
    while (atomicCAS(lock, 0, 1) != 0) {
    }
    __syncwarp();
}

TEST_CASE("failure: livelock, a lock that is not given back") {
    const DeviceArray<int> lock(std::vector<int>{0});
    const Report report = check(never_unlock, lock.data(), 8, cudaErrorLaunchTimeout, "livelock", "never_unlock");
    CHECK(contains(report.words, "7 threads can run, last seen at " + report.source));
    CHECK(contains(report.words, "1 thread waits for __syncwarp"));
}

__global__ void sleep_for_ever(unsigned nanoseconds, int* lines) {
    if (in_good_block()) return;
    lines[0] = __LINE__ + 1;
    for (;;) __nanosleep(nanoseconds);
}

TEST_CASE("failure: livelock, asleep") {
    check(sleep_for_ever, 100u, 2, cudaErrorLaunchTimeout, "livelock", "sleep_for_ever");
}

__global__ void sleep_once(unsigned nanoseconds, int*) {
    if (!in_good_block()) __nanosleep(nanoseconds);
}

TEST_CASE("failure: livelock, before others have begun") {
    Report report;
    {
        const WithMultiprocessors restore_multiprocessors(1);
        const WithPatience restore(0);
        const DeviceArray<int> lines(1);
        CHECK_THROWS_AS(launch_kernel(sleep_once, {2, 8}, 100u, lines.data()), CudaError);
        report = last_report();
    }
    CHECK(report.kind == "livelock");
    CHECK(contains(report.words, "threads can run, last seen at its beginning, first"));
    check_gpu_works();
}

// ---- loops that never end, though something gets done

/// Thread 5 alone goes on, or all meet at a barrier each time round.
template <bool with_barrier>
[[gnu::noinline]] __device__ void turn_for_ever(int* counter) {
    for (int i = 0; i < 100; i += counter[32]) {  // which is 0, but compilers do not know
        counter[threadIdx.x] += i;
        if (with_barrier) __syncthreads();
    }
}
template <bool with_barrier>
__global__ void never_end(int* counter, int* lines) {
    if (in_good_block()) return;
    lines[1] = __LINE__ + 1;
    if (with_barrier || threadIdx.x == 5) turn_for_ever<with_barrier>(counter);
    counter[0] = 1;  // or the call would be the end of the kernel
}

TEST_CASE("failure: endless, by one thread or by all") {
    const WithLongestLaunch restore(1);
    const DeviceArray<int> counter(std::vector<int>(33));
    for (const bool with_barrier : {false, true}) {
        CAPTURE(with_barrier);
        const Report report = check(with_barrier ? never_end<true> : never_end<false>, counter.data(), 32,
                                    cudaErrorLaunchTimeout, "endless", "never_end",
                                    with_barrier ? "" : "(5, 0, 0) of (32, 1, 1)");
        CHECK(contains(report.words, "the launch has taken 1 s of the processor and goes on"));
        CHECK(contains(report.words, "called at  " + place(report.lines[1])));
    }
}

constexpr int naps = 100;

/// Sleeps often, but something gets done now and then: each of the four things that count.
__global__ void sleep_and_work(int way, int* counter) {
    if (way == 3 && threadIdx.x != blockIdx.x) return;
    for (int i = 0; i < naps; ++i) {
        for (int k = 0; k < 8; ++k) __nanosleep(20);
        if (way == 0) __syncthreads();
        if (way == 1) __syncwarp();
        if (way == 2) atomicAdd(counter, 1);
        if (way == 3 && i == naps / 64) return;
    }
}

/// Changes nothing, though it is an atomic.
__global__ void sleep_and_look(int* counter) {
    for (int i = 0; i < naps; ++i) {
        for (int k = 0; k < 8; ++k) __nanosleep(20);
        atomicAdd(counter, 0);
    }
}

TEST_CASE("failure: livelock, none while something gets done") {
    const DeviceArray<int> counter(std::vector<int>{0});
    const WithMultiprocessors restore_multiprocessors(1);
    const WithPatience restore(12 * 8);  // two threads between two deeds: at most 3 rounds of each
    for (const int way : {0, 1, 2}) {
        CAPTURE(way);
        CHECK_NOTHROW(launch_kernel(sleep_and_work, {1, 2}, way, counter.data()));
    }
    CHECK_NOTHROW(launch_kernel(sleep_and_work, {20, 20}, 3, counter.data()));  // each block's one thread ends
    CHECK_THROWS_AS(launch_kernel(sleep_and_look, {1, 2}, counter.data()), CudaError);
    CHECK(last_report().kind == "livelock");
}

// ---- a kernel that may begin before the one before it has ended

constexpr int line_of_double_early = __LINE__ + 7;  // which the kernel cannot note, as that would be early too
__global__ void double_early(int who_waits, float* numbers) {
    __shared__ float two;
    if (who_waits == 2 || (who_waits == 1 && threadIdx.x == 0)) cudaGridDependencySynchronize();
    if (who_waits == 1) __syncthreads();
    if (threadIdx.x == 0) two = 2;  // shared memory is its own
    __syncthreads();
    numbers[threadIdx.x] *= two;
    cudaTriggerProgrammaticLaunchCompletion();
}

TEST_CASE("failure: memory touched before the kernel before has ended") {
    const DeviceArray<float> numbers(std::vector<float>(40, 3));
    const auto launch = [&](bool dependent, int who_waits) {
        launch_kernel(double_early, {.grid = 1, .block = 40, .dependent = dependent}, who_waits, numbers.data());
    };
    for (const int who_waits : {1, 2}) CHECK_NOTHROW(launch(true, who_waits));
    CHECK_NOTHROW(launch(false, 0));  // an ordinary launch begins when all before it is over
    CHECK_THROWS_AS(launch(true, 0), CudaError);
    CHECK(last_report().kind == "too early");
    CHECK(last_report().source == place(line_of_double_early));
    CHECK(contains(last_report().words, "cudaGridDependencySynchronize()"));
    check_gpu_works();
}

// The last test of the file: from here on, lines are others.
__global__ void same_line_of_two_files() {
    if (threadIdx.x < 16)
#line 1 "one.h"
        __syncthreads();
    else
#line 1 "another.h"
        __syncthreads();
}

TEST_CASE("failure: barriers of two files, by chance in the same line and column") {
    const WithStrictBarriers restore;
    CHECK_THROWS_AS(launch_kernel(same_line_of_two_files, {1, 32}), CudaError);
    CHECK(last_report().kind == "a barrier not reached by all");
    CHECK(last_report().words.find("one.h:1") != std::string::npos);
    CHECK(last_report().words.find("another.h:1") != std::string::npos);
    check_gpu_works();
}

}  // namespace
}  // namespace flashladder
