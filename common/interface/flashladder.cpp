#include "interface/flashladder.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "harness/dtype.h"
#include "harness/device_buffer.h"
#include "launch.h"
#include "operations/attention/stage.h"
#include "operations/attention_backward/stage.h"
#include "operations/gemm/stage.h"
#include "operations/block_sparse_attention/stage.h"
#include "operations/paged_attention/stage.h"
#include "operations/varlen_attention/stage.h"
#include "operations/ring_attention/stage.h"

namespace flashladder {
namespace {

thread_local bool refused = false;
const std::string gemm_stage = "14b-gemm";

/// Does the work; what it throws becomes text.
template <class Work>
const char* error_of(Work work) {
    thread_local std::string error;
    refused = false;
    try {
        work();
        return nullptr;
    } catch (const std::invalid_argument& exception) {
        error = exception.what();
        refused = true;
    } catch (const std::exception& exception) {
        error = exception.what();
    } catch (...) {
        error = "unknown error";
    }
    return error.c_str();
}

std::string text(const char* value, const char* name) {
    if (!value) throw std::invalid_argument(std::string(name) + " is a null pointer");
    return value;
}

template <class Problem>
attention::AttentionShape shape_of(const Problem& p) {
    return {p.batch, p.heads, p.kv_heads, p.n_q, p.n_k, p.head_dim, p.causal != 0, parse_dtype(text(p.dtype, "dtype"))};
}

Strides strides_of(const long long (&strides)[3]) { return {strides[0], strides[1], strides[2]}; }

/// The stage that solves the problem. Throws std::invalid_argument if it cannot.
const attention::Stage& stage_of(const FlashLadderForward& p) {
    const attention::Stage& stage = attention::find_stage(text(p.stage, "stage"));
    const std::string why = why_unsupported(stage, shape_of(p), p.lse != nullptr);
    return why.empty() ? stage : throw std::invalid_argument(why);
}
const attention_backward::Stage& stage_of(const FlashLadderBackward& p) {
    const attention_backward::Stage& stage = attention_backward::find_stage(text(p.stage, "stage"));
    const std::string why = why_unsupported(stage, shape_of(p));
    return why.empty() ? stage : throw std::invalid_argument(why);
}

void launch(const FlashLadderForward& p) {
    attention::find_stage(text(p.stage, "stage"))
        .launch(attention::ForwardArgs{shape_of(p), p.Q, p.K, p.V, p.O, p.lse, p.scale, p.scratch, static_cast<cudaStream_t>(p.stream),
                 strides_of(p.Q_strides), strides_of(p.K_strides), strides_of(p.V_strides), strides_of(p.O_strides)});
}
void launch(const FlashLadderBackward& p) {
    attention_backward::find_stage(text(p.stage, "stage"))
        .launch(attention_backward::BackwardArgs{
            shape_of(p), p.Q, p.K, p.V, p.O, p.dO, p.lse, p.dQ, p.dK, p.dV, p.scale, p.scratch, static_cast<cudaStream_t>(p.stream),
            strides_of(p.Q_strides), strides_of(p.K_strides), strides_of(p.V_strides), strides_of(p.O_strides),
            strides_of(p.dO_strides), strides_of(p.dQ_strides), strides_of(p.dK_strides), strides_of(p.dV_strides)});
}

paged_attention::Args args_of(const FlashLadderPaged& p) {
    return {{shape_of(p), p.Q, p.K, p.V, p.O, p.lse, p.scale, p.scratch, static_cast<cudaStream_t>(p.stream),
             strides_of(p.Q_strides), strides_of(p.K_strides), strides_of(p.V_strides), strides_of(p.O_strides)},
            {p.page_size, p.pages, p.pages_of_sequence},
            p.block_table,
            p.lengths};
}
const paged_attention::Stage& stage_of(const FlashLadderPaged& p) {
    const paged_attention::Stage& stage = paged_attention::find_stage(text(p.stage, "stage"));
    const paged_attention::Args args = args_of(p);
    const std::string why = stage.why_cannot(args.shape, args.pool, p.lse != nullptr);
    return why.empty() ? stage : throw std::invalid_argument(why);
}
void launch(const FlashLadderPaged& p) { paged_attention::find_stage(text(p.stage, "stage")).launch(args_of(p)); }

/// Throws std::invalid_argument if a sequence is too long, or has a page that the pool has not.
void check_sequences(const FlashLadderPaged& p) {
    for (int b = 0; b < p.batch; ++b) {
        const int length = p.lengths[b];
        if (length < 0 || length > p.n_k)
            throw std::invalid_argument(fmt::format("{}: sequence {} has length {}, but must have 0 to {} keys", p.stage, b,
                                                    length, p.n_k));
        for (int n = 0; n < paged_attention::pages_of(length, p.page_size); ++n)
            if (const int page = p.block_table[std::size_t(b) * std::size_t(p.pages_of_sequence) + std::size_t(n)];
                page < 0 || page >= p.pages)
                throw std::invalid_argument(fmt::format("{}: block_table[{}][{}] is {}, but the pool has pages 0 to {}",
                                                        p.stage, b, n, page, p.pages - 1));
    }
}

varlen_attention::Args args_of(const FlashLadderVarlen& p) {
    const auto strides = [](const long long (&s)[2]) { return Strides{0, s[1], s[0]}; };
    return {{{1, p.heads, p.kv_heads, p.total_q, p.total_k, p.head_dim, p.causal != 0, parse_dtype(text(p.dtype, "dtype"))},
             p.Q, p.K, p.V, p.O, p.lse, p.scale, p.scratch, static_cast<cudaStream_t>(p.stream), strides(p.Q_strides),
             strides(p.K_strides), strides(p.V_strides), strides(p.O_strides)},
            p.sequences,
            p.cu_seqlens_q,
            p.cu_seqlens_k,
            p.value_dim};
}
const varlen_attention::Stage& stage_of(const FlashLadderVarlen& p) {
    const varlen_attention::Stage& stage = varlen_attention::find_stage(text(p.stage, "stage"));
    const std::string why = stage.why_cannot(args_of(p).whole_shape(), p.sequences, p.lse != nullptr);
    return why.empty() ? stage : throw std::invalid_argument(why);
}
void launch(const FlashLadderVarlen& p) { varlen_attention::find_stage(text(p.stage, "stage")).launch(args_of(p)); }

/// Throws std::invalid_argument if the list does not say which of so many rows are whose.
void check_places(const char* stage, const char* name, const int* places, int sequences, int rows) {
    for (int b = 0; b <= sequences; ++b) {
        const auto refuse = [&](const std::string& expected) {
            throw std::invalid_argument(fmt::format("{}: {}[{}] is {}, but must be {}", stage, name, b, places[b], expected));
        };
        if (b == 0 && places[b] != 0) refuse("0");
        if (b > 0 && places[b] < places[b - 1]) refuse(fmt::format("at least the one before, {}", places[b - 1]));
        if (b == sequences && places[b] != rows) refuse(fmt::format("{}, the number of all rows", rows));
    }
}

/// The bytes from a packed tensor's first element to behind its last one.
std::size_t extent_bytes(int rows, int heads, int columns, DType dtype, const long long (&strides)[2]) {
    if (rows <= 0) return 0;
    const bool is_plain = strides[0] == 0 && strides[1] == 0;
    const std::int64_t row = is_plain ? std::int64_t(heads) * columns : std::max(strides[0], 0LL),
                       head = is_plain ? columns : std::max(strides[1], 0LL);
    return std::size_t(row * (rows - 1) + head * (heads - 1) + columns) * bytes_per_element(dtype);
}

block_sparse_attention::Args args_of(const FlashLadderBlockSparse& p) {
    return {{shape_of(p), p.Q, p.K, p.V, p.O, p.lse, p.scale, p.scratch, static_cast<cudaStream_t>(p.stream),
             strides_of(p.Q_strides), strides_of(p.K_strides), strides_of(p.V_strides), strides_of(p.O_strides)},
            p.first,
            p.blocks,
            p.list_heads};
}
const block_sparse_attention::Stage& stage_of(const FlashLadderBlockSparse& p) {
    const block_sparse_attention::Stage& stage = block_sparse_attention::find_stage(text(p.stage, "stage"));
    const std::string why = stage.why_cannot(shape_of(p), p.list_heads, p.lse != nullptr);
    return why.empty() ? stage : throw std::invalid_argument(why);
}
void launch(const FlashLadderBlockSparse& p) {
    block_sparse_attention::find_stage(text(p.stage, "stage")).launch(args_of(p));
}

/// What the host has of lists. Throws std::invalid_argument if they are bad ones.
block_sparse_attention::Lists lists_of(const FlashLadderBlockSparse& p) {
    const int lists = p.list_heads * block_sparse_attention::blocks_of(p.n_q);
    block_sparse_attention::Lists all{.heads = p.list_heads, .first = {p.first, p.first + lists + 1}, .blocks = {}};
    const int blocks = all.first.back();
    if (blocks > 0 && !p.blocks) throw std::invalid_argument(fmt::format("{}: blocks is a null pointer", p.stage));
    if (blocks > 0) all.blocks.assign(p.blocks, p.blocks + blocks);
    if (const std::string why = why_bad(all, shape_of(p)); !why.empty())
        throw std::invalid_argument(fmt::format("{}: {}", p.stage, why));
    return all;
}

/// Of the whole sequence.
template <class Ring>
attention::AttentionShape shape_of_sequence(const Ring& p) {
    return {p.batch, p.heads, p.kv_heads, p.n, p.n, p.head_dim, p.causal != 0, parse_dtype(text(p.dtype, "dtype"))};
}
template <class Ring>
const ring_attention::Stage& stage_of_ring(const Ring& p) {
    const ring_attention::Stage& stage = ring_attention::find_stage(text(p.stage, "stage"));
    const std::string why = stage.why_cannot(shape_of_sequence(p), p.ranks, p.lse != nullptr);
    return why.empty() ? stage : throw std::invalid_argument(why);
}
ring_attention::RoundArgs args_of(const FlashLadderRingRound& p) {
    return {{.shape = ring_attention::shard_of(shape_of_sequence(p), p.ranks), .Q = p.Q, .K = p.K, .V = p.V, .O = p.O,
             .lse = p.lse, .scale = p.scale, .scratch = p.scratch, .stream = static_cast<cudaStream_t>(p.stream)},
            p.ranks, p.rank, p.round};
}

/// Throws std::invalid_argument if one is null.
void check_pointers(const Stage& stage, std::initializer_list<std::pair<const char*, const void*>> pointers) {
    for (const auto& [name, pointer] : pointers)
        if (!pointer) throw std::invalid_argument(stage.name() + ": " + name + " is a null pointer");
}

/// The bytes from a tensor's first element to behind its last one.
std::size_t extent_bytes(const attention::AttentionShape& s, int batch, int heads, int rows, Strides strides) {
    if (strides == Strides{}) strides = contiguous(heads, rows, s.head_dim);
    const auto last = [](std::int64_t stride, int extent) { return std::max<std::int64_t>(stride, 0) * (extent - 1); };
    return (last(strides.batch, batch) + last(strides.head, heads) + last(strides.row, rows) + s.head_dim) *
           bytes_per_element(s.dtype);
}

/// Device memory with what the host has at an address.
struct OnDevice : DeviceBuffer {
    OnDevice(const void* host, std::size_t bytes) : DeviceBuffer(bytes) {
        check_cuda(cudaMemcpy(data(), host, bytes, cudaMemcpyHostToDevice), "copy to the device");
    }
    void copy_to(void* host) const {
        check_cuda(cudaMemcpy(host, data(), bytes(), cudaMemcpyDeviceToHost), "copy from the device");
    }
};

/// Of a forward problem of the host's: Q, K, V, O and lse on the device, and what is to come back from there.
struct TensorsOnDevice {
    const OnDevice Q, K, V, O, lse;

