// mbarriers as CUDA C has them. A token is the parity of the phase that was arrived at.
#pragma once

#include <cstdint>

#include "device_functions.h"
#include "ptx_functions.h"

using __mbarrier_t = std::uint64_t;
using __mbarrier_token_t = std::uint64_t;

inline void __mbarrier_init(__mbarrier_t* barrier, unsigned threads,
                            emulator::Where where = emulator::Where::current()) {
    emulator::barrier_init(barrier, threads, where);
}
inline void __mbarrier_inval(__mbarrier_t* barrier, emulator::Where where = emulator::Where::current()) {
    emulator::barrier_invalidate(barrier, where);
}
inline __mbarrier_token_t __mbarrier_arrive(__mbarrier_t* barrier, emulator::Where where = emulator::Where::current()) {
    const unsigned parity = emulator::barrier_parity(barrier, where);
    emulator::barrier_arrive(barrier, where);
    return parity;
}
/// Whether the phase has ended; may wait a little for that.
inline bool __mbarrier_try_wait_parity(__mbarrier_t* barrier, bool parity, unsigned = 0,
                                       emulator::Where where = emulator::Where::current()) {
    return emulator::barrier_try_wait(barrier, parity, where);
}
inline bool __mbarrier_try_wait(__mbarrier_t* barrier, __mbarrier_token_t token, unsigned = 0,
                                emulator::Where where = emulator::Where::current()) {
    return emulator::barrier_try_wait(barrier, token & 1, where);
}
inline bool __mbarrier_test_wait_parity(__mbarrier_t* barrier, bool parity,
                                        emulator::Where where = emulator::Where::current()) {
    return emulator::barrier_try_wait(barrier, parity, where);
}
inline bool __mbarrier_test_wait(__mbarrier_t* barrier, __mbarrier_token_t token,
                                 emulator::Where where = emulator::Where::current()) {
    return emulator::barrier_try_wait(barrier, token & 1, where);
}
