// Rung 24b, and the same with one order for the sums of dQ: the same bits in each launch.
#ifndef FLASHLADDER_RUNG
#define FLASHLADDER_RUNG "attention_backward.cu"  // or a chapter's
#endif
#include FLASHLADDER_RUNG

namespace flashladder::attention_backward {
namespace {

Support deterministic() {
    Support s = supports;
    s.variant = "deterministic", s.deterministic = true;
    return s;
}
const Registration in_order({deterministic(), launch<true>, scratch_bytes});

}  // namespace
}  // namespace flashladder::attention_backward
