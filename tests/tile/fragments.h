// Between matrices in device memory and tiles in registers or shared memory, element by element. Which lane holds what
// is written down here once more, from the PTX manual, since tile::row_of and tile::column_of are among what is tested.
#pragma once

#include <string>

#include "../emulator/device_array.h"
#include "cases.h"
#include "launch.h"
#include "tile/shared_tile.h"
#include "tile/swizzled.h"

namespace flashladder {

constexpr int warp = 32;

__device__ inline int group() { return threadIdx.x % warp / 4; }
__device__ inline int member() { return threadIdx.x % 4; }

/// Calls use(element, index in the matrix) for each element of C that this lane holds.
template <int rows, int columns, class Use>
__device__ void for_each(tile::Accumulator<rows, columns>& C, int pitch, Use use) {
    for (int r = 0; r < rows / 16; ++r)
        for (int c = 0; c < columns / 8; ++c)
            for (int e = 0; e < 4; ++e)
                use(C.fragment[r][c][e], (16 * r + group() + (e > 1 ? 8 : 0)) * pitch + 8 * c + 2 * member() + (e & 1));
}
template <int rows, int columns>
__device__ void read(tile::Accumulator<rows, columns>& C, const float* matrix, int pitch = columns) {
    for_each(C, pitch, [&](float& element, int i) { element = matrix[i]; });
}
template <int rows, int columns>
__device__ void write(float* matrix, tile::Accumulator<rows, columns>& C) {
    for_each(C, columns, [&](float& element, int i) { matrix[i] = element; });
}

template <int rows>
__device__ void read(tile::RowValues<rows>& v, const float* vector) {
    for (int r = 0; r < rows / 16; ++r)
        for (int h = 0; h < 2; ++h) v.value[r][h] = vector[16 * r + 8 * h + group()];
}
/// What each lane says: (rows, 4).
template <int rows>
__device__ void write(float* matrix, const tile::RowValues<rows>& v) {
    for (int r = 0; r < rows / 16; ++r)
        for (int h = 0; h < 2; ++h) matrix[(16 * r + 8 * h + group()) * 4 + member()] = v.value[r][h];
}

template <class Element, int rows, int columns>
__device__ void write(std::uint16_t* matrix, const tile::Operand<Element, rows, columns>& A) {
    for (int r = 0; r < rows / 16; ++r)
        for (int c = 0; c < columns / 16; ++c)
            for (int i = 0; i < 4; ++i)
                for (int half = 0; half < 2; ++half) {
                    const int row = 16 * r + group() + (i & 1 ? 8 : 0);
                    const int column = 16 * c + 2 * member() + half + (i & 2 ? 8 : 0);
                    matrix[row * columns + column] = std::uint16_t(A.fragment[r][c][i] >> (16 * half));
                }
}

template <class Element, int rows, int columns>
__device__ void read(tile::Operand<Element, rows, columns>& A, const std::uint16_t* matrix) {
    for (int r = 0; r < rows / 16; ++r)
        for (int c = 0; c < columns / 16; ++c)
            for (int i = 0; i < 4; ++i) {
                const int row = 16 * r + group() + (i & 1 ? 8 : 0), column = 16 * c + 2 * member() + (i & 2 ? 8 : 0);
                const std::uint16_t* pair = matrix + row * columns + column;
                A.fragment[r][c][i] = pair[0] | std::uint32_t(pair[1]) << 16;
            }
}

/// By all threads of the block.
template <class Tile>
__device__ void write(const Tile& tile, const std::uint16_t* matrix) {
    for (int i = threadIdx.x; i < Tile::rows * Tile::columns; i += blockDim.x)
        *reinterpret_cast<std::uint16_t*>(tile.at(i / Tile::columns, i % Tile::columns)) = matrix[i];
}
template <class Tile>
__device__ void read(const Tile& tile, std::uint16_t* matrix) {
    for (int i = threadIdx.x; i < Tile::rows * Tile::columns; i += blockDim.x)
        matrix[i] = *reinterpret_cast<const std::uint16_t*>(tile.at(i / Tile::columns, i % Tile::columns));
}

template <class T>
constexpr Element element_of = std::is_same_v<T, __nv_bfloat16> ? Element::bf16 : Element::f16;

template <class Layout>
constexpr int swizzle_of = 0;
template <int bytes>
constexpr int swizzle_of<tile::Swizzled<bytes>> = bytes;

template <class Layout>
std::string name_of() {
    return swizzle_of<Layout> == 0 ? "row-major" : std::to_string(swizzle_of<Layout>) + " bytes";
}

/// The layout, if a tile of so many columns can have it.
template <class Layout, int columns>
constexpr bool fits = columns * 2 % (swizzle_of<Layout> == 0 ? 2 : swizzle_of<Layout>) == 0;
template <class Layout, int columns>
using IfFits = std::conditional_t<fits<Layout, columns>, Layout, tile::RowMajor>;

/// Calls use.operator()<Layout>() for each layout that a tile of so many columns can have.
template <int columns, class Use>
void for_layouts(Use use) {
    const auto if_fits = [&]<class Layout>() {
        if constexpr (fits<Layout, columns>) use.template operator()<Layout>();
    };
    if_fits.template operator()<tile::RowMajor>();
    if_fits.template operator()<tile::Swizzled<32>>();
    if_fits.template operator()<tile::Swizzled<64>>();
    if_fits.template operator()<tile::Swizzled<128>>();
}

/// Elements of turning types, so that each type meets each layout and each shape.
template <int turn>
using ElementOf = std::conditional_t<turn % 2 == 0, __nv_bfloat16, __half>;

}  // namespace flashladder
