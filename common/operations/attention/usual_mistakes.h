// What a wrong result looks like: some mistakes are made by everybody, and each leaves its own numbers.
#pragma once

#include <string>
#include <vector>

#include "operations/attention/comparison.h"

namespace flashladder::attention {

/// Keys that a query sees where a mask is not the one that was asked for.
struct OtherMask {
    std::string sentence;  // "if each query sees one key too many"
    VisibleKeys visible;
};
std::vector<OtherMask> other_masks(const AttentionShape& shape);

/// "this is what comes out if each query sees one key too many", where O is just that: by the rules by which it is
/// wrong, it would be right. "" if it is none of these mistakes, or if the problem is so large that to try them takes
/// long. `yardstick` is standard_attention for these rows, reference reference_attention.
std::string usual_mistake(const Outputs& outputs, const Inputs& inputs, const AttentionRows& reference,
                          const AttentionRows& yardstick);

}  // namespace flashladder::attention
