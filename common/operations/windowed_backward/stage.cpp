#include "operations/windowed_backward/stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "operations/windowed_backward/operation.h"

namespace flashladder::windowed_backward {
namespace {

Support with_causal(Support supports) {
    supports.causal = true;
    return supports;
}

std::size_t scratch_bytes_of(const attention::AttentionShape& shape) { return sizeof(float) * shape.lse_elements(); }

}  // namespace

Stage::Stage(Support supports, void (*launch_supported)(const Args&))
    : supports(with_causal(std::move(supports))), launch_supported_(launch_supported) {}

std::string why_unsupported(const Stage& stage, const Shape& shape) {
    const auto refuse = [&](const std::string& why) { return fmt::format("{}: {}", stage.name(), why); };
    if (std::string why = why_not_on_this_gpu(stage); !why.empty()) return why;
    if (std::string why = attention_backward::why_unsupported(stage.supports, shape); !why.empty()) return why;
    if (!shape.causal) return refuse("causal is false, but no query sees a key behind it");
    if (shape.window < 1) return refuse(fmt::format("window is {}, but must be at least 1", shape.window));
    return "";
}

void Stage::launch(const Args& given) const {
    Args args = given;
    Shape shape = windowed(args.shape, args.window);
    shape.causal = args.shape.causal;
    std::string why = windowed_backward::why_unsupported(*this, shape);
    if (why.empty()) why = attention_backward::complete(supports, args, scratch_bytes_of(args.shape));
    if (!why.empty()) throw std::invalid_argument(why);
    args.window = std::min(args.window, args.shape.n_k);
    launch_supported_(args);
}

const Operation& Stage::operation() const { return windowed_backward::operation(); }

std::string Stage::why_unsupported(const Problem& problem) const {
    return windowed_backward::why_unsupported(*this, shape_of(problem));
}

std::size_t Stage::scratch_bytes(const Problem& problem) const { return scratch_bytes_of(shape_of(problem)); }

void Stage::launch(const DeviceData& data) const {
    const Shape shape = shape_of(data.problem);
    launch(Args{attention_backward::args_of(data, shape), shape.window});
}

const Stage& find_stage(std::string_view name) {
    if (const auto* stage = dynamic_cast<const Stage*>(&flashladder::find_stage(name))) return *stage;
    throw std::invalid_argument(std::string(name) + " does not compute the gradients of sliding-window attention");
}

}  // namespace flashladder::windowed_backward
