// What the race detector says of a kernel, by several seeds.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace flashladder {

/// Launches a kernel that notes lines in device memory.
using RacyLaunch = std::function<void(int* lines)>;

/// Of a report: the file of both sides, and what would have ordered them.
struct RaceWords {
    std::string file, missing;
};

/// Within 10 seeds the launch fails by a race, and the report says so: with the lines that the kernel has noted in
/// these places, in either order.
void check_race(const RacyLaunch& launch, const std::vector<int>& lines, const RaceWords& words);
/// Within 10 seeds the launch fails with a report of one of these kinds.
void check_report(const RacyLaunch& launch, const std::vector<std::string>& kinds, const std::string& words);
void check_no_race(const RacyLaunch& launch, int seeds);

}  // namespace flashladder
