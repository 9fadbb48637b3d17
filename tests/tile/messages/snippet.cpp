// Right as it is. Each line that -D changes makes one mistake, which must not compile: see CMakeLists.txt.
#include "tile/copy.h"
#include "tile/copy_async.h"
#include "tile/global_tile.h"
#include "tile/multiply.h"
#include "tile/online_softmax.h"
#include "tile/swizzled.h"
#include "tile/transposed_scores.h"
#include "tile/warpgroup.h"

#ifndef ELEMENT
#define ELEMENT __nv_bfloat16
#endif
#ifndef OPERAND_ELEMENT
#define OPERAND_ELEMENT ELEMENT
#endif
#ifndef OTHER_ELEMENT
#define OTHER_ELEMENT ELEMENT
#endif
#ifndef THREADS
#define THREADS 128
#endif
#ifndef ROWS
#define ROWS 16
#endif
#ifndef DEPTH  // of A
#define DEPTH 64
#endif
#ifndef B_DEPTH
#define B_DEPTH DEPTH
#endif
#ifndef KEYS  // rows of B
#define KEYS 64
#endif
#ifndef S_COLUMNS
#define S_COLUMNS KEYS
#endif
#ifndef P_COLUMNS
#define P_COLUMNS KEYS
#endif
#ifndef O_COLUMNS
#define O_COLUMNS DEPTH
#endif
#ifndef A_ROWS
#define A_ROWS 64
#endif
#ifndef WAY_ROWS
#define WAY_ROWS ROWS
#endif
#ifndef BYTES
#define BYTES 128
#endif
#ifndef GLOBAL_LAYOUT
#define GLOBAL_LAYOUT SwizzledFor<DEPTH>
#endif
#ifndef USE  // 0: everything
#define USE 0
#endif
#define USED(n) (USE == 0 || USE == n)

using namespace flashladder::tile;

void snippet(const ELEMENT* tensor, ELEMENT* output, float* lse) {
    const SharedTile<ELEMENT, A_ROWS, DEPTH> A_smem{};
    const SharedTile<OTHER_ELEMENT, KEYS, B_DEPTH, Swizzled<BYTES>> B_smem{};
    Operand<OPERAND_ELEMENT, ROWS, DEPTH> A;
    Accumulator<ROWS, S_COLUMNS> S;
    Accumulator<ROWS, O_COLUMNS> O;
#if USED(1)
    copy_in<THREADS>(A_smem, tensor, 0, 64);
#endif
#if USED(2)
    copy_out<THREADS>(output, A_smem, 0, 64);
#endif
#if USED(3)
    load(A, A_smem, 0);
#endif
#if USED(4)
    multiply_transposed(S, A, B_smem);
#endif
#if USED(5)
    multiply_transposed(S, A_smem, 0, B_smem);
#endif
#if USED(6)
    Operand<OPERAND_ELEMENT, ROWS, P_COLUMNS> P{};
    multiply(O, P, B_smem);
#endif
#if USED(7)
    OnlineSoftmax<ROWS> softmax;
    softmax.update(S, O);
    softmax.add(to_operand<ELEMENT>(S));
    store_rows(lse, softmax.finish(O), 0, 64);
#endif
#if USED(8)
    store(A_smem, O, 0);
#endif
#if USED(9)
    begin_multiply_transposed(S, SharedTile<ELEMENT, A_ROWS, DEPTH, Swizzled<BYTES>>{}, B_smem);
    wait<0>(S);
#endif
#if USED(10)
    Operand<OPERAND_ELEMENT, 16, P_COLUMNS> weights{};
    begin_multiply(O, weights, B_smem);
    wait<0>(O);
#endif
#if USED(11)
    using Global = SharedTile<ELEMENT, A_ROWS, DEPTH, GLOBAL_LAYOUT>;
    flashladder::ptx::Barrier full;
    const TensorMap<Global> map = make_tensor_map<Global>(tensor, {}, 1, 1, 64);
    load(Global{}, map, full, 0, 0, 0);
    store(map, Global{}, 0, 0, 0);
#endif
#if USED(12)
    using Way = SharedTile<ELEMENT, WAY_ROWS, DEPTH, SwizzledFor<DEPTH>>;
    store_by_way_of(Way{}, O, make_tensor_map<Way>(tensor, {}, 1, 1, 64), 0, 0, 0);
#endif
#if USED(13)
    Accumulator<16, O_COLUMNS> C;
    begin_multiply(C, SharedTile<ELEMENT, A_ROWS, P_COLUMNS, Swizzled<128>>{}, B_smem);
    wait<0>(C);
#endif
#if USED(14)
    copy_in_async<THREADS>(A_smem, tensor, 0, 64);
#endif
#if USED(15)
    Operand<OPERAND_ELEMENT, ROWS, S_COLUMNS> A_t;
    load_transposed(A_t, A_smem, 0);
#endif
#if USED(16)
    Accumulator<16, O_COLUMNS> of_transposed;
    begin_multiply_of_transposed(of_transposed, SharedTile<ELEMENT, P_COLUMNS, A_ROWS, Swizzled<128>>{}, B_smem);
    wait<0>(of_transposed);
#endif
}
