#include "warp_access.h"

#include <algorithm>
#include <bit>
#include <span>

namespace emulator {
namespace {

/// The numbers of the units of `unit` bytes that the lanes touch, each once, in ascending order.
class Units {
public:
    Units(const WarpAccess& access, Lanes lanes, std::size_t bytes, std::size_t unit) {
        bool ascending = true;
        for (lanes &= access.lanes; lanes; lanes &= lanes - 1) {
            const std::uintptr_t begin = access.address[static_cast<std::size_t>(std::countr_zero(lanes))];
            for (std::uintptr_t u = begin / unit; u <= (begin + bytes - 1) / unit; ++u) {
                if (count_ > 0 && units_[count_ - 1] == u) continue;
                ascending &= count_ == 0 || units_[count_ - 1] < u;
                units_[count_++] = u;
            }
        }
        if (ascending) return;
        std::sort(units_.begin(), units_.begin() + count_);
        count_ = std::unique(units_.begin(), units_.begin() + count_) - units_.begin();
    }
    std::span<const std::uintptr_t> all() const { return {units_.data(), static_cast<std::size_t>(count_)}; }

private:
    std::array<std::uintptr_t, warp_size * 16> units_;
    std::ptrdiff_t count_ = 0;
};

constexpr std::size_t banks = 32, word = 4;

/// Wavefronts for some lanes that are served together: the most words that meet in one bank.
unsigned most_words_in_a_bank(const WarpAccess& access, Lanes lanes, std::size_t bytes) {
    constexpr std::size_t slots = 64;  // of a hash table of the words so far; at most 32 come
    std::array<std::uint32_t, slots> table{};
    std::array<std::uint8_t, banks> words{};
    unsigned most = 0;
    for (lanes &= access.lanes; lanes; lanes &= lanes - 1) {
        const std::uintptr_t begin = access.address[static_cast<std::size_t>(std::countr_zero(lanes))];
        for (std::uintptr_t address = begin / word; address <= (begin + bytes - 1) / word; ++address) {
            const auto w = static_cast<std::uint32_t>(address) | 0x80000000u;  // 0 is an empty slot
            std::size_t slot = (w * 0x9E3779B1u) >> 26;
            while (table[slot] != 0 && table[slot] != w) slot = (slot + 1) % slots;
            if (table[slot] == w) continue;
            table[slot] = w;
            most = std::max<unsigned>(most, ++words[w % banks]);
        }
    }
    return most;
}

/// True if every lane and the one whose number differs in bit `distance` read the same address, where both take part.
bool pairs_agree(const WarpAccess& access, unsigned distance) {
    for (Lanes lanes = access.lanes; lanes; lanes &= lanes - 1) {
        const auto lane = static_cast<unsigned>(std::countr_zero(lanes)), partner = lane ^ distance;
        if (access.lanes >> partner & 1 && access.address[lane] != access.address[partner]) return false;
    }
    return true;
}

/// Odd numbers, one for each lane: a sum of products with them is hardly ever the same for other factors.
constexpr auto weights = [] {
    std::array<std::uint64_t, warp_size> all{};
    std::uint64_t x = 0;
    for (auto& weight : all) {
        x += 0x9E3779B97F4A7C15u;
        weight = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9u) | 1;
    }
    return all;
}();

}  // namespace

unsigned distinct_bytes(const WarpAccess& access, std::size_t bytes) {
    // Aligned accesses of one size either coincide or do not touch.
    Lanes misaligned = 0;
    for (Lanes lanes = access.lanes; lanes; lanes &= lanes - 1) {
        const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
        if (access.address[lane] % bytes != 0) misaligned |= Lanes(1) << lane;
    }
    const std::size_t unit = misaligned ? 1 : bytes;
    return static_cast<unsigned>(Units(access, access.lanes, bytes, unit).all().size() * unit);
}

unsigned sectors(const WarpAccess& access, std::size_t bytes) {
    return static_cast<unsigned>(Units(access, access.lanes, bytes, sector_bytes).all().size());
}

// Measured on an H100 with Nsight Compute, for 390 patterns of addresses, all of which this reproduces
// (tests/emulator/shared_wavefronts.json). Lanes are served together in groups that ask for at most 128 bytes. The
// groups of a load may be twice as large if every lane reads the same address as its neighbour (or as its neighbour but
// one): then they ask for no more bytes than before.
Wavefronts shared_wavefronts(const WarpAccess& access, std::size_t bytes, Access kind) {
    unsigned together = bytes <= word ? warp_size : static_cast<unsigned>(warp_size * word / bytes);
    if (bytes > word && kind == Access::read && (pairs_agree(access, 1) || pairs_agree(access, 2))) together *= 2;
    Wavefronts result;
    for (unsigned first = 0; first < warp_size; first += together) {
        const Lanes group = access.lanes & (~Lanes(0) >> (warp_size - together)) << first;
        if (!group) continue;
        ++result.needed;
        result.extra += most_words_in_a_bank(access, group, bytes) - 1;
    }
    return result;
}

Pattern pattern_of(const WarpAccess& access) {
    const std::uintptr_t first = access.first();
    Pattern pattern{access.lanes * 0xD1B54A32D192ED03u};
    const auto add = [&](std::size_t lane) {
        const std::uintptr_t difference = access.address[lane] - first;
        pattern.id += difference * weights[lane];
        pattern.differences |= difference;
    };
    if (access.lanes == ~Lanes(0))  // mostly, and sooner
        for (std::size_t lane = 0; lane < warp_size; ++lane) add(lane);
    else
        for (Lanes lanes = access.lanes; lanes; lanes &= lanes - 1)
            add(static_cast<std::size_t>(std::countr_zero(lanes)));
    return pattern;
}

Wavefronts known_wavefronts(const WarpAccess& access, const Pattern& pattern, std::size_t bytes, Access kind,
                            std::size_t before) {
    struct Known {
        std::uint64_t key = 0;
        Wavefronts wavefronts;
    };
    static std::array<Known, 1024> all_known;
    // Which bytes of their words narrower accesses touch matters too.
    const std::uint64_t key =
        pattern.id ^
        (bytes << 3 | (access.first() - before) % word << 1 | (kind == Access::read)) * 0x94D049BB133111EBu;
    Known& known = all_known[key >> 54];
    if (known.key != key) {
        WarpAccess moved = access;
        for (Lanes lanes = access.lanes; lanes; lanes &= lanes - 1)
            moved.address[static_cast<std::size_t>(std::countr_zero(lanes))] -= before;
        known = {key, shared_wavefronts(moved, bytes, kind)};
    }
    return known.wavefronts;
}

Wavefronts shared_wavefronts(const std::array<std::uintptr_t, matrix_rows>& rows) {
    WarpAccess access;
    access.lanes = (Lanes(1) << matrix_rows) - 1;
    std::copy(rows.begin(), rows.end(), access.address.begin());
    return {1, most_words_in_a_bank(access, access.lanes, matrix_row_bytes) - 1};
}

}  // namespace emulator
