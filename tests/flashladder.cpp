// The C interface of libflashladder.so: what the stages can do comes out as they say it, results as they make them,
// errors as text.
#include "interface/flashladder.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "harness/dtype.h"
#include "launch.h"
#include "operations/attention/inputs.h"
#include "operations/attention/run.h"
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

TEST_CASE("the stages and what they can do") {
    const char* json = nullptr;
    REQUIRE(text(flashladder_stages(&json)) == "no error");
    const nlohmann::json all = nlohmann::json::parse(json);
    REQUIRE(all.size() == stages().size() - 1);  // one multiplies matrices
    for (std::size_t i = 0; i < all.size(); ++i) {
        const Support& s = find_stage(all[i].at("stage").get<std::string>()).supports;
        CHECK(all[i].at("stage") == s.stage);
        CHECK(all[i].at("head_dims") == s.head_dims);
        CHECK(all[i].at("dtypes").at(0) == to_string(s.dtypes[0]));
        CHECK(all[i].at("dtypes").size() == s.dtypes.size());
        CHECK(all[i].at("causal") == s.causal);
        CHECK(all[i].at("lse") == s.lse);
        CHECK(all[i].at("grouped_query") == s.grouped_query);
        CHECK(all[i].at("strides") == s.strides);
        CHECK(all[i].at("compute_capability") == s.compute_capability);
        CHECK(all[i].at("max_batch_heads") == s.max_batch_heads);
        CHECK(all[i].at("max_n_k") == s.max_n_k);
        const auto form = nlohmann::json::parse(R"([{"variant": "of the test", "head_dims": [64]}])");
        CHECK(all[i].at("variants") == (s.stage == swapped ? form : nlohmann::json::array()));
    }
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

}  // namespace
}  // namespace flashladder::attention
