// A kernel that must fail, and what is said about it.
#pragma once

#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "device_array.h"
#include "emulator/emulator.h"
#include "launch.h"

namespace flashladder {

/// emulator::last_report(), taken apart.
struct Report {
    std::string kind;   // of the first line, what is before the colon
    std::string words;  // and behind it, with the lines that say who waits where
    std::string kernel, block, thread, source, reproduce;
    std::vector<int> lines;  // that the kernel noted
};
Report last_report();

/// What a report must say. Nothing is compared with what is left empty.
struct Expected {
    cudaError_t code;
    std::string kind, kernel, block, thread;
};

/// Calls `launch` with device memory where the kernel notes lines: in [0] the one that is about to fail, if there is
/// one; [1] and [2] are the test's own. Checks that CudaError is thrown, that the report says what is expected and
/// names the line of `file`, and that the virtual GPU works on.
Report check_failure(const Expected& expected, const char* file, const std::function<void(int* lines)>& launch);

/// Launches a kernel that uses barriers, warps, shared and device memory, and checks its result.
void check_gpu_works();

/// What kernel<<<...>>>() does: no exception, errors wait for cudaGetLastError().
template <class... Parameters, class... Arguments>
void launch_unchecked(void (*kernel)(Parameters...), const LaunchConfig& config, Arguments... arguments) {
    struct Call {
        void (*kernel)(Parameters...);
        std::tuple<Parameters...> arguments;
    } call{kernel, {static_cast<Parameters>(arguments)...}};
    const auto run = [](void* parameters) {
        auto& call = *static_cast<Call*>(parameters);
        std::apply(call.kernel, call.arguments);
    };
    emulator::launch({reinterpret_cast<const void*>(kernel), run, &call, sizeof call}, config.grid, config.block,
                     config.shared_bytes);
}

/// Sets how often threads may yield in vain until the end of the scope.
struct WithPatience {
    explicit WithPatience(std::uint64_t n) { emulator::settings().patience = n; }
    ~WithPatience() { emulator::settings().patience = before; }
    const std::uint64_t before = emulator::settings().patience;
};

/// Sets the seconds that a launch may take until the end of the scope.
struct WithLongestLaunch {
    explicit WithLongestLaunch(int seconds) { emulator::settings().longest_launch = seconds; }
    ~WithLongestLaunch() { emulator::settings().longest_launch = before; }
    const int before = emulator::settings().longest_launch;
};

/// One line for all at a barrier, and nobody has returned, until the end of the scope.
struct WithStrictBarriers {
    WithStrictBarriers() { emulator::settings().strict_barriers = true; }
    ~WithStrictBarriers() { emulator::settings().strict_barriers = before; }
    const bool before = emulator::settings().strict_barriers;
};

/// Sets the number of multiprocessors until the end of the scope.
struct WithMultiprocessors {
    explicit WithMultiprocessors(int n) { emulator::settings().multiprocessors = n; }
    ~WithMultiprocessors() { emulator::settings().multiprocessors = before; }
    const int before = emulator::settings().multiprocessors;
};

/// Blocks begin from the last to the first until the end of the scope.
struct WithLastBlockFirst {
    WithLastBlockFirst() { emulator::settings().last_block_first = true; }
    ~WithLastBlockFirst() { emulator::settings().last_block_first = before; }
    const bool before = emulator::settings().last_block_first;
};

/// Adds whose order nothing decides are an error, or are not, until the end of the scope.
struct WithOrderedAdds {
    explicit WithOrderedAdds(bool ordered) { emulator::settings().ordered_adds = ordered; }
    ~WithOrderedAdds() { emulator::settings().ordered_adds = before; }
    const bool before = emulator::settings().ordered_adds;
};

}  // namespace flashladder
