// Variants of rung 11, to compare it with: how blocks come by tasks, and in which order these are.
#ifndef FLASHLADDER_RUNG
#define FLASHLADDER_RUNG "attention.cu"  // or a chapter's
#endif
#include FLASHLADDER_RUNG

namespace flashladder::attention {
namespace {

int one_head(const AttentionShape&) { return 1; }
int all_heads(const AttentionShape& s) { return s.batch * s.heads; }

template <Schedule schedule, int (*section)(const AttentionShape&)>
void launch_variant(const ForwardArgs& args) {
    with_bf16_types_of(args.shape, [&]<class Element, int d, bool causal>() {
        launch_config<Element, d, causal, Best<d, schedule>>(args, section(args.shape));
    });
}
Support variant(std::string name) {
    Support s = supports.for_variant(std::move(name));
    s.causal = true;
    return s;
}
const Registration variants[] = {
    {{variant("a block for each task"), launch_variant<Schedule::one_each, best_section>, scratch_bytes}},
    {{variant("fixed schedule"), launch_variant<Schedule::fixed, best_section>, scratch_bytes}},
    {{variant("head after head"), launch_variant<Schedule::dynamic, one_head>, scratch_bytes}},
    {{variant("sections in L2"), launch_variant<Schedule::dynamic, heads_in_L2>, scratch_bytes}},
    {{variant("all heads at once"), launch_variant<Schedule::dynamic, all_heads>, scratch_bytes}},
};

}  // namespace
}  // namespace flashladder::attention
