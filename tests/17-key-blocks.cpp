// Tests of rung 17 that no other rung has; the rest is in attention_backward_suite.cpp.
#include "attention_backward_suite.h"

namespace flashladder::attention_backward {
namespace {

const StrictBarriers strict;

}  // namespace
}  // namespace flashladder::attention_backward
