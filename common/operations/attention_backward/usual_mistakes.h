// What a wrong gradient looks like: some mistakes are made by everybody, and each leaves its own numbers.
#pragma once

#include "operations/attention_backward/comparison.h"

namespace flashladder::attention_backward {

/// Of each gradient that `c` finds wrong, and that is just what one of these mistakes makes,
/// GradientComparison::mistake: "if D is not subtracted from dP". Nothing if the problem is so large that to try them
/// takes long.
void name_usual_mistakes(Comparison& c, const Outputs& outputs, const Inputs& inputs, const Gradients& reference);

}  // namespace flashladder::attention_backward