    /// `p` has these from now on. K and V are (key_batch, kv_heads, key_rows, head_dim).
    template <class Problem>
    TensorsOnDevice(Problem& p, const attention::AttentionShape& s, int key_batch, int key_rows)
        : Q(p.Q, extent_bytes(s, s.batch, s.heads, s.n_q, strides_of(p.Q_strides))),
          K(p.K, extent_bytes(s, key_batch, s.kv_heads, key_rows, strides_of(p.K_strides))),
          V(p.V, extent_bytes(s, key_batch, s.kv_heads, key_rows, strides_of(p.V_strides))),
          O(p.O, extent_bytes(s, s.batch, s.heads, s.n_q, strides_of(p.O_strides))),
          lse(p.lse, p.lse ? s.lse_elements() * sizeof(float) : 0) {
        p.Q = Q.data(), p.K = K.data(), p.V = V.data(), p.O = O.data(), p.lse = static_cast<float*>(lse.data());
    }
    template <class Problem>
    void copy_outputs(const Problem& to) const {
        O.copy_to(to.O), lse.copy_to(to.lse);
    }
};

/// Of an operation's stages, as JSON; `own` is what only they can do.
template <class OperationStage, class Support>
std::string describe_stages(const char* own_name, bool Support::*own) {
    nlohmann::json all = nlohmann::json::array();
    for (const Stage& any : stages()) {
        const auto* stage = dynamic_cast<const OperationStage*>(&any);
        if (!stage) continue;
        const Support& s = stage->supports;
        std::vector<std::string> dtypes;
        for (const DType dtype : s.dtypes) dtypes.push_back(to_string(dtype));
        nlohmann::json forms = nlohmann::json::array();
        for (const Stage& form : variants())
            if (form.folder() == s.stage) {
                const Support& of = dynamic_cast<const OperationStage&>(form).supports;
                forms.push_back({{"variant", form.variant()}, {"head_dims", of.head_dims}, {own_name, of.*own}});
            }
        all.push_back({{"stage", s.stage},
                       {"head_dims", s.head_dims},
                       {"dtypes", dtypes},
                       {"causal", s.causal},
                       {own_name, s.*own},
                       {"grouped_query", s.grouped_query},
                       {"strides", s.strides},
                       {"compute_capability", s.compute_capability},
                       {"max_batch_heads", s.max_batch_heads},
                       {"max_n_k", s.max_n_k},
                       {"variants", forms}});
    }
    return all.dump();
}

}  // namespace
}  // namespace flashladder

