#include "harness/stage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace flashladder {
namespace {

std::vector<Stage>& registry(bool of_variants) {
    static std::vector<Stage> stages, variants;
    return of_variants ? variants : stages;
}

}  // namespace

std::string why_unsupported(const Support& supports, const AttentionShape& shape, bool wants_lse) {
    const auto refuse = [&](const std::string& why) { return fmt::format("{}: {}", supports.name(), why); };
    const std::pair<const char*, int> sizes[] = {{"batch", shape.batch},       {"heads", shape.heads},
                                                 {"kv_heads", shape.kv_heads}, {"n_q", shape.n_q},
                                                 {"n_k", shape.n_k},           {"head_dim", shape.head_dim}};
    for (const auto& [name, value] : sizes)
        if (value <= 0) return refuse(fmt::format("{} is {}, but must be at least 1", name, value));
    if (std::find(supports.head_dims.begin(), supports.head_dims.end(), shape.head_dim) == supports.head_dims.end())
        return refuse(
            fmt::format("head_dim {} is not supported (only {})", shape.head_dim, fmt::join(supports.head_dims, ", ")));
    if (std::find(supports.dtypes.begin(), supports.dtypes.end(), shape.dtype) == supports.dtypes.end())
        return refuse(fmt::format("dtype {} is not supported", to_string(shape.dtype)));
    if (shape.causal && !supports.causal) return refuse("causal is not supported (from 03-row-swapped-loops on)");
    if (wants_lse && !supports.lse) return refuse("lse is not supported (from 03-row-swapped-loops on)");
    if (shape.heads % shape.kv_heads != 0)
        return refuse(fmt::format("heads {} is not a multiple of kv_heads {}", shape.heads, shape.kv_heads));
    if (shape.kv_heads != shape.heads && !supports.grouped_query)
        return refuse(
            fmt::format("kv_heads {} with heads {}: grouped queries are not supported (from 03-row-swapped-loops on)",
                        shape.kv_heads, shape.heads));
    const long long batch_heads = static_cast<long long>(shape.batch) * shape.heads;
    const long long most = supports.max_batch_heads > 0 ? supports.max_batch_heads : 0x7FFFFFFF;
    if (batch_heads > most)
        return refuse(fmt::format("batch * heads is {}, but at most {} are supported", batch_heads, most));
    if (supports.max_n_k > 0 && shape.n_k > supports.max_n_k)
        return refuse(fmt::format("n_k is {}, but at most {} are supported", shape.n_k, supports.max_n_k));
    return "";
}

void Stage::launch(const ForwardArgs& args) const {
    std::string why = why_unsupported(supports, args.shape, args.lse != nullptr);
    const auto refuse = [&](bool condition, const std::string& text) {
        if (why.empty() && condition) why = fmt::format("{}: {}", name(), text);
    };
    const std::pair<const char*, const void*> pointers[] = {{"Q", args.Q}, {"K", args.K}, {"V", args.V}, {"O", args.O}};
    for (const auto& [tensor, pointer] : pointers) refuse(!pointer, fmt::format("{} is a null pointer", tensor));
    refuse(!std::isfinite(args.scale), fmt::format("scale is {}", args.scale));
    if (why.empty() && !args.scratch)
        if (const std::size_t bytes = scratch_bytes(args.shape))
            refuse(true, fmt::format("scratch is a null pointer, but {} bytes are needed", bytes));
    if (!why.empty()) throw std::invalid_argument(why);
    launch_supported(args);
}

std::span<const Stage> stages() { return registry(false); }
std::span<const Stage> variants() { return registry(true); }

const Stage& find_stage(const std::string& name) {
    for (const auto all : {stages(), variants()})
        for (const Stage& stage : all)
            if (stage.name() == name) return stage;
    throw std::invalid_argument(name + " is not in this program");
}

Registration::Registration(Stage stage) {
    auto& all = registry(!stage.supports.variant.empty());
    const auto after = [&](const Stage& s) { return s.supports.stage > stage.supports.stage; };
    all.insert(std::find_if(all.begin(), all.end(), after), std::move(stage));
}

const char* to_string(DType dtype) {
    switch (dtype) {
        case DType::f32: return "f32";
        case DType::bf16: return "bf16";
        case DType::f16: return "f16";
    }
    return "?";
}

std::size_t bytes_per_element(DType dtype) { return dtype == DType::f32 ? 4 : 2; }

std::string to_string(const AttentionShape& s) {
    const std::string heads =
        s.kv_heads == s.heads ? fmt::format("{}", s.heads) : fmt::format("{}/{}", s.heads, s.kv_heads);
    const std::string n = s.n_q == s.n_k ? fmt::format("{}", s.n_q) : fmt::format("{}x{}", s.n_q, s.n_k);
    return fmt::format("B {} H {} N {} d {}{} {}", s.batch, heads, n, s.head_dim, s.causal ? " causal" : "",
                       to_string(s.dtype));
}

}  // namespace flashladder
