// What a thread may read and write: constants, parameters, its own variables, vectors and structs in device and shared
// memory. And what is there before anyone has written: poison.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "../test_seed.h"
#include "device_array.h"
#include "launch.h"

namespace flashladder {
namespace {

// ---- constants and parameters

__constant__ const int primes[] = {2, 3, 5, 7, 11, 13, 17, 19};
static const float halves[] = {0.5f, 0.25f, 0.125f};
constexpr double thirds[] = {1.0 / 3, 2.0 / 3};

__global__ void read_constants(int i, double* result) {
    static const int local[] = {100, 200, 300};
    const char* text = "flash";
    result[0] = primes[i];
    result[1] = halves[i % 3];
    result[2] = thirds[i % 2];
    result[3] = local[i % 3];
    result[4] = text[i % 5];
}

TEST_CASE("memory: constants, wherever they are declared") {
    for (int i = 0; i < 8; ++i) {
        const DeviceArray<double> result(5);
        launch_kernel(read_constants, {1, 1}, i, result.data());
        CHECK(result.download() == std::vector<double>{double(primes[i]), halves[i % 3], thirds[i % 2],
                                                       (i % 3 + 1) * 100.0, double("flash"[i % 5])});
    }
}

struct Large {
    int numbers[60];
    char letter;
    double number;
    const int* pointer;
};
struct Row {  // 16 bytes that need no more than a multiple of 8
    const int* begin;
    long long length;
};
struct NumberedRow {
    long long number;
    Row row;
};

__global__ void read_parameters(Large by_value, const Large* pointed_to, int i, Row row, signed char small,
                                double* result) {
    by_value.numbers[i] += threadIdx.x;               // a copy of its own for each thread
    const NumberedRow rows[] = {{0, row}, {1, row}};  // one of the two is at no multiple of 16
    const NumberedRow* p = rows;
    asm volatile("" : "+r"(p));  // the compiler no longer knows what it points to
    const Row first = p[0].row, second = p[1].row;
    result += 6 * threadIdx.x;
    result[0] = by_value.numbers[i];
    result[1] = by_value.letter;
    result[2] = by_value.number * small;
    result[3] = *by_value.pointer;
    result[4] = pointed_to->numbers[i] + pointed_to->number;
    result[5] = first.begin[0] + second.length + first.length - second.begin[0];
}

TEST_CASE("memory: parameters, structs among them") {
    const DeviceArray<int> pointee(std::vector<int>{-9});
    Large large{{}, 'x', 2.5, pointee.data()};
    std::iota(large.numbers, large.numbers + 60, 1000);
    const DeviceArray<Large> device_large(std::vector<Large>{large});
    const DeviceArray<double> result(6 * 40);
    launch_kernel(read_parameters, {1, 40}, large, device_large.data(), 17, Row{pointee.data(), 100}, -3,
                  result.data());
    const std::vector<double> found = result.download();
    for (int thread = 0; thread < 40; ++thread) {
        const double expected[] = {1017.0 + thread, 'x', -7.5, -9, 1017 + 2.5, 200};
        for (int k = 0; k < 6; ++k) CHECK(found[6 * thread + k] == expected[k]);
    }
}

// ---- mathematics: without std::, and of the type that goes in

__global__ void compute(float x, double* result) {
    result[0] = abs(x);
    result[1] = isnan(x) + 2 * isinf(x) + 4 * isfinite(x);
    result[2] = exp(x) == expf(x) && sqrt(-x) == sqrtf(-x) && log(-x) == logf(-x);
    result[3] = min(x, 1.5f) + max(x, 2.5f) + fminf(x, 0) + fmaxf(3, x);
    result[4] = __popc(0xF0F0u) + __clz(1) + __ffs(8) + __ffs(0);
    result[5] = rsqrtf(4) + __frcp_rn(8) + __fdividef(1, 4) + __fmaf_rn(2, 3, 4);
    result[6] = __int_as_float(__float_as_int(x)) + __uint_as_float(__float_as_uint(x));
    static_assert(sizeof(exp(x)) == 4 && sizeof(abs(x)) == 4);
}

TEST_CASE("memory: mathematics") {
    const DeviceArray<double> result(7);
    launch_kernel(compute, {1, 1}, -2.75f, result.data());
    CHECK(result.download() ==
          std::vector<double>{2.75, 4, 1, -2.75 + 2.5 - 2.75 + 3, 8 + 31 + 4, 0.5 + 0.125 + 0.25 + 10, -5.5});
}

struct Functions {
    float exponential, logarithm, product_sum;
    int leading, first, ones, loaded, largest;
};

__global__ void compute_many(const float* x, const int* bits, int n, Functions* results) {
    for (int i = 0; i < n; ++i)
        results[i] = {__expf(x[i]),     __logf(abs(x[i])), __fmaf_rn(x[i], x[i], -(x[i] * x[i])),
                      __clz(bits[i]),   __ffs(bits[i]),    __popc(bits[i]),
                      __ldg(bits + i),  __vimax3_s32(bits[i], bits[(i + 1) % n], bits[(i + 7) % n])};
}

TEST_CASE("memory: mathematics, on fresh inputs") {
    constexpr int n = 100;
    std::mt19937_64 random(test_seed());
    std::vector<float> x(n);
    std::vector<int> bits(n);
    for (float& value : x) value = std::ldexp(float(random() % 0xFFFFFF + 1), -20) - 8;
    for (int& value : bits) value = int(std::uint32_t(random()) >> random() % 32) & ~((1 << random() % 8) - 1);
    bits[0] = 0;
    bits[1] = -1;
    const DeviceArray<float> x_device(x);
    const DeviceArray<int> bits_device(bits);
    const DeviceArray<Functions> results(n);
    launch_kernel(compute_many, {1, 1}, x_device.data(), bits_device.data(), n, results.data());
    const std::vector<Functions> found = results.download();
    for (int i = 0; i < n; ++i) {
        CAPTURE(x[i]);
        CAPTURE(bits[i]);
        const double exact = x[i];
        CHECK(found[i].exponential == doctest::Approx(std::exp(exact)).epsilon(1e-5));
        CHECK(found[i].logarithm == doctest::Approx(std::log(std::abs(exact))).epsilon(1e-5));
        CHECK(found[i].product_sum == exact * exact - x[i] * x[i]);  // what rounding the product has lost
        int leading = 0, first = 0, ones = 0;
        while (leading < 32 && !(bits[i] >> (31 - leading) & 1)) ++leading;
        for (int k = 31; k >= 0; --k) {
            if (!(bits[i] >> k & 1)) continue;
            first = k + 1;
            ++ones;
        }
        CHECK(found[i].leading == leading);
        CHECK(found[i].first == first);
        CHECK(found[i].ones == ones);
        CHECK(found[i].loaded == bits[i]);
        for (const int k : {i, (i + 1) % n, (i + 7) % n}) CHECK(found[i].largest >= bits[k]);  // as signed numbers
        CHECK((found[i].largest == bits[i] || found[i].largest == bits[(i + 1) % n] ||
               found[i].largest == bits[(i + 7) % n]));
    }
}

struct Vectors {
    float2 f2;
    float3 f3;
    float4 f4;
    int2 i2;
    int3 i3;
    int4 i4;
    uint2 u2;
    uint3 u3;
    uint4 u4;
};

__global__ void make_vectors(Vectors* v) {
    *v = {make_float2(1, 2), make_float3(3, 4, 5), make_float4(6, 7, 8, 9),
          make_int2(1, 2),   make_int3(3, 4, 5),   make_int4(6, 7, 8, 9),
          make_uint2(1, 2),  make_uint3(3, 4, 5),  make_uint4(6, 7, 8, 9)};
}

template <class T2, class T3, class T4>
bool count_to_nine(const T2& a, const T3& b, const T4& c) {
    return a.x == 1 && a.y == 2 && b.x == 3 && b.y == 4 && b.z == 5 && c.x == 6 && c.y == 7 && c.z == 8 && c.w == 9;
}

TEST_CASE("memory: vectors are made of their parts, in order") {
    const DeviceArray<Vectors> result(1);
    launch_kernel(make_vectors, {1, 1}, result.data());
    const Vectors v = result.download()[0];
    CHECK(count_to_nine(v.f2, v.f3, v.f4));
    CHECK(count_to_nine(v.i2, v.i3, v.i4));
    CHECK(count_to_nine(v.u2, v.u3, v.u4));
    const dim3 extent(make_uint3(3, 4, 5));
    CHECK(extent.x == 3);
    CHECK(extent.y == 4);
    CHECK(extent.z == 5);
}

// ---- private variables: pointers to them, arrays of them, recursion

__device__ void bump(int* x, int by) { *x += by; }

__device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

__global__ void use_private_memory(int* result) {
    int numbers[20];
    for (int i = 0; i < 20; ++i) numbers[i] = i * threadIdx.x;
    __syncthreads();  // in between, others use theirs
    for (int i = 0; i < 20; ++i) bump(&numbers[(i + threadIdx.x) % 20], i);
    int sum = 0;
    for (int i = 0; i < 20; ++i) sum += numbers[i];
    result[threadIdx.x] = sum + fibonacci(threadIdx.x % 10);
}

TEST_CASE("memory: a thread's own variables") {
    const DeviceArray<int> result(50);
    launch_kernel(use_private_memory, {1, 50}, result.data());
    const std::vector<int> found = result.download();
    const int fibonacci_numbers[] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34};
    for (int i = 0; i < 50; ++i) CHECK(found[i] == 190 * i + 190 + fibonacci_numbers[i % 10]);
}

// ---- vectors and structs

/// There and back: device memory, shared memory, registers, and through copies without registers in between.
template <class T>
__global__ void move_vectors(const T* x, T* through_registers, T* through_shared) {
    __shared__ T x_smem[64];
    const int i = threadIdx.x;
    const T value = x[i];
    through_registers[i] = value;
    x_smem[i] = x[i];
    __syncthreads();
    through_shared[i] = x_smem[63 - i];
}

struct Pair {
    int a, b;
};
struct Record {
    char tag;
    Pair pair;  // 8 bytes at an address that is no multiple of 8: fine, its members' alignment counts
    short shorts[2];
    float3 point;
};

TEST_CASE_TEMPLATE("memory: vectors and structs", T, char, short, int, double, float2, float3, float4, int2, int3, int4,
                   uint2, uint3, uint4, Pair, Record, Large) {
    std::vector<T> x(64), reversed(64);
    for (std::size_t i = 0; i < 64; ++i) {
        std::memset(&x[i], int(i + 1), sizeof(T));
        std::memset(&reversed[i], int(64 - i), sizeof(T));
    }
    const DeviceArray<T> x_device(x), through_registers(64), through_shared(64);
    launch_kernel(move_vectors<T>, {1, 64}, x_device.data(), through_registers.data(), through_shared.data());
    CHECK(std::memcmp(through_registers.download().data(), x.data(), 64 * sizeof(T)) == 0);
    CHECK(std::memcmp(through_shared.download().data(), reversed.data(), 64 * sizeof(T)) == 0);
}

__global__ void use_odd_places(const Record* records, const Pair* from, Pair* to, int* result) {
    Record mine = records[threadIdx.x];
    Pair* inside = &mine.pair;
    bump(&inside->b, 1);
    result[threadIdx.x] = inside->a + inside->b + mine.shorts[1] + int(mine.point.z);
    to[threadIdx.x] = from[threadIdx.x];
}

TEST_CASE("memory: a struct needs no more alignment than its members") {
    std::vector<Record> records(10);
    for (int i = 0; i < 10; ++i) records[i] = {'r', {i, 2 * i}, {1, 2}, {1, 2, float(100 * i)}};
    std::vector<int> numbers(21);
    std::iota(numbers.begin(), numbers.end(), 0);
    const DeviceArray<Record> records_device(records);
    const DeviceArray<int> from(numbers), to(std::vector<int>(21, 0)), result(10);
    const auto pairs_behind_one_int = [](const DeviceArray<int>& x) { return reinterpret_cast<Pair*>(x.data() + 1); };
    launch_kernel(use_odd_places, {1, 10}, records_device.data(), pairs_behind_one_int(from), pairs_behind_one_int(to),
                  result.data());
    const std::vector<int> found = result.download();
    for (int i = 0; i < 10; ++i) CHECK(found[i] == 103 * i + 3);
    CHECK(to.download() == numbers);
}

// ---- poison

__global__ void count_nans(const float* x, int n, int* nans) {
    int found = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) found += isnan(x[i]);
    atomicAdd(nans, found);
}

