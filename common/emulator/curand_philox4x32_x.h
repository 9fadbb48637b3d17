// Philox4x32-10, a generator without a state worth the name: number i is a hash of i and a key. Salmon, Moraes, Dror
// and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011. The state is laid out as cuRAND's.
#pragma once

#include <cstdint>

#include "device_functions.h"
#include "vector_types.h"

/// Where a thread is in its sequence.
struct curandStatePhilox4_32_10 {
    uint4 ctr;     // of four numbers: x and y count within the subsequence, z and w are its number
    uint4 output;  // those of ctr
    uint2 key;
    unsigned STATE;      // the next of output, 0 to 3
    int boxmuller_flag;  // 1: boxmuller_extra comes next
    int boxmuller_flag_double;
    float boxmuller_extra;
    double boxmuller_extra_double;
};
using curandStatePhilox4_32_10_t = curandStatePhilox4_32_10;

/// The four numbers at a place: ten rounds, each of two products whose halves are mixed with the other words and the
/// key.
__forceinline__ uint4 curand_Philox4x32_10(uint4 counter, uint2 key) {
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t x = std::uint64_t(0xD2511F53) * counter.x, z = std::uint64_t(0xCD9E8D57) * counter.z;
        counter = {unsigned(z >> 32) ^ counter.y ^ key.x, unsigned(z), unsigned(x >> 32) ^ counter.w ^ key.y,
                   unsigned(x)};
        key.x += 0x9E3779B9;  // the golden ratio
        key.y += 0xBB67AE85;  // the square root of 3
    }
    return counter;
}
