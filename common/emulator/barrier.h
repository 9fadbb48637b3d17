// mbarriers, as other parts of the emulator see them.
#pragma once

#include <cstdint>

#include "access.h"

namespace emulator {

/// One arrival, by somebody who knows this.
void arrive(std::uint64_t* barrier, const Operand& operand, const Knowledge& knowledge);
/// One arrival more is expected of this phase, which is to come later.
void expect_arrival(std::uint64_t* barrier, const Operand& operand);
/// Who writes the bytes that arrive now for the barrier, asked for by somebody with this clock.
Actor load_actor(std::uint64_t* barrier, const Clock& clock);
/// Bytes of an asynchronous copy have arrived.
void complete_transaction(std::uint64_t* barrier, unsigned bytes, const Operand& operand);
/// It is an error if the barrier is not initialised, or not known to the async proxy yet.
void check_async_barrier(std::uint64_t* barrier, const Block& block, const Operand& operand);
/// Lets others run, now and then: between two instructions of a thread, others may do very much.
void perturb();

}  // namespace emulator
