// A layout asked for every element of a tile, on the host and before anything is launched: what is wrong with it, in rows
// and columns. A kernel with such a layout reads right numbers at wrong places, or stops where nobody made the mistake.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <utility>

#include "tile/shared_tile.h"

namespace flashladder::tile {

/// The first rule of SharedTile that `Layout` breaks in a tile of this size; "" if none.
template <class Layout, int rows, int columns>
std::string layout_fault() {
#ifdef __CUDACC__
    return "";  // `offset` is a function of the device there
#else
    constexpr int elements = Layout::template elements<rows, columns>, stride = Layout::template stride<columns>;
    const auto offset = [](int row, int column) { return Layout::template offset<rows, columns>(row, column); };
    const auto pair = [](int row, int column) {
        return "(" + std::to_string(row) + ", " + std::to_string(column) + ")";
    };
    const auto lies = [&](int row, int column) {
        return pair(row, column) + " lies at offset " + std::to_string(offset(row, column));
    };
    const std::string tile = "a tile of " + std::to_string(rows) + " rows and " + std::to_string(columns) +
                             " columns, (row, column) in elements: ";
    std::map<int, std::pair<int, int>> who;  // lies at an offset
    for (int row = 0; row < rows; ++row)
        for (int column = 0; column < columns; ++column) {
            const int at = offset(row, column);
            if (at < 0) return tile + lies(row, column) + ", before the tile";
            if (at >= elements)
                return tile + lies(row, column) + ", behind the tile's " + std::to_string(elements) + " elements";
            const auto [other, first] = who.try_emplace(at, row, column);
            if (!first)
                return tile + pair(other->second.first, other->second.second) + " and " + pair(row, column) +
                       " both lie at offset " + std::to_string(at);
            if (column % chunk == 0 && at % chunk != 0)
                return tile + lies(row, column) + ", and a chunk of 8 begins at a multiple of 8 elements, 16 bytes";
            if (column % chunk != 0 && at != offset(row, column - 1) + 1)
                return tile + lies(row, column) + ", not behind its neighbour in the chunk: " + lies(row, column - 1);
            if (row >= 8 && at != offset(row - 8, column) + 8 * stride)
                return tile + lies(row, column) + ", not 8 strides of " + std::to_string(stride) +
                       " behind row - 8: " + lies(row - 8, column);
        }
    if (elements % chunk != 0)
        return tile + std::to_string(elements) + " elements are no multiple of 8, so the next tile begins within a chunk";
    return "";
#endif
}

/// Throws std::invalid_argument with those words. Looks once.
template <class Layout, int rows, int columns>
void check_layout() {
    static const std::string fault = layout_fault<Layout, rows, columns>();
    if (!fault.empty()) throw std::invalid_argument(fault);
}

}  // namespace flashladder::tile
