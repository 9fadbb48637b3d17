// A kernel that computes a gated product: each gated_product.cu registers itself as one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "harness/stage.h"
#include "operations/gated_product/problem.h"

namespace flashladder::gated_product {

class Stage : public flashladder::Stage {
public:
    Stage(std::string folder, void (*launch_supported)(const Args&), int compute_capability = 90);

    /// Launches it on args.stream; does not wait. Throws std::invalid_argument with one line that names what is wrong: a
    /// size, a pointer; and CudaError.
    void launch(const Args& args) const;

    // As harness and tools see it.
    std::string folder() const override { return folder_; }
    std::string variant() const override { return ""; }
    const Operation& operation() const override;
    std::vector<DType> dtypes() const override { return {DType::bf16}; }
    int compute_capability() const override { return compute_capability_; }
    std::string why_unsupported(const Problem& problem) const override;
    std::size_t scratch_bytes(const Problem&) const override { return 0; }
    void launch(const DeviceData& data) const override;

private:
    std::string folder_;
    void (*launch_supported_)(const Args&);
    int compute_capability_;
};
using Registration = RegistrationOf<Stage>;

/// One line that names the stage, the limit and the value, if the stage cannot do this here; "" if it can.
std::string why_unsupported(const Stage& stage, const Shape& shape);

/// The registered stage of this name. Throws std::invalid_argument if there is none, or if it computes something else.
const Stage& find_stage(std::string_view name);

}  // namespace flashladder::gated_product
