// The checks that every rung of the way back passes, whatever its idea: its gradients are attention's, for every shape it
// accepts, and it refuses the others in words.
#include "attention_backward_suite.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/dtype.h"
#include "launch.h"

namespace flashladder::attention_backward {
namespace {

using attention::Judge;

const Support& supports() { return stage_under_test().supports; }

/// The dtypes and head dimensions that the stage supports, over and over.
DType dtype_number(std::size_t i) { return supports().dtypes[i % supports().dtypes.size()]; }
int head_dim_number(std::size_t i) { return supports().head_dims[i % supports().head_dims.size()]; }

bool can(const AttentionShape& shape) { return why_unsupported(stage_under_test(), shape).empty(); }

/// With so many heads that there are 32 rows of each gradient: the worst of one or two is mere luck.
AttentionShape with_enough_rows(AttentionShape shape) {
    const int rows = shape.batch * std::min(shape.heads * shape.n_q, shape.kv_heads * shape.n_k), times = (32 + rows - 1) / rows;
    shape.heads *= times;
    shape.kv_heads *= times;
    return shape;
}

void check_agrees(const AttentionShape& asked, Values values = Values::normal, Judge judge = Judge::both_rules) {
    const AttentionShape shape = with_enough_rows(asked);
    if (!can(shape)) return;
    const std::string wrong = fault(backward_inputs(shape, values, test_seed()), judge);
    CHECK_MESSAGE(wrong.empty(), wrong);
}

TEST_CASE("agrees with the reference: normal values, lengths that divide nothing") {
    // Pairs of lengths around multiples of warps and tiles, a fourth of them a run; and those that others have met.
    const std::array lengths{1, 31, 32, 33, drawn_length(64, 60, 140, 0), drawn_length(128, 180, 260, 1)};
    std::size_t turn = test_seed();
    const auto check_pair = [&](int n_q, int n_k) {
        AttentionShape shape = shape_of(1 + static_cast<int>(turn % 3), n_q, n_k, head_dim_number(turn));
        if (n_q * n_k < 5000) shape.batch = 1 + static_cast<int>(turn / 2 % 3);
        if (n_q * n_k > 30000) shape.heads = shape.kv_heads = 1;
        shape.dtype = dtype_number(turn / 2);
        ++turn;
        check_agrees(shape);
    };
    for (std::size_t a = 0; a < lengths.size(); ++a)
        for (std::size_t b = 0; b < lengths.size(); ++b)
            if ((a + 2 * b + test_seed()) % 4 == 0) check_pair(lengths[a], lengths[b]);
    const std::pair<int, int> met[] = {{113, 203}, {108, 256}, {2, 1}, {511, 1}, {3, 513}, {1, 1}, {191, 193}, {127, 129}};
    for (std::size_t i = 0; i < std::size(met); ++i)
        if (i % 2 == test_seed() % 2) check_pair(met[i].first, met[i].second);
    check_pair(300, 1000);
}

TEST_CASE("agrees with the reference: peaky rows, a maximum that grows with j, a large common offset") {
    std::size_t turn = test_seed();
    for (const auto& [values, judge] : {std::pair(Values::peaky, Judge::both_rules),
                                        {Values::growing_maximum, Judge::both_rules},
                                        {Values::large_offset, Judge::worst_row_only}})
        for (const auto& [n_q, n_k] : {std::pair(33, 200), {130, 70}}) {
            AttentionShape shape = shape_of(2, n_q, n_k, head_dim_number(turn));
            shape.dtype = dtype_number(turn++ / 2);
            check_agrees(shape, values, judge);
        }
}

TEST_CASE("agrees with the reference: whatever the scale") {
    std::size_t turn = test_seed();
    for (const float scale : {0.3f, -0.125f, 0.0f}) {
        AttentionShape shape = shape_of(1, 70, 130, head_dim_number(turn));
        shape.dtype = dtype_number(turn++ / 2);
        Inputs in = backward_inputs(shape, Values::normal, test_seed());
        in.forward.scale = scale;
        const std::string wrong = fault(with_forward_pass(in.forward, in.dO));
        CHECK_MESSAGE(wrong.empty(), fmt::format("args.scale is {}: {}", scale, wrong));
    }
}

TEST_CASE("agrees with the reference: causal, also where queries see nothing") {
    std::size_t turn = test_seed();
    for (const auto& [n_q, n_k] : {std::pair(1, 1),
                                   {65, 65},
                                   {drawn_length(64, 63, 200, 0), 64},
                                   {64, 64 + drawn_length(32, 1, 150, 1)},
                                   {40 + drawn_length(32, 1, 150, 2), 40},
                                   {300, 1},
                                   {1, 300}}) {
        AttentionShape shape = shape_of(2, n_q, n_k, head_dim_number(turn));
        shape.dtype = dtype_number(turn++ / 2);
        shape.causal = true;
        check_agrees(shape, turn % 2 ? Values::normal : Values::growing_maximum);
    }
}

TEST_CASE("agrees with the reference: grouped queries, whose gradients of K and V are sums") {
    std::size_t turn = test_seed();
    for (const auto& [heads, kv_heads] : {std::pair(6, 3), {8, 1}, {5, 1}})
        for (const bool causal : {false, true}) {
            AttentionShape shape = shape_of(heads, 70, 90, head_dim_number(turn));
            shape.dtype = dtype_number(turn++ / 2);
            shape.batch = 2;
            shape.kv_heads = kv_heads;
            shape.causal = causal;
            check_agrees(shape);
        }
}

/// Some problems for what holds whatever the numbers.
std::vector<AttentionShape> some_shapes() {
    std::vector<AttentionShape> all;
    for (const bool causal : {false, true}) {
        AttentionShape shape = shape_of(2, drawn_length(64, 50, 140, 3), drawn_length(64, 50, 140, 4), head_dim_number(causal));
        shape.causal = causal;
        if (supports().grouped_query) shape.kv_heads = 1;
        if (can(shape)) all.push_back(shape);
    }
    return all;
}

double norm(const std::vector<float>& x) {
    double sum = 0;
    for (const float value : x) sum += double(value) * value;
    return std::sqrt(sum);
}
double product(const std::vector<float>& a, const std::vector<float>& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += double(a[i]) * b[i];
    return sum;
}

TEST_CASE("agrees with the reference: any strides") {
    if (!supports().strides) return;
    std::size_t turn = test_seed();
    for (const attention::Layout layout : {attention::Layout::sequence_first, attention::Layout::padded})
        for (const int head_dim : supports().head_dims)
            for (const auto& [n_q, n_k] : {std::pair(64, 128), {100, 257}, {200, 33}, {8, 300}}) {
                AttentionShape shape = shape_of(n_q * n_k < 10000 ? 4 : 2, n_q, n_k, head_dim);
                shape.batch = 2, shape.dtype = dtype_number(++turn), shape.causal = turn / 2 % 2;
                if (supports().grouped_query) shape.kv_heads = shape.heads / 2;
                const Inputs in = backward_inputs(shape, Values::normal, test_seed());
                const std::string wrong = fault(in, Judge::both_rules, attention::to_string(layout), layout);
                CHECK_MESSAGE(wrong.empty(), wrong);
                if (!wrong.empty()) return;
            }
}

TEST_CASE("identities: keys share out dO among their values, and what they gain from a query they lose together") {
    for (const AttentionShape& shape : some_shapes()) {
        const Inputs in = backward_inputs(shape, Values::normal, test_seed());
        const Outputs out = run(stage_under_test(), in);
        const double allowed = allowed_gradient_error(shape.dtype);
        const std::size_t d = static_cast<std::size_t>(shape.head_dim), n_k = static_cast<std::size_t>(shape.n_k),
                          n_q = static_cast<std::size_t>(shape.n_q) * std::size_t(shape.heads / shape.kv_heads);
        const std::string where = attention::to_string(shape);
        for (std::size_t head = 0; head < std::size_t(shape.batch) * shape.kv_heads; ++head)
            for (std::size_t x = 0; x < d; ++x) {
                double dV = 0, dK = 0, dO = 0;
                for (std::size_t j = head * n_k; j < (head + 1) * n_k; ++j) dV += out.dV[j * d + x], dK += out.dK[j * d + x];
                for (std::size_t i = head * n_q; i < (head + 1) * n_q; ++i)
                    if (in.lse[i] > -std::numeric_limits<float>::infinity()) dO += in.dO[i * d + x];
                // If each gradient is within the rule, no sum over keys is further off than this.
                const double root = allowed * std::sqrt(double(n_k));
                CHECK_MESSAGE((std::abs(dV - dO) <= root * norm(out.dV)),
                              fmt::format("dV over all keys is {:.6g} in column {}, expected {:.6g}, that is dO over all queries "
                                          "with a key: each row of P is to sum to 1 ({})", dV, x, dO, where));
                CHECK_MESSAGE((std::abs(dK) <= root * norm(out.dK)),
                              fmt::format("dK over all keys is {:.6g} in column {}, expected 0: each row of dS is to sum to 0 ({})",
                                          dK, x, where));
            }
        const double by_Q = product(in.forward.Q, out.dQ), by_K = product(in.forward.K, out.dK);
        CHECK_MESSAGE((std::abs(by_Q - by_K) <= allowed * (norm(in.forward.Q) * norm(out.dQ) + norm(in.forward.K) * norm(out.dK))),
                      fmt::format("sum Q dQ is {:.6g}, and sum K dK {:.6g}: both are sum S dS ({})", by_Q, by_K, where));
    }
}

/// Inputs with dO times a factor; O and LSE do not care for it.
Inputs times(Inputs in, float factor) {
    for (float& x : in.dO) x *= factor;
    return in;
}

TEST_CASE("identities: dO = 0 gives 0, twice dO twice the gradients, to the bit") {
    for (const AttentionShape& shape : some_shapes()) {
        const Inputs in = backward_inputs(shape, Values::normal, test_seed());
        const Outputs once = run(stage_under_test(), in), none = run(stage_under_test(), times(in, 0)),
                      twice = run(stage_under_test(), times(in, 2));
        const auto check_each = [&](const char* name, std::vector<float> expected, const std::vector<float>& doubled,
                                    const std::vector<float>& zeros) {
            const auto other = std::ranges::find_if(zeros, [](float x) { return !(x == 0); });
            CHECK_MESSAGE((other == zeros.end()), fmt::format("{} is {} with dO = 0, expected 0", name, *other));
            for (float& x : expected) x *= 2;
            const auto [a, b] = std::ranges::mismatch(doubled, expected);
            CHECK_MESSAGE((a == doubled.end()), fmt::format("{}[{}] is {:.9g} with twice dO, expected {:.9g}, twice what it was", name,
                                                            a - doubled.begin(), *a, *b));
        };
        if (supports().deterministic) check_each("dQ", once.dQ, twice.dQ, none.dQ);
        check_each("dK", once.dK, twice.dK, none.dK);
        check_each("dV", once.dV, twice.dV, none.dV);
    }
}

TEST_CASE("with one key no score moves a weight: dQ and dK are 0, but for rounding, and dV is the sum of dO") {
    for (const int d : supports().head_dims) check_agrees(shape_of(2, drawn_length(32, 20, 100, 5), 1, d));
}

// What tiles are multiplied whole has 0 where a query does not see a key, and 0 times NaN is NaN: keys that share a tile with one
// that the query sees may have it too, as with FlashAttention's kernels. No tile is larger than 128 keys.
TEST_CASE("NaN in a row of dO is NaN in that row of dQ, in dK and dV of the keys it sees, in no other row of dQ, no far key") {
    constexpr std::size_t most_keys = 256;  // of a tile, and one of queries
    for (const bool causal : {false, true}) {
        AttentionShape shape = shape_of(2, 150, 450, head_dim_number(test_seed() + causal));
        shape.causal = causal;
        if (!can(shape)) continue;
        Inputs in = backward_inputs(shape, Values::normal, test_seed());
        constexpr std::size_t row = 3;  // of the first head
        const std::size_t d = static_cast<std::size_t>(shape.head_dim), n_k = static_cast<std::size_t>(shape.n_k);
        const std::size_t keys = causal ? row + 1 + n_k - static_cast<std::size_t>(shape.n_q) : n_k;
        std::fill_n(in.dO.begin() + row * d, d, std::numeric_limits<float>::quiet_NaN());
        const Outputs out = run(stage_under_test(), in);
        const auto check_rows = [&](const char* name, const std::vector<float>& found, auto must, auto may) {
            for (std::size_t x = 0; x < found.size(); x += d / 2) {
                const bool expected = must(x / d);
                if (std::isnan(found[x]) == expected || (!expected && may(x / d))) continue;
                FAIL_CHECK(fmt::format("{}: query {} alone has NaN in dO; {}[row {}][{}] is {}, expected {}",
                                       attention::to_string(shape), row, name, x / d, x % d, found[x],
                                       expected ? "nan" : "a number"));
                return;
            }
        };
        const auto seen = [&](std::size_t j) { return j < keys; };
        const auto near = [&](std::size_t j) { return j < std::min(keys - 1 + most_keys, n_k); };  // of the first head
        check_rows("dQ", out.dQ, [&](std::size_t i) { return i == row; }, [](std::size_t) { return false; });
        check_rows("dK", out.dK, seen, near);
        check_rows("dV", out.dV, seen, near);
    }
}

TEST_CASE("gives the same again, whatever its scratch and its outputs hold, also in a launch behind another one") {
    const Inputs in = backward_inputs(shape_of(2, 100, 150, head_dim_number(test_seed())), Values::normal, test_seed());
    const Outputs expected = run(stage_under_test(), in);
    DeviceProblem problem(stage_under_test(), in);
    for (const int garbage : {0xFF, 0x7F, 0x01}) {
        problem.scratch.fill(garbage), problem.dQ.fill(garbage), problem.dK.fill(garbage), problem.dV.fill(garbage);
        for (int launched = 0; launched < 2; ++launched) {
            stage_under_test().launch(problem.args());
            check_cuda(cudaDeviceSynchronize(), "launch");
            Outputs found = problem.outputs();
            if (!supports().deterministic) {
                const RowsToCheck rows = rows_to_check(in.shape(), 1, 64);
                const Comparison c = compare(found, in.shape(), reference_gradients(in, rows), standard_gradients(in, rows));
                CHECK_MESSAGE(c.passed, c.describe(in.shape()));
                found.dQ = expected.dQ;
            }
            check_same_bits(found, expected, fmt::format("the first time; scratch and outputs were filled with {:#x}, launch {}",
                                                         garbage, launched));
        }
    }
}

TEST_CASE("refuses what it does not support, naming stage, limit and value") {
    const Stage& stage = stage_under_test();
    const Inputs inputs = backward_inputs(shape_of(2, 8, 8, 64), Values::normal, 1);
    const DeviceProblem problem(stage, inputs);
    const auto check_refusal = check_refusal_of(stage, problem.args());
    check_refusal([](auto& a) { a.shape.head_dim = 80; }, "head_dim 80");
    check_refusal([](auto& a) { a.shape.batch = 0; }, "batch is 0");
    check_refusal([](auto& a) { a.shape.heads = -1; }, "heads is -1");
    check_refusal([](auto& a) { a.shape.n_q = 0; }, "n_q is 0");
    check_refusal([](auto& a) { a.shape.n_k = -5; }, "n_k is -5");
    check_refusal([](auto& a) { a.shape.batch = a.shape.heads = a.shape.kv_heads = 1 << 20; },
                  "batch * heads is 1099511627776");
    check_refusal([](auto& a) { a.shape.kv_heads = 3; }, "kv_heads 3");
    const std::pair<const char*, std::function<void(BackwardArgs&)>> missing[] = {
        {"Q", [](auto& a) { a.Q = nullptr; }},   {"K", [](auto& a) { a.K = nullptr; }},
        {"V", [](auto& a) { a.V = nullptr; }},   {"O", [](auto& a) { a.O = nullptr; }},
        {"dO", [](auto& a) { a.dO = nullptr; }}, {"lse", [](auto& a) { a.lse = nullptr; }},
        {"dQ", [](auto& a) { a.dQ = nullptr; }}, {"dK", [](auto& a) { a.dK = nullptr; }},
        {"dV", [](auto& a) { a.dV = nullptr; }}};
    for (const auto& [name, without] : missing) check_refusal(without, fmt::format("{} is a null pointer", name));
    check_refusal([](auto& a) { a.scale = std::numeric_limits<float>::quiet_NaN(); }, "scale is nan");
    if (stage.scratch_bytes(inputs.shape()) > 0)
        check_refusal([](auto& a) { a.scratch = nullptr; }, "scratch is a null pointer");
    if (supports().max_n_k > 0) check_refusal([](auto& a) { a.shape.n_k = 2000000000; }, "n_k is 2000000000");
    if (!supports().causal) check_refusal([](auto& a) { a.shape.causal = true; }, "causal");
    if (!supports().grouped_query) check_refusal([](auto& a) { a.shape.kv_heads = 1; }, "grouped queries");
    const auto moved = [](const void* p, int bytes) { return static_cast<const unsigned char*>(p) + bytes; };
    check_refusal([=](auto& a) { a.Q = moved(a.Q, 8); }, "Q is at ");
    check_refusal([=](auto& a) { a.dO = moved(a.dO, 4); }, "not aligned to 16 bytes");
    check_refusal([=](auto& a) { a.dK = const_cast<unsigned char*>(moved(a.dK, 8)); }, "dK is at ");
    const std::pair<const char*, std::function<void(BackwardArgs&, const Strides&)>> strided[] = {
        {"Q", [](auto& a, auto& s) { a.Q_strides = s; }},   {"K", [](auto& a, auto& s) { a.K_strides = s; }},
        {"V", [](auto& a, auto& s) { a.V_strides = s; }},   {"O", [](auto& a, auto& s) { a.O_strides = s; }},
        {"dO", [](auto& a, auto& s) { a.dO_strides = s; }}, {"dQ", [](auto& a, auto& s) { a.dQ_strides = s; }},
        {"dK", [](auto& a, auto& s) { a.dK_strides = s; }}, {"dV", [](auto& a, auto& s) { a.dV_strides = s; }}};
    for (const auto& [name, with] : strided)
        if (supports().strides)
            check_refusal([&, &with = with](auto& a) { with(a, {1024, 512, 65}); }, fmt::format("{} has a row stride of 65", name));
        else
            check_refusal([&, &with = with](auto& a) { with(a, {2 * 8 * 64, 64, 2 * 64}); }, fmt::format("{} is not contiguous", name));
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
        if (!std::ranges::count(supports().dtypes, dtype))
            check_refusal([=](auto& a) { a.shape.dtype = dtype; }, to_string(dtype));
}

#ifndef FLASHLADDER_GPU
// Looking for races takes several times as long, so not every case does.
TEST_CASE("has no races") {
    for (const int head_dim : supports().head_dims)
        for (const bool causal : {false, true}) {
            AttentionShape shape = shape_of(2, causal ? 150 : 70, causal ? 100 : 200, head_dim);
            shape.causal = causal;
            if (supports().grouped_query) shape.kv_heads = 1;
            if (!can(shape)) continue;
            const Inputs inputs = backward_inputs(shape, Values::normal, test_seed());
            const std::string report = emulator::find_race([&] { run(stage_under_test(), inputs); });
            CHECK_MESSAGE(report.empty(), report);
        }
}
#endif

std::string behind(const std::string& what, const std::string& numbers) { return what.empty() ? numbers : what + "; " + numbers; }

}  // namespace

const Stage& stage_under_test() { return find_stage(stages().front().get().name()); }

AttentionShape shape_of(int heads, int n_q, int n_k, int head_dim) {
    AttentionShape shape;
    shape.heads = shape.kv_heads = heads;
    shape.n_q = n_q;
    shape.n_k = n_k;
    shape.head_dim = head_dim;
    shape.dtype = stage_under_test().supports.dtypes.front();
    return shape;
}

std::string fault(const Inputs& inputs, Judge judge, const std::string& what, attention::Layout layout) {
    try {
        const Comparison result = check(stage_under_test(), inputs, judge, std::size_t(1) << 20, layout);
        return result.passed ? "" : behind(what, result.describe(inputs.shape()));
    } catch (const CudaError& error) {  // which has nothing to do with `what`
        return error.what();
    }
}

std::string fault_of(const std::string& gradient, const Inputs& inputs, Judge judge, const std::string& what) {
    try {
        Comparison result = check(stage_under_test(), inputs, judge);
        for (auto& [name, other] : {std::pair<std::string, GradientComparison*>{"dQ", &result.dQ}, {"dK", &result.dK}, {"dV", &result.dV}})
            if (name != gradient) *other = {}, other->passed = true;
        return result.dQ.passed && result.dK.passed && result.dV.passed ? "" : behind(what, result.describe(inputs.shape()));
    } catch (const CudaError& error) {
        return error.what();
    }
}

void check_gradients(const Inputs& in, const std::string& what, Judge judge) {
    const std::string wrong = fault(in, judge, what);
    CHECK_MESSAGE(wrong.empty(), wrong);
}

void check_gradient(const std::string& gradient, const Inputs& in, const std::string& what, Judge judge) {
    const std::string wrong = fault_of(gradient, in, judge, what);
    CHECK_MESSAGE(wrong.empty(), wrong);
}

void check_no_race([[maybe_unused]] const Inputs& in) {
#ifndef FLASHLADDER_GPU
    const std::string report = emulator::find_race([&] { run(stage_under_test(), in); });
    CHECK_MESSAGE(report.empty(), report);
#endif
}

AttentionShape causal(AttentionShape shape) {
    shape.causal = true;
    return shape;
}
AttentionShape grouped(AttentionShape shape) {
    shape.kv_heads = 1;
    return shape;
}
AttentionShape of_batches(int batches, AttentionShape shape) {
    shape.batch = batches;
    return shape;
}

std::string of_few([[maybe_unused]] int multiprocessors) {
#ifdef FLASHLADDER_GPU
    return "";
#else
    return fmt::format(" on {} multiprocessor{}", multiprocessors, multiprocessors == 1 ? "" : "s");
#endif
}

std::vector<AttentionShape> shapes_of_several_blocks(int head_dim, std::uint64_t turn) {
    const AttentionShape shape =
        shape_of(2, drawn_length(64, 33, 150, turn), drawn_length(64, 100, 200, turn + 1), head_dim);
    return {causal(shape), grouped(shape)};
}

#ifndef FLASHLADDER_GPU
const emulator::Work& work_of(const StageCounts& counts, const std::string& kernel) {
    static const emulator::Work none;
    for (const auto& launch : counts.work.launches)
        if (launch.kernel.find(kernel) != std::string::npos) return launch.total;
    FAIL_CHECK(fmt::format("no kernel {} was launched", kernel));
    return none;
}

void check_whatever_order() {
    AttentionShape shape = shape_of(2, drawn_length(64, 65, 150, 0), drawn_length(64, 129, 260, 1), 64);
    shape.causal = test_seed() % 2 == 0;
    shape.kv_heads = 1;
    const Inputs in = backward_inputs(shape, Values::normal, test_seed());
    const RowsToCheck rows = rows_to_check(shape, 1, 1000);
    const Gradients reference = reference_gradients(in, rows), standard = standard_gradients(in, rows);
    const Outputs first = run(stage_under_test(), in);
    for (std::uint64_t order = 1; order <= 6; ++order) {
        emulator::reseed(100 * test_seed() + order);
        Outputs found = run(stage_under_test(), in);
        const Comparison compared = compare(found, shape, reference, standard);
        CHECK_MESSAGE(compared.passed, compared.describe(shape));
        found.dQ = first.dQ;  // whose last bits depend on it
        check_same_bits(found, first, "in another order of the blocks");
    }
    emulator::reseed(test_seed());
}
#endif

void check_same_bits(const Outputs& found, const Outputs& expected, const std::string& than) {
    const auto check_one = [&](const char* name, const std::vector<float>& now, const std::vector<float>& before) {
        REQUIRE(now.size() == before.size());
        const auto [a, b] = std::ranges::mismatch(now, before);  // a NaN differs from itself
        CHECK_MESSAGE((a == now.end()), fmt::format("{} has other bits than {}: element {} is {:.9g}, expected {:.9g}", name, than,
                                                    a - now.begin(), a == now.end() ? 0 : *a, b == before.end() ? 0 : *b));
    };
    check_one("dQ", found.dQ, expected.dQ);
    check_one("dK", found.dK, expected.dK);
    check_one("dV", found.dV, expected.dV);
}

void check_lengths_near_edges(int (*queries_of_a_step)(int d), int (*keys_of_a_block)(int d), int most_queries) {
    for (const int d : {64, 128})
        for (const bool is_causal : {false, true, true}) {
            const std::uint64_t turn = static_cast<std::uint64_t>(d + is_causal);
            AttentionShape shape = shape_of(2, drawn_length(queries_of_a_step(d), 20, most_queries, turn),
                                            drawn_length(keys_of_a_block(d), 20, 300, turn + 1), d);
            shape.causal = is_causal;
            shape.batch = 2;
            shape.dtype = test_seed() % 2 ? DType::bf16 : DType::f16;
            check_gradients(backward_inputs(grouped(shape), Values::normal, test_seed()), "lengths near edges");
        }
}

void check_hidden_keys_reach_nobody(AttentionShape shape, int seen, int queries) {
    shape.causal = true;
    const std::size_t d = static_cast<std::size_t>(shape.head_dim);
    Inputs in = backward_inputs(shape, Values::normal, test_seed());
    try {
        const Outputs expected = run(stage_under_test(), in);
        for (auto* tensor : {&in.forward.K, &in.forward.V})
            std::fill(tensor->begin() + seen * static_cast<std::ptrdiff_t>(d), tensor->end(), std::numeric_limits<float>::quiet_NaN());
        const Outputs found = run(stage_under_test(), in);
        const auto check_rows = [&](const char* name, const std::vector<float>& now, const std::vector<float>& before, int rows,
                                    const char* why) {
            for (std::size_t x = 0; x < static_cast<std::size_t>(rows) * d; ++x)
                if (!(now[x] == before[x])) {
                    FAIL_CHECK(fmt::format("{} of row {} is {} with NaN in K and V from key {} on, expected {} as before: {}", name,
                                           x / d, now[x], seen, before[x], why));
                    return;
                }
        };
        check_rows("dQ", found.dQ, expected.dQ, queries, "the query sees none of these");
        check_rows("dK", found.dK, expected.dK, seen, "other keys do not change it");
        check_rows("dV", found.dV, expected.dV, seen, "other keys do not change it");
    } catch (const CudaError& error) {
        FAIL_CHECK(std::string(error.what()));
    }
}

}  // namespace flashladder::attention_backward
