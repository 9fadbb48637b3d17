// cuRAND's functions of device code, for the Philox generator: the same numbers as cuRAND's, and normal ones to the
// last bits, where a GPU's logarithm, sine and cosine differ from the C library's.
#pragma once

#include <cmath>
#include <cstdint>

#include "curand_philox4x32_x.h"
#include "device_functions.h"
#include "vector_types.h"

namespace emulator {

/// Fours are skipped, within the subsequence and over its end.
__forceinline__ void philox_advance(curandStatePhilox4_32_10_t* state, std::uint64_t fours,
                                    std::uint64_t subsequences) {
    const auto word = [](unsigned high, unsigned low) { return std::uint64_t(high) << 32 | low; };
    const std::uint64_t low = word(state->ctr.y, state->ctr.x) + fours;
    const std::uint64_t high = word(state->ctr.w, state->ctr.z) + subsequences + (low < fours);
    state->ctr = {unsigned(low), unsigned(low >> 32), unsigned(high), unsigned(high >> 32)};
    state->output = curand_Philox4x32_10(state->ctr, state->key);
}

constexpr float inverse_of_2_32 = 0x1p-32f;
constexpr double inverse_of_2_53 = 0x1p-53;

// In (0, 1]: the middles of 2^32 or 2^53 equal parts. As floats, the last of them round to 1.
inline float uniform(unsigned x) { return float(x) * inverse_of_2_32 + inverse_of_2_32 / 2; }
inline double uniform(unsigned low, unsigned high) {
    const std::uint64_t bits = low ^ std::uint64_t(high) << 21;
    return double(bits) * inverse_of_2_53 + inverse_of_2_53 / 2;
}

/// Two normal numbers of two uniform ones, by Box and Muller: a radius and an angle, of which the sine comes first.
inline float2 normal(unsigned x, unsigned y) {
    constexpr float turn = inverse_of_2_32 * 6.2831855f;
    const float radius = std::sqrt(-2 * std::log(uniform(x))), angle = float(y) * turn + turn / 2;
    return {radius * std::sin(angle), radius * std::cos(angle)};
}
inline double2 normal(const uint4& x) {
    const double radius = std::sqrt(-2 * std::log(uniform(x.x, x.y))), half_turns = 2 * uniform(x.z, x.w);
    return {radius * sinpi(half_turns), radius * cospi(half_turns)};
}

}  // namespace emulator

/// Skips `n` numbers.
__forceinline__ void skipahead(unsigned long long n, curandStatePhilox4_32_10_t* state) {
    const unsigned place = state->STATE + unsigned(n % 4);
    state->STATE = place % 4;
    emulator::philox_advance(state, n / 4 + place / 4, 0);
}
/// Skips `n` subsequences, of 2^66 numbers each.
__forceinline__ void skipahead_sequence(unsigned long long n, curandStatePhilox4_32_10_t* state) {
    emulator::philox_advance(state, 0, n);
}
/// Number `offset` of subsequence `subsequence` comes next.
__forceinline__ void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
                                 curandStatePhilox4_32_10_t* state) {
    *state = {};
    state->key = {unsigned(seed), unsigned(seed >> 32)};
    skipahead_sequence(subsequence, state);
    skipahead(offset, state);
}

/// The next number.
__forceinline__ unsigned curand(curandStatePhilox4_32_10_t* state) {
    const unsigned output[] = {state->output.x, state->output.y, state->output.z, state->output.w};
    const unsigned result = output[state->STATE];
    if (++state->STATE == 4) {
        state->STATE = 0;
        emulator::philox_advance(state, 1, 0);
    }
    return result;
}
/// The next four.
__forceinline__ uint4 curand4(curandStatePhilox4_32_10_t* state) {
    const uint4 first = state->output;
    emulator::philox_advance(state, 1, 0);
    const uint4 second = state->output;
    const unsigned both[] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z};
    const unsigned place = state->STATE;
    return {both[place], both[place + 1], both[place + 2], both[place + 3]};
}

__forceinline__ float curand_uniform(curandStatePhilox4_32_10_t* state) { return emulator::uniform(curand(state)); }
__forceinline__ float4 curand_uniform4(curandStatePhilox4_32_10_t* state) {
    const uint4 x = curand4(state);
    return {emulator::uniform(x.x), emulator::uniform(x.y), emulator::uniform(x.z), emulator::uniform(x.w)};
}
/// Of one number, so with 32 bits.
__forceinline__ double curand_uniform_double(curandStatePhilox4_32_10_t* state) {
    return curand(state) * 0x1p-32 + 0x1p-32;
}
/// Of four numbers.
__forceinline__ double2 curand_uniform2_double(curandStatePhilox4_32_10_t* state) {
    const uint4 x = curand4(state);
    return {emulator::uniform(x.x, x.y), emulator::uniform(x.z, x.w)};
}

__forceinline__ float2 curand_normal2(curandStatePhilox4_32_10_t* state) {
    const unsigned x = curand(state), y = curand(state);
    return emulator::normal(x, y);
}
__forceinline__ float4 curand_normal4(curandStatePhilox4_32_10_t* state) {
    const uint4 x = curand4(state);
    const float2 first = emulator::normal(x.x, x.y), second = emulator::normal(x.z, x.w);
    return {first.x, first.y, second.x, second.y};
}
__forceinline__ double2 curand_normal2_double(curandStatePhilox4_32_10_t* state) {
    return emulator::normal(curand4(state));
}
// One by one: the second of a pair is kept for the next call.
__forceinline__ float curand_normal(curandStatePhilox4_32_10_t* state) {
    state->boxmuller_flag = !state->boxmuller_flag;
    if (!state->boxmuller_flag) return state->boxmuller_extra;
    const float2 pair = curand_normal2(state);
    state->boxmuller_extra = pair.y;
    return pair.x;
}
__forceinline__ double curand_normal_double(curandStatePhilox4_32_10_t* state) {
    state->boxmuller_flag_double = !state->boxmuller_flag_double;
    if (!state->boxmuller_flag_double) return state->boxmuller_extra_double;
    const double2 pair = curand_normal2_double(state);
    state->boxmuller_extra_double = pair.y;
    return pair.x;
}
