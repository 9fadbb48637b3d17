#include "operations/modified_attention/stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "operations/modified_attention/operation.h"

namespace flashladder::modified_attention {
namespace {

Support with_causal(Support supports) {
    supports.attention.causal = true;
    return supports;
}

}  // namespace

Stage::Stage(Support supports, void (*launch_supported)(const Args&))
    : supports(with_causal(std::move(supports))), launch_supported_(launch_supported) {}

std::string why_unsupported(const Stage& stage, const Shape& shape, bool wants_lse) {
    const Support& supports = stage.supports;
    const auto refuse = [&](const std::string& why) { return fmt::format("{}: {}", stage.name(), why); };
    if (std::string why = why_not_on_this_gpu(stage); !why.empty()) return why;
    if (std::string why = attention::why_unsupported(supports.attention, shape, wants_lse); !why.empty()) return why;
    if (!shape.causal) return refuse("causal is false, but no query sees a key behind it");
    if (shape.window < 1) return refuse(fmt::format("window is {}, but must be at least 1", shape.window));
    if (shape.window < shape.n_k && !supports.window)
        return refuse(
            fmt::format("window is {}, but windows are not supported: at least n_k {}", shape.window, shape.n_k));
    if (shape.alibi && !supports.alibi) return refuse("alibi is not supported");
    if (shape.soft_cap < 0) return refuse(fmt::format("soft_cap is {}, but must be at least 0", shape.soft_cap));
    if (shape.soft_cap > 0 && !supports.soft_cap)
        return refuse(fmt::format("soft_cap is {}, but soft caps are not supported: only 0", shape.soft_cap));
    return "";
}

void Stage::launch(const Args& given) const {
    Args args = given;
    Shape shape = modified(args.shape, args.window, args.slopes != nullptr);
    shape.causal = args.shape.causal;
    std::string why = modified_attention::why_unsupported(*this, shape, args.lse != nullptr);
    if (why.empty() && !(args.soft_cap >= 0 && std::isfinite(args.soft_cap)))
        why = fmt::format("{}: soft_cap is {}", name(), args.soft_cap);
    if (why.empty() && args.soft_cap > 0 && !supports.soft_cap)
        why = fmt::format("{}: soft_cap is {}, but soft caps are not supported: only 0", name(), args.soft_cap);
    if (why.empty()) why = attention::complete(supports.attention, args);
    if (!why.empty()) throw std::invalid_argument(why);
    args.window = std::min(args.window, args.shape.n_k);
    launch_supported_(args);
}

const Operation& Stage::operation() const { return modified_attention::operation(); }

std::string Stage::why_unsupported(const Problem& problem) const {
    return modified_attention::why_unsupported(*this, shape_of(problem), problem.extras.contains("lse"));
}

void Stage::launch(const DeviceData& data) const {
    const auto tensor = [&](const char* name) {
        const auto found = data.tensors.find(name);
        return found == data.tensors.end() ? nullptr : found->second;
    };
    const Shape shape = shape_of(data.problem);
    launch(Args{{.shape = shape,
                 .Q = tensor("Q"),
                 .K = tensor("K"),
                 .V = tensor("V"),
                 .O = tensor("O"),
                 .lse = static_cast<float*>(tensor("lse")),
                 .scale = static_cast<float>(data.arguments.at("scale")),
                 .stream = data.stream},
                shape.window,
                static_cast<const float*>(tensor("slopes")),
                static_cast<float>(shape.soft_cap)});
}

const Stage& find_stage(std::string_view name) {
    if (const auto* stage = dynamic_cast<const Stage*>(&flashladder::find_stage(name))) return *stage;
    throw std::invalid_argument(std::string(name) + " does not compute attention with modified scores");
}

}  // namespace flashladder::modified_attention
