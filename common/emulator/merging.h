// Accesses of a thread to neighbouring addresses of shared memory that nvcc may make one of 8 or 16 bytes (LDS.64,
// LDS.128), and the wavefronts that this saves.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "warp_access.h"

namespace emulator {

constexpr std::array<std::size_t, 3> merged_widths = {4, 8, 16};  // 4: of elements that have fewer bytes

/// The accesses of one warp that are near enough to become one: every lane touches the same part of a piece of its own,
/// which has 16 bytes, or 8 or 4 if the lanes' distances allow no more, and is aligned; and nothing in between forbids
/// to bring the accesses together.
class Merging {
public:
    /// What becomes one: an access and those before it. Fewer wavefronts than with half of that width.
    struct Saving {
        std::uint32_t first_site;
        std::size_t level;  // of merged_widths
        int wavefronts;
    };

    /// The next load or store of the warp, which costs so many wavefronts by itself. `misplaced` is how many bytes too
    /// high it lies for what is aligned on a GPU to be aligned here. Calls save(Saving).
    template <class Save>
    void add(const WarpAccess& access, const Pattern& pattern, std::size_t bytes, Access kind, std::size_t misplaced,
             unsigned wavefronts, std::uint32_t site, Save save);
    /// What was before and what comes are not made one: a barrier, an atomic, a volatile access.
    void forbid() { ++epoch_; }

private:
    /// Of each lane, where something has been touched.
    struct Piece {
        std::uint64_t id = 0;
        std::uint32_t epoch = 0, first_site = 0;
        std::uint32_t touched = 0;             // one bit a byte
        std::array<std::uint8_t, 16> costs{};  // wavefronts, at the first byte of what is one access so far
    };

    // By their ids: one makes room for another, for a compiler does not look far either. None before the first access.
    std::vector<Piece> pieces_;
    std::uint32_t epoch_ = 1;
    Access last_ = Access::read;
};

template <class Save>
void Merging::add(const WarpAccess& access, const Pattern& pattern, std::size_t bytes, Access kind,
                  std::size_t misplaced, unsigned wavefronts, std::uint32_t site, Save save) {
    const std::uintptr_t address = access.first() - misplaced;
    const std::size_t piece_bytes = std::size_t(1) << std::countr_zero(pattern.differences | 16);
    const std::size_t offset = address % piece_bytes;
    const std::uint64_t id = (pattern.id + address / piece_bytes * 2 + (kind == Access::write)) * 0x9E3779B97F4A7C15u;
    const auto bits = [](std::size_t begin, std::size_t n) { return ((1u << n) - 1) << begin; };
    if (pieces_.empty()) pieces_.resize(64);
    Piece& piece = pieces_[id >> 58];
    const bool goes_on = piece.id == id && piece.epoch == epoch_ && !(piece.touched & bits(offset, bytes));
    // A compiler does not know where a store goes: it moves none past a load, nor a load or another store past it.
    if (kind == Access::write ? !goes_on : last_ == Access::write) forbid();
    last_ = kind;
    if (piece_bytes <= bytes) return;
    if (!goes_on) piece = {id, epoch_, site, 0, {}};
    piece.touched |= bits(offset, bytes);
    piece.costs[offset] = static_cast<std::uint8_t>(wavefronts);
    for (std::size_t level = 0; level < merged_widths.size() && merged_widths[level] <= piece_bytes; ++level) {
        const std::size_t width = merged_widths[level], begin = offset / width * width;
        if (width <= bytes) continue;
        if (~piece.touched & bits(begin, width)) return;
        unsigned apart = 0;
        for (std::size_t i = begin; i < begin + width; ++i) {
            apart += piece.costs[i];
            piece.costs[i] = 0;
        }
        const Wavefronts w = known_wavefronts(access, pattern, width, kind, misplaced + offset - begin);
        const unsigned together = w.needed + w.extra;
        piece.costs[begin] = static_cast<std::uint8_t>(together);
        save(Saving{piece.first_site, level, static_cast<int>(apart) - static_cast<int>(together)});
    }
}

}  // namespace emulator
