// Variants of rung 13, to compare it with: some of what it saves, and the tiles of rung 12.
#ifndef FLASHLADDER_RUNG
#define FLASHLADDER_RUNG "attention.cu"  // or a chapter's
#endif
#include FLASHLADDER_RUNG

namespace flashladder::attention {
namespace {

template <int d, bool... saving>
using Two = Config<2, 128, 2, saving...>;  // rung 12's

template <template <int, bool...> class Tiles, bool... saving>
void launch_variant(const ForwardArgs& args) {
    with_bf16_types_of(args.shape, [&]<class Element, int d, bool causal>() {
        launch_config<Element, d, causal, Tiles<d, saving...>>(args);
    });
}
Support variant(std::string name) {
    Support s = supports.for_variant(std::move(name));
    s.causal = true;
    return s;
}
const Registration variants[] = {
    {{variant("two consumers"), launch_variant<Two, false, false, false>, scratch_bytes}},
    {{variant("two consumers, lazy"), launch_variant<Two, true, false, false>, scratch_bytes}},
    {{variant("three consumers"), launch_variant<Three, false, false, false>, scratch_bytes}},
    {{variant("three consumers, lazy"), launch_variant<Three, true, false, false>, scratch_bytes}},
    {{variant("and blocks skipped"), launch_variant<Three, true, false, true>, scratch_bytes}},
    {{variant("all but lazy"), launch_variant<Three, false, true, true>, scratch_bytes}},
};

}  // namespace
}  // namespace flashladder::attention
