#include "operations/ring_attention/stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "launch.h"
#include "operations/attention/arguments.h"
#include "operations/ring_attention/operation.h"

namespace flashladder::ring_attention {
namespace {

constexpr std::size_t alignment = 256;
std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

void check_scale(const attention::Support& supports, float scale, std::string& why, const std::string& name) {
    if (why.empty() && (!std::isfinite(scale) || (supports.positive_scale && !(scale > 0))))
        why = fmt::format("{}: scale is {}, and this stage supports positive ones alone", name, scale);
}

/// Streams of ranks that share the current device, which begin where a stream is, and which it waits for in the end. The
/// last rank has that stream itself.
class ForkedStreams {
public:
    ForkedStreams(int ranks, cudaStream_t stream) : stream_(stream), streams_(std::size_t(ranks), stream) {
        if (ranks == 1) return;
        check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event");
        check_cuda(cudaEventRecord(event_, stream), "recording an event");
        for (int g = 0; g + 1 < ranks; ++g) {
            check_cuda(cudaStreamCreateWithFlags(&streams_[std::size_t(g)], cudaStreamNonBlocking), "a rank's stream");
            check_cuda(cudaStreamWaitEvent(streams_[std::size_t(g)], event_, 0), "waiting for an event");
        }
    }
    ~ForkedStreams() {
        if (event_) (void)cudaEventDestroy(event_);
        for (const cudaStream_t s : streams_)
            if (s != stream_) (void)cudaStreamDestroy(s);
    }
    ForkedStreams(const ForkedStreams&) = delete;