using namespace flashladder;

const char* flashladder_stages(const char** json) {
    return error_of([&] {
        static const std::string description = describe_stages<attention::Stage>("lse", &attention::Support::lse);
        *json = description.c_str();
    });
}

const char* flashladder_scratch_bytes(const FlashLadderForward* problem, size_t* bytes) {
    return error_of([&] { *bytes = stage_of(*problem).scratch_bytes(shape_of(*problem)); });
}

const char* flashladder_forward(const FlashLadderForward* problem) {
    return error_of([&] { launch(*problem); });
}

const char* flashladder_forward_from_host(const FlashLadderForward* problem) {
    return error_of([&] {
        FlashLadderForward p = *problem;
        const attention::AttentionShape s = shape_of(p);
        const attention::Stage& stage = stage_of(p);
        check_pointers(stage, {{"Q", p.Q}, {"K", p.K}, {"V", p.V}, {"O", p.O}});
        const DeviceBuffer scratch(stage.scratch_bytes(s));
        const TensorsOnDevice tensors(p, s, s.batch, s.n_k);
        p.scratch = scratch.data();
        launch(p);
        check_cuda(cudaStreamSynchronize(static_cast<cudaStream_t>(p.stream)), "kernel");
        tensors.copy_outputs(*problem);
    });
}

