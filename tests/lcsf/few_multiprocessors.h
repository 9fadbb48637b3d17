// A virtual GPU with so few multiprocessors that blocks have several tasks each.
#pragma once

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"

namespace flashladder {

struct FewMultiprocessors {
    const int before = emulator::settings().multiprocessors;
    explicit FewMultiprocessors(int n) { emulator::settings().multiprocessors = n; }
    ~FewMultiprocessors() { emulator::settings().multiprocessors = before; }
};

}  // namespace flashladder
#endif
