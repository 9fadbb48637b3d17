#include "device_functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

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

unsigned match(const char* name, unsigned mask, std::uint64_t value, const Where& where) {
    const Exchange& all = exchange(name, mask, value, where);
    unsigned same = 0;
    for (int lane = 0; lane < warp_size; ++lane)
        if (all.lanes >> lane & 1 && all.values[static_cast<std::size_t>(lane)] == value) same |= 1u << lane;
    return same;
}

std::int64_t reduce(const char* name, Reduce kind, unsigned mask, std::int64_t value, const Where& where) {
    const Exchange& all = exchange(name, mask, static_cast<std::uint64_t>(value), where);
    std::optional<std::int64_t> result;
    for (int lane = 0; lane < warp_size; ++lane) {
        if (!(all.lanes >> lane & 1)) continue;
        const auto other = static_cast<std::int64_t>(all.values[static_cast<std::size_t>(lane)]);
        if (!result) {
            result = other;
            continue;
        }
        switch (kind) {
            case Reduce::add: *result += other; break;
            case Reduce::min: *result = std::min(*result, other); break;
            case Reduce::max: *result = std::max(*result, other); break;
            case Reduce::bit_and: *result &= other; break;
            case Reduce::bit_or: *result |= other; break;
            case Reduce::bit_xor: *result ^= other; break;
        }
    }
    return *result;
}

unsigned coalesced_lanes(const Where& where) {
    struct Group {
        const Warp* warp;
        std::uint_least32_t line;
        unsigned lanes = 0;
        bool closed = false;
    };
    static std::vector<std::shared_ptr<Group>> open;
    const Warp* warp = &current->block->warps[current->warp()];
    const auto found = std::find_if(open.begin(), open.end(), [&](auto& group) {
        return group->warp == warp && group->line == where.line();
    });
    const auto group = found == open.end() ? std::make_shared<Group>(Group{warp, where.line()}) : *found;
    if (found == open.end()) open.push_back(group);
    group->lanes |= 1u << current->lane();
    constexpr int rounds = 16;  // as long as that for the others to come
    for (int i = 0; i < rounds && !group->closed; ++i) yield(where);
    if (!group->closed) {
        group->closed = true;
        std::erase(open, group);
    }
    return group->lanes;
}

void trap(const Where& where) {
    fail(cudaErrorLaunchFailure, where, [] { return "trap: a thread has called __trap()"; });
}

void check_launch_bounds(unsigned threads, unsigned, unsigned, const Where& where) {
    if (current->block->threads.size() <= threads) return;
    fail(cudaErrorInvalidValue, where, [&] {
        return fmt::format("launch refused: {} threads a block, where __launch_bounds__ allows {}",
                           current->block->threads.size(), threads);
    });
}

void sleep(const Where& where) { yield(where); }

long long clock(const Where& where) {
    yield(where);  // who looks at the clock may be waiting
    return std::chrono::steady_clock::now().time_since_epoch().count();
}

}  // namespace emulator
