#include "operations/attention_backward/counts.h"

#include "operations/attention_backward/operation.h"

namespace flashladder::attention_backward {

StageCounts count_stage(const Stage& stage, const Inputs& inputs) {
    return flashladder::count_stage(stage, data_of(inputs));
}

}  // namespace flashladder::attention_backward
