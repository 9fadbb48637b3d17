#include "async.h"

#include <fmt/format.h>

#include <algorithm>

#include "activity.h"
#include "cuda_runtime.h"
#include "machine.h"

namespace emulator {
namespace {

constexpr std::uint64_t soon = 256, late = 1 << 14;  // in steps of the block's scheduler
constexpr std::uint64_t latest = 1 << 20;            // in case that somebody asks again and again instead of waiting

/// Heaps have the greatest on top.
bool later(const AsyncOperation& a, const AsyncOperation& b) { return a.due > b.due; }

}  // namespace

void AsyncQueue::begin() {
    heap_.clear();
    time_ = 0;
    constexpr unsigned moods[][2] = {{33, 33}, {95, 3}, {3, 95}};  // percent at once, percent late
    const auto& mood = moods[draw(3)];
    percent_at_once_ = mood[0];
    percent_late_ = mood[1];
}

void AsyncQueue::add(AsyncOperation operation) {
    operation.issuer->polled = 0;  // what it polls now it has another reason for
    go_on(std::move(operation));
}

void AsyncQueue::go_on(AsyncOperation operation) {
    const auto percent = draw(100);
    operation.due = time_ + (percent < percent_at_once_                   ? 1
                             : percent < percent_at_once_ + percent_late_ ? late + draw(late)
                                                                          : 1 + draw(soon));
    if (all_is_late) operation.due = time_ + latest;
    heap_.push_back(std::move(operation));
    std::push_heap(heap_.begin(), heap_.end(), later);
}

void AsyncQueue::happen_first() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const AsyncOperation operation = std::move(heap_.back());
    heap_.pop_back();
    happen(operation);
}

void AsyncQueue::advance() {
    ++time_;
    while (!heap_.empty() && heap_.front().due <= time_) happen_first();
}

bool AsyncQueue::happen_next() {
    if (heap_.empty()) return false;
    happen_first();
    return true;
}

void AsyncQueue::finish() {
    while (!heap_.empty()) {
        AsyncOperation& next = heap_.front();
        if (next.must_end_before_block)
            next.happen = [name = next.name, where = next.where] {
                fail(cudaErrorLaunchFailure, where, [&] {
                    return fmt::format("unfinished: the block has ended before {} has, which uses its shared memory",
                                       name);
                });
            };
        happen_first();
    }
}

bool CopyGroups::finished(std::uint64_t pending, bool only_read) const {
    for (std::uint64_t number = first; number + pending < committed; ++number) {
        const CopyGroup& group = groups[number - first];
        if (group.unread > 0 || (!only_read && group.unwritten > 0)) return false;
    }
    return true;
}

void wait_for_groups(CopyGroups& groups, std::uint64_t pending, bool only_read, const char* name, const Place& where) {
    if (groups.first + groups.groups.size() > groups.committed) groups.open_at_wait = groups.committed + 1;
    while (!groups.finished(pending, only_read)) {
        groups.waited_for = true;
        wait({name}, where);
    }
    groups.read_by_then = std::max(groups.read_by_then, groups.before(pending));
    for (; !only_read && groups.first + pending < groups.committed; ++groups.first)
        groups.groups.erase(groups.groups.begin());
}

void check_finished(const Thread& thread) {
    check_products_done(thread);
    check_registers(thread);
    const CopyGroups& stores = thread.bulk_stores;
    const bool uncommitted = stores.first + stores.groups.size() > stores.committed;
    if (!uncommitted && stores.read_by_then == stores.committed) return;
    fail(cudaErrorLaunchFailure, thread.where, [&] {
        return fmt::format(
            "unfinished: a thread returns though its bulk stores {}",
            uncommitted ? "were not committed" : "may still read shared memory: bulk_wait_read() is missing");
    });
}

void look_again(Thread& thread, CopyGroups& groups) {
    if (!groups.waited_for) return;
    groups.waited_for = false;
    wake(thread);
}

}  // namespace emulator
