// A kernel that computes the gradients of sliding-window attention: each windowed_backward.cu registers itself as one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "operations/attention_backward/stage.h"
#include "operations/windowed_backward/problem.h"

namespace flashladder::windowed_backward {

/// What a stage can do. What is not said here it refuses. `causal` is set.
using attention_backward::Support;

class Stage : public flashladder::Stage {
public:
    Stage(Support supports, void (*launch_supported)(const Args&));

    Support supports;

    /// Launches its kernels on args.stream; does not wait. Throws std::invalid_argument with one line that names the
    /// stage, the limit and the value, if the stage cannot do this; CudaError if a launch is refused.
    void launch(const Args& args) const;

    // As harness and tools see it.
    std::string folder() const override { return supports.stage; }
    std::string variant() const override { return supports.variant; }
    const Operation& operation() const override;
    std::vector<DType> dtypes() const override { return supports.dtypes; }
    int compute_capability() const override { return supports.compute_capability; }
    std::string why_unsupported(const Problem& problem) const override;
    std::size_t scratch_bytes(const Problem& problem) const override;
    void launch(const DeviceData& data) const override;

private:
    void (*launch_supported_)(const Args&);
};
using Registration = RegistrationOf<Stage>;

/// One line that names the stage, the limit and the value, if the stage cannot do this here; "" if it can.
std::string why_unsupported(const Stage& stage, const Shape& shape);

/// The registered stage of this name. Throws std::invalid_argument if there is none, or if it computes something else.
const Stage& find_stage(std::string_view name);

}  // namespace flashladder::windowed_backward
