#include "operations/gemm/stage.h"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "harness/dtype.h"
#include "operations/gemm/operation.h"

namespace flashladder::gemm {

Stage::Stage(std::string folder, std::string variant, void (*launch_supported)(const Args&), std::size_t scratch_bytes,
             int compute_capability)
    : folder_(std::move(folder)),
      variant_(std::move(variant)),
      launch_supported_(launch_supported),
      scratch_bytes_(scratch_bytes),
      compute_capability_(compute_capability) {}

std::string why_unsupported(const Stage& stage, const Shape& shape) {
    if (std::string why = why_not_on_this_gpu(stage); !why.empty()) return why;
    for (const auto& [name, size] : {std::pair{"M", shape.M}, {"N", shape.N}, {"K", shape.K}})
        if (size < 8 || size % 8)
            return fmt::format("{}: {} is {}, but must be a positive multiple of 8", stage.name(), name, size);
    return "";
}

void Stage::launch(const Args& args) const {
    std::string why = gemm::why_unsupported(*this, args.shape);
    for (const auto& [name, pointer] :
         {std::pair<const char*, const void*>{"A", args.A}, {"B", args.B}, {"C", args.C}}) {
        if (why.empty() && !pointer) why = fmt::format("{}: {} is a null pointer", this->name(), name);
        if (why.empty() && reinterpret_cast<std::uintptr_t>(pointer) % 16 != 0)
            why = fmt::format("{}: {} is at {}, which is not aligned to 16 bytes", this->name(), name, pointer);
    }
    if (why.empty() && scratch_bytes_ > 0 && !args.scratch)
        why = fmt::format("{}: scratch is a null pointer, but {} bytes are needed", name(), scratch_bytes_);
    if (!why.empty()) throw std::invalid_argument(why);
    launch_supported_(args);
}

const Operation& Stage::operation() const { return gemm::operation(); }

std::string Stage::why_unsupported(const Problem& problem) const {
    if (problem.dtype != DType::bf16)
        return fmt::format("{}: dtype {} is not supported (only bf16)", name(), flashladder::to_string(problem.dtype));
    return gemm::why_unsupported(*this, shape_of(problem));
}

void Stage::launch(const DeviceData& data) const {
    launch(Args{shape_of(data.problem), data.tensors.at("A"), data.tensors.at("B"), data.tensors.at("C"), data.scratch,
                data.stream});
}

const Stage& find_stage(std::string_view name) {
    if (const auto* stage = dynamic_cast<const Stage*>(&flashladder::find_stage(name))) return *stage;
    throw std::invalid_argument(std::string(name) + " does not multiply matrices");
}

}  // namespace flashladder::gemm
