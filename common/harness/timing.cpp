#include "harness/timing.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>

#include "launch.h"

namespace flashladder {
namespace {

struct Event {
    cudaEvent_t event = nullptr;
    Event() { check_cuda(cudaEventCreate(&event), "event"); }
    ~Event() { cudaEventDestroy(event); }
    Event(const Event&) = delete;
};

struct Stream {
    cudaStream_t stream = nullptr;  // not the default one, which cannot be captured, nor one that waits for it
    Stream() { check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream"); }
    ~Stream() { cudaStreamDestroy(stream); }
    Stream(const Stream&) = delete;
};

double milliseconds(cudaStream_t stream, const std::function<void()>& work) {
    const Event start, end;
    check_cuda(cudaEventRecord(start.event, stream), "event");
    work();
    check_cuda(cudaEventRecord(end.event, stream), "event");
    check_cuda(cudaEventSynchronize(end.event), "timed kernel");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, start.event, end.event), "event");
    return ms;
}

constexpr double short_ms = 0.05;   // from here on down, launches are put into a graph
constexpr double graph_ms = 0.5;    // that takes so long
constexpr double hidden_ms = 1;     // what launching takes is nothing beside this

#ifdef FLASHLADDER_GPU
/// Launches 0 to n - 1 in a row, recorded once.
class Graph {
public:
    Graph(const Launch& launch, int n, cudaStream_t stream) {
        check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "capturing launches");
        cudaGraph_t graph = nullptr;
        try {
            for (int i = 0; i < n; ++i) launch(static_cast<std::size_t>(i), stream);
        } catch (...) {
            cudaStreamEndCapture(stream, &graph);
            if (graph) cudaGraphDestroy(graph);
            throw;
        }
        check_cuda(cudaStreamEndCapture(stream, &graph), "capturing launches");
        const cudaError_t error = cudaGraphInstantiate(&executable_, graph, 0);
        cudaGraphDestroy(graph);
        check_cuda(error, "graph of launches");
    }
    ~Graph() { cudaGraphExecDestroy(executable_); }
    Graph(const Graph&) = delete;
    void launch(cudaStream_t stream) const { check_cuda(cudaGraphLaunch(executable_, stream), "graph of launches"); }

private:
    cudaGraphExec_t executable_ = nullptr;
};
#else
/// The emulator launches them one by one.
class Graph {
public:
    Graph(const Launch& launch, int n, cudaStream_t) : launch_(launch), n_(n) {}
    void launch(cudaStream_t stream) const {
        for (int i = 0; i < n_; ++i) launch_(static_cast<std::size_t>(i), stream);
    }

private:
    Launch launch_;
    int n_;
};
#endif

std::size_t bytes_of_a_set(const Problem& problem) {
    std::size_t bytes = 0;
    for (const Tensor& tensor : problem.operation->tensors(problem)) bytes += tensor.bytes();
    return bytes;
}

int sets_on_this_gpu(const Problem& problem) {
    return sets_past_l2(bytes_of_a_set(problem), static_cast<std::size_t>(device_attribute(cudaDevAttrL2CacheSize)));
}

Resources resources_of_last_launch() {
    Resources r;
#ifdef FLASHLADDER_GPU
    cudaFuncAttributes attributes;
    check_cuda(cudaFuncGetAttributes(&attributes, last_launch.entry), "attributes of the kernel");
    r.registers = attributes.numRegs;
    r.local_bytes = static_cast<int>(attributes.localSizeBytes);
    r.shared_bytes = attributes.sharedSizeBytes + last_launch.shared_bytes;
    check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&r.blocks_per_sm, last_launch.entry, last_launch.threads,
                                                             last_launch.shared_bytes),
               "occupancy");
#endif
    return r;
}

}  // namespace

double quantile(std::vector<double> values, double part) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    const double place = part * double(values.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (place - double(below)) * (values[above] - values[below]);
}

Timing timing_of(const std::vector<double>& ms) {
    return {quantile(ms, 0.5), quantile(ms, 0.25), quantile(ms, 0.75),
            quantile(ms, 0),   quantile(ms, 1),    static_cast<int>(ms.size())};
}

double speed_ratio(const std::vector<double>& ms, const std::vector<double>& other_ms) {
    std::vector<double> ratios;
    for (std::size_t round = 0; round < std::min(ms.size(), other_ms.size()); ++round)
        ratios.push_back(other_ms[round] / ms[round]);
    return quantile(ratios, 0.5);
}

int sets_past_l2(std::size_t bytes_of_a_set, std::size_t l2_bytes) {
    return static_cast<int>(std::clamp<std::size_t>((2 * l2_bytes + bytes_of_a_set - 1) / bytes_of_a_set, 2, 256));
}

std::size_t InputSets::bytes(const Problem& problem) {
    return bytes_of_a_set(problem) * static_cast<std::size_t>(sets_on_this_gpu(problem));
}

