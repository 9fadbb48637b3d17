// What the warps of a block do while copies are on their way, on the emulator.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "emulator/activity.h"

namespace flashladder {

/// While it lives, copies arrive as late as the kernel's waits allow.
struct Late {
    Late() { emulator::all_is_late = true; }
    ~Late() { emulator::all_is_late = false; }
};

/// What a warp does; of its threads the first speaks.
struct WarpActivity {
    struct Copy {
        std::uint64_t asked, arrived;
    };
    std::vector<Copy> copies;
    std::vector<std::uint64_t> products, exponentials, waits;  // when

    std::size_t under_way(std::uint64_t at) const {
        return static_cast<std::size_t>(
            std::ranges::count_if(copies, [=](const Copy& c) { return c.asked < at && at < c.arrived; }));
    }
};

/// Of the four warps of the first block of the first launch whose kernel's name has `kernel`, with copies that arrive as late
/// as its waits allow.
inline std::vector<WarpActivity> activity_of(const std::string& kernel, const std::function<void()>& run) {
    std::vector<WarpActivity> warps(4);
    for (const auto& launch : emulator::record_activity(0, run, true)) {
        if (launch.kernel.find(kernel) == std::string::npos) continue;
        for (const auto& activity : launch.activities) {
            WarpActivity& warp = warps.at(activity.warp);
            if (activity.what == emulator::Doing::copy) warp.copies.push_back({activity.begin, activity.happened});
            if (activity.what == emulator::Doing::product) warp.products.push_back(activity.begin);
            if (activity.what == emulator::Doing::wait) warp.waits.push_back(activity.begin);
            if (activity.what == emulator::Doing::exponential) warp.exponentials.push_back(activity.begin);
        }
        break;
    }
    return warps;
}

}  // namespace flashladder
