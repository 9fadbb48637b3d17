// The template's other kernel: against products in double, in all variants, and what it refuses.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "emulator/device_array.h"
#include "harness/dtype.h"
#include "harness/run.h"
#include "operations/gemm/operation.h"
#include "operations/gemm/stage.h"
#include "ptx/elements.h"
#include "test_seed.h"

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#include "harness/counts.h"
#include "lcsf/few_multiprocessors.h"
#endif

namespace flashladder::gemm {
namespace {

using Size = Shape;
constexpr int guard = 4096;            // elements behind C, which nobody may touch
constexpr std::uint16_t nan = 0xFFFF;  // poison, in bf16

/// The stage under test, and its variants.
std::vector<const Stage*> forms() {
    std::vector<const Stage*> all = {&find_stage("14b-gemm")};
    for (const flashladder::Stage& form : variants()) all.push_back(&find_stage(form.name()));
    return all;
}

Bits16 run_gemm(const Stage& stage, const Size& s, const Bits16& A, const Bits16& B) {
    const DeviceArray<std::uint16_t> A_device(A), B_device(B), C(Bits16(std::size_t(s.M) * s.N + guard, nan));
    const DeviceArray<unsigned> scratch(std::vector<unsigned>{98765});  // whatever was there
    stage.launch(Args{s, A_device.data(), B_device.data(), C.data(), scratch.data()});
    check_cuda(cudaDeviceSynchronize(), "gemm");
    return C.download();
}

/// Sums in double; and of absolute values, which errors are measured by.
struct Product {
    std::vector<double> sum, size;
};
Product product(const Size& s, const Bits16& A, const Bits16& B) {
    Product C{std::vector<double>(std::size_t(s.M) * s.N), std::vector<double>(std::size_t(s.M) * s.N)};
    std::vector<double> b;
    for (const auto bits : B) b.push_back(from_bits(Element::bf16, bits));
    for (int i = 0; i < s.M; ++i)
        for (int k = 0; k < s.K; ++k) {
            const double a = from_bits(Element::bf16, A[std::size_t(i) * s.K + k]);
            for (int j = 0; j < s.N; ++j) {
                const double x = a * b[std::size_t(k) * s.N + j];
                C.sum[std::size_t(i) * s.N + j] += x, C.size[std::size_t(i) * s.N + j] += std::fabs(x);
            }
        }
    return C;
}

void check_guard(const Bits16& found, std::size_t elements) {
    std::size_t touched = 0;
    for (std::size_t i = elements; i < found.size(); ++i) touched += found[i] != nan;
    CHECK(touched == 0);
}

/// Sizes that divide nothing, and such that blocks have several tasks. On a GPU that takes many.
std::vector<Size> sizes() {
    std::vector<Size> all = {{8, 8, 8}, {64, 256, 64}, {200, 264, 72}, {136, 520, 328}, {776, 264, 16}};
#ifdef FLASHLADDER_GPU
    all.push_back({2056, 4104, 200});
#endif
    return all;
}

TEST_CASE("gemm: whole numbers exactly, whatever the size, by every variant; nothing behind the end of C") {
#ifndef FLASHLADDER_GPU
    const FewMultiprocessors few(2);
#endif
    Random random(test_seed());
    for (const Size& s : sizes()) {
        const Bits16 A = whole_elements(random, Element::bf16, std::size_t(s.M) * s.K),
                     B = whole_elements(random, Element::bf16, std::size_t(s.K) * s.N);
        const std::vector<double> expected = product(s, A, B).sum;
        for (const Stage* form : forms()) {
            INFO(form->name(), ", ", to_string(s));
            const Bits16 found = run_gemm(*form, s, A, B);
            std::size_t wrong = 0;  // sums of whole numbers are exact in float, and then rounded once
            for (std::size_t i = 0; i < expected.size(); ++i)
                wrong += found[i] != to_bits(Element::bf16, float(expected[i]));
            CHECK(wrong == 0);
            check_guard(found, expected.size());
        }
    }
}

TEST_CASE("gemm: other numbers, within the rounding of float and of the result") {
    Random random(test_seed());
    const Size s{200, 264, 328};
    const Bits16 A = normal_elements(random, Element::bf16, std::size_t(s.M) * s.K),
                 B = normal_elements(random, Element::bf16, std::size_t(s.K) * s.N);
    const Product expected = product(s, A, B);
    const Bits16 found = run_gemm(*forms().front(), s, A, B);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < expected.sum.size(); ++i) {
        const double error = std::fabs(from_bits(Element::bf16, found[i]) - expected.sum[i]);
        const double in_float = expected.size[i] * 0x1p-20;  // a tensor core drops digits where float arithmetic rounds
        wrong += !(error <= std::fabs(expected.sum[i]) * 0x1p-8 + in_float);
    }
    CHECK(wrong == 0);
}

/// The line with which it is refused.
std::string refusal(const Stage& stage, const Args& args) {
    try {
        stage.launch(args);
    } catch (const std::invalid_argument& error) {
        return error.what();
    }
    return "(no refusal)";
}

TEST_CASE("gemm: refuses what it cannot do in one line that names it") {
    const Stage& stage = *forms().front();
    const DeviceArray<std::uint16_t> matrix(4096);
    const Args good{{64, 64, 64}, matrix.data(), matrix.data(), matrix.data()};
    for (const auto& [name, size] : {std::pair("M", &Shape::M), {"N", &Shape::N}, {"K", &Shape::K}})
        for (const int bad : {0, -8, 4, 65, 68}) {
            Args args = good;
            args.shape.*size = bad;
            CHECK(refusal(stage, args) == "14b-gemm: " + std::string(name) + " is " + std::to_string(bad) +
                                              ", but must be a positive multiple of 8");
        }
    Args args = good;
    args.B = nullptr;
    CHECK(refusal(stage, args) == "14b-gemm: B is a null pointer");
    args.B = matrix.data() + 1;
    CHECK(refusal(stage, args).find("14b-gemm: B is at ") == 0);
    CHECK(refusal(find_stage("14b-gemm/dynamic"), good) ==
          "14b-gemm/dynamic: scratch is a null pointer, but 4 bytes are needed");
    CHECK(stage.why_unsupported(problem_of({64, 64, 64}).in(DType::f16)) ==
          "14b-gemm: dtype f16 is not supported (only bf16)");
    CHECK_THROWS_WITH(find_stage("14b-gemm/fast"), "14b-gemm/fast is not in this program");
    CHECK(forms().size() == 7);
}

TEST_CASE("gemm: harness and tools see the same, and a number that is not right") {
    const Operation& op = operation();
    const Problem asked = op.problem({{"M", 200}, {"N", 264}, {"K", 72}}, DType::bf16);
    const Data inputs = op.inputs(asked, test_seed());
    Data outputs = run(*forms().front(), inputs);
    const Reference reference = op.reference(inputs, 1, 1 << 20);
    const Judgement right = reference(outputs);
    CHECK_MESSAGE(right.passed, right.description);
    CHECK(right.error > 0);
    std::vector<float>& C = outputs.tensors.at("C");
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    for (const float wrong : {nan, -nan, C[7 * 264 + 5] + 1}) {
        Data other = outputs;
        other.tensors.at("C")[7 * 264 + 5] = wrong;
        const Judgement j = reference(other);
        CHECK(!j.passed);
        CHECK_MESSAGE(j.description.find("C[7][5] is " + found_text(wrong)) != std::string::npos, j.description);
    }
}

#ifndef FLASHLADDER_GPU
TEST_CASE("gemm: each tile of A and B is asked for by TMA as often as tasks need it, C leaves once") {
    const Shape s{256, 512, 192};  // tasks are 128 x 256, steps 64
    const Stage& stage = *forms().front();
    const auto counts = count_stage(stage, operation().inputs(problem_of(s), test_seed()));
    const auto bytes = [&](const char* name) { return counts.tensors.at(name); };
    CHECK(bytes("A").read.requested_bytes == 2u * 2 * 256 * 192);  // for two columns of tasks
    CHECK(bytes("B").read.requested_bytes == 2u * 2 * 512 * 192);  // for two rows
    CHECK(bytes("C").written.requested_bytes == 2u * 256 * 512);
    CHECK(counts.work.total().all_shared().conflicts == 0);
    CHECK(counts.work.total().matrix_flops == std::uint64_t(s.flops()));
}
#endif

#ifndef FLASHLADDER_GPU
TEST_CASE("gemm: no races, by any of several seeds") {
    const FewMultiprocessors few(2);
    Random random(test_seed());
    const Size s{264, 264, 136};  // six tasks of three steps: blocks go through their rings three times and more
    for (const Stage* form : forms())
        for (int i = 0; i < 2; ++i) {
            emulator::reseed(test_seed() + std::uint64_t(i));
            const Bits16 A = whole_elements(random, Element::bf16, std::size_t(s.M) * s.K),
                         B = whole_elements(random, Element::bf16, std::size_t(s.K) * s.N);
            const std::string report = emulator::find_race([&] { run_gemm(*form, s, A, B); });
            CHECK_MESSAGE(report == "", form->name(), ": ", report);
        }
}
#endif

}  // namespace
}  // namespace flashladder::gemm
