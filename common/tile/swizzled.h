// The layout of rung 06: tiles of 128, 64 or 32 bytes a row, in panels one after the other, whose 16-byte chunks change
// places so that any column of them meets all banks. TMA writes and wgmma reads the same layouts.
#pragma once

#include "tile/shared_tile.h"

namespace flashladder::tile {

template <int bytes>
struct Swizzled {
    static_assert(bytes == 32 || bytes == 64 || bytes == 128, "a swizzle is 32, 64 or 128 bytes wide");
    static constexpr int chunks = bytes / 16;             // of a row of a panel
    static constexpr int rows_of_128_bytes = 8 / chunks;  // rows of a panel that 128 bytes hold
    template <int columns>
    static constexpr int stride = chunks * chunk;
    template <int rows, int columns>
    static constexpr int elements = rows * columns;
    template <int rows, int columns>
    __device__ static int offset(int row, int column) {
        static_assert(columns % stride<columns> == 0,
                      "a swizzled tile is a whole number of panels wide; SwizzledFor<columns> fits");
        const int panel = column / stride<columns>, c = column / chunk % chunks;
        const int place = c ^ row / rows_of_128_bytes % chunks;
        return panel * rows * stride<columns> + row * stride<columns> + place * chunk + column % chunk;
    }
};

/// The widest swizzle that divides a row of so many columns of 16 bits: 8 rows must not lie in fewer than 8 chunks.
template <int columns>
using SwizzledFor = Swizzled<columns % 64 == 0 ? 128 : columns % 32 == 0 ? 64 : 32>;

}  // namespace flashladder::tile
