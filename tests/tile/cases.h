// The shapes and layouts that are tested, each with a host function around its kernel: inputs in, result out. Matrices
// are whole rows one after the other; elements of 16 bits are passed as their bits.
#pragma once

#include <string>

#include "../ptx/kernels.h"

namespace flashladder {

// layouts.cu
struct LayoutCase {
    std::string layout;
    int swizzle;  // bytes; 0 for none
    int rows, columns;
    int stride, elements;
    std::vector<int> (*offsets)();  // (rows, columns): where each element lies, from the start of the tile
};
std::vector<LayoutCase> layout_cases();
struct WidestSwizzle {
    int columns, bytes;
};
std::vector<WidestSwizzle> widest_swizzles();

// copies.cu
constexpr std::uint16_t poison = 0xABCD;
struct CopyCase {
    std::string layout;
    int rows, columns, threads;
    /// Rows `first_row` on of a tensor of which `tensor` is what lies behind row `skipped`; from row N on there are
    /// none.
    Bits16 (*copy_in)(const Bits16& tensor, unsigned skipped, unsigned first_row, unsigned N);
    Bits16 (*copy_in_async)(const Bits16& tensor, unsigned skipped, unsigned first_row, unsigned N);  // the same
    /// The same way back; what is not written stays poison. `rows_after` is how many rows of it are returned.
    Bits16 (*copy_out)(const Bits16& tile, unsigned skipped, unsigned first_row, unsigned N, int rows_after);
};
std::vector<CopyCase> copy_cases();

struct StoreCase {
    std::string layout;
    Element element;
    int rows, columns, tile_rows, tile_columns;
    /// The tile, all poison but for what two warps store: the first rows of C at first_row, the others behind them.
    Bits16 (*store)(const Floats& C, int first_row, int first_column);
};
std::vector<StoreCase> store_cases();

/// A vector of n floats, all -1 but for what two warps store, 32 values each; it begins with element `skipped`.
Floats store_rows(const Floats& values, unsigned skipped, unsigned first_row, unsigned N, int n);

// global.cu
struct Tensor {
    int batch, heads, n;
    std::int64_t batch_stride, head_stride, row_stride;  // elements
    int columns = 0;                                     // 0: as many as a tile
};
struct TileAt {
    int row, head, batch, column = 0;
};
struct GlobalCase {
    int swizzle;  // bytes
    Element element;
    int rows, columns;
    /// The tiles from two places, one after the other in the same shared memory, each with a guard of poison behind it.
    Bits16 (*load)(const Bits16& memory, const Tensor& tensor, const TileAt& first, const TileAt& second);
    /// So much memory, all poison but for what is stored.
    Bits16 (*store)(const Bits16& tile, const Tensor& tensor, const TileAt& at, std::size_t memory);
    /// Makes a map of a tensor that begins `bytes` behind a multiple of 256.
    void (*make)(const Tensor& tensor, int bytes);
};
constexpr int stored_tiles = 3, storing_warps = 2;
struct WayCase {
    Element element;
    int rows, columns;  // of a tile
    /// So much memory, all poison but for what two warps store, each through one tile of its own: `stored_tiles` after
    /// each other, at these places, the second warp `rows` behind the first. C is (tiles, warps, rows, columns).
    Bits16 (*store)(const Floats& C, const Tensor& tensor, const std::vector<TileAt>& places, std::size_t memory);
};
std::vector<WayCase> way_cases();
constexpr int guard = 64;  // elements behind a tile, which nobody may touch
std::vector<GlobalCase> global_cases();
bool has_tma();  // of the GPU; the emulator does

// registers.cu
enum class Change { fill, multiply_all, multiply_rows, hide_columns, hide_right_of, hide_rows, hide_below, exponentials };
struct RegisterCase {
    int rows, columns;  // of a warp; there are two warps
    /// C, after `change`; row_values are the rows' factors or maxima. For each of `parameters` anew, one after the
    /// other.
    Floats (*change)(Change change, const Floats& C, const Floats& row_values, const Floats& parameters);
    /// For each row what its four lanes say is the largest of it and of m: (2 rows, 4).
    Floats (*row_max)(const Floats& C, const Floats& m);
    Floats (*multiply_elements)(const Floats& C, const Floats& B);
    Bits16 (*to_operand)(Element element, const Floats& C);  // null for 8 columns
};
std::vector<RegisterCase> register_cases();

/// tile::row_of and tile::column_of of 64 threads: [thread][r][h] and [thread][c][e], for two r and four c.
struct Places {
    std::vector<int> rows, columns;
};
Places places();

enum class RowChange { fill, multiply_rows, rescale_factor };
/// 64 values, two warps of 32 rows; (64, 4): what the four lanes of each row say.
Floats change_rows(RowChange change, const Floats& values, const Floats& others, float parameter);

// products.cu
struct LoadCase {
    std::string layout;
    Element element;
    int rows, columns, tile_rows, tile_columns;
    /// (2 rows, columns): what two warps have loaded; the second one `rows` rows further.
    Bits16 (*load)(const Bits16& tile, int first_row, int first_column);
};
std::vector<LoadCase> load_cases();
/// Of a tile's columns as rows: the second warp's are `rows` columns further, and `first_row` is 0.
std::vector<LoadCase> transposed_load_cases();

struct Products {
    Floats transposed, transposed_from_shared, plain;  // (2 rows, columns)
};
struct ProductCase {
    std::string layout;
    Element element;
    int rows, columns, depth;
    /// C + A B_t^T, with A in registers and in shared memory, and C + A B. A has 2 rows + 8 rows, of which two warps
    /// take those from first_row on; B_t is (columns, depth), B is (depth, columns), C is (2 rows, columns).
    Products (*multiply)(const Bits16& A, const Bits16& B_t, const Bits16& B, const Floats& C, int first_row);
};
std::vector<ProductCase> product_cases();

// warpgroup.cu
/// Whether the device has them: sm_90 alone.
bool has_warpgroups();

struct WarpgroupProducts {
    Floats transposed, plain;  // (128, keys), (128, d)
};
struct WarpgroupCase {
    Element element;
    int keys, d;
    /// A B_t^T and C + P B by two warpgroups, 64 rows each. A is (128, d), B_t and B are (keys, d), P is (128, keys), C
    /// is (128, d). Together: the second product is begun before the first one is waited for.
    WarpgroupProducts (*multiply)(const Bits16& A, const Bits16& B_t, const Bits16& P, const Bits16& B, const Floats& C,
                                  bool together);
    /// A B_t^T and C + P B + next_P B + P B, where the registers of P are used again.
    WarpgroupProducts (*reuse)(const Bits16& A, const Bits16& B_t, const Bits16& P, const Bits16& next_P,
                               const Bits16& B, const Floats& C);
};
std::vector<WarpgroupCase> warpgroup_cases();

enum class Factors { plain, second_transposed, first_transposed };
struct SharedProductCase {
    Element element;
    Factors factors;
    int columns, depth;
    /// A B by two warpgroups, to which C is added if `add`; A in shared memory too. A is (128, depth), B is (depth,
    /// columns), C is (128, columns). As they lie in memory: B may be (columns, depth), or A twice (depth, 64).
    Floats (*multiply)(const Bits16& A, const Bits16& B, const Floats& C, bool add);
};
std::vector<SharedProductCase> shared_product_cases();

/// The descriptors of a (64, 128) tile at this address of shared memory: of all columns and rows, 16 by 16, as
/// common/tile and as rung 09 make them.
struct Descriptors {
    std::vector<std::uint64_t> columns, columns_09, rows, rows_09;
};
Descriptors describe_tile(unsigned address);

// softmax.cu
struct Attended {
    Floats O, lse;  // (2 rows, d), (2 rows): two warps
    Floats lanes;   // (2 rows, 4): the sums, as each lane of a row has them
};
struct SoftmaxCase {
    Element element;
    int rows, keys, d;
    bool sums_by_lanes;  // SumsByLanes, which adds P before it is rounded; else SumsByTensorCore
    /// softmax(S) V, `keys` columns of S at a time; S is in base 2. In pieces: with a maximum that comes from outside.
    /// LSE is stored for the first N rows; the others stay -1.
    Attended (*attend)(const Floats& S, const Bits16& V, bool in_pieces, int N);
};
std::vector<SoftmaxCase> softmax_cases();

// lazy_softmax.cu
constexpr int lazy_rows = 32;  // of two warps
struct LazyAttended {
    Floats O, lse;           // (32, d), (32)
    Floats m;                // (blocks, 32, 4): by lanes, behind each update()
    Floats largest;          // (blocks, 64): the largest P of each lane
    std::vector<int> freed;  // (blocks, 64): how often free() was called, 100 if P had been written before
};
struct LazyScales {
    float log2, lowest;  // as in tile::LazyScale
};
struct LazyCase {
    Element element;
    int keys, d;
    float most;  // what P may sum up to in a lane
    /// softmax(scale S) V, `keys` columns of S at a time; scale_log2 is scale times log2(e).
    LazyAttended (*attend)(const Floats& S, const Bits16& V, float scale_log2);
    LazyScales (*scale)(float scale_log2);
};
std::vector<LazyCase> lazy_cases();

}  // namespace flashladder
