// What the files of the runtime API share: its errors, and what cudaDeviceReset() has to forget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>

#include "runtime_api.h"

namespace emulator {

constexpr std::size_t shared_bytes_without_opt_in = 48 * 1024;
constexpr unsigned max_threads = 1024;

extern cudaError_t last_error;
extern cudaError_t kernel_error;  // of a kernel that failed, until cudaGetLastError()
extern cudaError_t reported;      // what last_report() is about

inline cudaError_t set_error(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

extern std::map<const void*, std::size_t> opted_in;  // dynamic shared memory that a kernel may use
extern std::set<std::uintptr_t> also_hosts;          // where the allocations begin that the host may use too

}  // namespace emulator
