// What one load or store of a warp costs: how much of device memory it touches, how often shared memory must answer.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace emulator {

constexpr int warp_size = 32;
using Lanes = std::uint32_t;  // one bit a lane

/// How memory is accessed: by threads, for which ldmatrix reads and stmatrix writes; by copies that go on without them
/// (of which bulk copies count as TMA's); by the tensor core.
enum class Access : std::uint8_t { read, write, atomic, cp_async, tma_load, tma_store, tma_reduce, wgmma_operand };
constexpr std::size_t access_kinds = 8;

/// The addresses of the lanes that take part; the others' are undefined.
struct WarpAccess {
    std::array<std::uintptr_t, warp_size> address;
    Lanes lanes = 0;

    std::uintptr_t first() const { return address[static_cast<std::size_t>(std::countr_zero(lanes))]; }
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

/// How the addresses of the lanes lie to each other, wherever they are.
struct Pattern {
    std::uint64_t id = 0;
    std::uintptr_t differences = 0;  // from the first lane's, or-ed: what the distances are multiples of
};
Pattern pattern_of(const WarpAccess& access);
/// The same as shared_wavefronts(), sooner: it depends on the pattern alone, and a loop has few of these. Of an access
/// that begins `before` this one, so many bytes in every lane.
Wavefronts known_wavefronts(const WarpAccess& access, const Pattern& pattern, std::size_t bytes, Access kind,
                            std::size_t before = 0);

constexpr std::size_t matrix_rows = 8, matrix_row_bytes = 16;
/// The same for an 8x8 matrix of 16-bit elements, of which ldmatrix, stmatrix and wgmma take all rows at once.
Wavefronts shared_wavefronts(const std::array<std::uintptr_t, matrix_rows>& rows);

}  // namespace emulator
