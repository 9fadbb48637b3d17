// Rung 06: swizzling. The chunks of a row change places, so that a column of chunks meets all banks.
//
// Idea      ldmatrix reads 16 bytes of each of 8 rows. In rungs 04 and 05 these lie a multiple of 128 bytes apart: in
//           the same four banks, so it takes 8 wavefronts. Here the chunks of a row change places, in every row in
//           another way: other banks for each of 8 rows. Whole rows are still whole rows to copies.
// Saves     seven of eight wavefronts of ldmatrix. Q_i can then be read again in each step, which frees registers: at
//           d = 128 there is room for 64 keys instead of 16.
// Costs     some address arithmetic; padding, the other way, costs shared memory, and TMA (rung 08) cannot do it.
// Source    CUTLASS and FlashAttention-2 (Dao, 2023) have such layouts; PTX ISA, "Tensor swizzling modes", these ones
// Supports  bf16, f16; d 64, 128; any N_q and N_k; causal; grouped-query heads; LSE; sm_80 and newer
#include "operations/attention/launch_forward.h"
#include "operations/attention/stage.h"
#include "tile/check_layout.h"
#include "tile/copy.h"
#include "tile/multiply.h"
#include "tile/online_softmax.h"

namespace flashladder::attention {
namespace {

constexpr int warps = 4, threads = 32 * warps;
using tile::chunk;  // 8 elements, 16 bytes

/// A layout with unused space behind each row, so that the next one begins in other banks.
struct Padded {
    // EXERCISE 6.1 Rows with so much unused space behind each that neither ldmatrix nor a store of O has a conflict, at
    // d = 64 and at d = 128, and no more than it takes. The starter leaves none: rows lie as in rung 05.
    // STARTER template <int columns>
    // STARTER static constexpr int stride = columns;
    // STARTER template <int rows, int columns>
    // STARTER static constexpr int elements = rows * columns;
    // STARTER template <int rows, int columns>
    // STARTER __device__ static int offset(int row, int column) {
    // STARTER     return row * columns + column;
    // STARTER }
    static constexpr int space = chunk;  // a row of 128 or 256 bytes, and four banks more
    template <int columns>
    static constexpr int stride = columns + space;
    template <int rows, int columns>
    static constexpr int elements = rows * (columns + space);
    template <int rows, int columns>
    __device__ static int offset(int row, int column) {
        return row * (columns + space) + column;
    }
    // END 6.1
};

/// A tile cut into panels of 128, 64 or 32 bytes a row, one panel after the other; nothing in it is unused.
template <int bytes>
struct Swizzled {
    // EXERCISE 6.2 Build: a layout without padding in which 8 rows of any column of chunks meet all 32 banks, for
    // panels of 128, 64 and 32 bytes a row. Each element has a place of its own; the 8 elements of a chunk stay
    // together; a row 8 further is 8 `stride<columns>` further. The starter is right, and slow: row by row, as in rung
    // 05.
    // STARTER template <int columns>
    // STARTER static constexpr int stride = columns;
    // STARTER template <int rows, int columns>
    // STARTER static constexpr int elements = rows * columns;
    // STARTER template <int rows, int columns>
    // STARTER __device__ static int offset(int row, int column) {
    // STARTER     return row * columns + column;
    // STARTER }
    // clang-format off
    // 128 bytes of memory meet each of the 32 banks once, so what counts is where in its 128 bytes a chunk lies. Rows 0
    // to 7 of column 0 of the chunks, 128-byte and 32-byte swizzle:
    //
    //   row 0 | 0 . . . . . . . |  0 XOR 0      rows 0 to 3 | 0 . | 1 . | 2 . | 3 . |  4 rows share 128 bytes: 0 XOR 0
    //   row 1 | . 1 . . . . . . |  0 XOR 1      rows 4 to 7 | . 4 | . 5 | . 6 | . 7 |                          0 XOR 1
    //   row 2 | . . 2 . . . . . |  0 XOR 2
    //   ...                                     In each picture the eight numbers stand in eight different columns.
    // clang-format on
    static constexpr int chunks = bytes / 16;             // of a row of a panel
    static constexpr int rows_of_128_bytes = 8 / chunks;  // rows of a panel, which move their chunks alike
    template <int columns>
    static constexpr int stride = chunks * chunk;
    template <int rows, int columns>
    static constexpr int elements = rows * columns;
    template <int rows, int columns>
    __device__ static int offset(int row, int column) {
        const int panel = column / stride<columns>, c = column / chunk % chunks;
        const int place = c ^ row / rows_of_128_bytes % chunks;
        return panel * rows * stride<columns> + row * stride<columns> + place * chunk + column % chunk;
    }
    // END 6.2
};

/// Queries and keys of a block's tiles, how they lie in shared memory, and whether Q_i stays in registers.
template <int B_r_, int B_c_, class Layout_, bool Q_in_registers_>
struct Config {
    static constexpr int B_r = B_r_, B_c = B_c_;
    using Layout = Layout_;
    static constexpr bool Q_in_registers = Q_in_registers_;
};

/// The same, to see what others cost: they may need more registers than there are.
template <int B_r, int B_c, class Layout, bool Q_in_registers>
struct Variant : Config<B_r, B_c, Layout, Q_in_registers> {};

/// Block (i, h, b) owns B_r queries of one head, each of its warps a quarter of them.
template <class Element, int d, bool causal, class Config>
__global__ void __launch_bounds__(threads) swizzled_flash(const Element* Q, const Element* K, const Element* V,
                                                          Element* O, float* lse, int N_q, int N_k, int group,
                                                          float scale_log2) {
    constexpr int B_r = Config::B_r, B_c = Config::B_c, rows = B_r / warps;  // of a warp
    using Layout = typename Config::Layout;
    const tile::SharedTile<Element, B_r, d, Layout> Q_smem{dynamic_shared<Element>()};  // O at the end
    const tile::SharedTile<Element, B_c, d, Layout> K_smem{Q_smem.data + Q_smem.elements},
        V_smem{K_smem.data + K_smem.elements};
    const unsigned head = blockIdx.z * gridDim.y + blockIdx.y, kv_head = head / group;
    const unsigned q_rows = head * N_q, kv_rows = kv_head * N_k;  // of the heads before
    const int i = blockIdx.x * B_r, end = causal ? min(N_k, i + B_r + N_k - N_q) : N_k;
    const int first_row = threadIdx.x / 32 * rows;
    const int last_key = i + first_row + N_k - N_q;  // that the warp's first row sees, if causal; the next: one more

    tile::copy_in<threads>(Q_smem, Q, q_rows + i, q_rows + N_q);
    __syncthreads();
    tile::Operand<Element, rows, d> Q_reg;
    if constexpr (Config::Q_in_registers) tile::load(Q_reg, Q_smem, first_row);
    tile::Accumulator<rows, d> O_reg;
    tile::fill(O_reg, 0);
    tile::OnlineSoftmax<rows> softmax;
    for (int j = 0; j < end; j += B_c) {
        tile::copy_in<threads>(K_smem, K, kv_rows + j, kv_rows + N_k);
        tile::copy_in<threads>(V_smem, V, kv_rows + j, kv_rows + N_k);
        __syncthreads();  // the tiles are there
        tile::Accumulator<rows, B_c> S_reg;
        tile::fill(S_reg, 0);
        if constexpr (Config::Q_in_registers) tile::multiply_transposed(S_reg, Q_reg, K_smem);
        else tile::multiply_transposed(S_reg, Q_smem, first_row, K_smem);
        tile::multiply_all(S_reg, scale_log2);
        if (causal && j + B_c - 1 > last_key) tile::hide_right_of(S_reg, last_key - j);
        if (!causal && j + B_c > N_k) tile::hide_columns(S_reg, N_k - j);
        softmax.update(S_reg, O_reg);
        const auto P_reg = tile::to_operand<Element>(S_reg);
        softmax.add(P_reg);
        tile::multiply(O_reg, P_reg, V_smem);
        __syncthreads();  // K_j and V_j are about to be overwritten
    }

    const auto lse_rows = softmax.finish(O_reg);
    if (lse) tile::store_rows(lse, lse_rows, q_rows + i + first_row, q_rows + N_q);
    __syncwarp();                           // if the loop did not run, other lanes may still be reading Q_i
    tile::store(Q_smem, O_reg, first_row);  // no other warp has read these rows
    __syncthreads();
    tile::copy_out<threads>(O, Q_smem, q_rows + i, q_rows + N_q);
}

template <class Element, int d, bool causal, class Config>
void launch_config(const ForwardArgs& args) {
    using Layout = typename Config::Layout;
    tile::check_layout<Layout, Config::B_r, d>();  // throws where two elements would share a place
    tile::check_layout<Layout, Config::B_c, d>();
    constexpr std::size_t elements =
        Layout::template elements<Config::B_r, d> + 2 * Layout::template elements<Config::B_c, d>;  // Q_i, K_j, V_j
    launch_forward<Element>(swizzled_flash<Element, d, causal, Config>, args, Config::B_r, threads,
                            elements * sizeof(Element));
}

template <int d> using Best = Config<128, 64, Swizzled<128>, d == 64>;
template <int d> using TilesOf05 = Variant<128, d == 64 ? 64 : 16, Swizzled<128>, true>;
template <class Layout, int d> using Other = Variant<128, 64, Layout, d == 64>;

void launch_best(const ForwardArgs& args) {
    with_types_of(args.shape,
                  [&]<class Element, int d, bool causal>() { launch_config<Element, d, causal, Best<d>>(args); });
}
void launch_tiles_of_05(const ForwardArgs& args) {
    with_d_of(args.shape, [&]<int d>() { launch_config<__nv_bfloat16, d, false, TilesOf05<d>>(args); });
}
template <class Layout>
void launch_layout(const ForwardArgs& args) {
    with_d_of(args.shape, [&]<int d>() { launch_config<__nv_bfloat16, d, false, Other<Layout, d>>(args); });
}

std::size_t scratch_bytes(const AttentionShape&) { return 0; }

const Support supports{.stage = "06-swizzling", .head_dims = {64, 128}, .dtypes = {DType::bf16, DType::f16},
                       .causal = true, .lse = true, .grouped_query = true};
const Registration registrations[] = {
    {{supports, launch_best, scratch_bytes}},
    {{supports.for_variant("tiles of 05"), launch_tiles_of_05, scratch_bytes}},
    {{supports.for_variant("unswizzled"), launch_layout<tile::RowMajor>, scratch_bytes}},
    {{supports.for_variant("padded"), launch_layout<Padded>, scratch_bytes}},
    {{supports.for_variant("32 bytes"), launch_layout<Swizzled<32>>, scratch_bytes}},
    {{supports.for_variant("64 bytes"), launch_layout<Swizzled<64>>, scratch_bytes}},
};

}  // namespace
}  // namespace flashladder::attention
