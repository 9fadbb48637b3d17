// What one load or store of a warp costs: how much of device memory it touches, how often shared memory must answer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace emulator {

constexpr int warp_size = 32;
using Lanes = std::uint32_t;  // one bit a lane

enum class Access : std::uint8_t { read, write, atomic };

/// The addresses of the lanes that take part; the others' are undefined.
struct WarpAccess {
    std::array<std::uintptr_t, warp_size> address;
    Lanes lanes = 0;
};

constexpr std::size_t sector_bytes = 32;  // device memory and its caches move no less

/// Bytes that at least one lane touches; `bytes` is a lane's, at most 16.
unsigned distinct_bytes(const WarpAccess& access, std::size_t bytes);

/// 32-byte sectors that at least one lane touches.
unsigned sectors(const WarpAccess& access, std::size_t bytes);

/// How often shared memory, which has 32 banks of 4 bytes, must be asked. Asked for words of different banks, or for
/// one word by several lanes, it answers at once: that is one wavefront.
struct Wavefronts {
    unsigned needed = 0;  // for as wide an access, if no two words met in a bank
    unsigned extra = 0;   // bank conflicts
};
Wavefronts shared_wavefronts(const WarpAccess& access, std::size_t bytes, Access kind);

}  // namespace emulator
