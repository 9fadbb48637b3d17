#include "operations/attention_backward/stage.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>
#include <utility>

#include "operations/attention/arguments.h"
#include "operations/attention_backward/operation.h"

namespace flashladder::attention_backward {

Stage::Stage(Support supports, void (*launch_supported)(const BackwardArgs&),
             std::size_t (*scratch_bytes)(const AttentionShape&))
    : supports(std::move(supports)), launch_supported_(launch_supported), scratch_bytes_(scratch_bytes) {}

std::string why_unsupported(const Stage& stage, const AttentionShape& shape) {
    if (std::string why = why_not_on_this_gpu(stage); !why.empty()) return why;
    return why_unsupported(stage.supports, shape);
}

std::string why_unsupported(const Support& supports, const AttentionShape& shape) {
    const auto refuse = [&](const std::string& why) { return fmt::format("{}: {}", supports.name(), why); };
    if (const std::string why = attention::why_bad_shape(shape, supports.head_dims, supports.dtypes, supports.max_batch_heads);
        !why.empty())
        return refuse(why);
    if (shape.causal && !supports.causal) return refuse("causal is not supported (from 16-recomputation on)");
    if (shape.kv_heads != shape.heads && !supports.grouped_query)
        return refuse(fmt::format("kv_heads {} with heads {}: grouped queries are not supported (15-standard-backward does)",
                                  shape.kv_heads, shape.heads));
    if (supports.max_n_k > 0 && shape.n_k > supports.max_n_k)
        return refuse(fmt::format("n_k is {}, but at most {} are supported", shape.n_k, supports.max_n_k));
    return "";
}

std::string complete(const Support& supports, BackwardArgs& args, std::size_t scratch_bytes) {
    const AttentionShape& s = args.shape;
    std::string why;
    const auto refuse = [&](bool condition, const std::string& text) {
        if (why.empty() && condition) why = fmt::format("{}: {}", supports.name(), text);
    };
    const auto of_queries = [&](const char* name, const void* pointer, Strides& strides, bool is_output = false) {
        return attention::Placed{name, pointer, strides, s.batch, s.heads, s.n_q, s.head_dim, is_output};
    };
    const auto of_keys = [&](const char* name, const void* pointer, Strides& strides, bool is_output = false) {
        return attention::Placed{name, pointer, strides, s.batch, s.kv_heads, s.n_k, s.head_dim, is_output};
    };
    attention::Placed tensors[] = {
        of_queries("Q", args.Q, args.Q_strides),          of_keys("K", args.K, args.K_strides),
        of_keys("V", args.V, args.V_strides),             of_queries("O", args.O, args.O_strides),
        of_queries("dO", args.dO, args.dO_strides),       of_queries("dQ", args.dQ, args.dQ_strides, true),
        of_keys("dK", args.dK, args.dK_strides, true),    of_keys("dV", args.dV, args.dV_strides, true)};
    for (attention::Placed& tensor : tensors) {
        refuse(!tensor.pointer, fmt::format("{} is a null pointer", tensor.name));
        if (!why.empty()) break;  // nor do strides mean anything
        tensor.fill_in_strides();
        const std::string bad = tensor.why_bad(supports.strides ? "" : "no strides are supported", s.dtype);
        refuse(!bad.empty(), bad);
    }
    refuse(!args.lse, "lse is a null pointer");
    refuse(!std::isfinite(args.scale), fmt::format("scale is {}", args.scale));
    refuse(!args.scratch && scratch_bytes > 0,
           fmt::format("scratch is a null pointer, but {} bytes are needed", scratch_bytes));
    return why;
}

void Stage::launch(const BackwardArgs& given) const {
    BackwardArgs args = given;
    std::string why = attention_backward::why_unsupported(*this, args.shape);
    if (why.empty()) why = complete(supports, args, scratch_bytes(args.shape));
    if (!why.empty()) throw std::invalid_argument(why);
    launch_supported_(args);
}

const Operation& Stage::operation() const { return attention_backward::operation(); }

std::string Stage::why_unsupported(const Problem& problem) const {
    return attention_backward::why_unsupported(*this, shape_of(problem));
}

std::size_t Stage::scratch_bytes(const Problem& problem) const { return scratch_bytes_(shape_of(problem)); }

void Stage::launch(const DeviceData& data) const { launch(args_of(data, shape_of(data.problem))); }

BackwardArgs args_of(const DeviceData& data, const AttentionShape& shape) {
    const auto tensor = [&](const char* name) { return data.tensors.at(name); };
    BackwardArgs args;
    args.shape = shape;
    args.Q = tensor("Q"), args.K = tensor("K"), args.V = tensor("V"), args.O = tensor("O"), args.dO = tensor("dO");
    args.lse = static_cast<const float*>(tensor("lse"));
    args.dQ = tensor("dQ"), args.dK = tensor("dK"), args.dV = tensor("dV");
    args.scale = static_cast<float>(data.arguments.at("scale"));
    args.scratch = data.scratch, args.stream = data.stream;
    return args;
}

const Stage& find_stage(std::string_view name) {
    if (const auto* stage = dynamic_cast<const Stage*>(&flashladder::find_stage(name))) return *stage;
    throw std::invalid_argument(std::string(name) + " does not compute attention's gradients");
}

}  // namespace flashladder::attention_backward
