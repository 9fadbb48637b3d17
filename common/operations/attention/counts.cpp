#include "operations/attention/counts.h"

#include <utility>

#include "operations/attention/operation.h"

namespace flashladder::attention {

StageCounts count_stage(const Stage& stage, const Inputs& inputs, bool wants_lse) {
    StageCounts counts{flashladder::count_stage(stage, data_of(inputs, wants_lse)), {}};
    auto& computed = counts.flashladder::StageCounts::outputs.tensors;
    counts.outputs.O = std::move(computed.at("O"));
    if (wants_lse) counts.outputs.lse = std::move(computed.at("lse"));
    return counts;
}

}  // namespace flashladder::attention
