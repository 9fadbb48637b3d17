// Prints how long rung 27c takes for one sequence on several GPUs, and rung 14 on one of them, as JSON.
//
//   ring > docs/results/ring.json
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <vector>

#include "harness/device_buffer.h"
#include "harness/dtype.h"
#include "harness/timing.h"
#include "launch.h"
#include "operations/attention/stage.h"
#include "operations/ring_attention/links.h"
#include "operations/ring_attention/operation.h"
#include "operations/ring_attention/stage.h"
#include "results.h"

namespace flashladder {
namespace {

using attention::AttentionShape;
using ring_attention::Args, ring_attention::OnDevice, ring_attention::Rank, ring_attention::shard_of;

/// Every row of a tensor, by its place in the sequence, is one of these: so shards are made one by one.
constexpr int different_rows = 4096;

/// A rank's memory, on its device.
struct RankMemory {
    int device;
    DeviceBuffer Q, K, V, O, lse, scratch;
    cudaStream_t stream = nullptr;

    RankMemory(int device, const AttentionShape& shard, std::size_t scratch_bytes)
        : device(device),
          Q(shard.q_elements() * 2),
          K(shard.kv_elements() * 2),
          V(shard.kv_elements() * 2),
          O(shard.q_elements() * 2),
          lse(shard.lse_elements() * 4),
          scratch(scratch_bytes) {
        check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a rank's stream");
        O.fill(0xFF), scratch.fill(0xFF);
    }
};

class Inputs {
public:
    Inputs(const AttentionShape& shape, std::uint64_t seed) : shape_(shape) {
        std::mt19937_64 random(seed);
        std::normal_distribution<float> normal;
        rows_.resize(std::size_t(different_rows) * std::size_t(shape.head_dim));
        for (float& x : rows_) x = normal(random);
    }
    /// The shard of a rank of so many, of a tensor with a number of its own.
    void upload(DeviceBuffer& to, int heads, int rank, int ranks, int tensor) const {
        const int n = shape_.n_q / ranks;
        std::vector<float> values;
        values.reserve(std::size_t(shape_.batch) * std::size_t(heads) * std::size_t(n) * std::size_t(shape_.head_dim));
        for (int head = 0; head < shape_.batch * heads; ++head)
            for (int i = 0; i < n; ++i) {
                const std::uint64_t place = std::uint64_t(
                    ring_attention::position_of(i, rank, ranks, n, shape_.causal) + head * 7919 + tensor * 104729);
                const auto first = rows_.begin() + std::ptrdiff_t(place * 2654435761u % different_rows) * shape_.head_dim;
                values.insert(values.end(), first, first + shape_.head_dim);
            }
        to.upload(values, shape_.dtype);
    }

private:
    AttentionShape shape_;
    std::vector<float> rows_;
};

void wait_for_all(const std::vector<int>& devices) {
    for (const int device : devices) {
        const OnDevice on(device);
        check_cuda(cudaDeviceSynchronize(), "waiting for a device");
    }
}

/// Milliseconds of a call that launches something, by the host's clock: a launch on several devices has no stream of
/// its own in which events could be.
template <class F>
Timing time_of(const std::vector<int>& devices, int samples, F launch) {
    launch();
    wait_for_all(devices);
    std::vector<double> ms;
    for (int i = 0; i < samples; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        launch();
        wait_for_all(devices);
        ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    }
    return timing_of(ms);
}

/// The largest difference of rows of O from those of rung 14, relative to the length of the row.
double difference(const std::vector<RankMemory>& ranks, const DeviceBuffer& whole, const AttentionShape& s) {
    const std::size_t d = std::size_t(s.head_dim);
    const int G = int(ranks.size()), n = s.n_q / G;
    const std::vector<float> expected = whole.download(s.q_elements(), s.dtype);
    double worst = 0;
    for (int g = 0; g < G; ++g) {
        const OnDevice on(ranks[std::size_t(g)].device);
        const std::vector<float> found = ranks[std::size_t(g)].O.download(s.q_elements() / std::size_t(G), s.dtype);
        for (int head = 0; head < s.batch * s.heads; ++head)
            for (int i = 0; i < n; ++i) {
                const float* a = &found[(std::size_t(head) * std::size_t(n) + std::size_t(i)) * d];
                const float* b = &expected[(std::size_t(head) * std::size_t(s.n_q) +
                                            std::size_t(ring_attention::position_of(i, g, G, n, s.causal))) * d];
                double off = 0, length = 0;
                for (std::size_t x = 0; x < d; ++x) off += (a[x] - b[x]) * (a[x] - b[x]), length += b[x] * b[x];
                const double relative = std::sqrt(off / length);
                if (!(relative <= worst)) worst = relative;
            }
    }
    return worst;
}

nlohmann::json measure(const AttentionShape& s, int G, const std::vector<int>& devices, int samples) {
    const attention::Stage& one = attention::find_stage("14-lcsf");
    const ring_attention::Stage& ring = ring_attention::find_stage("27c-ring");
    if (const std::string why = ring.why_cannot(s, G, true); !why.empty()) throw std::invalid_argument(why);
    const Inputs inputs(s, 1);
    const float scale = 1 / std::sqrt(float(s.head_dim));

    // One GPU, the whole problem.
    std::vector<RankMemory> whole;
    check_cuda(cudaSetDevice(devices[0]), "the first device");
    whole.emplace_back(devices[0], s, one.scratch_bytes(s));
    inputs.upload(whole[0].Q, s.heads, 0, 1, 0), inputs.upload(whole[0].K, s.kv_heads, 0, 1, 1);
    inputs.upload(whole[0].V, s.kv_heads, 0, 1, 2);
    const auto alone = [&] {
        one.launch({.shape = s, .Q = whole[0].Q.data(), .K = whole[0].K.data(), .V = whole[0].V.data(),
                    .O = whole[0].O.data(), .lse = static_cast<float*>(whole[0].lse.data()), .scale = scale,
                    .scratch = whole[0].scratch.data(), .stream = whole[0].stream});
    };
    const Timing of_one = time_of(devices, samples, alone);

    // G ranks.
    const AttentionShape shard = shard_of(s, G);
    std::vector<RankMemory> ranks;
    ranks.reserve(std::size_t(G));
    Args args{s, {}, scale};
    for (int g = 0; g < G; ++g) {
        const int device = devices[std::size_t(g) % devices.size()];
        check_cuda(cudaSetDevice(device), "a rank's device");
        RankMemory& m = ranks.emplace_back(device, shard, ring.scratch_bytes(s, G));
        inputs.upload(m.Q, s.heads, g, G, 0), inputs.upload(m.K, s.kv_heads, g, G, 1);
        inputs.upload(m.V, s.kv_heads, g, G, 2);
        args.ranks.push_back({device, m.Q.data(), m.K.data(), m.V.data(), m.O.data(), static_cast<float*>(m.lse.data()),
                              m.scratch.data(), m.stream});
    }
    check_cuda(cudaSetDevice(devices[0]), "the first device");
    const Timing of_ring = time_of(devices, samples, [&] { ring.launch(args); });
    const double off = difference(ranks, whole[0].O, s);

    // The same kernels without what they wait for, and the copies of a round alone.
    const Timing of_kernels = time_of(devices, samples, [&] {
        for (int round = 0; round < G; ++round)
            for (int g = 0; g < G; ++g) {
                const Rank& rank = args.ranks[std::size_t(g)];
                const OnDevice on(rank.device);
                ring.launch_round({{.shape = shard, .Q = rank.Q, .K = rank.K, .V = rank.V, .O = rank.O, .lse = rank.lse,
                                    .scale = scale, .scratch = rank.scratch, .stream = rank.stream},
                                   G, g, round});
            }
    });
    const std::size_t bytes = shard.kv_elements() * 2;
    const Timing of_copies = time_of(devices, samples, [&] {
        for (int g = 0; g < G && G > 1; ++g) {
            const Rank &to = args.ranks[std::size_t(g)], &from = args.ranks[std::size_t((g + G - 1) % G)];
            const OnDevice on(to.device);
            char* const buffer = static_cast<char*>(ring_attention::state_in(to.scratch, shard, G).behind);
            check_cuda(cudaMemcpyPeerAsync(buffer, to.device, from.K, from.device, bytes, to.stream), "a copy");
            check_cuda(cudaMemcpyPeerAsync(buffer + bytes, to.device, from.V, from.device, bytes, to.stream), "a copy");
        }
    });
    const double tflop = s.flops() / 1e9;
    const int GPUs = std::min(G, int(devices.size()));
    return {{"shape", {{"batch", s.batch}, {"heads", s.heads}, {"kv_heads", s.kv_heads}, {"n", s.n_q},
                       {"head_dim", s.head_dim}, {"causal", s.causal}}},
            {"dtype", to_string(s.dtype)},
            {"ranks", G},
            {"gpus", GPUs},
            {"one_gpu_ms", of_one.ms},
            {"one_gpu_tflops", tflop / of_one.ms},
            {"ms", of_ring.ms},
            {"ms_q1", of_ring.ms_q1},
            {"ms_q3", of_ring.ms_q3},
            {"tflops", tflop / of_ring.ms},
            {"percent_of_ideal", 100 * of_one.ms / (of_ring.ms * GPUs)},
            {"kernels_alone_ms", of_kernels.ms},
            {"copies_of_a_round_ms", of_copies.ms},
            {"worst_row_from_14", off}};
}

}  // namespace
}  // namespace flashladder

