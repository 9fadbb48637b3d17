// What is asked of kernels for the pages of docs/see/.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

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
/// row by row, 0, of which each has `padding` bytes more. `width` is a multiple of 16 up to 1024; `rows` is 16, 32, 64,
/// 128, 176, 192 or 256.
std::uintptr_t address_in_tile(int width, int padding, int swizzle, int rows, int row, int byte);

/// Which element each lane holds: row * columns + column, [lane or thread][register][low, high].
template <int lanes, int registers, int halves>
using RegisterMap = std::array<std::array<std::array<int, halves>, registers>, lanes>;

/// Of mma.m16n8k16: A (16, 16) and C (16, 8) as common/tile has them, B (16, 8) as ldmatrix brings it; `product` is
/// what mma makes of these A and B, numbers of elements multiplied. Four matrices of ldmatrix, (32, 8). A of wgmma,
/// (64, 16).
struct RegisterMaps {
    RegisterMap<32, 4, 2> A;
    RegisterMap<32, 2, 2> B;
    RegisterMap<32, 4, 1> C;
    std::array<std::array<float, 4>, 32> product;
    RegisterMap<32, 4, 2> ldmatrix, ldmatrix_trans;
    RegisterMap<128, 4, 2> wgmma_A;
};
RegisterMaps record_registers();

/// D (64, n) of wgmma: [thread * n / 2 + register]. n: 64, 128, 176, 192 or 256.
std::vector<int> record_accumulator(int n);

/// An operand of wgmma in shared memory: a tile of so many elements at address `start`, whose descriptor is that of the
/// tile and `begin` bytes more.
struct OperandQuestion {
    bool is_A, mn_major;
    int n;  // 64 for A, else as above
    unsigned start, begin, leading, stride;
    int swizzle;  // of ptx::Swizzle
    int elements;
};
struct OperandAnswer {
    std::uint64_t descriptor;
    std::vector<int> element;  // [mn * 16 + k]: the number of the element in the tile that wgmma finds there
};
OperandAnswer record_operand(const OperandQuestion& question);

/// The descriptors of common/tile, for (rows, columns) with the 128-byte swizzle: of 16 columns, or of 16 rows.
/// Both are 64 or 128.
std::uint64_t tile_descriptor(int rows, int columns, unsigned start, bool of_rows, int from);
