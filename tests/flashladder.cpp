// The C interface of libflashladder.so: what the stages can do comes out as they say it, results as they make them,
// errors as text.
#include "interface/flashladder.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>

#include "harness/dtype.h"
#include "harness/run.h"
#include "launch.h"
#include "operations/attention/inputs.h"
#include "operations/attention/run.h"
#include "operations/attention_backward/run.h"
#include "operations/block_sparse_attention/operation.h"
#include "operations/block_sparse_attention/stage.h"
#include "operations/paged_attention/operation.h"
#include "operations/paged_attention/stage.h"
#include "operations/varlen_attention/operation.h"
#include "operations/varlen_attention/stage.h"
#include "operations/ring_attention/operation.h"
#include "operations/ring_attention/stage.h"
#include "test_seed.h"

namespace flashladder::attention {
namespace {

std::string text(const char* error) { return error ? error : "no error"; }

/// The problem as C has it, with memory and inputs of its own.
struct CProblem {
    Inputs inputs;
    const Stage& stage;
    DeviceProblem device;
    FlashLadderForward c;

    CProblem(const char* name, const AttentionShape& s, bool wants_lse)
        : inputs(make_inputs(s, Values::normal, test_seed())),
          stage(find_stage(name)),
          device(stage, inputs, wants_lse) {
        const ForwardArgs args = device.args();
        c = {name,       to_string(s.dtype), s.batch,    s.heads, s.kv_heads, s.n_q,  s.n_k,
             s.head_dim, s.causal,           args.scale, args.Q,  args.K,     args.V, args.O,
             args.lse,   args.scratch,       nullptr,    {},      {},         {},     {}};
    }