int main(int argc, char** argv) {
    using namespace flashladder;
    CLI::App app("Prints how long rung 27c takes on several GPUs, and rung 14 on one, as JSON.");
    int n = 65536, heads = 16, kv_heads = 0, d = 128, ranks = 0, samples = 10;
    app.add_option("--n", n, "length of the sequence");
    app.add_option("--heads", heads, "heads");
    app.add_option("--kv-heads", kv_heads, "heads of K and V, if fewer");
    app.add_option("--d", d, "the head dimension");
    app.add_option("--ranks", ranks, "ranks; devices take turns if they are fewer. As many as devices, if not said");
    app.add_option("--samples", samples, "launches that are timed");
    CLI11_PARSE(app, argc, argv);
    try {
        int devices = 0;
        check_cuda(cudaGetDeviceCount(&devices), "counting devices");
        std::vector<int> all;
        for (int i = 0; i < devices; ++i) all.push_back(i);
        if (ranks == 0) ranks = devices;
        nlohmann::json results = new_results();
        for (const bool causal : {false, true}) {
            AttentionShape s{.heads = heads, .kv_heads = kv_heads ? kv_heads : heads, .n_q = n, .n_k = n, .head_dim = d};
            s.causal = causal, s.dtype = DType::bf16;
            results["rows"].push_back(measure(s, ranks, all, samples));
            fmt::print(stderr, "{}\n", results["rows"].back().dump());
        }
        note_gpu_state(results);
        fmt::print("{}\n", results.dump(1));
    } catch (const std::exception& error) {
        fmt::print(stderr, "ring: {}\n", error.what());
        return 1;
    }
}