const char* flashladder_backward_stages(const char** json) {
    return error_of([&] {
        static const std::string description =
            describe_stages<attention_backward::Stage>("deterministic", &attention_backward::Support::deterministic);
        *json = description.c_str();
    });
}

const char* flashladder_backward_scratch_bytes(const FlashLadderBackward* problem, size_t* bytes) {
    return error_of([&] { *bytes = stage_of(*problem).scratch_bytes(shape_of(*problem)); });
}

const char* flashladder_backward(const FlashLadderBackward* problem) {
    return error_of([&] { launch(*problem); });
}

const char* flashladder_backward_from_host(const FlashLadderBackward* problem) {
    return error_of([&] {
        FlashLadderBackward p = *problem;
        const attention::AttentionShape s = shape_of(p);
        const attention_backward::Stage& stage = stage_of(p);
        check_pointers(stage, {{"Q", p.Q}, {"K", p.K}, {"V", p.V}, {"O", p.O}, {"dO", p.dO}, {"lse", p.lse},
                               {"dQ", p.dQ}, {"dK", p.dK}, {"dV", p.dV}});
        const auto of_queries = [&](const void* host, const long long (&strides)[3]) {
            return OnDevice(host, extent_bytes(s, s.batch, s.heads, s.n_q, strides_of(strides)));
        };
        const auto of_keys = [&](const void* host, const long long (&strides)[3]) {
            return OnDevice(host, extent_bytes(s, s.batch, s.kv_heads, s.n_k, strides_of(strides)));
        };
        const OnDevice Q = of_queries(p.Q, p.Q_strides), K = of_keys(p.K, p.K_strides), V = of_keys(p.V, p.V_strides);
        const OnDevice O = of_queries(p.O, p.O_strides), dO = of_queries(p.dO, p.dO_strides);
        const OnDevice lse(p.lse, s.lse_elements() * sizeof(float));
        const OnDevice dQ = of_queries(p.dQ, p.dQ_strides), dK = of_keys(p.dK, p.dK_strides), dV = of_keys(p.dV, p.dV_strides);
        p.Q = Q.data(), p.K = K.data(), p.V = V.data(), p.O = O.data(), p.dO = dO.data();
        p.lse = static_cast<const float*>(lse.data()), p.dQ = dQ.data(), p.dK = dK.data(), p.dV = dV.data();
        const DeviceBuffer scratch(stage.scratch_bytes(s));
        p.scratch = scratch.data();
        launch(p);
        check_cuda(cudaStreamSynchronize(static_cast<cudaStream_t>(p.stream)), "kernel");
        dQ.copy_to(problem->dQ), dK.copy_to(problem->dK), dV.copy_to(problem->dV);
    });
}

