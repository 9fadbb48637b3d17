// Division by a number that is known at the launch.
#pragma once

#include <bit>

#include "ptx/backend.h"

namespace flashladder {

/// x / number for any x from 0 to 2^31 - 1, by a multiplication: a GPU has no instruction that divides, and takes some
/// twenty others, one after the other, for a number that the compiler does not know.
///
/// With 2^(shift - 1) < number <= 2^shift the factor ceil(2^(31 + shift) / number) has 32 bits, and exceeds the quotient by
/// less than one: x times the error is less than 2^(31 + shift) / number (Granlund and Montgomery, 1994).
struct Divisor {
    unsigned number = 1, factor = 0;
    int shift = 0;

    explicit Divisor(unsigned number)
        : number(number), shift(std::bit_width(number - 1)) {
        factor = static_cast<unsigned>(((1ull << (31 + shift)) + number - 1) / number);
    }
    __device__ __forceinline__ int quotient(int x) const {
        return static_cast<int>(__umulhi(unsigned(x) << 1, factor) >> shift);
    }
};

}  // namespace flashladder
