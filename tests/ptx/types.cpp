// bfloat16 and half precision: every value, and rounding to nearest even, on the host, in kernels and by ptx::pack.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "../number_format.h"
#include "../test_seed.h"
#include "kernels.h"
#include "recorded.h"

namespace flashladder {
namespace {

/// Of every 16-bit number: itself, the middle between it and the next one, and the floats beside that.
Floats awkward_numbers(const Format& format) {
    Floats x;
    for (int bits = 0; bits < 0x10000; ++bits) {
        const double value = value_of(std::uint16_t(bits), format), next = value_of(std::uint16_t(bits + 1), format);
        x.push_back(float(value));
        const auto middle = float((value + next) / 2);
        if (!std::isfinite(middle)) continue;
        x.insert(x.end(), {std::nextafter(middle, -INFINITY), middle, std::nextafter(middle, INFINITY)});
    }
    x.insert(x.end(), {65519.996f, 65520.0f, -65520.0f, std::numeric_limits<float>::max(), 3.3961775e38f, 1e-45f,
                       -1e-45f, std::bit_cast<float>(0x7F800001u), std::bit_cast<float>(0xFFC12345u)});
    return x;
}

void check_conversions(const Floats& x) {
    const Conversions found = convert(x);
    for (std::size_t i = 0; i < x.size(); ++i) {
        INFO("i ", i, ", x ", x[i]);
        const double bf16 = rounded(x[i], bf16_format), f16 = rounded(x[i], f16_format);
        REQUIRE(same(value_of(found.bf16[i], bf16_format), bf16));
        REQUIRE(same(value_of(found.f16[i], f16_format), f16));
        REQUIRE(same(found.from_bf16[i], bf16));
        REQUIRE(same(found.from_f16[i], f16));
        const std::size_t next = (i + 1) % x.size();
        REQUIRE(found.bf16_pairs[i] == (found.bf16[i] | std::uint32_t(found.bf16[next]) << 16));
        REQUIRE(found.f16_pairs[i] == (found.f16[i] | std::uint32_t(found.f16[next]) << 16));
        REQUIRE(found.bf16_packed[i] == found.bf16_pairs[i]);
        REQUIRE(found.f16_packed[i] == found.f16_pairs[i]);
        // The host's functions are the same ones.
        REQUIRE(same(__bfloat162float(__float2bfloat16_rn(x[i])), bf16));
        REQUIRE(same(__half2float(__float2half_rn(x[i])), f16));
    }
}

TEST_CASE("types: every 16-bit number, and every tie between two of them") {
    const Floats near_bf16 = awkward_numbers(bf16_format), near_f16 = awkward_numbers(f16_format);
    check_conversions(near_bf16);
    check_conversions(near_f16);
    const Conversions bf16 = convert(near_bf16), f16 = convert(near_f16);
    check_recorded("types bf16", bf16.bf16_pairs);
    check_recorded("types f16", f16.f16_pairs);
    check_recorded("types bf16", bf16.bf16_packed);  // one checksum for both: the instruction is the same
    check_recorded("types f16", f16.f16_packed);
}

TEST_CASE("types: random floats") {
    std::mt19937_64 random(test_seed());
    Floats x(200000);
    for (float& value : x) value = std::bit_cast<float>(std::uint32_t(random()));
    for (std::size_t i = 0; i < x.size(); i += 2)
        x[i] = std::ldexp(float(random() % 100000) - 50000, int(random() % 60) - 40);
    check_conversions(x);
}

}  // namespace
}  // namespace flashladder
