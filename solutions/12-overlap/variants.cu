// Variants of rung 12, to compare it with: less overlap, and scores that are multiplied before the softmax.
#ifndef FLASHLADDER_RUNG
#define FLASHLADDER_RUNG "attention.cu"  // or a chapter's
#endif
#include FLASHLADDER_RUNG

namespace flashladder::attention {
namespace {

template <Overlap overlap, bool fused>
void launch_variant(const ForwardArgs& args) {
    with_bf16_types_of(args.shape, [&]<class Element, int d, bool causal>() {
        launch_config<Element, d, causal, Best<d, overlap, fused>>(args);
    });
}
Support variant(std::string name) {
    Support s = supports.for_variant(std::move(name));
    s.causal = true;
    return s;
}
const Registration variants[] = {
    {{variant("no overlap"), launch_variant<Overlap::none, true>, scratch_bytes}},
    {{variant("ping-pong"), launch_variant<Overlap::ping_pong, true>, scratch_bytes}},
    {{variant("intra"), launch_variant<Overlap::intra, true>, scratch_bytes}},
    {{variant("no overlap, scores multiplied before"), launch_variant<Overlap::none, false>, scratch_bytes}},
    {{variant("scores multiplied before"), launch_variant<Overlap::both, false>, scratch_bytes}},
};

}  // namespace
}  // namespace flashladder::attention