    Outputs outputs() const {
        return {device.O.download(inputs.shape.q_elements(), inputs.shape.dtype),
                device.lse.download(device.wants_lse ? inputs.shape.lse_elements() : 0, DType::f32)};
    }
};

constexpr const char *standard = "00-standard-attention", *swapped = "03-row-swapped-loops";
constexpr const char* bulk = "08-bulk-tensor-copies";  // takes strides

/// A variant, which is no stage of its own.
const Registration variant{{Support{.stage = swapped, .variant = "of the test", .head_dims = {64}},
                            [](const ForwardArgs&) {}, [](const AttentionShape&) -> std::size_t { return 0; }}};

AttentionShape grouped_causal() {
    AttentionShape shape;
    shape.batch = 2, shape.heads = 4, shape.kv_heads = 2, shape.n_q = 33, shape.n_k = 70, shape.causal = true;
    return shape;
}

/// What the JSON says of them all; `own` is what only stages of this operation can do.
template <class S, class Support>
void check_description(const nlohmann::json& all, const S& (*find)(std::string_view), const char* own_name, bool Support::*own) {
    std::size_t expected = 0;
    for (const flashladder::Stage& stage : stages()) expected += dynamic_cast<const S*>(&stage) != nullptr;
    REQUIRE(all.size() == expected);
    for (std::size_t i = 0; i < all.size(); ++i) {
        const Support& s = find(all[i].at("stage").get<std::string>()).supports;
        CHECK(all[i].at("stage") == s.stage);
        CHECK(all[i].at("head_dims") == s.head_dims);
        CHECK(all[i].at("dtypes").at(0) == to_string(s.dtypes[0]));
        CHECK(all[i].at("dtypes").size() == s.dtypes.size());
        CHECK(all[i].at("causal") == s.causal);
        CHECK(all[i].at(own_name) == s.*own);
        CHECK(all[i].at("grouped_query") == s.grouped_query);
        CHECK(all[i].at("strides") == s.strides);
        CHECK(all[i].at("compute_capability") == s.compute_capability);
        CHECK(all[i].at("max_batch_heads") == s.max_batch_heads);
        CHECK(all[i].at("max_n_k") == s.max_n_k);
        const auto form = nlohmann::json::parse(R"([{"variant": "of the test", "head_dims": [64], "lse": false}])");
        CHECK(all[i].at("variants") == (s.stage == swapped ? form : nlohmann::json::array()));
    }
}

TEST_CASE("the stages and what they can do") {
    const char* json = nullptr;
    REQUIRE(text(flashladder_stages(&json)) == "no error");
    check_description(nlohmann::json::parse(json), find_stage, "lse", &Support::lse);
    REQUIRE(text(flashladder_backward_stages(&json)) == "no error");
    const nlohmann::json back = nlohmann::json::parse(json);
    CHECK(back.size() == 2);
    check_description(back, attention_backward::find_stage, "deterministic", &attention_backward::Support::deterministic);
}

TEST_CASE("a stage launched from C agrees with the reference, LSE too") {
    const CProblem problem(swapped, grouped_causal(), true);
    REQUIRE(text(flashladder_forward(&problem.c)) == "no error");
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    const auto rows = rows_to_check(problem.inputs.shape, 1);
    const Comparison c = compare(problem.outputs(), problem.inputs.shape, reference_attention(problem.inputs, rows),
                                 standard_attention(problem.inputs, rows));
    CHECK_MESSAGE(c.passed, c.describe(problem.inputs.shape));
}

TEST_CASE("tensors of the host: the same, with scratch that the stage needs, LSE, and gaps that stay as they are") {
    AttentionShape shape = grouped_causal();
    const char *names[] = {swapped, standard, bulk}, *backend = flashladder_backend();
#ifdef FLASHLADDER_GPU
    CHECK(std::string(backend) == "gpu");
#else
    CHECK(std::string(backend) == "cpu");
#endif
    for (const char* name : names) {
        if (name == bulk && device_attribute(cudaDevAttrComputeCapabilityMajor) < 9) continue;
        CAPTURE(name);
        const bool has_lse = name != standard;
        if (name == standard) shape.causal = false, shape.kv_heads = shape.heads;
        if (name == bulk) shape.dtype = DType::f16;
        const CProblem problem(name, shape, has_lse);
        // A gap of as many elements behind each row of O and K, where the stage takes strides.
        const int gap = name == bulk ? 8 : 0, element = static_cast<int>(bytes_per_element(shape.dtype));
        const auto on_host = [&](const std::vector<float>& values, bool gaps) {
            const int columns = shape.head_dim + (gaps ? gap : 0);
            std::vector<unsigned char> bytes(values.size() / shape.head_dim * columns * element, 0x5A);
            DeviceBuffer plain(values.size() * element);
            plain.upload(values, shape.dtype);
            for (std::size_t row = 0; row < values.size() / shape.head_dim; ++row)
                REQUIRE(cudaMemcpy(&bytes[row * columns * element],
                                   static_cast<char*>(plain.data()) + row * shape.head_dim * element,
                                   shape.head_dim * element, cudaMemcpyDeviceToHost) == cudaSuccess);
            return bytes;
        };
        const auto Q = on_host(problem.inputs.Q, false), K = on_host(problem.inputs.K, true),
                   V = on_host(problem.inputs.V, false);
        auto O = on_host(std::vector<float>(shape.q_elements()), true);
        std::vector<float> lse(has_lse ? shape.lse_elements() : 0);
        FlashLadderForward c = problem.c;
        c.Q = Q.data(), c.K = K.data(), c.V = V.data(), c.O = O.data(), c.lse = has_lse ? lse.data() : nullptr;
        c.scratch = nullptr;
        const long long columns = shape.head_dim + gap;
        const auto with_gaps = [&](long long (&strides)[3], int heads, int rows) {
            strides[0] = heads * rows * columns, strides[1] = rows * columns, strides[2] = columns;
        };
        with_gaps(c.K_strides, shape.kv_heads, shape.n_k), with_gaps(c.O_strides, shape.heads, shape.n_q);
        REQUIRE(text(flashladder_forward_from_host(&c)) == "no error");

        bool gaps_untouched = true;
        std::vector<unsigned char> rows_of_O;
        for (std::size_t i = 0; i < O.size(); ++i) {
            const bool in_gap = static_cast<long long>(i / element % columns) >= shape.head_dim;
            if (in_gap) gaps_untouched &= O[i] == 0x5A;
            if (!in_gap) rows_of_O.push_back(O[i]);
        }
        CHECK(gaps_untouched);
        DeviceBuffer plain(rows_of_O.size());
        REQUIRE(cudaMemcpy(plain.data(), rows_of_O.data(), rows_of_O.size(), cudaMemcpyHostToDevice) == cudaSuccess);
        const auto rows = rows_to_check(shape, 1);
        const Comparison result =
            compare({plain.download(shape.q_elements(), shape.dtype), lse}, shape,
                    reference_attention(problem.inputs, rows), standard_attention(problem.inputs, rows));
        CHECK_MESSAGE(result.passed, result.describe(shape));
    }
}

TEST_CASE("scratch: as many bytes as the stage says") {
    AttentionShape shape;
    shape.n_q = 17, shape.n_k = 19;
    const CProblem problem(standard, shape, false);
    std::size_t bytes = 0;
    REQUIRE(text(flashladder_scratch_bytes(&problem.c, &bytes)) == "no error");
    CHECK(bytes == problem.stage.scratch_bytes(shape));
    CHECK(bytes > 0);
    CHECK(text(flashladder_forward(&problem.c)) == "no error");
}

TEST_CASE("errors are text that names what is wrong") {
    CProblem problem(swapped, grouped_causal(), false);
    std::size_t bytes = 77;
    const auto both = [&](const FlashLadderForward& c) {
        const std::string error = text(flashladder_forward(&c));
        CHECK(flashladder_refused() == 1);
        CHECK(error == text(flashladder_forward_from_host(&c)));
        CHECK(error == text(flashladder_scratch_bytes(&c, &bytes)));
        CHECK(bytes == 77);  // nothing is written where there is nothing to say
        return error;
    };
    FlashLadderForward c = problem.c;
    c.stage = "99-none";
    CHECK(both(c) == "99-none is not in this program");
    c.stage = nullptr;
    CHECK(both(c) == "stage is a null pointer");
    c = problem.c, c.dtype = "f64";
    CHECK(both(c) == "dtype 'f64' is not f32, bf16 or f16");
    c.dtype = nullptr;
    CHECK(both(c) == "dtype is a null pointer");
    c = problem.c, c.head_dim = 80;
    CHECK(both(c) == "03-row-swapped-loops: head_dim 80 is not supported (only 64, 128)");
    c = problem.c, c.stage = standard;  // which is neither causal nor has grouped queries nor LSE
    CHECK(both(c) == "00-standard-attention: causal is not supported (from 03-row-swapped-loops on)");
    float lse;
    c.causal = 0, c.lse = &lse;
    CHECK(both(c) == "00-standard-attention: lse is not supported (from 03-row-swapped-loops on)");
    const auto without = [&](const char* name, auto pointer) {
        c = problem.c, c.*pointer = nullptr;
        for (const auto forward : {flashladder_forward, flashladder_forward_from_host}) {
            CHECK(text(forward(&c)) == std::string("03-row-swapped-loops: ") + name + " is a null pointer");
            CHECK(flashladder_refused() == 1);
        }
    };
    using C = FlashLadderForward;
    without("Q", &C::Q), without("K", &C::K), without("V", &C::V), without("O", &C::O);
    c = problem.c, c.O_strides[0] = 1, c.O_strides[1] = 2, c.O_strides[2] = 3;
    CHECK(text(flashladder_forward(&c)).starts_with("03-row-swapped-loops: O is not contiguous (strides 1, 2, 3 of"));
    for (long long* strides : {problem.c.Q_strides, problem.c.O_strides})  // those of 33 rows, written out
        strides[0] = 4 * 33 * 64, strides[1] = 33 * 64, strides[2] = 64;
    CHECK(text(flashladder_forward(&problem.c)) == "no error");  // and then all is well again
    CHECK(flashladder_refused() == 0);

    c = problem.c, c.n_q = c.n_k = 1 << 30;  // more than any device has: not the stage's refusal
    CHECK(text(flashladder_forward_from_host(&c)).starts_with("allocating "));
    CHECK(flashladder_refused() == 0);
}

constexpr const char *backward_standard = "15-standard-backward", *key_blocks = "17-key-blocks";

/// The gradients of a problem as C asks for them, with memory and inputs of their own.
struct CGradients {
    attention_backward::Inputs inputs;
    const attention_backward::Stage& stage;
    attention_backward::DeviceProblem device;
    FlashLadderBackward c;

