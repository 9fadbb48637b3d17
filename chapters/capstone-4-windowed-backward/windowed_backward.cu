// Capstone 4: the gradients of sliding-window attention. What is asked for: chapters/capstone-4-windowed-backward/README.md.
//
// Supports  float; d 64, 128; any N_q and N_k; any window; grouped-query heads
#include "launch.h"
#include "operations/windowed_backward/stage.h"

namespace flashladder::windowed_backward {
namespace {

// EXERCISE capstone-4.1 Build: all kernels, and launch(), which starts them. The contract is the README beside this file.
// TODO: your code, instead of this.
void launch([[maybe_unused]] const Args& args) {}
// END capstone-4.1

const Support supports{
    .stage = "capstone-4-windowed-backward", .head_dims = {64, 128}, .grouped_query = true, .deterministic = true};
const Registration registration({supports, launch});

}  // namespace
}  // namespace flashladder::windowed_backward
