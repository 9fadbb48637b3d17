// wgmma: descriptors with every swizzle and many distances, A from shared memory and from registers, both major-nesses.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "../test_seed.h"
#include "elements.h"
#include "recorded.h"

namespace flashladder {
namespace {

constexpr unsigned shared_base = 1024;  // dynamic shared memory begins at a multiple of it: swizzles see nothing below

/// Which element of the window is element (mn, k) of the matrix, as the PTX manual's layouts have it: swizzling acts on
/// the byte's address.
std::size_t place(const DescriptorFields& d, bool mn_major, unsigned mn, unsigned k) {
    const unsigned chunks = d.swizzle == 0 ? 1 : 1u << d.swizzle;  // in a row of the swizzle
    const unsigned row = 16 * chunks;
    unsigned byte = shared_base + d.start;
    if (mn_major) {
        const unsigned group = mn / 8;  // of 8 contiguous elements
        byte += mn % 8 * 2 + k % 8 * row;
        byte += d.swizzle == 0 ? group * d.stride + k / 8 * d.leading
                               : group % chunks * 16 + group / chunks * d.leading + k / 8 * d.stride;
    } else {
        byte += k % 8 * 2 + mn % 8 * row + mn / 8 * d.stride + k / 8 * (d.swizzle == 0 ? d.leading : 16);
    }
    byte ^= (byte >> 7 & (chunks - 1)) << 4;
    return (byte - shared_base) / 2;
}

std::vector<double> expected_product(const WgmmaCase& c, const Bits16& memory, const Bits16& a_registers) {
    std::vector<double> D(std::size_t(64 * c.n), 0.0);
    for (unsigned step = 0; step < 2; ++step) {
        DescriptorFields a = c.a, b = c.b;
        a.start += step * c.a_step;
        b.start += step * c.b_step;
        for (unsigned k = 0; k < 16; ++k) {
            std::vector<double> B(std::size_t(c.n));
            for (int j = 0; j < c.n; ++j) B[j] = from_bits(c.element, memory[place(b, c.b_mn_major, unsigned(j), k)]);
            for (unsigned i = 0; i < 64; ++i) {
                const std::uint16_t bits =
                    c.a_in_registers ? a_registers[i * 32 + step * 16 + k] : memory[place(a, c.a_mn_major, i, k)];
                const double x = from_bits(c.element, bits);
                for (int j = 0; j < c.n; ++j) D[i * c.n + j] += x * B[j];
            }
        }
    }
    return D;
}

std::string describe(const DescriptorFields& d, bool mn_major) {
    return (mn_major ? "mn " : "k ") + std::to_string(d.swizzle) + " start " + std::to_string(d.start) + " leading " +
           std::to_string(d.leading) + " stride " + std::to_string(d.stride);
}

std::string describe(const WgmmaCase& c) {
    const std::string a = c.a_in_registers ? "registers" : describe(c.a, c.a_mn_major);
    return std::string(c.element == Element::bf16 ? "bf16" : "f16") + " n " + std::to_string(c.n) + ", A " + a +
           ", B " + describe(c.b, c.b_mn_major);
}

void check_exact(const WgmmaCase& c, Random& random, bool record) {
    INFO(describe(c));
    const Bits16 memory = whole_elements(random, c.element, wgmma_window),
                 a = whole_elements(random, c.element, 64 * 32);
    const Floats found = multiply_in_warpgroup(c, memory, a);
    const std::vector<double> expected = expected_product(c, memory, a);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < found.size(); ++i) wrong += !(found[i] == expected[i]);
    CHECK(wrong == 0);
    if (record) check_recorded("wgmma " + describe(c), found);
}

constexpr unsigned a_start = 49152;  // behind every B
const DescriptorFields plain_a{a_start, 16, 1024, 3};

/// The grid: each list alone, for the element types and widths in turn.
std::vector<WgmmaCase> grid() {
    std::vector<WgmmaCase> cases;
    for (const int n : {64, 128})
        for (const bool b_mn : {false, true}) {
            const auto add = [&](DescriptorFields a, bool a_mn, DescriptorFields b, bool a_in_registers) {
                const Element element = cases.size() % 3 == 2 ? Element::f16 : Element::bf16;
                cases.push_back({element, n, a_mn, b_mn, a_in_registers, a, b, 32, 32});
            };
            for (int swizzle = 0; swizzle <= 3; ++swizzle)
                for (const unsigned leading : {16u, 128u, 4096u})
                    for (const unsigned stride : {256u, 512u, 1024u}) {
                        add(plain_a, false, {0, leading, stride, swizzle}, false);
                        add({}, false, {0, leading, stride, swizzle}, true);
                    }
            for (const unsigned start : {16u, 32u, 96u, 128u, 256u, 1024u, 2048u, 2176u})
                for (const int swizzle : {1, 3}) add(plain_a, false, {start, 8192, 1024, swizzle}, start % 64 == 0);
            for (const bool a_mn : {false, true})
                for (int swizzle = 0; swizzle <= 3; ++swizzle)
                    for (const unsigned start : {0u, 64u, 384u})
                        add({a_start + start, start == 64 ? 4096u : 128u, 512u << swizzle % 2, swizzle}, a_mn,
                            {0, 8192, 1024, 3}, false);
        }
    for (const int n : {176, 192})
        for (const Element element : {Element::bf16, Element::f16}) {
            cases.push_back({element, n, false, false, false, plain_a, {0, 16, 1024, 3}, 32, 32});
            cases.push_back({element, n, false, true, true, {}, {0, 8192, 1024, 3}, 32, 2048});
            cases.push_back({element, n, true, true, false, {a_start, 8192, 1024, 3}, {0, 8192, 1024, 3}, 2048, 2048});
            cases.push_back({element, n, false, false, true, {}, {0, 16, 512, 2}, 32, 32});
        }
    return cases;
}

/// Other widths, of which one ends within a panel. Not in the grid, of which docs/results has what a GPU made of it.
std::vector<WgmmaCase> other_widths() {
    std::vector<WgmmaCase> cases;
    for (const int n : {96, 256})
        for (const Element element : {Element::bf16, Element::f16})
            for (const bool b_mn : {false, true}) {
                const DescriptorFields b{0, b_mn ? 8192u : 16u, 1024, 3};
                const unsigned b_step = b_mn ? 2048 : 32;
                cases.push_back({element, n, false, b_mn, true, {}, b, 32, b_step});
                cases.push_back({element, n, false, b_mn, false, plain_a, b, 32, b_step});
                cases.push_back({element, n, true, b_mn, false, {a_start, 8192, 1024, 3}, b, 2048, b_step});
            }
    return cases;
}

TEST_CASE("wgmma: 96 and 256 columns, whichever way A and B come") {
    if (device_architecture() != 90) return;
    Random random(test_seed());
    for (const WgmmaCase& c : other_widths()) check_exact(c, random, false);
}

TEST_CASE("wgmma: a descriptor that is moved has another address and nothing else new") {
    Random random(test_seed());
    for (int time = 0; time < 50; ++time) {
        const std::uint64_t bits = (random() & ~std::uint64_t(0xFFFF)) | random() % 0x2000;  // an address below 2^17
        const unsigned bytes = unsigned(random() % 0x1000) * 16;
        const std::uint64_t moved = move_descriptor(bits, bytes);
        CHECK((moved >> 14) == (bits >> 14));
        CHECK((moved & 0x3FFF) == (bits & 0x3FFF) + bytes / 16);
    }
    CHECK((move_descriptor(0x4000'0040'FFFF'FFFF, 16) >> 32) == 0x4000'0040);  // whatever becomes of the low half
}

TEST_CASE("wgmma: whole numbers are multiplied and added exactly, wherever descriptors say that they are") {
    if (device_architecture() != 90) return;
    Random random(recorded_seed);
    for (const WgmmaCase& c : grid()) check_exact(c, random, true);
}

TEST_CASE("wgmma: fresh numbers") {
    if (device_architecture() != 90) return;
    Random random(test_seed());
    const std::vector<WgmmaCase> cases = grid();
    for (int time = 0; time < 20; ++time) check_exact(cases[random() % cases.size()], random, false);
}

TEST_CASE("wgmma: other numbers within the rounding of float") {
    if (device_architecture() != 90) return;
    Random random(test_seed());
    for (const Element element : {Element::bf16, Element::f16})
        for (const bool a_in_registers : {false, true}) {
            const WgmmaCase c{element, 128, false, true, a_in_registers, plain_a, {0, 8192, 1024, 3}, 32, 2048};
            const Bits16 memory = normal_elements(random, element, wgmma_window);
            const Bits16 a = normal_elements(random, element, 64 * 32);
            const Floats found = multiply_in_warpgroup(c, memory, a);
            const std::vector<double> expected = expected_product(c, memory, a);
            for (std::size_t i = 0; i < found.size(); ++i) REQUIRE(!(std::fabs(found[i] - expected[i]) > 5e-5));
        }
}

}  // namespace
}  // namespace flashladder
