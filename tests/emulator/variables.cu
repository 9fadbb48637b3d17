// Variables that kernels name: `__shared__` arrays have bounds of their own, `__device__` and `__constant__` ones are
// memory that is checked and counted as any other.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <string>
#include <vector>

#include "device_array.h"
#include "emulator/counters.h"
#include "failure.h"
#include "launch.h"

namespace flashladder {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// ---- shared

__global__ void fill_tile(int rows, float* out, int* line) {
    __shared__ float tile[31][32];
    *line = __LINE__ + 1;
    for (int i = 0; i < rows; ++i) tile[i][threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = tile[30][31 - threadIdx.x];
}

__global__ void fill_column(int columns, float* out, int* line) {
    __shared__ float tile[31][32];
    *line = __LINE__ + 1;
    for (int i = 0; i < columns; ++i) tile[threadIdx.x % 31][i] = 1;
    out[threadIdx.x] = tile[threadIdx.x % 31][0];
}

__global__ void fill_by_pointer(int n, float* out, int* line) {
    __shared__ __align__(64) float before[16];  // these two, so that there is room behind row: one that has none
    __shared__ __align__(64) float row[33];     // would run into its neighbour, as on a GPU
    __shared__ __align__(64) float behind[16];
    before[threadIdx.x % 16] = behind[threadIdx.x % 16] = 0;
    float* p = row;
    *line = __LINE__ + 1;
    for (int i = 0; i < n; ++i) p[i] = 1;
    out[threadIdx.x] = row[threadIdx.x] + before[threadIdx.x % 16] + behind[threadIdx.x % 16];
}

__global__ void read_registers(int i, float* out, int* line) {
    float m_i[4] = {out[0], out[1], out[2], out[3]};
    *line = __LINE__ + 1;
    out[0] = m_i[i];
}

__device__ float product(float a, float b) { return a * b; }

__global__ void add_products(int columns, float* out, int* line) {
    float S[2][4] = {};
    *line = __LINE__ + 1;
    for (int c = 0; c < columns; ++c) S[threadIdx.x][c] += product(out[c], out[0]);
    out[0] = S[threadIdx.x][1];
}

__global__ void never_written(float* out, int* line) {
    __shared__ float sums[8];
    if (out[0] > 0) sums[3] = 1;
    *line = __LINE__ + 1;
    out[0] = sums[3];
}

Report check_index(void (*kernel)(int, float*, int*), int n, int threads, const char* name) {
    const DeviceArray<float> out(std::vector<float>(33, 0));
    const DeviceArray<int> line(1);
    CHECK_NOTHROW(launch_kernel(kernel, {1, threads}, n, out.data(), line.data()));  // as many as there are
    return check_failure({cudaErrorIllegalAddress, "out of bounds", name, "", ""}, __FILE__,
                         [&](int* lines) { launch_kernel(kernel, {1, threads}, n + 1, out.data(), lines); });
}

TEST_CASE("variables: an index that is too large is told with the array's name, type and index") {
    CHECK(check_index(fill_tile, 31, 32, "fill_tile").words == "index 31 of tile, a float [31][32]");
    CHECK(check_index(fill_column, 32, 31, "fill_column").words == "index 32 of tile, a float [32]");
    CHECK(check_index(add_products, 4, 1, "add_products").words == "index 4 of S, a float [4]");
    CHECK(check_index(read_registers, 3, 1, "read_registers").words == "index 4 of m_i, a float [4]");
}

TEST_CASE("variables: shared memory is told by the variable's name and size") {
    CHECK(contains(check_index(fill_by_pointer, 33, 33, "fill_by_pointer").words,
                   "byte 132 of row, 132 bytes of static shared memory"));
    const DeviceArray<float> out(std::vector<float>(1, 0));
    const Report report =
        check_failure({cudaErrorLaunchFailure, "uninitialised shared memory", "never_written", "", ""}, __FILE__,
                      [&](int* lines) { launch_kernel(never_written, {1, 1}, out.data(), lines); });
    CHECK(contains(report.words, "byte 12 of sums, 32 bytes of static shared memory"));
}

template <int floats>
__global__ void use_static(float* out) {
    __shared__ float tile[floats];
    __shared__ float more[16];
    float* dynamic = dynamic_shared<float>();
    for (int i = 0; i < 2; ++i) more[i] = tile[i] = 1;
    dynamic[0] = 1;
    *out = tile[blockIdx.x] + more[blockIdx.x] + dynamic[0];
}

TEST_CASE("variables: a kernel's shared variables count towards its 48 KB") {
    const DeviceArray<float> out(1);
    constexpr int all = 48 * 256 - 16, most = 227 * 1024 - 48 * 1024;
    CHECK_NOTHROW(launch_kernel(use_static<all>, {1, 1, most}, out.data()));
    CHECK_THROWS_AS(launch_kernel(use_static<all>, {1, 1, most + 4}, out.data()), CudaError);
    CHECK(contains(emulator::last_report(), "too much shared memory"));
    CHECK_THROWS_AS(launch_kernel(use_static<all + 1>, {1, 1, 4}, out.data()), CudaError);
    CHECK(contains(emulator::last_report(), "49156 bytes of __shared__ variables"));
    CHECK(contains(emulator::last_report(), "tile of 49092"));
    launch_unchecked(use_static<all - 1>, {1, 1, 8}, out.data());  // without opting in
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

// ---- device and constant

__device__ int counter = 7;
__device__ int table[64];
__device__ float unwritten[3];
__constant__ float weights[5] = {1, 2, 3};
__constant__ const int limit = 9;
__managed__ int shared_by_both[2];
int of_the_host[4];

__global__ void count_up(int* old) { old[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(&counter, 1); }
__global__ void count_wrongly() { counter += 1; }
__global__ void copy_table(int* out) {
    table[threadIdx.x] = static_cast<int>(threadIdx.x) * 3 + static_cast<int>(weights[threadIdx.x % 5]);
    __syncthreads();
    out[threadIdx.x] = table[63 - threadIdx.x] + limit;
}
__global__ void read_table(const int* at, int i, int* out, int* line) {
    *line = __LINE__ + 1;
    *out = at[i];
}
__global__ void read_unwritten(float* out) {
    for (int i = 0; i < 3; ++i) out[i] = unwritten[i];
}
__global__ void write_constant(int* line) {
    float* p = const_cast<float*>(weights);
    *line = __LINE__ + 1;
    p[1] = 0;
}
__global__ void write_managed() { shared_by_both[1] = 2; }
__global__ void count_by_language(int* old) {
    old[threadIdx.x] = std::atomic_ref<int>(table[0]).fetch_add(1, std::memory_order_relaxed);
}
__global__ void keep_once(int* out) {
    static const int first = static_cast<int>(blockDim.x) + 1;
    out[threadIdx.x] = first;
}

TEST_CASE("variables: device variables are initialised, written, added to, and keep what they hold") {
    const DeviceArray<int> old(128);
    int now = 0;
    REQUIRE(cudaMemcpyFromSymbol(&now, counter, sizeof now) == cudaSuccess);
    CHECK(now == 7);
    CHECK(emulator::find_race([&] { launch_kernel(count_up, {2, 64}, old.data()); }) == "");
    std::vector<int> found = old.download(), expected(128);
    std::sort(found.begin(), found.end());
    std::iota(expected.begin(), expected.end(), 7);
    CHECK(found == expected);
    const int seven = 7;
    REQUIRE(cudaMemcpyToSymbol(counter, &seven, sizeof seven) == cudaSuccess);
    launch_kernel(count_up, {1, 1}, old.data());
    CHECK(old.download()[0] == 7);
    CHECK(cudaMemcpyToSymbol(counter, &seven, sizeof seven) == cudaSuccess);

    const DeviceArray<float> zeros(3);
    launch_kernel(read_unwritten, {1, 1}, zeros.data());
    CHECK(zeros.download() == std::vector<float>(3, 0));
}

TEST_CASE("variables: races, counts and bounds of device variables") {
    const std::string race = emulator::find_race([] { launch_kernel(count_wrongly, {1, 64}); });
    CHECK(contains(race, "race: "));
    CHECK(contains(race, "of the variable counter, which has 4 bytes"));
    CHECK(contains(emulator::find_race([] { launch_kernel(count_wrongly, {2, 1}); }), "race: "));
    int seven = 7;
    CHECK(cudaMemcpyToSymbol(counter, &seven, sizeof seven) == cudaSuccess);

    const DeviceArray<int> out(64);
    const auto work = emulator::count_work([&] { launch_kernel(copy_table, {1, 64}, out.data()); });
    CHECK(work.total().global_of(emulator::Access::read).requested_bytes == 64 * 4);  // constants have a cache of theirs
    CHECK(work.total().global_of(emulator::Access::write).requested_bytes == 2 * 64 * 4);
    CHECK(work.launches[0].distinct_read_bytes == 64 * 4);
    CHECK(out.download()[63 - 7] == 7 * 3 + 3 + 9);

    const Report report = check_failure(
        {cudaErrorIllegalAddress, "out of bounds", "read_table", "", ""}, __FILE__, [&](int* lines) {
            launch_kernel(read_table, {1, 1}, static_cast<const int*>(of_the_host), 1, out.data(), lines);
        });
    CHECK(contains(report.words, "the host's variable of_the_host"));
    CHECK(contains(check_failure({cudaErrorIllegalAddress, "constant memory", "write_constant", "", ""}, __FILE__,
                                 [](int* lines) { launch_kernel(write_constant, {1, 1}, lines); })
                       .words,
                   "byte 4 of the variable weights"));
    // A pointer to a __device__ variable is the host's as well, until cudaGetSymbolAddress() has given it.
    CHECK_THROWS_AS(launch_kernel(read_table, {1, 1}, static_cast<const int*>(&counter), 0, out.data(), out.data()),
                    CudaError);
    int* address = nullptr;
    std::size_t bytes = 0;
    REQUIRE(cudaGetSymbolAddress(&address, table) == cudaSuccess);
    REQUIRE(cudaGetSymbolSize(&bytes, table) == cudaSuccess);
    CHECK(bytes == sizeof table);
    CHECK_NOTHROW(launch_kernel(read_table, {1, 1}, static_cast<const int*>(address), 1, out.data(), out.data() + 1));
    CHECK(cudaMemset(address, 0, bytes) == cudaSuccess);
    CHECK(cudaMemset(address, 0, bytes + 1) == cudaErrorInvalidValue);
    (void)cudaGetLastError();
    launch_kernel(write_managed, {1, 1});
    CHECK(shared_by_both[1] == 2);
}

TEST_CASE("variables: symbols that are none, and copies that do not fit") {
    int on_stack = 0;
    CHECK(cudaMemcpyToSymbol(on_stack, &on_stack, 4) == cudaErrorInvalidSymbol);
    CHECK(cudaMemcpyToSymbol(table, &on_stack, 4, sizeof table) == cudaErrorInvalidValue);
    CHECK(cudaMemcpyToSymbol(table, &on_stack, 4, 4, cudaMemcpyDeviceToHost) == cudaErrorInvalidMemcpyDirection);
    CHECK(cudaMemcpyFromSymbol(&on_stack, table[1], 4) == cudaErrorInvalidSymbol);
    (void)cudaGetLastError();
}

TEST_CASE("variables: the language's own atomics, and a static variable of a kernel") {
    const DeviceArray<int> out(96);
    const int zero = 0;
    REQUIRE(cudaMemcpyToSymbol(table, &zero, sizeof zero) == cudaSuccess);
    CHECK(emulator::find_race([&] { launch_kernel(count_by_language, {1, 96}, out.data()); }) == "");
    std::vector<int> found = out.download(), expected(96);
    std::sort(found.begin(), found.end());
    std::iota(expected.begin(), expected.end(), 0);
    CHECK(found == expected);
    launch_kernel(keep_once, {1, 96}, out.data());
    CHECK(out.download() == std::vector<int>(96, 97));
}

}  // namespace
}  // namespace flashladder