TEST_CASE("memory: fresh device memory reads as NaN, when it was used before too") {
    for (int time = 0; time < 3; ++time) {
        const DeviceArray<float> x(1000);
        const DeviceArray<int> nans(std::vector<int>{0});
        launch_kernel(count_nans, {1, 64}, x.data(), 1000, nans.data());
        CHECK(nans.download()[0] == 1000);
        x.upload(std::vector<float>(1000, 1.0f));
    }
}

/// Looks at memory behind the back of the emulator's checks: by themselves they let nobody read what is not written.
[[gnu::noinline, gnu::no_sanitize_thread]] unsigned peek(const volatile unsigned* p) { return *p; }

__global__ void look_at_unwritten_shared(int n, unsigned* others) {
    __shared__ unsigned fixed[100];
    auto* dynamic = dynamic_shared<unsigned>();
    for (int i = 0; i < 100; ++i)
        if (peek(&fixed[i]) != 0xFFFFFFFFu) atomicAdd(others, 1);
    for (int i = 0; i < n; ++i)
        if (peek(&dynamic[i]) != 0xFFFFFFFFu) atomicAdd(others, 1);
    fixed[threadIdx.x] = dynamic[threadIdx.x] = 1;  // the next block must not see this
}

TEST_CASE("memory: a block's shared memory is poison when it begins, whatever the last one left") {
    const DeviceArray<unsigned> others(std::vector<unsigned>{0});
    launch_kernel(look_at_unwritten_shared, {20, 1, 3000 * sizeof(unsigned)}, 3000, others.data());
    CHECK(others.download()[0] == 0);
}

}  // namespace
}  // namespace flashladder
