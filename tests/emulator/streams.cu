// What orders the work of several streams, and what is said of work that nothing orders.
#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "device_array.h"
#include "launch.h"

namespace flashladder {
namespace {

constexpr int n = 64;

__global__ void write_numbers(int* numbers) { numbers[threadIdx.x] = static_cast<int>(threadIdx.x); }
__global__ void read_numbers(const int* numbers, int* sums) { sums[threadIdx.x] += numbers[threadIdx.x]; }
__global__ void count(int* number) { atomicAdd(number, 1); }
__device__ int a_variable[n];
__global__ void write_variable() { a_variable[threadIdx.x] = 1; }

/// Streams and events of a program, and memory that its work is about.
struct Program {
    cudaStream_t a = nullptr, b = nullptr, c = nullptr;
    cudaEvent_t event = nullptr, other = nullptr;
    DeviceArray<int> numbers{std::vector<int>(n)}, sums{std::vector<int>(n)}, more{std::vector<int>(n)};

    Program() {
        check_cuda(cudaStreamCreate(&a), "a stream");
        check_cuda(cudaStreamCreate(&b), "a stream");
        check_cuda(cudaStreamCreateWithFlags(&c, cudaStreamNonBlocking), "a stream");
        check_cuda(cudaEventCreate(&event), "an event");
        check_cuda(cudaEventCreateWithFlags(&other, cudaEventDisableTiming), "an event");
        check_cuda(cudaDeviceSynchronize(), "beginning");
    }
    ~Program() {
        for (const cudaStream_t stream : {a, b, c}) cudaStreamDestroy(stream);
        cudaEventDestroy(event), cudaEventDestroy(other);
    }
    void write(cudaStream_t stream) const {
        launch_kernel(write_numbers, {.grid = 1, .block = n, .stream = stream}, numbers.data());
    }
    void read(cudaStream_t stream) const {
        launch_kernel(read_numbers, {.grid = 1, .block = n, .stream = stream}, numbers.data(), sums.data());
    }
    void copy(cudaStream_t stream) const {
        check_cuda(cudaMemcpyAsync(more.data(), numbers.data(), n * 4, cudaMemcpyDeviceToDevice, stream), "a copy");
    }
    void overwrite(cudaStream_t stream) const {
        check_cuda(cudaMemcpyPeerAsync(numbers.data(), 0, more.data(), 0, n * 4, stream), "a copy");
    }
};

/// The report of what a program is told, "" if nothing.
std::string told(const std::function<void(Program&)>& calls) {
    Program program;
    std::string report;
    try {
        calls(program);
    } catch (const CudaError&) {
        report = emulator::last_report();
    }
    cudaDeviceSynchronize();
    cudaGetLastError();
    return report;
}
void check_silent(const char* what, const std::function<void(Program&)>& calls) {
    INFO(what);
    CHECK(told(calls) == "");
}
void check_race(const char* first, const char* second, const std::function<void(Program&)>& calls) {
    const std::string report = told(calls);
    INFO(report);
    const std::size_t behind = report.find("\n  not ordered behind ");
    CHECK(report.starts_with(std::string("race: ") + second));
    CHECK(behind != report.npos);
    if (behind == report.npos) return;
    CHECK(report.substr(behind + 22).starts_with(first));
    CHECK(report.find("\n  missing    an event: cudaEventRecord()") != report.npos);
    CHECK(report.find("tests/emulator/streams.cu:") != report.npos);
}

TEST_CASE("streams: work that nothing orders is a race, whoever comes first") {
    check_race("write by kernel write_numbers", "read by cudaMemcpyAsync",
               [](Program& p) { p.write(p.a), p.copy(p.b); });
    check_race("read by cudaMemcpyAsync", "write by kernel write_numbers",
               [](Program& p) { p.copy(p.b), p.write(p.a); });
    check_race("read by kernel read_numbers", "write by cudaMemcpyPeerAsync",
               [](Program& p) { p.read(p.a), p.overwrite(p.b); });
    check_race("write by cudaMemcpyPeerAsync", "read by kernel read_numbers",
               [](Program& p) { p.overwrite(p.a), p.read(p.b); });
    check_race("write by kernel write_numbers", "write by kernel write_numbers",
               [](Program& p) { p.write(p.a), p.write(p.b); });
    check_race("write by cudaMemcpyPeerAsync", "read by cudaMemcpyAsync",
               [](Program& p) { p.overwrite(p.a), p.copy(p.c); });
    check_race("write by kernel count", "write by cudaMemsetAsync", [](Program& p) {
        launch_kernel(count, {.grid = 1, .block = 1, .stream = p.a}, p.numbers.data());
        check_cuda(cudaMemsetAsync(p.numbers.data(), 0, 4, p.c), "zero");
    });
    check_race("write by kernel write_numbers", "write by cudaFreeAsync", [](Program& p) {
        int* numbers = nullptr;
        check_cuda(cudaMallocAsync(&numbers, n * 4, p.a), "memory");
        launch_kernel(write_numbers, {.grid = 1, .block = n, .stream = p.a}, numbers);
        check_cuda(cudaFreeAsync(numbers, p.b), "free");
    });
    check_race("write by kernel write_variable", "read by cudaMemcpyAsync", [](Program& p) {
        launch_kernel(write_variable, {.grid = 1, .block = n, .stream = p.a});
        int host[n];
        check_cuda(cudaMemcpyFromSymbolAsync(host, a_variable, sizeof host, 0, cudaMemcpyDeviceToHost, p.b), "a copy");
    });
    check_race("write by cudaMemcpyAsync", "read by kernel read_numbers", [](Program& p) {
        const std::vector<int> host(n, 5);
        check_cuda(cudaMemcpyAsync(p.numbers.data(), host.data(), n * 4, cudaMemcpyHostToDevice, p.a), "upload");
        p.read(p.b);
    });
    check_race("write by cudaMemsetAsync of what zeroes", "read by kernel read_numbers of stream", [](Program& p) {
        emulator::name_stream(p.a, "what zeroes");
        check_cuda(cudaMemsetAsync(p.numbers.data(), 0, n * 4, p.a), "zero");
        p.read(p.c);
    });
    check_race("write by cudaMemset of the default stream", "read by kernel read_numbers of stream", [](Program& p) {
        check_cuda(cudaMemset(p.numbers.data(), 0, n * 4), "zero");
        p.read(p.c);
    });
}

TEST_CASE("streams: what orders") {
    check_silent("one stream", [](Program& p) { p.write(p.a), p.copy(p.a), p.overwrite(p.a), p.read(p.a); });
    check_silent("an event", [](Program& p) {
        p.write(p.a);
        cudaEventRecord(p.event, p.a), cudaStreamWaitEvent(p.b, p.event);
        p.copy(p.b);
    });
    check_silent("events by way of a third stream", [](Program& p) {
        p.write(p.a);
        cudaEventRecord(p.event, p.a), cudaStreamWaitEvent(p.c, p.event);
        cudaEventRecord(p.other, p.c), cudaStreamWaitEvent(p.b, p.other);
        p.overwrite(p.b);
    });
    check_silent("the event as it was recorded when the wait was called", [](Program& p) {
        p.write(p.a);
        cudaEventRecord(p.event, p.a), cudaStreamWaitEvent(p.b, p.event);
        cudaEventRecord(p.event, p.c);
        p.copy(p.b);
    });
    check_silent("a stream that was destroyed", [](Program& p) {
        p.write(p.a);
        cudaEventRecord(p.event, p.a);
        cudaStreamDestroy(p.a), cudaStreamCreate(&p.a);
        cudaStreamWaitEvent(p.c, p.event);
        p.copy(p.c);
    });
    const std::pair<const char*, std::function<void(Program&)>> waits[] = {
        {"cudaStreamSynchronize", [](Program& p) { cudaStreamSynchronize(p.a); }},
        {"cudaStreamQuery", [](Program& p) { cudaStreamQuery(p.a); }},
        {"cudaDeviceSynchronize", [](Program&) { cudaDeviceSynchronize(); }},
        {"cudaEventSynchronize", [](Program& p) { cudaEventRecord(p.event, p.a), cudaEventSynchronize(p.event); }},
        {"cudaEventQuery", [](Program& p) { cudaEventRecord(p.event, p.a), cudaEventQuery(p.event); }},
        {"cudaFree", [](Program&) { const DeviceArray<int> freed(1); }},
        {"a copy to the host's memory", [](Program& p) {
             int host = 0;
             cudaMemcpyAsync(&host, p.sums.data(), 4, cudaMemcpyDeviceToHost, p.a);
         }},
    };
    for (const auto& [name, wait] : waits)
        check_silent(name, [&](Program& p) { p.write(p.a), wait(p), p.copy(p.c); });
    check_silent("the default stream, which waits for blocking ones", [](Program& p) { p.write(p.a), p.copy(nullptr); });
    check_silent("and they for it", [](Program& p) { p.write(nullptr), p.copy(p.b); });
    check_silent("and so for one another", [](Program& p) {
        p.write(p.a);
        cudaMemset(p.more.data(), 0, 4);
        p.overwrite(p.b);
    });
}

TEST_CASE("streams: what does not order") {
    const char *writes = "write by kernel write_numbers", *reads = "read by cudaMemcpyAsync";
    check_race(writes, reads, [](Program& p) {  // recorded too early
        cudaEventRecord(p.event, p.a);
        p.write(p.a);
        cudaStreamWaitEvent(p.b, p.event);
        p.copy(p.b);
    });
    check_race(writes, reads, [](Program& p) {  // before it was recorded
        cudaStreamWaitEvent(p.b, p.event);
        p.write(p.a);
        cudaEventRecord(p.event, p.a);
        p.copy(p.b);
    });
    check_race(writes, reads, [](Program& p) {  // another stream waits
        p.write(p.a);
        cudaEventRecord(p.event, p.a), cudaStreamWaitEvent(p.c, p.event);
        p.copy(p.b);
    });
    check_race(writes, reads, [](Program& p) {  // the host waits for another stream
        p.write(p.a);
        cudaStreamSynchronize(p.b);
        p.copy(p.b);
    });
    check_race(writes, reads, [](Program& p) { p.write(p.c), p.copy(nullptr); });  // which does not block
    check_race(writes, reads, [](Program& p) {  // a stream's destruction does not wait
        p.write(p.c);
        cudaStreamDestroy(p.c), cudaStreamCreate(&p.c);
        p.copy(p.c);
    });
    check_race(writes, reads, [](Program& p) {  // a memset in between of another stream
        p.write(p.c);
        cudaMemset(p.more.data(), 0, 4);
        p.copy(p.b);
    });
}

TEST_CASE("streams: reads, atomics and neighbours do not race") {
    check_silent("reads", [](Program& p) { p.copy(p.a), launch_kernel(read_numbers, {.grid = 1, .block = n, .stream = p.b},
                                                                      p.numbers.data(), p.sums.data()); });
    check_silent("atomics", [](Program& p) {
        for (const cudaStream_t stream : {p.a, p.b, p.c})
            launch_kernel(count, {.grid = 1, .block = 1, .stream = stream}, p.numbers.data());
    });
    check_silent("neighbours", [](Program& p) {
        launch_kernel(count, {.grid = 1, .block = 1, .stream = p.a}, p.numbers.data());
        check_cuda(cudaMemsetAsync(p.numbers.data() + 1, 0, 4, p.b), "zero");
        check_cuda(cudaMemcpyAsync(p.numbers.data() + 2, p.more.data(), 8, cudaMemcpyDeviceToDevice, p.c), "a copy");
    });
    check_race("write by cudaMemsetAsync", "read by kernel read_numbers", [](Program& p) {  // one byte of all
        check_cuda(cudaMemsetAsync(reinterpret_cast<char*>(p.numbers.data() + n) - 1, 0, 1, p.c), "zero");
        p.read(p.a);
    });
}

TEST_CASE("streams: a race is an error of the call, and what comes behind it works") {
    Program p;
    p.write(p.a);
    CHECK(cudaMemcpyAsync(p.more.data(), p.numbers.data(), n * 4, cudaMemcpyDeviceToDevice, p.b) ==
          cudaErrorLaunchFailure);
    CHECK(std::string(cudaGetErrorString(cudaErrorLaunchFailure)).starts_with("race: "));
    CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
    CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    p.write(p.a);
    CHECK(p.numbers.download()[5] == 5);
}

TEST_CASE("streams: a log says what was ordered, and how often the host has waited") {
    Program p;
    const emulator::StreamLog log = emulator::log_streams([&] {
        p.read(p.a);
        p.copy(p.b);
        cudaEventRecord(p.event, p.b), cudaStreamWaitEvent(p.a, p.event);
        p.write(p.a);
        cudaStreamSynchronize(p.c);
        cudaDeviceSynchronize();
        p.copy(p.c);
    });
    CHECK(log.works.size() == 4);
    CHECK(log.host_waits == 2);
    CHECK(log.works[0].name == "read_numbers");
    CHECK(log.works[0].is_kernel);
    CHECK(log.works[1].name == "cudaMemcpyAsync");
    CHECK(log.works[1].to == p.more.data());
    CHECK(log.works[1].from == p.numbers.data());
    CHECK(log.works[1].bytes == n * 4);
    CHECK_FALSE(log.ordered(0, 1));
    CHECK(log.ordered(0, 2));
    CHECK(log.ordered(1, 2));
    CHECK(log.ordered(0, 3));
    CHECK(log.ordered(1, 3));
}

}  // namespace
}  // namespace flashladder
