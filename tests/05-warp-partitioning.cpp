// Rung 05.
#include <doctest/doctest.h>

#include "rung_suite.h"

namespace flashladder {
namespace {

TEST_CASE("needs no memory beyond inputs and outputs") {
    CHECK(stage_under_test().scratch_bytes(shape_of(4, 1000, 1000, 64)) == 0);
}

}  // namespace
}  // namespace flashladder
