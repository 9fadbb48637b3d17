#include "operations/block_sparse_attention/stage.h"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "operations/block_sparse_attention/operation.h"

namespace flashladder::block_sparse_attention {
Stage::Stage(attention::Support supports, void (*launch_supported)(const Args&),
             std::size_t (*scratch_bytes)(const AttentionShape&))
    : supports(std::move(supports)), launch_supported_(launch_supported), scratch_bytes_(scratch_bytes) {}

std::string Stage::why_cannot(const AttentionShape& shape, int list_heads, bool wants_lse) const {
    std::string why = why_not_on_this_gpu(*this);
    if (why.empty()) why = attention::why_unsupported(supports, shape, wants_lse);
    if (why.empty() && list_heads != 1 && list_heads != shape.heads)
        why = fmt::format("{}: list_heads is {}, but must be 1 or heads {}", name(), list_heads, shape.heads);
    return why;
}

void Stage::launch(const Args& given) const {
    Args args = given;
    std::string why = why_cannot(args.shape, args.list_heads, args.lse != nullptr);
    if (why.empty()) why = attention::complete(supports, args);
    const auto refuse = [&](bool condition, const std::string& text) {
        if (why.empty() && condition) why = fmt::format("{}: {}", name(), text);
    };
    refuse(!args.first, "first is a null pointer");
    refuse(!args.blocks, "blocks is a null pointer");
    refuse(args.block_size != block, fmt::format("block_size is {}, but only {} is supported", args.block_size, block));
    refuse(!args.scratch && scratch_bytes(args.shape) > 0,
           fmt::format("scratch is a null pointer, but {} bytes are needed", scratch_bytes(args.shape)));
    if (!why.empty()) throw std::invalid_argument(why);
    launch_supported_(args);
}

const Operation& Stage::operation() const { return block_sparse_attention::operation(); }

std::string Stage::why_unsupported(const Problem& problem) const {
    const auto [shape, pattern] = shape_of(problem);
    if (std::string why = why_cannot(shape, 1, problem.extras.contains("lse")); !why.empty()) return why;
    if (pattern.density < 0 || pattern.density > 100)
        return fmt::format("{}: density is {}, but must be 0 to 100 percent", name(), pattern.density);
    if (pattern.window < 0) return fmt::format("{}: window is {}, but must be at least 0", name(), pattern.window);
    return "";
}

std::size_t Stage::scratch_bytes(const Problem& problem) const { return scratch_bytes_(shape_of(problem).first); }

void Stage::launch(const DeviceData& data) const {
    const auto tensor = [&](const char* name) {
        const auto found = data.tensors.find(name);
        return found == data.tensors.end() ? nullptr : found->second;
    };
    const auto [shape, pattern] = shape_of(data.problem);
    launch(Args{{.shape = shape,
                 .Q = tensor("Q"),
                 .K = tensor("K"),
                 .V = tensor("V"),
                 .O = tensor("O"),
                 .lse = static_cast<float*>(tensor("lse")),
                 .scale = static_cast<float>(data.arguments.at("scale")),
                 .scratch = data.scratch,
                 .stream = data.stream},
                static_cast<const int*>(tensor("first")),
                static_cast<const int*>(tensor("blocks")),
                pattern.per_head ? shape.heads : 1});
}

const Stage& find_stage(std::string_view name) {
    if (const auto* stage = dynamic_cast<const Stage*>(&flashladder::find_stage(name))) return *stage;
    throw std::invalid_argument(std::string(name) + " does not compute block-sparse attention");
}

}  // namespace flashladder::block_sparse_attention
