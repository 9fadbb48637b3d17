#include FLASHLADDER_RUNG

#include <algorithm>

#include "record.h"

namespace flashladder {

void forget_timeline() {
    void* timeline = nullptr;
    check_cuda(cudaGetSymbolAddress(&timeline, ptx::timeline), "looking for the timeline");
    check_cuda(cudaMemset(timeline, 0, sizeof ptx::timeline), "forgetting the timeline");
}

std::vector<Noted> noted_timeline() {
    constexpr const char* names[] = {"load", "wait", "waited", "arrive", "product", "product done", "store"};
    std::vector<ptx::TimelineEvent> events(std::size_t(ptx::timeline_warps) * ptx::timeline_length);
    check_cuda(cudaDeviceSynchronize(), "the rung whose timeline is wanted");
    check_cuda(cudaMemcpyFromSymbol(events.data(), ptx::timeline, sizeof ptx::timeline), "reading the timeline");
    std::vector<Noted> all;
    for (std::size_t i = 0; i < events.size(); ++i)
        if (events[i].clock != 0)
            all.push_back({int(i) / ptx::timeline_length, events[i].clock, names[int(events[i].moment)], events[i].line});
    std::sort(all.begin(), all.end(), [](const Noted& a, const Noted& b) {
        return std::pair(a.warp, a.clock) < std::pair(b.warp, b.clock);
    });
    return all;
}

}  // namespace flashladder
