// The gradients of sliding-window attention: its reference where a window hides nothing, or everything, and the
// operation in both of its types. tests/gradients.cpp has the reference against differences of the forward pass.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "operations/attention_backward/operation.h"
#include "operations/windowed_backward/operation.h"
#include "test_seed.h"

namespace flashladder::windowed_backward {
namespace {

using attention::Values;
using attention_backward::Gradients;

Shape some_shape(int n_q, int n_k, int window) {
    return windowed({.batch = 2, .heads = 4, .kv_heads = 2, .n_q = n_q, .n_k = n_k, .head_dim = 32}, window);
}
Gradients all_gradients(const Inputs& in) {
    return reference_gradients(in, attention_backward::rows_to_check(in.shape(), 1, std::size_t(1) << 20));
}

TEST_CASE("windowed backward: a window that hides nothing is the way back of causal attention") {
    for (const auto& [n_q, n_k] : {std::pair(33, 33), {20, 50}, {50, 20}}) {
        const Shape s = some_shape(n_q, n_k, n_k);
        const Inputs in = windowed_inputs(s, Values::normal, test_seed()),
                     plain = attention_backward::backward_inputs(s, Values::normal, test_seed());
        CHECK(in.O == plain.O);
        CHECK(in.lse == plain.lse);
        CHECK(in.dO == plain.dO);
        const Gradients found = all_gradients(in), expected = all_gradients(plain);
        CHECK(found.dQ.values == expected.dQ.values);
        CHECK(found.dK.values == expected.dK.values);
        CHECK(found.dV.values == expected.dV.values);
    }
}

TEST_CASE("windowed backward: who sees nothing, or is seen by nobody, has 0, and its NaN reaches nobody") {
    constexpr int n_q = 10, n_k = 40, window = 6, unseen = n_k - n_q - window + 1, d = 32;
    Inputs in = windowed_inputs(some_shape(n_q, n_k, window), Values::normal, test_seed());
    const Gradients before = all_gradients(in);
    for (std::size_t x = 0; x < unseen * d; ++x) {
        CHECK(before.dK.values[x] == 0);
        CHECK(before.dV.values[x] == 0);
        in.forward.K[x] = in.forward.V[x] = std::numeric_limits<float>::quiet_NaN();
    }
    CHECK(before.dV.values[unseen * d] != 0);
    const Gradients after = all_gradients(in);
    CHECK(after.dQ.values == before.dQ.values);
    CHECK(after.dK.values == before.dK.values);
    CHECK(after.dV.values == before.dV.values);

    const Gradients of_few_keys =
        all_gradients(windowed_inputs(some_shape(n_k, n_q, window), Values::normal, test_seed()));
    for (std::size_t x = 0; x < (n_k - n_q) * d; ++x) CHECK(of_few_keys.dQ.values[x] == 0);
}

TEST_CASE(
    "windowed backward: the same problem in both types; FLOPs are those of what is seen; NaN is far from the "
    "reference") {
    const Shape s = some_shape(20, 50, 7);
    const Problem problem = windowed_backward::problem_of(s);
    CHECK(shape_of(problem) == s);
    CHECK(problem.operation == &operation());
    CHECK(operation().title(problem) + " f32" == to_string(s));
    CHECK(operation().flops(problem) == 10.0 * 2 * 4 * 20 * 7 * 32);
    std::set<std::string> names;
    for (const Size& size : operation().sizes()) names.insert(size.name);
    CHECK(names == std::set<std::string>{"batch", "heads", "kv_heads", "n_q", "n_k", "head_dim", "window"});
    CHECK(operation().cut_down(operation().problem({{"n_q", 5000}, {"window", 3000}})).sizes.size() == names.size());

    const Data data = operation().inputs(problem, test_seed());
    const Inputs in = inputs_of(data);
    CHECK(in.window == 7);
    CHECK(in.O == windowed_inputs(s, Values::normal, test_seed()).O);
    const Gradients right = all_gradients(in);
    Data outputs{problem};
    for (const auto& [name, gradient] : {std::pair("dQ", &right.dQ), {"dK", &right.dK}, {"dV", &right.dV}})
        outputs.tensors[name].assign(gradient->values.begin(), gradient->values.end());
    const Reference reference = operation().reference(data, 1, 1 << 20);
    CHECK(reference(outputs).passed);
    outputs.tensors["dK"][45 * 32 + 6] = std::numeric_limits<float>::quiet_NaN();
    CHECK_FALSE(reference(outputs).passed);
    CHECK(reference(outputs).description.find("window 7 f32: dK[batch 0 head 0 key 45][6] is nan") !=
          std::string::npos);
}

}  // namespace
}  // namespace flashladder::windowed_backward
