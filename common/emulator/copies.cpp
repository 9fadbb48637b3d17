// cp.async: a thread's own copies from device to shared memory.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "access.h"
#include "cuda_runtime.h"
#include "ptx_functions.h"

namespace emulator {

void cp_async(void* shared, const void* global, int bytes, int valid, const Where& where) {
    const Operand operand{"cp_async", where};
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
    const Note noted = recording ? note(Doing::copy, where) : not_noted;
    const std::uint64_t group = thread.copies.open();
    ++thread.copies[group].unwritten;
    Actor copy;
    if (watching) copy = asynchronous(thread, thread.order.copies, group + 1);
    thread.block->async.add({"cp_async", current, where, false, [=, &thread] {
                                 const ActingAs acting(copy);
                                 if (valid > 0) check_device_read(global, static_cast<std::size_t>(valid), operand);
                                 std::memcpy(shared, global, static_cast<std::size_t>(valid));
                                 std::memset(static_cast<char*>(shared) + valid, 0,
                                             n - static_cast<std::size_t>(valid));
                                 note_shared_write(shared, n, 1, operand);
                                 if (counting) trace_arrival(*thread.block, n);
                                 if (recording) note_happened(noted);
                                 --thread.copies[group].unwritten;
                                 look_again(thread, thread.copies);
                             }});
}

void cp_async_commit(const Where&) { current->copies.commit(); }

void cp_async_wait(int pending, const Where& where) {
    const NotedWait noted(Doing::wait, where);
    // Not those that happen to be under way: that is drawn.
    if (counting) trace_groups_left(std::min(static_cast<std::uint64_t>(pending), current->copies.committed));
    wait_for_groups(current->copies, static_cast<std::uint64_t>(pending), false, "cp_async_wait", where);
    if (watching)
        acquire_slot(*current, current->order.copies, current->copies.before(static_cast<std::uint64_t>(pending)));
}

}  // namespace emulator