const char* flashladder_paged_scratch_bytes(const FlashLadderPaged* problem, size_t* bytes) {
    return error_of([&] { *bytes = stage_of(*problem).scratch_bytes(shape_of(*problem)); });
}

const char* flashladder_paged_attention(const FlashLadderPaged* problem) {
    return error_of([&] { launch(*problem); });
}

const char* flashladder_paged_attention_from_host(const FlashLadderPaged* problem) {
    return error_of([&] {
        FlashLadderPaged p = *problem;
        const attention::AttentionShape s = shape_of(p);
        const paged_attention::Stage& stage = stage_of(p);
        check_pointers(stage, {{"Q", p.Q}, {"K", p.K}, {"V", p.V}, {"O", p.O},
                               {"block_table", p.block_table}, {"lengths", p.lengths}});
        check_sequences(p);
        const DeviceBuffer scratch(stage.scratch_bytes(s));
        const TensorsOnDevice tensors(p, s, p.pages, p.page_size);
        const std::size_t numbers = std::size_t(p.batch) * std::size_t(p.pages_of_sequence);
        const OnDevice block_table(p.block_table, numbers * sizeof(int)), lengths(p.lengths, std::size_t(p.batch) * sizeof(int));
        p.block_table = static_cast<const int*>(block_table.data());
        p.lengths = static_cast<const int*>(lengths.data());
        p.scratch = scratch.data();
        launch(p);
        check_cuda(cudaStreamSynchronize(static_cast<cudaStream_t>(p.stream)), "kernel");
        tensors.copy_outputs(*problem);
    });
}

const char* flashladder_ring_scratch_bytes(const FlashLadderRing* problem, size_t* bytes) {
    return error_of([&] { *bytes = stage_of_ring(*problem).scratch_bytes(shape_of_sequence(*problem), problem->ranks); });
}

