#include "operations/gated_product/stage.h"

#include <fmt/format.h>

#include <cstdint>
#include <stdexcept>
#include <utility>

#include "harness/dtype.h"
#include "operations/gated_product/operation.h"

namespace flashladder::gated_product {

Stage::Stage(std::string folder, void (*launch_supported)(const Args&), int compute_capability)
    : folder_(std::move(folder)), launch_supported_(launch_supported), compute_capability_(compute_capability) {}

std::string why_unsupported(const Stage& stage, const Shape& shape) {
    if (std::string why = why_not_on_this_gpu(stage); !why.empty()) return why;
    for (const auto& [name, size] : {std::pair{"M", shape.M}, {"N", shape.N}, {"K", shape.K}})
        if (size < 8 || size % 8)
            return fmt::format("{}: {} is {}, but must be a positive multiple of 8", stage.name(), name, size);
    return "";
}

void Stage::launch(const Args& args) const {
    std::string why = gated_product::why_unsupported(*this, args.shape);
    for (const auto& [name, pointer] :
         {std::pair<const char*, const void*>{"A", args.A}, {"B", args.B}, {"G", args.G}, {"C", args.C}}) {
        if (why.empty() && !pointer) why = fmt::format("{}: {} is a null pointer", this->name(), name);
        if (why.empty() && reinterpret_cast<std::uintptr_t>(pointer) % 16 != 0)
            why = fmt::format("{}: {} is at {}, which is not aligned to 16 bytes", this->name(), name, pointer);
    }
    if (!why.empty()) throw std::invalid_argument(why);
    launch_supported_(args);
}

const Operation& Stage::operation() const { return gated_product::operation(); }

std::string Stage::why_unsupported(const Problem& problem) const {
    if (problem.dtype != DType::bf16)
        return fmt::format("{}: dtype {} is not supported (only bf16)", name(), flashladder::to_string(problem.dtype));
    return gated_product::why_unsupported(*this, shape_of(problem));
}

void Stage::launch(const DeviceData& data) const {
    const auto tensor = [&](const char* name) { return data.tensors.at(name); };
    launch(Args{shape_of(data.problem), tensor("A"), tensor("B"), tensor("G"), tensor("C"), data.stream});
}

const Stage& find_stage(std::string_view name) {
    if (const auto* stage = dynamic_cast<const Stage*>(&flashladder::find_stage(name))) return *stage;
    throw std::invalid_argument(std::string(name) + " does not compute a gated product");
}

}  // namespace flashladder::gated_product
