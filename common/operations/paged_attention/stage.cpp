#include "operations/paged_attention/stage.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>
#include <utility>

#include "operations/attention/arguments.h"
#include "operations/paged_attention/operation.h"

namespace flashladder::paged_attention {
namespace {

constexpr int rows_of_swizzle = 8;  // no box of TMA has a part of these

}  // namespace

Stage::Stage(attention::Support supports, void (*launch_supported)(const Args&),
             std::size_t (*scratch_bytes)(const AttentionShape&))
    : supports(std::move(supports)), launch_supported_(launch_supported), scratch_bytes_(scratch_bytes) {}

std::string Stage::why_cannot(const AttentionShape& shape, const Pool& pool, bool wants_lse) const {
    std::string why = why_not_on_this_gpu(*this);
    if (why.empty()) why = attention::why_unsupported(supports, shape, wants_lse);
    const auto refuse = [&](bool condition, const std::string& text) {
        if (why.empty() && condition) why = fmt::format("{}: {}", name(), text);
    };
    refuse(pool.page_size < rows_of_swizzle || pool.page_size % rows_of_swizzle != 0,
           fmt::format("page_size is {}, but must be a multiple of {}", pool.page_size, rows_of_swizzle));
    refuse(pool.pages < 1, fmt::format("pages is {}, but must be at least 1", pool.pages));
    if (why.empty())
        refuse(pool.pages_of_sequence < pages_of(shape.n_k, pool.page_size),
               fmt::format("pages_of_sequence is {}, but n_k {} keys in pages of {} need {}", pool.pages_of_sequence,
                           shape.n_k, pool.page_size, pages_of(shape.n_k, pool.page_size)));
    return why;
}

void Stage::launch(const Args& given) const {
    Args args = given;
    const AttentionShape& s = args.shape;
    std::string why = why_cannot(s, args.pool, args.lse != nullptr);
    const auto refuse = [&](bool condition, const std::string& text) {
        if (why.empty() && condition) why = fmt::format("{}: {}", name(), text);
    };
    attention::Placed tensors[] = {
        {"Q", args.Q, args.Q_strides, s.batch, s.heads, s.n_q, s.head_dim, false},
        {"K", args.K, args.K_strides, args.pool.pages, s.kv_heads, args.pool.page_size, s.head_dim, false},
        {"V", args.V, args.V_strides, args.pool.pages, s.kv_heads, args.pool.page_size, s.head_dim, false},
        {"O", args.O, args.O_strides, s.batch, s.heads, s.n_q, s.head_dim, true}};
    for (attention::Placed& tensor : tensors) {
        refuse(!tensor.pointer, fmt::format("{} is a null pointer", tensor.name));
        if (!why.empty()) break;  // nor do strides mean anything
        tensor.fill_in_strides();
        const std::string bad = tensor.why_bad(supports.strides ? "" : "strides are not supported", s.dtype);
        refuse(!bad.empty(), bad);
    }
    refuse(!args.block_table, "block_table is a null pointer");
    refuse(!args.lengths, "lengths is a null pointer");
    refuse(!std::isfinite(args.scale), fmt::format("scale is {}", args.scale));
    refuse(supports.positive_scale && !(args.scale > 0),
           fmt::format("scale is {}, and this stage supports positive ones alone", args.scale));
    if (why.empty() && !args.scratch && scratch_bytes(s) > 0)
        refuse(true, fmt::format("scratch is a null pointer, but {} bytes are needed", scratch_bytes(s)));
    if (!why.empty()) throw std::invalid_argument(why);
    launch_supported_(args);
}

const Operation& Stage::operation() const { return paged_attention::operation(); }

std::string Stage::why_unsupported(const Problem& problem) const {
    if (problem.at("page_size") < 1)
        return fmt::format("{}: page_size is {}, but must be a multiple of {}", name(), problem.at("page_size"),
                           rows_of_swizzle);
    return why_cannot(shape_of(problem), pool_of(problem), problem.extras.contains("lse"));
}

std::size_t Stage::scratch_bytes(const Problem& problem) const { return scratch_bytes_(shape_of(problem)); }

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
                pool_of(data.problem),
                static_cast<const int*>(tensor("block_table")),
                static_cast<const int*>(tensor("lengths"))});
}

const Stage& find_stage(std::string_view name) {
    if (const auto* stage = dynamic_cast<const Stage*>(&flashladder::find_stage(name))) return *stage;
    throw std::invalid_argument(std::string(name) + " does not compute paged attention");
}

}  // namespace flashladder::paged_attention