InputSets::InputSets(const Data& inputs, const Problem& problem)
    : problem_(problem),
      arguments_(inputs.arguments),
      tensors_(problem.operation->tensors(problem)),
      count_(sets_on_this_gpu(problem)) {
    for (const Tensor& tensor : tensors_) {
        DeviceBuffer& buffer = buffers_.emplace_back(static_cast<std::size_t>(count_) * tensor.bytes(), tensor.name.c_str());
        if (tensor.is_output) continue;
        const std::vector<float>& values = inputs.tensors.at(tensor.name);
        buffer.upload(values, tensor.dtype);
        buffer.repeat_start(values.size() * bytes_per_element(tensor.dtype));
    }
}

DeviceData InputSets::data(std::size_t i, void* scratch, cudaStream_t stream) const {
    DeviceData data{problem_, {}, arguments_, scratch, stream};
    for (std::size_t t = 0; t < tensors_.size(); ++t)
        data.tensors[tensors_[t].name] =
            static_cast<char*>(buffers_[t].data()) + i % static_cast<std::size_t>(count_) * tensors_[t].bytes();
    return data;
}

void InputSets::poison() {
    for (std::size_t t = 0; t < tensors_.size(); ++t)
        if (tensors_[t].is_output) buffers_[t].fill(0xFF);
}

Data InputSets::outputs(const Problem& part) const {
    Data outputs{part};
    const std::vector<Tensor> of_part = part.operation->tensors(part);
    for (std::size_t t = 0; t < tensors_.size(); ++t)
        if (tensors_[t].is_output)
            outputs.tensors[tensors_[t].name] = buffers_[t].download(of_part[t].elements(), tensors_[t].dtype);
    return outputs;
}

TimedStage first_launch(const Stage& stage, InputSets& sets, DeviceBuffer& scratch, const Problem& part) {
    sets.poison(), scratch.fill(0xFF);
    stage.launch(sets.data(0, scratch.data(), nullptr));
    check_cuda(cudaDeviceSynchronize(), stage.name().c_str());
    return {{}, resources_of_last_launch(), sets.outputs(part)};
}

std::vector<Samples> take_turns(const std::vector<Launch>& launches, int sets, const TimingOptions& options) {
    const Stream stream;
    std::vector<Samples> samples(launches.size());
    std::vector<std::unique_ptr<Graph>> graphs(launches.size());
    std::vector<double> warm;
    std::vector<int> wanted;
    std::size_t next = 0;  // inputs
    for (std::size_t s = 0; s < launches.size(); ++s) {
        const double ms = std::max(1e-3, milliseconds(stream.stream, [&] { launches[s](next++, stream.stream); }));
        warm.push_back(ms);
        wanted.push_back(
            std::clamp(static_cast<int>(1000 * options.seconds / ms), options.min_samples, options.max_samples));
        if (ms >= short_ms) continue;
        samples[s].in_a_graph = static_cast<int>(std::ceil(graph_ms / ms / sets)) * sets;
        graphs[s] = std::make_unique<Graph>(launches[s], samples[s].in_a_graph, stream.stream);
    }

    const auto take = [&](std::size_t s) {
        // A graph goes through all sets from 0 to the last, which may then be in the cache for what is not timed.
        const auto input = [&] { return graphs[s] ? static_cast<std::size_t>(samples[s].in_a_graph - 1) : next++; };
        if (warm[s] < hidden_ms) launches[s](input(), stream.stream);
        const double ms = milliseconds(stream.stream, [&] {
            if (graphs[s])
                graphs[s]->launch(stream.stream);
            else
                launches[s](input(), stream.stream);
        });
        samples[s].ms.push_back(ms / samples[s].in_a_graph);
    };
    std::mt19937 random(1);
    for (int round = 0; round < options.max_samples; ++round) {
        std::vector<std::size_t> order(launches.size());
        std::iota(order.begin(), order.end(), std::size_t(0));
        std::shuffle(order.begin(), order.end(), random);
        for (const std::size_t s : order)
            if (round < wanted[s]) take(s);
    }
    return samples;
}

std::vector<TimedStage> time_stages(const std::vector<const Stage*>& stages, const Data& inputs, const Problem& problem,
                                    const TimingOptions& options) {
    std::size_t scratch_bytes = 0;
    for (const Stage* stage : stages) scratch_bytes = std::max(scratch_bytes, stage->scratch_bytes(problem));
    DeviceBuffer scratch(scratch_bytes);
    InputSets sets(inputs, problem);
    std::vector<TimedStage> timed;
    std::vector<Launch> launches;
    for (const Stage* stage : stages) {
        timed.push_back(first_launch(*stage, sets, scratch, problem));
        launches.push_back([stage, &sets, &scratch](std::size_t i, cudaStream_t stream) {
            stage->launch(sets.data(i, scratch.data(), stream));
        });
    }
    const std::vector<Samples> samples = take_turns(launches, sets.count(), options);
    for (std::size_t s = 0; s < timed.size(); ++s) timed[s].timing = timing_of(samples[s].ms);
    return timed;
}

}  // namespace flashladder
