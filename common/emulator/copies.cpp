// cp.async: a thread's own copies from device to shared memory, and arrivals at an mbarrier when they have been made.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "access.h"
#include "barrier.h"
#include "calls.h"
#include "cuda_runtime.h"
#include "ptx_functions.h"

namespace emulator {
namespace {

void arrive(const CopyArrival& arrival) {
    arrive(arrival.barrier, {"cp_async_arrive", arrival.where}, arrival.knowledge);
}

/// Copy number `number` of the thread has been made.
void count_copy(ThreadCopies& copies, std::uint64_t number) {
    --copies.under_way;
    for (CopyArrival& arrival : copies.arrivals)
        if (number < arrival.copies) --arrival.missing;
    // In the order of their issue, for a later one waits for more.
    while (!copies.arrivals.empty() && copies.arrivals.front().missing == 0) {
        const CopyArrival arrival = copies.arrivals.front();
        copies.arrivals.erase(copies.arrivals.begin());
        arrive(arrival);
    }
}

}  // namespace

void cp_async(void* shared, const void* global, int bytes, int valid, const Where& where) {
    const Operand operand{"cp_async", with_calls(where)};
    const auto n = static_cast<std::size_t>(bytes);
    if (valid < 0 || valid > bytes)
        fail(cudaErrorLaunchFailure, where,
             [&] { return fmt::format("wrong size: cp_async of {} bytes, of which {} are valid", bytes, valid); });
    find_shared(shared, n, n, operand);
    if (valid > 0) check_device_access(global, static_cast<std::size_t>(valid), n, operand);
    Thread& thread = *current;
    if (counting) {
        if (valid > 0) {
            const auto from = reinterpret_cast<std::uintptr_t>(global);
            DeviceMemory::instance().mark(from, static_cast<std::size_t>(valid), DeviceMemory::read_mark);
            trace_access(from, static_cast<std::size_t>(valid), Access::cp_async, false, where);
        }
        trace_access(reinterpret_cast<std::uintptr_t>(shared), n, Access::cp_async, true, where);
        trace_departure(*thread.block, n);
    }
    const Note noted = recording ? note_access(Doing::copy, valid > 0 ? global : nullptr, where) : not_noted;
    const std::uint64_t group = thread.copies.open();
    ++thread.copies[group].unwritten;
    ++thread.copies.under_way;
    const std::uint64_t number = thread.copies.asked++;
    Actor copy;
    if (watching) copy = asynchronous(thread, thread.order.copies, thread.copies.batch);
    thread.block->async.add({"cp_async", current, operand.where, false, [=, &thread] {
                                 const ActingAs acting(copy);
                                 if (valid > 0) check_device_read(global, static_cast<std::size_t>(valid), operand);
                                 std::memcpy(shared, global, static_cast<std::size_t>(valid));
                                 std::memset(static_cast<char*>(shared) + valid, 0,
                                             n - static_cast<std::size_t>(valid));
                                 thread.copies.arriving = group;
                                 note_shared_write(shared, n, 1, operand);
                                 if (counting) trace_arrival(*thread.block, n);
                                 if (recording) note_happened(noted);
                                 --thread.copies[group].unwritten;
                                 look_again(thread, thread.copies);
                                 count_copy(thread.copies, number);
                             }});
}

void check_copy_size(std::size_t bytes, const Where& where) {
    if (bytes == 4 || bytes == 8 || bytes == 16) return;
    fail(cudaErrorLaunchFailure, where,
         [&] { return fmt::format("wrong size: a cp.async of {} bytes; it copies 4, 8 or 16", bytes); });
}

void cp_async_commit(const Where&) { current->copies.commit(); }

void cp_async_wait(int pending, const Where& where) {
    const NotedWait noted(Doing::wait, where);
    const std::uint64_t batch = current->copies.last_batch(static_cast<std::uint64_t>(pending));
    wait_for_groups(current->copies, static_cast<std::uint64_t>(pending), false, "cp_async_wait", where);
    current->copies.note_wait(static_cast<std::uint64_t>(pending));
    if (watching) acquire_slot(*current, current->order.copies, batch);
}

void cp_async_arrive(std::uint64_t* barrier, const Where& where) {
    ThreadCopies& copies = current->copies;
    expect_arrival(barrier, {"cp_async_arrive", where});
    CopyArrival arrival{barrier, copies.asked, copies.under_way, {}, with_calls(where)};
    // What the thread itself has done before is not ordered by it.
    const ThreadOrder& order = current->order;
    if (watching)
        arrival.knowledge = {Clock(order.actor.team), order.copies,
                             order.copies > 0 ? static_cast<std::uint32_t>(copies.batch) : 0};
    ++copies.batch;
    if (arrival.missing == 0)
        arrive(arrival);
    else
        copies.arrivals.push_back(arrival);
}

bool is_shared(const void* p) {
    const auto address = reinterpret_cast<std::uintptr_t>(p);
    const Block& block = *current->block;
    return block.static_shared.covers(address) || block.dynamic_shared.covers(address);
}

bool is_global(const void* p) { return DeviceMemory::instance().find(reinterpret_cast<std::uintptr_t>(p)); }

}  // namespace emulator
