#include "operations/attention/stage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "harness/dtype.h"
#include "operations/attention/operation.h"

namespace flashladder::attention {
namespace {

/// Q, K, V or O of a problem, and where it lies.
struct Placed {
    const char* name;
    const void* pointer;
    Strides& strides;
    std::int64_t batch, heads, rows, columns;
    bool is_output;

    Strides without_gaps() const {
        return contiguous(static_cast<int>(heads), static_cast<int>(rows), static_cast<int>(columns));
    }

    /// Makes the strides of a contiguous tensor of those that say nothing: all 0, or of a dimension of extent 1, where
    /// PyTorch has any number.
    void fill_in_strides() {
        const Strides plain = without_gaps();
        if (strides == Strides{}) strides = plain;
        if (batch == 1) strides.batch = plain.batch;
        if (heads == 1) strides.head = plain.head;
        if (rows == 1) strides.row = plain.row;
    }

    /// Whether two rows share an element. Says so too of rows that are interleaved in a way that no library makes.
    bool overlaps_itself() const {
        std::array<std::pair<std::int64_t, std::int64_t>, 3> dimensions{
            {{strides.batch, batch}, {strides.head, heads}, {strides.row, rows}}};
        std::sort(dimensions.begin(), dimensions.end());
        std::int64_t end = columns;  // of what the dimensions so far take up
        for (const auto& [stride, extent] : dimensions) {
            if (extent == 1) continue;
            if (stride < end) return true;
            end += (extent - 1) * stride;
        }
        return false;
    }

    /// What is wrong with its place in memory, "" if nothing is.
    std::string why_bad(const Support& supports, std::int64_t element_bytes) const {
        const auto all = [&] {
            return fmt::format("strides {}, {}, {} of batch, head, row", strides.batch, strides.head, strides.row);
        };
        if (!supports.strides && strides != without_gaps())
            return fmt::format("{} is not contiguous ({}): strides are supported from 08-bulk-tensor-copies on", name,
                               all());
        if (reinterpret_cast<std::uintptr_t>(pointer) % alignment != 0)
            return fmt::format("{} is at {}, which is not aligned to {} bytes", name, pointer, alignment);
        if (!supports.strides) return "";
        for (const auto& [what, stride] :
             {std::pair("batch", strides.batch), {"head", strides.head}, {"row", strides.row}}) {
            if (stride < 0) return fmt::format("{} has a negative {} stride, {}", name, what, stride);
            if (stride * element_bytes % alignment != 0)
                return fmt::format("{} has a {} stride of {} elements, which is not a multiple of {} bytes", name, what,
                                   stride, alignment);
        }
        if (rows > 1 && strides.row < columns)
            return fmt::format("{} has a row stride of {}, less than head_dim {}", name, strides.row, columns);
        if (is_output && overlaps_itself()) return fmt::format("{} overlaps itself ({})", name, all());
        return "";
    }

    static constexpr std::int64_t alignment = 16;  // bytes
};

}  // namespace

Stage::Stage(Support supports, void (*launch_supported)(const ForwardArgs&),
             std::size_t (*scratch_bytes)(const AttentionShape&))
    : supports(std::move(supports)), launch_supported_(launch_supported), scratch_bytes_(scratch_bytes) {}

std::string why_unsupported(const Stage& stage, const AttentionShape& shape, bool wants_lse) {
    const std::string why = why_not_on_this_gpu(stage);
    return why.empty() ? why_unsupported(stage.supports, shape, wants_lse) : why;
}

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
    if (std::find(supports.dtypes.begin(), supports.dtypes.end(), shape.dtype) == supports.dtypes.end()) {
        std::vector<std::string> able;
        for (const DType dtype : supports.dtypes) able.push_back(to_string(dtype));
        return refuse(fmt::format("dtype {} is not supported (only {})", to_string(shape.dtype), fmt::join(able, ", ")));
    }
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
    // Most rungs launch a grid of (tiles, heads, batch), of which CUDA allows no more in y and z. For all, as none is
    // about problems with more.
    constexpr int max_grid_yz = 65535;
    for (const auto& [name, value] : {std::pair("batch", shape.batch), {"heads", shape.heads}})
        if (value > max_grid_yz)
            return refuse(fmt::format("{} is {}, but at most {} are supported", name, value, max_grid_yz));
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
        const std::string bad = tensor.why_bad(supports, static_cast<std::int64_t>(bytes_per_element(s.dtype)));
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
