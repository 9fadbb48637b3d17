// Instructions that a whole warp executes as one.
#pragma once

#include <fmt/format.h>

#include <array>

#include "cuda_runtime.h"
#include "machine.h"

namespace emulator {

/// The operands of all lanes, by lane.
template <class Operands>
using WarpOperands = std::array<Operands*, warp_size>;

/// Meets all 32 lanes of the warp; `perform` is called once, with the operands of all, before any lane goes on.
template <class Operands, class Perform>
void perform_together(const char* name, Operands& operands, const Place& where, Perform perform) {
    constexpr Lanes all_lanes = 0xFFFFFFFFu;
    const Exchange& exchanged = exchange(name, all_lanes, reinterpret_cast<std::uintptr_t>(&operands), where.line);
    if (exchanged.lanes != all_lanes)
        fail(cudaErrorLaunchFailure, where, [&] {
            return fmt::format("missing lanes: {} takes all 32 lanes of a warp, but only {:#010x} are there", name,
                               exchanged.lanes);
        });
    if (exchanged.last_lane != current->lane()) return;
    WarpOperands<Operands> all;
    for (unsigned lane = 0; lane < warp_size; ++lane) all[lane] = reinterpret_cast<Operands*>(exchanged.values[lane]);
    perform(all);
}

}  // namespace emulator
