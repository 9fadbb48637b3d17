// Host functions around the kernels of this folder: inputs in, result out. Elements of 16 bits are passed as their
// bits.
#pragma once

#include <cstdint>
#include <vector>

namespace flashladder {

using Bits16 = std::vector<std::uint16_t>;
using Bits32 = std::vector<std::uint32_t>;
using Floats = std::vector<float>;

enum class Element { bf16, f16 };

/// What the card can run: 80, 89, 90.
int device_architecture();

// types.cu
struct Conversions {
    Bits16 bf16, f16;
    Bits32 bf16_pairs, f16_pairs;  // element i and i + 1 of the input, the latter high
    Bits32 bf16_packed, f16_packed;  // the same, by ptx::pack
    Floats from_bf16, from_f16;
};
/// Each float to 16 bits and back.
Conversions convert(const Floats& x);

// matrices.cu
constexpr int matrix_pitch = 48;  // bytes from row to row in shared memory
/// A warp loads n 8x8 matrices, whose 8 n rows lie in `memory`, one every matrix_pitch bytes; register m of lane l is
/// element l n + m.
Bits32 load_matrices(const Bits16& memory, int n, bool transposed);
/// Stores what load_matrices() gives; what no row covers is 0.
Bits16 store_matrices(const Bits32& registers, int n, bool transposed);
/// D = C + A B of a warp; A is 16x16, B is 16x8 and comes by way of ldmatrix_trans, C and D are 16x8.
Floats multiply_in_warp(Element element, const Bits16& A, const Bits16& B, const Floats& C);
Floats powers_of_two(const Floats& x);

// copies.cu
/// Copies through shared memory in a ring of three stages, `bytes` at a time; what lies behind the end reads as 0. The
/// result has whole tiles.
Bits32 copy_through_ring(const Bits32& x, int bytes);
constexpr int ring_tile = 256;  // words

// barriers.cu
constexpr int pairs_threads = 256, ring_threads = 64;
/// Warp w of eight meets warp w ^ 1 at a named barrier, `rounds` times and once more for each pair before it; each time
/// a thread adds its partner's value to its own.
Bits32 exchange_between_pairs(const Bits32& x, int rounds);
/// Half of the block writes a tile of ring_threads words, the other half reads it backwards, through a ring of two.
enum class Signal { named_barrier, mbarrier };
Bits32 pass_through_ring(const Bits32& x, Signal signal);  // by mbarrier, with the number of tiles behind it, else 0
/// For each warp, how many lanes were elected, and 256 times the sum of their indices.
Bits32 elect_in_warps(int warps);
/// Three warpgroups between which registers move; i for the first 128 threads, 2 i for the others.
Bits32 move_registers();

// tma.cu
struct BoxCoordinates {
    int at[5];
};
/// A box of a dense tensor of 16-bit elements, to be loaded from one place and stored to another one of a tensor alike.
struct Box {
    int rank;
    int extents[5], shape[5];
    int swizzle;  // as ptx::Swizzle
    BoxCoordinates load_at, store_at;
    bool store = true;
};
struct MovedBox {
    Bits16 shared;  // the first box_window elements of shared memory, which were box_poison before
    Bits16 tensor;  // to which the box was stored; it was 0
};
constexpr int box_window = 16384, box_poison = 0xABCD;
MovedBox move_box(const Bits16& tensor, const Box& box);

/// Rows of 16 bytes, moved by a map that has two dimensions of them with one stride, so that a box ends behind any row
/// (rung 26b): `rows` rows from `first` on, of a box of 8.
constexpr int ending_columns = 8, ending_rows = 8;
MovedBox move_ending_box(const Bits16& tensor, int first, int rows);

constexpr int add_rows = 6, add_columns = 32;
/// Two tiles x, plus 1, are added to a tensor at row 1, columns 0 and 4; stored behind it; and added to a run of
/// floats. All three in a row.
Floats add_boxes(const Floats& x);

struct MapRequest {
    int type = 9;  // bf16
    unsigned rank = 2;
    std::uint64_t extents[5] = {64, 64, 8, 4, 2}, strides[4] = {128, 8192, 65536, 262144};
    std::uint32_t box[5] = {64, 16, 1, 1, 1}, element_strides[5] = {1, 1, 1, 1, 1};
    int swizzle = 0;
    int address_offset = 0, map_offset = 0;
    bool no_address = false;
};
/// The CUresult of encoding such a map.
int try_map(const MapRequest& request);

// wgmma.cu
struct DescriptorFields {
    unsigned start, leading, stride;  // bytes
    int swizzle;                      // as ptx::Swizzle
};
/// Two wgmmas on one accumulator: D = A B + A' B', where A' and B' lie a step further on, in bytes.
struct WgmmaCase {
    Element element;
    int n;
    bool a_mn_major, b_mn_major, a_in_registers;
    DescriptorFields a, b;
    unsigned a_step, b_step;
};
constexpr int wgmma_window = 40960;  // elements of shared memory that are initialised
/// `memory` becomes the window. A in registers: `a_registers` is (64, 32), the two A side by side. D is (64, n).
Floats multiply_in_warpgroup(const WgmmaCase& c, const Bits16& memory, const Bits16& a_registers);

/// The bits of a descriptor to which so many bytes are added.
std::uint64_t move_descriptor(std::uint64_t bits, unsigned bytes);

// cluster.cu
constexpr int cluster_threads = 64;
/// Each of 3 clusters of blocks: what the next block of the cluster has, plus 1; x has cluster_threads words a block.
Bits32 read_next_block(const Bits32& x, int blocks_per_cluster);
constexpr int slice_elements = 8 * 64;
/// Slices of 8 rows of 64; each block of a cluster loads one of each tile for all. What each block found, tile by tile,
/// block by block; x has blocks_per_cluster slices a tile.
Bits16 share_slices(const Bits16& x, int blocks_per_cluster);
/// Blocks take tickets, and each adds to what the one before it has left: 1, 2, 3, ... for as many blocks.
Bits32 pass_along_blocks(int blocks);

// attention.cu
constexpr int attention_head_dim = 128;
/// Attention in bf16 by a producer warp and two consumer warpgroups; tensors are (batch, heads, N, 128).
Bits16 attend(const Bits16& Q, const Bits16& K, const Bits16& V, int batch, int heads, int N, float scale);

}  // namespace flashladder
