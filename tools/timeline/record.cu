#include FLASHLADDER_RUNG

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "harness/project_root.h"
#include "harness/run.h"
#include "launch.h"
#include "record.h"

namespace flashladder {
namespace {

constexpr int longest_path = 1024;

/// Copies a text that ends in 0.
__global__ void copy_text(const char* from, char* to) {
    for (int i = 0; i < longest_path - 1 && *from; ++i) *to++ = *from++;
    *to = 0;
}

/// The text of a pointer into the GPU's memory: a path, from the project's folder on.
std::string path_at(const char* text) {
    const DeviceBuffer copy(longest_path);
    copy_text<<<1, 1>>>(text, static_cast<char*>(copy.data()));
    std::array<char, longest_path> bytes{};
    check_cuda(cudaMemcpy(bytes.data(), copy.data(), bytes.size(), cudaMemcpyDeviceToHost),
               "reading the name of a file");
    const std::string path = bytes.data(), root = project_root() + "/";
    return path.starts_with(root) ? path.substr(root.size()) : path;
}

double nanoseconds_per_clock(const std::vector<ptx::TimelineEvent>& events) {
    constexpr long long long_enough = 20'000;  // nanoseconds: the timer may go on by 1000 at a time
    const ptx::TimelineEvent *first = nullptr, *last = nullptr;
    for (const auto& event : events) {
        if (event.nanoseconds == 0) continue;
        if (!first || event.clock < first->clock) first = &event;
        if (!last || event.clock > last->clock) last = &event;
    }
    if (first && last->nanoseconds - first->nanoseconds >= long_enough)
        return double(last->nanoseconds - first->nanoseconds) / double(last->clock - first->clock);
    return 1e6 / device_attribute(cudaDevAttrClockRate);  // which is in kHz
}

}  // namespace

void forget_timeline(unsigned block) {
    check_cuda(cudaMemcpyToSymbol(ptx::timeline_block, &block, sizeof block), "choosing a block");
    void* timeline = nullptr;
    check_cuda(cudaGetSymbolAddress(&timeline, ptx::timeline), "looking for the timeline");
    check_cuda(cudaMemset(timeline, 0, sizeof ptx::timeline), "forgetting the timeline");
}

NotedTimeline noted_timeline() {
    constexpr const char* names[] = {
        "load",    "wait",           "waited", "arrive", "product", "product done", "product done but last",
        "barrier", "barrier passed", "store"};
    static_assert(std::size(names) == int(ptx::Moment::store) + 1);
    std::vector<ptx::TimelineEvent> events(std::size_t(ptx::timeline_warpgroups) * ptx::timeline_length);
    check_cuda(cudaDeviceSynchronize(), "the rung whose timeline is wanted");
    check_cuda(cudaMemcpyFromSymbol(events.data(), ptx::timeline, sizeof ptx::timeline), "reading the timeline");
    NotedTimeline noted;
    noted.nanoseconds_per_clock = nanoseconds_per_clock(events);
    std::map<const char*, std::string> paths;
    for (std::size_t i = 0; i < events.size(); ++i) {
        const ptx::TimelineEvent& event = events[i];
        if (event.clock == 0) continue;
        std::string& path = paths[event.file];
        if (path.empty()) path = path_at(event.file);
        noted.moments.push_back({int(i) / ptx::timeline_length * ptx::timeline_warps, event.clock,
                                 names[int(event.moment)], event.line, path});
    }
    std::sort(noted.moments.begin(), noted.moments.end(),
              [](const Noted& a, const Noted& b) { return std::pair(a.warp, a.clock) < std::pair(b.warp, b.clock); });
    return noted;
}

}  // namespace flashladder
