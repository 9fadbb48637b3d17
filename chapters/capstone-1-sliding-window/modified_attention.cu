// Capstone 1: sliding-window attention. What is asked for: chapters/capstone-1-sliding-window/README.md.
//
// Supports  float; d 64, 128; any N_q and N_k; any window; grouped-query heads; LSE
#include "launch.h"
#include "operations/modified_attention/stage.h"

namespace flashladder::modified_attention {
namespace {

// EXERCISE capstone-1.1 Build: the whole kernel, and launch(), which starts it. The contract is the README beside this
// file.
// TODO: your code, instead of this.
void launch([[maybe_unused]] const Args& args) {}
// END capstone-1.1

const Support supports{
    .attention = {.stage = "capstone-1-sliding-window", .head_dims = {64, 128}, .lse = true, .grouped_query = true},
    .window = true};
const Registration registration({supports, launch});

}  // namespace
}  // namespace flashladder::modified_attention
