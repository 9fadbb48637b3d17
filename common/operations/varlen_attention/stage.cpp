#include "operations/varlen_attention/stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "operations/attention/arguments.h"
#include "operations/varlen_attention/operation.h"

namespace flashladder::varlen_attention {
namespace {

/// Strides of (rows, heads, columns) without gaps.
Strides without_gaps(std::int64_t heads, std::int64_t columns) { return {0, columns, heads * columns}; }

}  // namespace

Stage::Stage(attention::Support supports, void (*launch_supported)(const Args&),
             std::size_t (*scratch_bytes)(const Shape&, int sequences))
    : supports(std::move(supports)), launch_supported_(launch_supported), scratch_bytes_(scratch_bytes) {}

std::string Stage::why_cannot(const Shape& shape, int sequences, bool wants_lse) const {
    std::string why = why_not_on_this_gpu(*this);
    attention::AttentionShape with_rows = shape;  // attention has none without
    with_rows.n_q = std::max(shape.n_q, 1), with_rows.n_k = std::max(shape.n_k, 1);
    if (why.empty()) why = attention::why_unsupported(supports, with_rows, wants_lse);
    const auto refuse = [&](bool condition, const std::string& text) {
        if (why.empty() && condition) why = fmt::format("{}: {}", name(), text);
    };
    const std::vector<int>& widths = supports.head_dims;
    refuse(std::ranges::find(widths, shape.columns_of_V()) == widths.end(),
           fmt::format("value_dim {} is not supported: none that is no head_dim either", shape.value_dim));
    refuse(shape.batch != 1, fmt::format("batch is {}, but packed sequences are one", shape.batch));
    for (const auto& [total, value] : {std::pair("total_q", shape.n_q), {"total_k", shape.n_k}})
        refuse(value < 0, fmt::format("{} is {}, but must be at least 0", total, value));
    refuse(sequences < 1, fmt::format("sequences is {}, but must be at least 1", sequences));
    const long long rows = static_cast<long long>(shape.heads) * shape.n_q;
    refuse(rows > 0x7FFFFFFF, fmt::format("heads * total_q is {}, but at most {} are supported", rows, 0x7FFFFFFF));
    return why;
}

void Stage::launch(const Args& given) const {
    Args args = given;
    const Shape s = args.whole_shape();
    std::string why = why_cannot(s, args.sequences, args.lse != nullptr);
    const auto refuse = [&](bool condition, const std::string& text) {
        if (why.empty() && condition) why = fmt::format("{}: {}", name(), text);
    };
    attention::Placed tensors[] = {{"Q", args.Q, args.Q_strides, 1, s.heads, s.n_q, s.head_dim, false},
                                   {"K", args.K, args.K_strides, 1, s.kv_heads, s.n_k, s.head_dim, false},
                                   {"V", args.V, args.V_strides, 1, s.kv_heads, s.n_k, s.columns_of_V(), false},
                                   {"O", args.O, args.O_strides, 1, s.heads, s.n_q, s.columns_of_V(), true}};
    for (attention::Placed& tensor : tensors) {
        if (tensor.rows == 0) continue;  // it may have no address
        refuse(!tensor.pointer, fmt::format("{} is a null pointer", tensor.name));
        if (!why.empty()) break;  // nor do strides mean anything
        if (tensor.strides == Strides{}) tensor.strides = without_gaps(tensor.heads, tensor.columns);
        tensor.fill_in_strides();
        const std::string bad = tensor.why_bad(supports.strides ? "" : "strides are not supported", s.dtype);
        refuse(!bad.empty(), bad);
    }
    refuse(!args.cu_seqlens_q, "cu_seqlens_q is a null pointer");
    refuse(!args.cu_seqlens_k, "cu_seqlens_k is a null pointer");
    refuse(!std::isfinite(args.scale), fmt::format("scale is {}", args.scale));
    refuse(supports.positive_scale && !(args.scale > 0),
           fmt::format("scale is {}, and this stage supports positive ones alone", args.scale));
    if (why.empty() && !args.scratch && scratch_bytes(s, args.sequences) > 0)
        refuse(true,
               fmt::format("scratch is a null pointer, but {} bytes are needed", scratch_bytes(s, args.sequences)));
    if (!why.empty()) throw std::invalid_argument(why);
    if (s.n_q == 0) return;
    if (s.n_k == 0) {  // nothing is read, but a tensor map wants an address and strides
        args.K = args.V = args.Q;
        args.K_strides = args.V_strides = without_gaps(s.kv_heads, s.head_dim);
    }
    launch_supported_(args);
}

const Operation& Stage::operation() const { return varlen_attention::operation(); }

std::string Stage::why_unsupported(const Problem& problem) const {
    return why_cannot(shape_of(problem), static_cast<int>(problem.at("batch")), problem.extras.contains("lse"));
}

std::size_t Stage::scratch_bytes(const Problem& problem) const {
    return scratch_bytes_(shape_of(problem), static_cast<int>(problem.at("batch")));
}

void Stage::launch(const DeviceData& data) const {
    const auto tensor = [&](const char* name) {
        const auto found = data.tensors.find(name);
        return found == data.tensors.end() ? nullptr : found->second;
    };
    launch(Args{{.shape = shape_of(data.problem),
                 .Q = tensor("Q"),
                 .K = tensor("K"),
                 .V = tensor("V"),
                 .O = tensor("O"),
                 .lse = static_cast<float*>(tensor("lse")),
                 .scale = static_cast<float>(data.arguments.at("scale")),
                 .scratch = data.scratch,
                 .stream = data.stream},
                static_cast<int>(data.problem.at("batch")),
                static_cast<const int*>(tensor("cu_seqlens_q")),
                static_cast<const int*>(tensor("cu_seqlens_k")),
                shape_of(data.problem).value_dim});
}

const Stage& find_stage(std::string_view name) {
    if (const auto* stage = dynamic_cast<const Stage*>(&flashladder::find_stage(name))) return *stage;
    throw std::invalid_argument(std::string(name) + " does not compute attention of packed sequences");
}

}  // namespace flashladder::varlen_attention