    cudaStream_t of(int rank) const { return streams_[std::size_t(rank)]; }
    void join() {
        for (const cudaStream_t s : streams_) {
            if (s == stream_) continue;
            check_cuda(cudaEventRecord(event_, s), "recording an event");
            check_cuda(cudaStreamWaitEvent(stream_, event_, 0), "waiting for an event");
        }
        if (std::ranges::count(streams_, last_launch.stream)) last_launch.stream = stream_;
    }

private:
    cudaStream_t stream_;
    std::vector<cudaStream_t> streams_;
    cudaEvent_t event_ = nullptr;
};

}  // namespace

State state_in(void* scratch, const AttentionShape& shard, int ranks) {
    char* at = static_cast<char*>(scratch);
    const auto next = [&](std::size_t bytes) { return std::exchange(at, at + aligned(bytes)); };
    State state{reinterpret_cast<unsigned*>(next(sizeof(unsigned))), nullptr, nullptr, nullptr};
    if (ranks > 1) {
        state.lse = reinterpret_cast<float*>(next(shard.lse_elements() * sizeof(float)));
        state.O = reinterpret_cast<float*>(next(shard.q_elements() * sizeof(float)));
    }
    state.behind = at;
    return state;
}
std::size_t bytes_of_state(const AttentionShape& s, int ranks) {
    return aligned(sizeof(unsigned)) +
           (ranks > 1 ? aligned(s.lse_elements() * sizeof(float)) + aligned(s.q_elements() * sizeof(float)) : 0);
}
std::size_t bytes_of_buffer(const AttentionShape& s) {
    return aligned(2 * s.kv_elements() * bytes_per_element(s.dtype));
}

Stage::Stage(attention::Support supports, void (*launch_supported)(const Args&),
             void (*launch_round_supported)(const RoundArgs&))
    : supports(std::move(supports)),
      launch_supported_(launch_supported),
      launch_round_supported_(launch_round_supported) {}

std::string Stage::why_cannot(const AttentionShape& s, int ranks, bool wants_lse) const {
    std::string why = why_not_on_this_gpu(*this);
    if (why.empty()) why = attention::why_unsupported(supports, s, wants_lse);
    const auto refuse = [&](bool condition, const std::string& text) {
        if (why.empty() && condition) why = fmt::format("{}: {}", name(), text);
    };
    refuse(ranks < 1, fmt::format("ranks is {}, but must be at least 1", ranks));
    refuse(s.n_q != s.n_k, fmt::format("n_q is {} and n_k {}, but this is the attention of a sequence to itself", s.n_q,
                                       s.n_k));
    if (why.empty())
        refuse(s.n_q % chunks(ranks, s.causal) != 0,
               s.causal ? fmt::format("n is {}, but must be a multiple of {}: if causal, each of {} ranks has two chunks",
                                      s.n_q, chunks(ranks, true), ranks)
                        : fmt::format("n is {}, but must be a multiple of the number of ranks, {}", s.n_q, ranks));
    return why;
}

std::size_t Stage::scratch_bytes(const AttentionShape& shape, int ranks) const {
    const AttentionShape shard = shard_of(shape, std::max(ranks, 1));
    return bytes_of_state(shard, ranks) + std::size_t(std::clamp(ranks - 1, 0, 2)) * bytes_of_buffer(shard);
}

void Stage::launch(const Args& args) const {
    const int G = static_cast<int>(args.ranks.size());
    bool wants_lse = false;
    for (const Rank& rank : args.ranks) wants_lse |= rank.lse != nullptr;
    std::string why = why_cannot(args.shape, G, wants_lse);
    check_scale(supports, args.scale, why, name());
    for (int g = 0; g < G && why.empty(); ++g) {
        const Rank& rank = args.ranks[static_cast<std::size_t>(g)];
        const std::pair<const char*, const void*> pointers[] = {
            {"Q", rank.Q}, {"K", rank.K}, {"V", rank.V}, {"O", rank.O}, {"scratch", rank.scratch}};
        for (const auto& [what, pointer] : pointers) {
            if (!pointer) why = fmt::format("{}: {} of rank {} is a null pointer", name(), what, g);
            if (reinterpret_cast<std::uintptr_t>(pointer) % 16 != 0)
                why = fmt::format("{}: {} of rank {} is not aligned to 16 bytes", name(), what, g);
        }
    }
    if (!why.empty()) throw std::invalid_argument(why);
    launch_supported_(args);
}

void Stage::launch_round(const RoundArgs& given) const {
    RoundArgs args = given;
    AttentionShape whole = args.shape;
    whole.n_q *= std::max(args.ranks, 1), whole.n_k *= std::max(args.ranks, 1);
    std::string why = why_cannot(whole, args.ranks, args.lse != nullptr);
    const auto refuse = [&](bool condition, const std::string& text) {
        if (why.empty() && condition) why = fmt::format("{}: {}", name(), text);
    };
    for (const auto& [what, number] : {std::pair("rank", args.rank), {"round", args.round}})
        refuse(number < 0 || number >= args.ranks, fmt::format("{} is {}, but there are {}", what, number, args.ranks));
    if (why.empty()) why = attention::complete(supports, args);
    refuse(!args.scratch, fmt::format("scratch is a null pointer, but {} bytes are needed",
                                      round_scratch_bytes(args.shape, args.ranks)));
    if (!why.empty()) throw std::invalid_argument(why);
    launch_round_supported_(args);
}

const Operation& Stage::operation() const { return ring_attention::operation(); }

std::string Stage::why_unsupported(const Problem& problem) const {
    return why_cannot(shape_of(problem), ranks_of(problem), problem.extras.contains("lse"));
}
std::size_t Stage::scratch_bytes(const Problem& problem) const {
    const int ranks = ranks_of(problem);
    return static_cast<std::size_t>(std::max(ranks, 0)) * scratch_bytes(shape_of(problem), ranks);
}

void Stage::launch(const DeviceData& data) const {
    const AttentionShape shape = shape_of(data.problem);
    const int G = ranks_of(data.problem);
    if (const std::string why = why_unsupported(data.problem); !why.empty()) throw std::invalid_argument(why);
    const std::size_t of_element = bytes_per_element(shape.dtype), of_scratch = scratch_bytes(shape, G);
    Args args{shape, {}, static_cast<float>(data.arguments.at("scale"))};
    ForkedStreams streams(G, data.stream);
    for (int g = 0; g < G; ++g) {
        const auto part = [&](const char* name, std::size_t bytes) -> char* {
            const auto found = data.tensors.find(name);
            return found == data.tensors.end()
                       ? nullptr
                       : static_cast<char*>(found->second) + static_cast<std::size_t>(g) * bytes;
        };
        const AttentionShape shard = shard_of(shape, G);
        Rank rank;
        check_cuda(cudaGetDevice(&rank.device), "asking for the device");
        rank.Q = part("Q", shard.q_elements() * of_element);
        rank.K = part("K", shard.kv_elements() * of_element), rank.V = part("V", shard.kv_elements() * of_element);
        rank.O = part("O", shard.q_elements() * of_element);
        rank.lse = reinterpret_cast<float*>(part("lse", shard.lse_elements() * sizeof(float)));
        rank.scratch = static_cast<char*>(data.scratch) + static_cast<std::size_t>(g) * of_scratch;
        rank.stream = streams.of(g);
        args.ranks.push_back(rank);
    }
    launch(args);
    streams.join();
}

const Stage& find_stage(std::string_view name) {
    if (const auto* stage = dynamic_cast<const Stage*>(&flashladder::find_stage(name))) return *stage;
    throw std::invalid_argument(std::string(name) + " does not compute ring attention");
}

}  // namespace flashladder::ring_attention