const char* flashladder_ring_attention(const FlashLadderRing* problem) {
    return error_of([&] {
        const FlashLadderRing& p = *problem;
        const ring_attention::Stage& stage = stage_of_ring(p);
        check_pointers(stage, {{"devices", p.devices}, {"Q", p.Q}, {"K", p.K}, {"V", p.V}, {"O", p.O},
                               {"scratch", p.scratch}, {"streams", p.streams}});
        ring_attention::Args args{shape_of_sequence(p), {}, p.scale};
        for (int g = 0; g < p.ranks; ++g)
            args.ranks.push_back({p.devices[g], p.Q[g], p.K[g], p.V[g], p.O[g], p.lse ? p.lse[g] : nullptr, p.scratch[g],
                                  static_cast<cudaStream_t>(p.streams[g])});
        stage.launch(args);
    });
}

const char* flashladder_ring_round_scratch_bytes(const FlashLadderRingRound* problem, size_t* bytes) {
    return error_of([&] {
        const ring_attention::Stage& stage = stage_of_ring(*problem);
        *bytes = stage.round_scratch_bytes(args_of(*problem).shape, problem->ranks);
    });
}

const char* flashladder_ring_round(const FlashLadderRingRound* problem) {
    return error_of([&] { stage_of_ring(*problem).launch_round(args_of(*problem)); });
}

const char* flashladder_ring_round_from_host(const FlashLadderRingRound* problem) {
    return error_of([&] {
        FlashLadderRingRound p = *problem;
        const ring_attention::Stage& stage = stage_of_ring(p);
        check_pointers(stage, {{"Q", p.Q}, {"K", p.K}, {"V", p.V}, {"O", p.O}, {"scratch", p.scratch}});
        const attention::AttentionShape s = args_of(p).shape;
        const std::size_t q_bytes = s.q_elements() * bytes_per_element(s.dtype),
                          kv_bytes = s.kv_elements() * bytes_per_element(s.dtype);
        const OnDevice Q(p.Q, q_bytes), K(p.K, kv_bytes), V(p.V, kv_bytes), O(p.O, q_bytes),
            lse(p.lse, p.lse ? s.lse_elements() * sizeof(float) : 0),
            scratch(p.scratch, stage.round_scratch_bytes(s, p.ranks));
        p.Q = Q.data(), p.K = K.data(), p.V = V.data(), p.O = O.data(), p.lse = static_cast<float*>(lse.data());
        p.scratch = scratch.data();
        stage.launch_round(args_of(p));
        check_cuda(cudaStreamSynchronize(static_cast<cudaStream_t>(p.stream)), "kernel");
        O.copy_to(problem->O), lse.copy_to(problem->lse), scratch.copy_to(problem->scratch);
    });
}

const char* flashladder_block_sparse_scratch_bytes(const FlashLadderBlockSparse* problem, size_t* bytes) {
    return error_of([&] { *bytes = stage_of(*problem).scratch_bytes(shape_of(*problem)); });
}

const char* flashladder_block_sparse_attention(const FlashLadderBlockSparse* problem) {
    return error_of([&] { launch(*problem); });
}

const char* flashladder_block_sparse_attention_from_host(const FlashLadderBlockSparse* problem) {
    return error_of([&] {
        FlashLadderBlockSparse p = *problem;
        const attention::AttentionShape s = shape_of(p);
        const block_sparse_attention::Stage& stage = stage_of(p);
        check_pointers(stage, {{"Q", p.Q}, {"K", p.K}, {"V", p.V}, {"O", p.O}, {"first", p.first}});
        const block_sparse_attention::Lists lists = lists_of(p);
        const DeviceBuffer scratch(stage.scratch_bytes(s));
        const TensorsOnDevice tensors(p, s, s.batch, s.n_k);
        const OnDevice first(p.first, lists.first.size() * sizeof(int));
        const DeviceBuffer blocks(std::max<std::size_t>(lists.blocks.size(), 1) * sizeof(int));
        check_cuda(cudaMemcpy(blocks.data(), lists.blocks.data(), lists.blocks.size() * sizeof(int), cudaMemcpyHostToDevice),
                   "copy to the device");
        p.first = static_cast<const int*>(first.data()), p.blocks = static_cast<const int*>(blocks.data());
        p.scratch = scratch.data();
        launch(p);
        check_cuda(cudaStreamSynchronize(static_cast<cudaStream_t>(p.stream)), "kernel");
        tensors.copy_outputs(*problem);
    });
}

