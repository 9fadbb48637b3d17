// Rung 22. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>

#include "attention_backward_suite.h"

namespace flashladder::attention_backward {
namespace {

[[maybe_unused]] const StrictBarriers strict_barriers;

}  // namespace
}  // namespace flashladder::attention_backward
