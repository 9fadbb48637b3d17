// A kernel that multiplies matrices: each gemm.cu registers itself as one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "harness/stage.h"
#include "operations/gemm/problem.h"

namespace flashladder::gemm {

class Stage : public flashladder::Stage {
public:
    /// `variant`: another form of it, kept to compare; "" for the stage itself. Sums are in f32.
    Stage(std::string folder, std::string variant, void (*launch_supported)(const Args&), std::size_t scratch_bytes = 0,
          int compute_capability = 90);

    std::size_t scratch_bytes() const { return scratch_bytes_; }
    /// Launches it on args.stream; allocates nothing, may be captured into a graph. Throws std::invalid_argument with one
    /// line that names what is wrong: a size, scratch that is missing; and CudaError.
    void launch(const Args& args) const;

    // As harness and tools see it.
    std::string folder() const override { return folder_; }
    std::string variant() const override { return variant_; }
    const Operation& operation() const override;
    std::vector<DType> dtypes() const override { return {DType::bf16}; }
    int compute_capability() const override { return compute_capability_; }
    std::string why_unsupported(const Problem& problem) const override;
    std::size_t scratch_bytes(const Problem&) const override { return scratch_bytes_; }
    void launch(const DeviceData& data) const override;

private:
    std::string folder_, variant_;
    void (*launch_supported_)(const Args&);
    std::size_t scratch_bytes_;
    int compute_capability_;
};
using Registration = RegistrationOf<Stage>;

/// One line that names the stage, the limit and the value, if the stage cannot do this here; "" if it can.
std::string why_unsupported(const Stage& stage, const Shape& shape);

/// The registered stage or variant of this name. Throws std::invalid_argument if there is none, or if it computes something
/// else.
const Stage& find_stage(std::string_view name);

}  // namespace flashladder::gemm
