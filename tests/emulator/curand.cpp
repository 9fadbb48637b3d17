// Philox by its published known answers, and cuRAND's device functions by what curand_kernel.h of CUDA 13.0 gives,
// which was compiled as host code.
#include <cuda_runtime.h>
#include <curand_kernel.h>
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace flashladder {
namespace {

using State = curandStatePhilox4_32_10_t;
using Numbers = std::vector<unsigned>;

Numbers numbers(uint4 x) { return {x.x, x.y, x.z, x.w}; }
Numbers next(State& state, int n) {
    Numbers result;
    for (int i = 0; i < n; ++i) result.push_back(curand(&state));
    return result;
}
State start(std::uint64_t seed, std::uint64_t subsequence, std::uint64_t offset) {
    State state;
    curand_init(seed, subsequence, offset, &state);
    return state;
}
bool near(double x, double y) { return x == doctest::Approx(y).epsilon(1e-6); }

TEST_CASE("philox: the known answers of Random123") {
    CHECK(numbers(curand_Philox4x32_10({0, 0, 0, 0}, {0, 0})) ==
          Numbers{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8});
    CHECK(numbers(curand_Philox4x32_10({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u})) ==
          Numbers{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD});
    CHECK(numbers(curand_Philox4x32_10({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, {0xA4093822, 0x299F31D0})) ==
          Numbers{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1});
}

TEST_CASE("curand_init, curand, curand4, skipahead") {
    State state = start(1234, 5, 6);
    CHECK(next(state, 5) == Numbers{0x32773955, 0x72C26332, 0x26A9BD1B, 0xD88ECB0D, 0x088F2111});
    CHECK(numbers(curand4(&state)) == Numbers{0xD1E85602, 0xC19C9FA2, 0x382FE640, 0x52A90F84});

    State far = start(0xFEDCBA9876543210, ~0ull, ~0ull);
    CHECK(next(far, 3) == Numbers{0x534F67D9, 0x181684B3, 0xEBF38473});

    State skipped = start(7, 0xFFFFFFFF, 3);
    skipahead(0x40000000FF, &skipped);
    CHECK(curand(&skipped) == 0x5EF51FC4);
    skipahead_sequence(2, &skipped);
    CHECK(curand(&skipped) == 0xAE8A1977);
}

TEST_CASE("curand: however a sequence is taken, it is one") {
    State around = start(99, 1, 5);
    for (int i = 0; i < 8; ++i) skipahead(1ull << 63, &around);  // a whole subsequence
    State second = start(99, 2, 5);
    CHECK(next(around, 5) == next(second, 5));

    State one = start(99, 1, 0);
    const Numbers all = next(one, 64);
    for (int offset = 0; offset < 24; ++offset) {
        State state = start(99, 1, 0);
        skipahead(offset / 2, &state);
        skipahead(offset - offset / 2, &state);
        State same = start(99, 1, offset);
        for (int i = offset; i < offset + 20; i += 5) {
            CHECK(numbers(curand4(&state)) == Numbers(all.begin() + i, all.begin() + i + 4));
            CHECK(curand(&state) == all[i + 4]);
            CHECK(next(same, 5) == Numbers(all.begin() + i, all.begin() + i + 5));
        }
    }
}

TEST_CASE("curand_uniform: the values") {
    State state = start(1234, 5, 15);  // behind nine numbers
    CHECK(curand_uniform(&state) == 0x1.961b6ep-2f);
    const float4 four = curand_uniform4(&state);
    CHECK(four.x == 0x1.fd3e2cp-1f);
    CHECK(four.y == 0x1.3c28f8p-1f);
    CHECK(four.z == 0x1.1a253ap-3f);
    CHECK(four.w == 0x1.63a1b6p-2f);
    CHECK(curand_uniform_double(&state) == 0x1.85485f6p-3);
    const double2 two = curand_uniform2_double(&state);
    CHECK(two.x == 0x1.609d227bb1694p-1);
    CHECK(two.y == 0x1.2f26c34c5e7c4p-1);
    CHECK(emulator::uniform(0) == 0x1p-33f);  // (0, 1]
    CHECK(emulator::uniform(~0u) == 1);
}

TEST_CASE("curand_normal: sines and cosines in cuRAND's order") {
    State state = start(1234, 5, 6);
    for (const double x : {0.575401485, -1.70782888, -1.60174739}) CHECK(near(curand_normal(&state), x));
    const float2 two = curand_normal2(&state);  // the fourth number is still kept
    CHECK(near(two.x, -2.35920811));
    CHECK(near(two.y, 1.10928023));
    const float4 four = curand_normal4(&state);
    CHECK(near(four.x, 0.733725607));
    CHECK(near(four.y, 0.142447397));
    CHECK(near(four.z, 0.909671724));
    CHECK(near(four.w, -1.19723487));
    const double2 doubles = curand_normal2_double(&state);
    CHECK(doubles.x == doctest::Approx(0.80407271216380793).epsilon(1e-12));
    CHECK(doubles.y == doctest::Approx(-0.56357728952576613).epsilon(1e-12));
    CHECK(curand_normal_double(&state) == doctest::Approx(-1.8007454948594441).epsilon(1e-12));
    CHECK(curand_normal_double(&state) == doctest::Approx(0.52930449201524443).epsilon(1e-12));
}

}  // namespace
}  // namespace flashladder
