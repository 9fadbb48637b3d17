// Capstone 2: ALiBi and a soft cap, in tensor cores. What is asked for: chapters/capstone-2-alibi-soft-cap/README.md.
//
// Supports  bf16; d 64, 128; any N_q and N_k; ALiBi, a soft cap, both or none; grouped-query heads; LSE; sm_80
#include <cuda_bf16.h>

#include "launch.h"
#include "operations/modified_attention/stage.h"
#include "ptx/cp_async.h"
#include "tile/copy.h"
#include "tile/copy_async.h"
#include "tile/multiply.h"
#include "tile/online_softmax.h"
#include "tile/swizzled.h"

namespace flashladder::modified_attention {
namespace {

// EXERCISE capstone-2.1 Build: the whole kernel, and launch(), which starts it. The contract is the README beside this
// file.
// TODO: your code, instead of this.
void launch([[maybe_unused]] const Args& args) {}
// END capstone-2.1

const Support supports{.attention = {.stage = "capstone-2-alibi-soft-cap", .head_dims = {64, 128}, .dtypes = {DType::bf16},
                                     .lse = true, .grouped_query = true},
                       .alibi = true, .soft_cap = true};
const Registration registration({supports, launch});

}  // namespace
}  // namespace flashladder::modified_attention
