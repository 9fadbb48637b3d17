#include "device_functions.h"

#include <fmt/format.h>

#include <chrono>

#include "machine.h"
#include "runtime_api.h"

namespace emulator {

void* dynamic_shared_memory() { return reinterpret_cast<void*>(current->block->dynamic_shared.begin); }

void synchronize_warp(unsigned mask, const Where& where) { exchange("__syncwarp", mask, 0, where); }

unsigned vote(const char* name, unsigned mask, bool predicate, const Where& where) {
    const Exchange& all = exchange(name, mask, predicate, where);
    unsigned yes = 0;
    for (int lane = 0; lane < warp_size; ++lane)
        if (all.lanes >> lane & 1 && all.values[static_cast<std::size_t>(lane)]) yes |= 1u << lane;
    return yes;
}

std::uint64_t shuffle(Shuffle kind, unsigned mask, std::uint64_t value, int operand, int width, const Where& where) {
    static constexpr const char* names[] = {"__shfl_sync", "__shfl_up_sync", "__shfl_down_sync", "__shfl_xor_sync"};
    const char* name = names[static_cast<int>(kind)];
    if (width <= 0 || width > warp_size || (width & (width - 1)) != 0)
        fail(cudaErrorLaunchFailure, where, [&] {
            return fmt::format("wrong width: {} with width {}, which is no power of two up to 32", name, width);
        });
    const Exchange& all = exchange(name, mask, value, where);
    const int lane = static_cast<int>(current->lane());
    const int group = lane & ~(width - 1);
    operand &= warp_size - 1;  // the hardware looks at five bits
    int source = lane;
    switch (kind) {
        case Shuffle::indexed: source = group + (operand & (width - 1)); break;
        case Shuffle::up: source = lane - operand < group ? lane : lane - operand; break;
        case Shuffle::down: source = lane + operand >= group + width ? lane : lane + operand; break;
        case Shuffle::exclusive_or: source = (lane ^ operand) >= group + width ? lane : lane ^ operand; break;
    }
    if (!(all.lanes >> source & 1))
        fail(cudaErrorLaunchFailure, where, [&] {
            return fmt::format(
                "missing lane: lane {} reads lane {} through {}, but that lane takes no part (lanes {:#010x})", lane,
                source, name, all.lanes);
        });
    return all.values[static_cast<std::size_t>(source)];
}

void sleep(const Where& where) { yield(where); }

long long clock(const Where& where) {
    yield(where);  // who looks at the clock may be waiting
    return std::chrono::steady_clock::now().time_since_epoch().count();
}

}  // namespace emulator
