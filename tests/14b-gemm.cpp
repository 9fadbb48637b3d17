// The GEMM of rung 14, the template's other kernel: against products in double, in all variants, and what it refuses.
#include "harness/gemm.h"

#include <doctest/doctest.h>

#include <cmath>
#include <stdexcept>

#include "../emulator/device_array.h"
#include "../ptx/elements.h"
#include "../test_seed.h"
#include "few_multiprocessors.h"
#include "template_cases.h"

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#endif

namespace flashladder {
namespace {

struct Size {
    int M, N, K;
};
constexpr int guard = 4096;            // elements behind C, which nobody may touch
constexpr std::uint16_t nan = 0xFFFF;  // poison, in bf16

Bits16 run_gemm(const std::string& variant, const Size& s, const Bits16& A, const Bits16& B) {
    const DeviceArray<std::uint16_t> A_device(A), B_device(B), C(Bits16(std::size_t(s.M) * s.N + guard, nan));
    const DeviceArray<unsigned> scratch(std::vector<unsigned>{98765});  // whatever was there
    gemm({s.M, s.N, s.K, A_device.data(), B_device.data(), C.data(), scratch.data(), nullptr, variant});
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
    if (!has_sm90a()) return;
#ifndef FLASHLADDER_GPU
    const FewMultiprocessors few(2);
#endif
    Random random(test_seed());
    for (const Size& s : sizes()) {
        const Bits16 A = whole_elements(random, Element::bf16, std::size_t(s.M) * s.K),
                     B = whole_elements(random, Element::bf16, std::size_t(s.K) * s.N);
        const std::vector<double> expected = product(s, A, B).sum;
        for (const std::string& variant : gemm_variants()) {
            INFO("variant '", variant, "', ", s.M, " x ", s.N, " x ", s.K);
            const Bits16 found = run_gemm(variant, s, A, B);
            std::size_t wrong = 0;  // sums of whole numbers are exact in float, and then rounded once
            for (std::size_t i = 0; i < expected.size(); ++i)
                wrong += found[i] != to_bits(Element::bf16, float(expected[i]));
            CHECK(wrong == 0);
            check_guard(found, expected.size());
        }
    }
}

TEST_CASE("gemm: other numbers, within the rounding of float and of the result") {
    if (!has_sm90a()) return;
    Random random(test_seed());
    const Size s{200, 264, 328};
    const Bits16 A = normal_elements(random, Element::bf16, std::size_t(s.M) * s.K),
                 B = normal_elements(random, Element::bf16, std::size_t(s.K) * s.N);
    const Product expected = product(s, A, B);
    const Bits16 found = run_gemm("", s, A, B);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < expected.sum.size(); ++i) {
        const double error = std::fabs(from_bits(Element::bf16, found[i]) - expected.sum[i]);
        const double in_float = expected.size[i] * 0x1p-20;  // a tensor core drops digits where float arithmetic rounds
        wrong += !(error <= std::fabs(expected.sum[i]) * 0x1p-8 + in_float);
    }
    CHECK(wrong == 0);
}

/// The line with which it is refused.
std::string refusal(const GemmArgs& args) {
    try {
        gemm(args);
    } catch (const std::invalid_argument& error) {
        return error.what();
    }
    return "(no refusal)";
}

TEST_CASE("gemm: refuses what it cannot do in one line that names it") {
    const DeviceArray<std::uint16_t> matrix(4096);
    GemmArgs good{64, 64, 64, matrix.data(), matrix.data(), matrix.data()};
    for (const auto& [name, size] : {std::pair("M", &GemmArgs::M), {"N", &GemmArgs::N}, {"K", &GemmArgs::K}})
        for (const int bad : {0, -8, 4, 65, 68}) {
            GemmArgs args = good;
            args.*size = bad;
            CHECK(refusal(args) == "gemm: " + std::string(name) + " is " + std::to_string(bad) +
                                       ", but must be a positive multiple of 8");
        }
    good.variant = "dynamic";
    CHECK(refusal(good) == "gemm: the variant 'dynamic' needs a word of scratch");
    good.variant = "fast";
    CHECK(refusal(good) == "gemm: there is no variant 'fast'");
}

TEST_CASE("gemm: the variants, and that the first is the kernel itself") {
    const std::vector<std::string> variants = gemm_variants();
    REQUIRE(variants.size() == 7);
    CHECK(variants.front() == "");
}

#ifndef FLASHLADDER_GPU
TEST_CASE("gemm: no races, by any of several seeds") {
    const FewMultiprocessors few(2);
    Random random(test_seed());
    const Size s{264, 264, 136};  // six tasks of three steps: blocks go through their rings three times and more
    for (const std::string& variant : gemm_variants())
        for (int i = 0; i < 2; ++i) {
            emulator::reseed(test_seed() + std::uint64_t(i));
            const Bits16 A = whole_elements(random, Element::bf16, std::size_t(s.M) * s.K),
                         B = whole_elements(random, Element::bf16, std::size_t(s.K) * s.N);
            const std::string report = emulator::find_race([&] { run_gemm(variant, s, A, B); });
            CHECK_MESSAGE(report == "", variant, ": ", report);
        }
}
#endif

}  // namespace
}  // namespace flashladder
