// cp.async as CUDA C has it. A thread's own copies, in groups that a commit ends; barriers that wait for them besides.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda_awbarrier_primitives.h"
#include "ptx_functions.h"

/// Copies 4, 8 or 16 bytes from device to shared memory, but for the last `zeros`, which become 0.
inline void __pipeline_memcpy_async(void* shared, const void* global, std::size_t bytes, std::size_t zeros = 0,
                                    emulator::Where where = emulator::Where::current()) {
    emulator::check_copy_size(bytes, where);
    emulator::cp_async(shared, global, static_cast<int>(bytes), static_cast<int>(bytes) - static_cast<int>(zeros),
                       where);
}
inline void __pipeline_commit(emulator::Where where = emulator::Where::current()) { emulator::cp_async_commit(where); }
/// Waits for all groups but the last `prior`.
inline void __pipeline_wait_prior(std::size_t prior, emulator::Where where = emulator::Where::current()) {
    emulator::cp_async_wait(static_cast<int>(prior), where);
}
/// The phase of the barrier that goes on waits for the thread's copies until now.
inline void __pipeline_arrive_on(__mbarrier_t* barrier, emulator::Where where = emulator::Where::current()) {
    emulator::cp_async_arrive(barrier, where);
}
