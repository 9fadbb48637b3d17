// Rung 20.
#include <doctest/doctest.h>

#include "attention_backward_suite.h"

namespace flashladder::attention_backward {
namespace {

TEST_CASE("small") {
    for (const int d : {64, 128})
        for (const auto& shape : {shape_of(1, 64, 128, d), shape_of(1, 200, 300, d), causal(shape_of(2, 200, 150, d)), grouped(shape_of(2, 100, 200, d))})
            check_gradients(backward_inputs(shape, Values::normal, test_seed()), "small");
}

}  // namespace
}  // namespace flashladder::attention_backward
