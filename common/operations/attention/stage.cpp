#include "operations/attention/stage.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "harness/dtype.h"
#include "operations/attention/arguments.h"
#include "operations/attention/operation.h"

namespace flashladder::attention {

Stage::Stage(Support supports, void (*launch_supported)(const ForwardArgs&),
             std::size_t (*scratch_bytes)(const AttentionShape&))
    : supports(std::move(supports)), launch_supported_(launch_supported), scratch_bytes_(scratch_bytes) {}

std::string why_unsupported(const Stage& stage, const AttentionShape& shape, bool wants_lse) {
    const std::string why = why_not_on_this_gpu(stage);
    return why.empty() ? why_unsupported(stage.supports, shape, wants_lse) : why;
}

std::string why_unsupported(const Support& supports, const AttentionShape& shape, bool wants_lse) {
    const auto refuse = [&](const std::string& why) { return fmt::format("{}: {}", supports.name(), why); };
    if (const std::string why = why_bad_shape(shape, supports.head_dims, supports.dtypes, supports.max_batch_heads);
        !why.empty())
        return refuse(why);
    if (shape.causal && !supports.causal) return refuse("causal is not supported (from 03-row-swapped-loops on)");
    if (wants_lse && !supports.lse) return refuse("lse is not supported (from 03-row-swapped-loops on)");
    if (shape.kv_heads != shape.heads && !supports.grouped_query)
        return refuse(
            fmt::format("kv_heads {} with heads {}: grouped queries are not supported (from 03-row-swapped-loops on)",
                        shape.kv_heads, shape.heads));
    if (supports.max_n_k > 0 && shape.n_k > supports.max_n_k)
        return refuse(fmt::format("n_k is {}, but at most {} are supported", shape.n_k, supports.max_n_k));
    return "";
}

std::string complete(const Support& supports, ForwardArgs& args) {
    const AttentionShape& s = args.shape;
    std::string why;
    const auto refuse = [&](bool condition, const std::string& text) {
        if (why.empty() && condition) why = fmt::format("{}: {}", supports.name(), text);
    };
    Placed tensors[] = {{"Q", args.Q, args.Q_strides, s.batch, s.heads, s.n_q, s.head_dim, false},
                        {"K", args.K, args.K_strides, s.batch, s.kv_heads, s.n_k, s.head_dim, false},
                        {"V", args.V, args.V_strides, s.batch, s.kv_heads, s.n_k, s.head_dim, false},
                        {"O", args.O, args.O_strides, s.batch, s.heads, s.n_q, s.head_dim, true}};
    for (Placed& tensor : tensors) {
        refuse(!tensor.pointer, fmt::format("{} is a null pointer", tensor.name));
        if (!why.empty()) break;  // nor do strides mean anything
        tensor.fill_in_strides();
        const std::string bad =
            tensor.why_bad(supports.strides ? "" : "strides are supported from 08-bulk-tensor-copies on", s.dtype);
        refuse(!bad.empty(), bad);
    }
    refuse(!std::isfinite(args.scale), fmt::format("scale is {}", args.scale));
    refuse(supports.positive_scale && !(args.scale > 0),
           fmt::format("scale is {}, and this stage supports positive ones alone; stages up to 11 support others", args.scale));
    return why;
}

void Stage::launch(const ForwardArgs& given) const {
    ForwardArgs args = given;
    std::string why = attention::why_unsupported(*this, args.shape, args.lse != nullptr);
    if (why.empty()) why = complete(supports, args);
    if (why.empty() && !args.scratch)
        if (const std::size_t bytes = scratch_bytes(args.shape))
            why = fmt::format("{}: scratch is a null pointer, but {} bytes are needed", name(), bytes);
    if (!why.empty()) throw std::invalid_argument(why);
    launch_supported_(args);
}

const Operation& Stage::operation() const { return attention::operation(); }

std::string Stage::why_unsupported(const Problem& problem) const {
    return attention::why_unsupported(*this, shape_of(problem), problem.extras.contains("lse"));
}

std::size_t Stage::scratch_bytes(const Problem& problem) const { return scratch_bytes_(shape_of(problem)); }

void Stage::launch(const DeviceData& data) const {
    const auto tensor = [&](const char* name) {
        const auto found = data.tensors.find(name);
        return found == data.tensors.end() ? nullptr : found->second;
    };
    launch(ForwardArgs{shape_of(data.problem), tensor("Q"), tensor("K"), tensor("V"), tensor("O"),
                       static_cast<float*>(tensor("lse")), static_cast<float>(data.arguments.at("scale")), data.scratch,
                       data.stream});
}

const Stage& find_stage(std::string_view name) {
    if (const auto* stage = dynamic_cast<const Stage*>(&flashladder::find_stage(name))) return *stage;
    throw std::invalid_argument(std::string(name) + " does not compute attention");
}

std::string to_string(const AttentionShape& s) {
    const std::string heads =
        s.kv_heads == s.heads ? fmt::format("{}", s.heads) : fmt::format("{}/{}", s.heads, s.kv_heads);
    const std::string n = s.n_q == s.n_k ? fmt::format("{}", s.n_q) : fmt::format("{}x{}", s.n_q, s.n_k);
    return fmt::format("B {} H {} N {} d {}{} {}", s.batch, heads, n, s.head_dim, s.causal ? " causal" : "",
                       to_string(s.dtype));
}

}  // namespace flashladder::attention
