// What is asked of kernels for the pages of docs/see/.
#pragma once

#include <array>
#include <cstdint>

/// Which (row, column) of a tile each lane of a warp names first.
using Places = std::array<std::array<int, 2>, 32>;

/// Of the operations of common/tile, on a tile of 64 columns of 16 bits: where the lanes' first accesses go.
struct TilePlaces {
    Places load;                 // an operand, by ldmatrix
    Places multiply_transposed;  // B of A B^T, by ldmatrix
    Places multiply;             // B of A B, by ldmatrix_trans
    Places store;                // an accumulator
    Places copy_in;              // of whole rows
};
TilePlaces record_places();

/// Bytes from the start of a tile to byte `byte` of a row, by a layout of common/tile: swizzled by so many bytes; or
/// row by row, 0, of which each has `padding` bytes more. `width` is a multiple of 16 up to 1024, `rows` 16, 32, 64 or
/// 128.
std::uintptr_t address_in_tile(int width, int padding, int swizzle, int rows, int row, int byte);