const char* flashladder_varlen_scratch_bytes(const FlashLadderVarlen* problem, size_t* bytes) {
    return error_of([&] { *bytes = stage_of(*problem).scratch_bytes(args_of(*problem).whole_shape(), problem->sequences); });
}

const char* flashladder_varlen_attention(const FlashLadderVarlen* problem) {
    return error_of([&] { launch(*problem); });
}

const char* flashladder_varlen_attention_from_host(const FlashLadderVarlen* problem) {
    return error_of([&] {
        FlashLadderVarlen p = *problem;
        const varlen_attention::Shape s = args_of(p).whole_shape();
        const varlen_attention::Stage& stage = stage_of(p);
        const std::tuple<const char*, const void*, int> tensors[] = {
            {"Q", p.Q, s.n_q}, {"K", p.K, s.n_k}, {"V", p.V, s.n_k}, {"O", p.O, s.n_q},
            {"cu_seqlens_q", p.cu_seqlens_q, 1}, {"cu_seqlens_k", p.cu_seqlens_k, 1}};
        for (const auto& [name, pointer, rows] : tensors)
            if (!pointer && rows > 0) throw std::invalid_argument(stage.name() + ": " + name + " is a null pointer");
        check_places(p.stage, "cu_seqlens_q", p.cu_seqlens_q, p.sequences, p.total_q);
        check_places(p.stage, "cu_seqlens_k", p.cu_seqlens_k, p.sequences, p.total_k);
        const DeviceBuffer scratch(stage.scratch_bytes(s, p.sequences));
        const OnDevice Q(p.Q, extent_bytes(s.n_q, s.heads, s.head_dim, s.dtype, p.Q_strides));
        const OnDevice K(p.K, extent_bytes(s.n_k, s.kv_heads, s.head_dim, s.dtype, p.K_strides));
        const OnDevice V(p.V, extent_bytes(s.n_k, s.kv_heads, s.columns_of_V(), s.dtype, p.V_strides));
        const OnDevice O(p.O, extent_bytes(s.n_q, s.heads, s.columns_of_V(), s.dtype, p.O_strides));
        const OnDevice lse(p.lse, p.lse ? s.lse_elements() * sizeof(float) : 0);
        const std::size_t places = (std::size_t(p.sequences) + 1) * sizeof(int);
        const OnDevice of_queries(p.cu_seqlens_q, places), of_keys(p.cu_seqlens_k, places);
        p.Q = Q.data(), p.K = K.data(), p.V = V.data(), p.O = O.data(), p.lse = static_cast<float*>(lse.data());
        p.cu_seqlens_q = static_cast<const int*>(of_queries.data());
        p.cu_seqlens_k = static_cast<const int*>(of_keys.data());
        p.scratch = scratch.data();
        launch(p);
        check_cuda(cudaStreamSynchronize(static_cast<cudaStream_t>(p.stream)), "kernel");
        O.copy_to(problem->O), lse.copy_to(problem->lse);
    });
}

int flashladder_refused() { return refused; }

#ifdef FLASHLADDER_GPU
const char* flashladder_backend() { return "gpu"; }
#else
const char* flashladder_backend() { return "cpu"; }
#endif

const char* flashladder_gemm(const char* variant, int M, int N, int K, const void* A, const void* B, void* C,
                             void* scratch, void* stream) {
    return error_of([&] {
        const std::string form = text(variant, "variant"), name = gemm_stage + (form.empty() ? "" : "/" + form);
        const auto all = variants();
        if (!form.empty() && std::ranges::none_of(all, [&](const Stage& stage) { return stage.name() == name; }))
            throw std::invalid_argument(gemm_stage + ": there is no variant '" + form + "'");
        gemm::find_stage(name).launch(gemm::Args{{M, N, K}, A, B, C, scratch, static_cast<cudaStream_t>(stream)});
    });
}

const char* flashladder_gemm_variants(const char** json) {
    return error_of([&] {
        static const std::string names = [] {
            nlohmann::json all = {""};
            for (const Stage& form : variants())
                if (form.folder() == gemm_stage) all.push_back(form.variant());
            return all.dump();
        }();
        *json = names.c_str();
    });
}
