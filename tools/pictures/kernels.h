// What is asked of kernels for the pictures.
#pragma once

#include <array>
#include <string>
#include <vector>

namespace flashladder {

/// Which element each lane of a warp holds of the operands of mma.m16n8k16: row * columns + column.
struct FragmentMap {
    std::array<std::array<std::array<int, 2>, 4>, 32> A;  // (16, 16): [lane][register][low, high]
    std::array<std::array<std::array<int, 2>, 2>, 32> B;  // (16, 8)
    std::array<std::array<int, 4>, 32> C;                 // (16, 8): [lane][register]
};
FragmentMap record_fragments();

/// In which of the 8 groups of four banks a chunk lies, for 8 rows of 8 chunks of a tile of 64 columns.
struct BankMap {
    std::string layout;
    std::array<std::array<int, 8>, 8> group;  // [row][chunk]
};
std::vector<BankMap> bank_maps();

}  // namespace flashladder