    CGradients(const char* name, const AttentionShape& s)
        : inputs(attention_backward::backward_inputs(s, Values::normal, test_seed())),
          stage(attention_backward::find_stage(name)),
          device(stage, inputs) {
        const attention_backward::BackwardArgs a = device.args();
        c = {name, to_string(s.dtype), s.batch, s.heads, s.kv_heads, s.n_q, s.n_k, s.head_dim, s.causal, a.scale,
             a.Q,  a.K,                a.V,     a.O,     a.dO,       a.lse, a.dQ,  a.dK,       a.dV,     a.scratch,
             {},   {},                 {},      {},      {},         {},    {},    {},         {}};
    }

    void check(const attention_backward::Outputs& outputs) const {
        const auto rows = attention_backward::rows_to_check(inputs.shape(), 1, 1 << 20);
        const attention_backward::Comparison result =
            attention_backward::compare(outputs, inputs.shape(), attention_backward::reference_gradients(inputs, rows),
                                        attention_backward::standard_gradients(inputs, rows));
        CHECK_MESSAGE(result.passed, result.describe(inputs.shape()));
    }
};

TEST_CASE("gradients from C agree with the reference, from tensors of the device and of the host") {
    for (const char* name : {backward_standard, key_blocks}) {
        CAPTURE(name);
        AttentionShape shape = grouped_causal();
        shape.causal = name == key_blocks;
        const CGradients problem(name, shape);
        REQUIRE(text(flashladder_backward(&problem.c)) == "no error");
        REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
        problem.check(problem.device.outputs());

        const attention_backward::Inputs& in = problem.inputs;
        attention_backward::Outputs out{std::vector<float>(shape.q_elements()), std::vector<float>(shape.kv_elements()),
                                        std::vector<float>(shape.kv_elements())};
        FlashLadderBackward c = problem.c;
        c.Q = in.forward.Q.data(), c.K = in.forward.K.data(), c.V = in.forward.V.data(), c.O = in.O.data();
        c.dO = in.dO.data(), c.lse = in.lse.data(), c.dQ = out.dQ.data(), c.dK = out.dK.data(), c.dV = out.dV.data();
        c.scratch = nullptr;
        REQUIRE(text(flashladder_backward_from_host(&c)) == "no error");
        problem.check(out);

        std::size_t bytes = 0;
        REQUIRE(text(flashladder_backward_scratch_bytes(&problem.c, &bytes)) == "no error");
        CHECK(bytes == problem.stage.scratch_bytes(shape));
        CHECK(bytes > 0);
    }
}

TEST_CASE("errors of gradients are text that names what is wrong") {
    CGradients problem(key_blocks, grouped_causal());
    std::size_t bytes = 77;
    const auto all = [&](const FlashLadderBackward& c) {
        const std::string error = text(flashladder_backward(&c));
        CHECK(flashladder_refused() == 1);
        CHECK(error == text(flashladder_backward_from_host(&c)));
        CHECK(error == text(flashladder_backward_scratch_bytes(&c, &bytes)));
        CHECK(bytes == 77);
        return error;
    };
    FlashLadderBackward c = problem.c;
    c.stage = swapped;
    CHECK(all(c) == "03-row-swapped-loops does not compute attention's gradients");
    c.stage = nullptr;
    CHECK(all(c) == "stage is a null pointer");
    c = problem.c, c.dtype = "f64";
    CHECK(all(c) == "dtype 'f64' is not f32, bf16 or f16");
    c.dtype = "bf16";
    CHECK(all(c) == "17-key-blocks: dtype bf16 is not supported (only f32)");
    c = problem.c, c.n_k = 0;
    CHECK(all(c) == "17-key-blocks: n_k is 0, but must be at least 1");
    c = problem.c, c.stage = backward_standard;
    CHECK(all(c) == "15-standard-backward: causal is not supported (from 16-recomputation on)");
    const auto refused = [&](const FlashLadderBackward& c) {
        const std::string error = text(flashladder_backward(&c));
        CHECK(flashladder_refused() == 1);
        return error;
    };
    const auto without = [&](const char* name, auto pointer) {
        c = problem.c, c.*pointer = nullptr;
        for (const auto backward : {flashladder_backward, flashladder_backward_from_host}) {
            CHECK(text(backward(&c)) == std::string("17-key-blocks: ") + name + " is a null pointer");
            CHECK(flashladder_refused() == 1);
        }
    };
    using C = FlashLadderBackward;
    without("Q", &C::Q), without("K", &C::K), without("V", &C::V), without("O", &C::O), without("dO", &C::dO);
    without("lse", &C::lse), without("dQ", &C::dQ), without("dK", &C::dK), without("dV", &C::dV);
    c = problem.c, c.scratch = nullptr;
    CHECK(refused(c) == "17-key-blocks: scratch is a null pointer, but 1056 bytes are needed");
    struct Strided { const char* name; long long (C::*strides)[3]; };
    for (const auto& [name, strides] : {Strided{"Q", &C::Q_strides}, {"K", &C::K_strides}, {"V", &C::V_strides},
                                        {"O", &C::O_strides}, {"dO", &C::dO_strides}, {"dQ", &C::dQ_strides},
                                        {"dK", &C::dK_strides}, {"dV", &C::dV_strides}}) {
        c = problem.c;
        long long (&of)[3] = c.*strides;
        of[0] = 1, of[1] = 2, of[2] = 3;
        CHECK(refused(c) == std::string("17-key-blocks: ") + name +
                             " is not contiguous (strides 1, 2, 3 of batch, head, row): no strides are supported");
    }
    CHECK(text(flashladder_backward(&problem.c)) == "no error");
    CHECK(flashladder_refused() == 0);
}

TEST_CASE("gemm from C: a result, its variants, and errors that are text") {
    const char* json = nullptr;
    REQUIRE(text(flashladder_gemm_variants(&json)) == "no error");
    const nlohmann::json variants = nlohmann::json::parse(json);
    CHECK(variants == nlohmann::json({"", "2 slots", "dynamic", "one block each", "sections of 1", "sections of 4", "one section"}));

    constexpr int M = 72, N = 264, K = 80;
    CHECK(text(flashladder_gemm(nullptr, M, N, K, nullptr, nullptr, nullptr, nullptr, nullptr)) ==
          "variant is a null pointer");
    CHECK(text(flashladder_gemm("quick", M, N, K, nullptr, nullptr, nullptr, nullptr, nullptr)) ==
          "14b-gemm: there is no variant 'quick'");
    CHECK(text(flashladder_gemm("", M, 260, K, nullptr, nullptr, nullptr, nullptr, nullptr)) ==
          "14b-gemm: N is 260, but must be a positive multiple of 8");
    CHECK(text(flashladder_gemm("", M, N, K, nullptr, nullptr, nullptr, nullptr, nullptr)) ==
          "14b-gemm: A is a null pointer");
    const DeviceBuffer some(4096);
    CHECK(text(flashladder_gemm("dynamic", 8, 8, 8, some.data(), some.data(), some.data(), nullptr, nullptr)) ==
          "14b-gemm/dynamic: scratch is a null pointer, but 4 bytes are needed");
    if (device_attribute(cudaDevAttrComputeCapabilityMajor) != 9) return;

    std::mt19937_64 random(test_seed());
    const auto whole_numbers = [&](int n) {
        std::vector<float> x(n);
        for (float& value : x) value = float(int(random() % 7)) - 3;
        return x;
    };
    const std::vector<float> A = whole_numbers(M * K), B = whole_numbers(K * N);
    std::vector<float> expected(M * N);
    for (int i = 0; i < M * N; ++i) {
        for (int k = 0; k < K; ++k) expected[i] += A[i / N * K + k] * B[k * N + i % N];
        expected[i] = round_to(DType::bf16, expected[i]);
    }
    DeviceBuffer A_device(A.size() * 2), B_device(B.size() * 2), C_device(expected.size() * 2), scratch(sizeof(unsigned));
    A_device.upload(A, DType::bf16), B_device.upload(B, DType::bf16);
    for (const std::string variant : variants) {
        C_device.fill(0xFF), scratch.fill(0x55);
        REQUIRE(text(flashladder_gemm(variant.c_str(), M, N, K, A_device.data(), B_device.data(), C_device.data(),
                                      variant == "dynamic" ? scratch.data() : nullptr, nullptr)) == "no error");
        REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
        CHECK_MESSAGE(C_device.download(expected.size(), DType::bf16) == expected, "variant '", variant, "'");
    }
}


TEST_CASE("keys in pages, from device memory: what the stage itself does") {
    AttentionShape shape = grouped_causal();
    shape.dtype = DType::bf16, shape.n_q = 3;
    const paged_attention::Pool sizes{.page_size = 16, .pages = 0};
    const Problem problem = paged_attention::problem_of(shape, sizes, true, 1, true);
    const paged_attention::Pool pool = paged_attention::pool_of(problem);
    const Data in = problem.operation->inputs(problem, test_seed());
    const paged_attention::Stage& stage = paged_attention::find_stage("27b-paged");
    const Data expected = run(stage, in);

    const auto uploaded = [](const std::vector<float>& values, DType dtype) {
        DeviceBuffer buffer(values.size() * std::size_t(bytes_per_element(dtype)));
        buffer.upload(values, dtype);
        return buffer;
    };
    const auto ints = [](const std::vector<float>& values) {
        const std::vector<int> numbers(values.begin(), values.end());
        DeviceBuffer buffer(numbers.size() * sizeof(int));
        REQUIRE(cudaMemcpy(buffer.data(), numbers.data(), buffer.bytes(), cudaMemcpyHostToDevice) == cudaSuccess);
        return buffer;
    };
    const DeviceBuffer Q = uploaded(in.tensors.at("Q"), DType::bf16), K = uploaded(in.tensors.at("K"), DType::bf16),
                       V = uploaded(in.tensors.at("V"), DType::bf16), block_table = ints(in.tensors.at("block_table")),
                       lengths = ints(in.tensors.at("lengths"));
    const DeviceBuffer O(shape.q_elements() * 2), lse(shape.lse_elements() * sizeof(float));
    FlashLadderPaged c{};
    c.stage = "27b-paged", c.dtype = "bf16", c.batch = shape.batch, c.heads = shape.heads, c.kv_heads = shape.kv_heads;
    c.n_q = shape.n_q, c.n_k = shape.n_k, c.head_dim = shape.head_dim, c.causal = 1;
    c.scale = 1 / std::sqrt(float(shape.head_dim));
    c.pages = pool.pages, c.page_size = pool.page_size, c.pages_of_sequence = pool.pages_of_sequence;
    c.Q = Q.data(), c.K = K.data(), c.V = V.data(), c.O = O.data(), c.lse = static_cast<float*>(lse.data());
    c.block_table = static_cast<const int*>(block_table.data()), c.lengths = static_cast<const int*>(lengths.data());
    std::size_t bytes = 0;
    REQUIRE(text(flashladder_paged_scratch_bytes(&c, &bytes)) == "no error");
    CHECK(bytes == stage.scratch_bytes(shape));
    const DeviceBuffer scratch(bytes);
    c.scratch = scratch.data();
    REQUIRE(text(flashladder_paged_attention(&c)) == "no error");
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(O.download(shape.q_elements(), DType::bf16) == expected.tensors.at("O"));
    CHECK(lse.download(shape.lse_elements(), DType::f32) == expected.tensors.at("lse"));

    c.page_size = 12;
    const std::string refused = "27b-paged: page_size is 12, but must be a multiple of 8";
    CHECK(text(flashladder_paged_scratch_bytes(&c, &bytes)) == refused);
    CHECK(flashladder_refused() == 1);
    for (const auto function : {flashladder_paged_attention, flashladder_paged_attention_from_host})
        CHECK(text(function(&c)) == refused);
    c.page_size = pool.page_size, c.pages_of_sequence = 1;
    CHECK(text(flashladder_paged_attention(&c)).starts_with("27b-paged: pages_of_sequence is 1, but n_k 70 keys"));
    c.pages_of_sequence = pool.pages_of_sequence, c.lengths = nullptr;
    CHECK(text(flashladder_paged_attention(&c)) == "27b-paged: lengths is a null pointer");
}

TEST_CASE("packed sequences, from device memory and from the host's: what the stage itself does, and lists that are bad") {
    varlen_attention::Shape shape({.heads = 4, .kv_heads = 2, .head_dim = 72, .causal = true, .dtype = DType::bf16}, 40);
    const varlen_attention::Sequences sequences = varlen_attention::sequences_of({30, 0, 71, 5}, {40, 9, 0, 64});
    shape.n_q = sequences.total_q(), shape.n_k = sequences.total_k();
    const Data in = varlen_attention::make_inputs(shape, sequences, Values::normal, test_seed(), true);
    const varlen_attention::Stage& stage = varlen_attention::find_stage("26b-varlen");
    const Data expected = run(stage, in);

    const auto bits = [](const std::vector<float>& values) {
        std::vector<std::uint16_t> all;
        for (const float x : values) all.push_back(to_bits(DType::bf16, x));
        return all;
    };
    const auto Q = bits(in.tensors.at("Q")), K = bits(in.tensors.at("K")), V = bits(in.tensors.at("V"));
    std::vector<std::uint16_t> O(shape.o_elements());
    std::vector<float> lse(shape.lse_elements());
    std::vector<int> of_queries = sequences.cu_seqlens_q, of_keys = sequences.cu_seqlens_k;
    FlashLadderVarlen c{};
    c.stage = "26b-varlen", c.dtype = "bf16", c.sequences = 4, c.heads = 4, c.kv_heads = 2, c.causal = 1;
    c.head_dim = shape.head_dim, c.value_dim = shape.value_dim, c.total_q = shape.n_q, c.total_k = shape.n_k;
    c.scale = float(in.arguments.at("scale"));
    c.Q = Q.data(), c.K = K.data(), c.V = V.data(), c.O = O.data(), c.lse = lse.data();
    c.cu_seqlens_q = of_queries.data(), c.cu_seqlens_k = of_keys.data();
    REQUIRE(text(flashladder_varlen_attention_from_host(&c)) == "no error");
    CHECK(O == bits(expected.tensors.at("O")));
    CHECK(lse == expected.tensors.at("lse"));

    const auto bad_list = [&](int& number, int bad, const std::string& error) {
        const int good = std::exchange(number, bad);
        CHECK(text(flashladder_varlen_attention_from_host(&c)) == "26b-varlen: " + error);
        CHECK(flashladder_refused() == 1);
        number = good;
    };
    bad_list(of_queries[0], 1, "cu_seqlens_q[0] is 1, but must be 0");
    bad_list(of_queries[2], 29, "cu_seqlens_q[2] is 29, but must be at least the one before, 30");
    bad_list(of_keys[4], 112, "cu_seqlens_k[4] is 112, but must be 113, the number of all rows");
    bad_list(c.sequences, 0, "sequences is 0, but must be at least 1");
    bad_list(c.total_q, -1, "total_q is -1, but must be at least 0");
    c.total_q = 0, of_queries = {0, 0, 0, 0, 0}, c.Q = c.O = nullptr;
    c.cu_seqlens_q = of_queries.data();
    CHECK(text(flashladder_varlen_attention_from_host(&c)) == "no error");
    c.total_q = shape.n_q, c.cu_seqlens_q = nullptr, c.Q = Q.data(), c.O = O.data();
    CHECK(text(flashladder_varlen_attention_from_host(&c)) == "26b-varlen: cu_seqlens_q is a null pointer");

    // In device memory.
    const auto uploaded = [](const void* from, std::size_t bytes) {
        DeviceBuffer buffer(bytes);
        REQUIRE(cudaMemcpy(buffer.data(), from, bytes, cudaMemcpyHostToDevice) == cudaSuccess);
        return buffer;
    };
    const DeviceBuffer q = uploaded(Q.data(), Q.size() * 2), k = uploaded(K.data(), K.size() * 2),
                       v = uploaded(V.data(), V.size() * 2), o(O.size() * 2),
                       places_q = uploaded(sequences.cu_seqlens_q.data(), 5 * sizeof(int)),
                       places_k = uploaded(sequences.cu_seqlens_k.data(), 5 * sizeof(int));
    c.Q = q.data(), c.K = k.data(), c.V = v.data(), c.O = o.data(), c.lse = nullptr;
    c.cu_seqlens_q = static_cast<const int*>(places_q.data()), c.cu_seqlens_k = static_cast<const int*>(places_k.data());
    std::size_t bytes = 0;
    REQUIRE(text(flashladder_varlen_scratch_bytes(&c, &bytes)) == "no error");
    CHECK(bytes == stage.scratch_bytes(shape, 4));
    const DeviceBuffer scratch(bytes);
    c.scratch = scratch.data();
    REQUIRE(text(flashladder_varlen_attention(&c)) == "no error");
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(o.download(O.size(), DType::bf16) == expected.tensors.at("O"));
    c.value_dim = 260;
    CHECK(text(flashladder_varlen_scratch_bytes(&c, &bytes)).starts_with("26b-varlen: value_dim 260"));
    c.head_dim = 84;
    CHECK(text(flashladder_varlen_scratch_bytes(&c, &bytes)).starts_with("26b-varlen: head_dim 84"));
}

TEST_CASE("a ring: as the stage itself, all ranks at once and round by round; what it cannot do it says") {
    AttentionShape shape = grouped_causal();
    shape.dtype = DType::bf16, shape.n_q = shape.n_k = 120;
    constexpr int ranks = 2;
    const Problem problem = ring_attention::problem_of(shape, ranks, true);
    const Data in = problem.operation->inputs(problem, test_seed());
    const ring_attention::Stage& stage = ring_attention::find_stage("27c-ring");
    const Data expected = run(stage, in);
    const AttentionShape shard = ring_attention::shard_of(shape, ranks);
    const flashladder::DeviceProblem device(stage, in), rounds(stage, in);

    std::vector<const void*> Q, K, V;
    std::vector<void*> O, scratch, streams(ranks, nullptr);
    std::vector<float*> lse;
    const std::vector<int> devices(ranks, 0);
    std::size_t bytes = 0;
    FlashLadderRing c{};
    c.stage = "27c-ring", c.dtype = "bf16", c.batch = shape.batch, c.heads = shape.heads, c.kv_heads = shape.kv_heads;
    c.n = shape.n_q, c.head_dim = shape.head_dim, c.causal = 1, c.scale = float(in.arguments.at("scale")), c.ranks = ranks;
    REQUIRE(text(flashladder_ring_scratch_bytes(&c, &bytes)) == "no error");
    CHECK(bytes == stage.scratch_bytes(shape, ranks));
    const auto part = [&](const flashladder::DeviceProblem& of, const char* name, std::size_t elements, std::size_t size, int g) {
        return static_cast<char*>(of.data().tensors.at(name)) + std::size_t(g) * elements * size;
    };
    for (int g = 0; g < ranks; ++g) {
        Q.push_back(part(device, "Q", shard.q_elements(), 2, g)), K.push_back(part(device, "K", shard.kv_elements(), 2, g));
        V.push_back(part(device, "V", shard.kv_elements(), 2, g)), O.push_back(part(device, "O", shard.q_elements(), 2, g));
        lse.push_back(reinterpret_cast<float*>(part(device, "lse", shard.lse_elements(), 4, g)));
        scratch.push_back(static_cast<char*>(device.data().scratch) + std::size_t(g) * bytes);
    }
    c.devices = devices.data(), c.Q = Q.data(), c.K = K.data(), c.V = V.data(), c.O = O.data(), c.lse = lse.data();
    c.scratch = scratch.data();
    CHECK(text(flashladder_ring_attention(&c)) == "27c-ring: streams is a null pointer");
    CHECK(flashladder_refused() == 1);
    c.streams = streams.data();
    REQUIRE(text(flashladder_ring_attention(&c)) == "no error");
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    for (const char* name : {"O", "lse"}) CHECK(device.outputs().tensors.at(name) == expected.tensors.at(name));

    for (int g = 0; g < ranks; ++g)
        for (int round = 0; round < ranks; ++round) {
            const int other = (g - round + ranks) % ranks;
            FlashLadderRingRound r{};
            r.stage = c.stage, r.dtype = c.dtype, r.batch = c.batch, r.heads = c.heads, r.kv_heads = c.kv_heads, r.n = c.n;
            r.head_dim = c.head_dim, r.causal = 1, r.scale = c.scale, r.ranks = ranks, r.rank = g, r.round = round;
            std::size_t of_round = 0;
            REQUIRE(text(flashladder_ring_round_scratch_bytes(&r, &of_round)) == "no error");
            CHECK(of_round <= bytes);
            r.Q = Q[std::size_t(g)], r.K = K[std::size_t(other)], r.V = V[std::size_t(other)];
            r.O = part(rounds, "O", shard.q_elements(), 2, g);
            r.lse = reinterpret_cast<float*>(part(rounds, "lse", shard.lse_elements(), 4, g));
            r.scratch = static_cast<char*>(rounds.data().scratch) + std::size_t(g) * bytes;
            REQUIRE(text(flashladder_ring_round(&r)) == "no error");
            r.round = ranks;
            CHECK(text(flashladder_ring_round(&r)) == "27c-ring: round is 2, but there are 2");
        }
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    for (const char* name : {"O", "lse"}) CHECK(rounds.outputs().tensors.at(name) == expected.tensors.at(name));

    c.n = 122;
    CHECK(text(flashladder_ring_attention(&c)).starts_with("27c-ring: n is 122, but must be a multiple of 4"));
}

TEST_CASE("lists of blocks: as the stage itself, from device and host; what it cannot do it says") {
    AttentionShape shape = grouped_causal();
    shape.dtype = DType::bf16, shape.n_q = 140, shape.n_k = 300;
    const Problem problem = block_sparse_attention::problem_of(shape, {.density = 50, .per_head = true}, true);
    const Data in = problem.operation->inputs(problem, test_seed());
    const block_sparse_attention::Stage& stage = block_sparse_attention::find_stage("26-block-lists");
    const Data expected = run(stage, in);
    const block_sparse_attention::Lists lists = block_sparse_attention::inputs_of(in).lists;
    const flashladder::DeviceProblem device(stage, in);
    const auto at = [&](const char* name) { return device.data().tensors.at(name); };

    FlashLadderBlockSparse c{};
    c.stage = "26-block-lists", c.dtype = "bf16", c.batch = shape.batch, c.heads = shape.heads, c.kv_heads = shape.kv_heads;
    c.n_q = shape.n_q, c.n_k = shape.n_k, c.head_dim = shape.head_dim, c.causal = 1, c.list_heads = shape.heads;
    c.scale = 1 / std::sqrt(float(shape.head_dim));
    c.Q = at("Q"), c.K = at("K"), c.V = at("V"), c.O = at("O"), c.lse = static_cast<float*>(at("lse"));
    c.first = static_cast<const int*>(at("first")), c.blocks = static_cast<const int*>(at("blocks"));
    std::size_t bytes = 0;
    REQUIRE(text(flashladder_block_sparse_scratch_bytes(&c, &bytes)) == "no error");
    CHECK(bytes == stage.scratch_bytes(shape));
    c.scratch = device.data().scratch;
    REQUIRE(text(flashladder_block_sparse_attention(&c)) == "no error");
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    const Data found = device.outputs();
    CHECK(found.tensors.at("O") == expected.tensors.at("O"));
    CHECK(found.tensors.at("lse") == expected.tensors.at("lse"));

    FlashLadderBlockSparse of_host = c;
    std::vector<std::uint16_t> Q(shape.q_elements()), K(shape.kv_elements()), V(shape.kv_elements()), O(shape.q_elements());
    for (const auto& [host, name] : {std::pair(&Q, "Q"), {&K, "K"}, {&V, "V"}})
        REQUIRE(cudaMemcpy(host->data(), at(name), host->size() * 2, cudaMemcpyDeviceToHost) == cudaSuccess);
    std::vector<float> lse(shape.lse_elements());
    of_host.Q = Q.data(), of_host.K = K.data(), of_host.V = V.data(), of_host.O = O.data(), of_host.lse = lse.data();
    of_host.first = lists.first.data(), of_host.blocks = lists.blocks.data(), of_host.scratch = nullptr;
    REQUIRE(text(flashladder_block_sparse_attention_from_host(&of_host)) == "no error");
    CHECK(lse == expected.tensors.at("lse"));
    for (std::size_t x = 0; x < O.size(); ++x)
        REQUIRE(std::bit_cast<float>(std::uint32_t(O[x]) << 16) == expected.tensors.at("O")[x]);

    std::vector<int> bad = lists.blocks;
    bad.back() = 3;
    of_host.blocks = bad.data();
    CHECK(text(flashladder_block_sparse_attention_from_host(&of_host)) ==
          fmt::format("26-block-lists: blocks[{}] is 3, but blocks of keys are 0 to 2", bad.size() - 1));
    CHECK(flashladder_refused() == 1);
    c.list_heads = 3;
    CHECK(text(flashladder_block_sparse_scratch_bytes(&c, &bytes)) ==
          "26-block-lists: list_heads is 3, but must be 1 or heads 4");
    c.list_heads = 1, c.first = nullptr;
    CHECK(text(flashladder_block_sparse_attention(&c)) == "26-block-lists: first is a null pointer");
}

}  // namespace
}  // namespace flashladder::attention
