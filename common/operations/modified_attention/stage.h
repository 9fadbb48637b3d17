// A kernel of attention with modified scores: each modified_attention.cu registers itself as one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "operations/attention/stage.h"
#include "operations/modified_attention/problem.h"

namespace flashladder::modified_attention {

/// What a stage can do. What is not said here it refuses.
struct Support {
    attention::Support attention;  // `causal` is set
    bool window = false;           // any; else those alone that hide nothing
    bool alibi = false;
    bool soft_cap = false;
};

class Stage : public flashladder::Stage {
public:
    Stage(Support supports, void (*launch_supported)(const Args&));

    Support supports;

    /// Launches its kernel on args.stream; does not wait. Throws std::invalid_argument with one line that names the stage,
    /// the limit and the value, if the stage cannot do this; CudaError if a launch is refused.
    void launch(const Args& args) const;

    // As harness and tools see it.
    std::string folder() const override { return supports.attention.stage; }
    std::string variant() const override { return supports.attention.variant; }
    const Operation& operation() const override;
    std::vector<DType> dtypes() const override { return supports.attention.dtypes; }
    int compute_capability() const override { return supports.attention.compute_capability; }
    std::string why_unsupported(const Problem& problem) const override;
    std::size_t scratch_bytes(const Problem&) const override { return 0; }
    void launch(const DeviceData& data) const override;

private:
    void (*launch_supported_)(const Args&);
};
using Registration = RegistrationOf<Stage>;

/// One line that names the stage, the limit and the value, if the stage cannot do this here; "" if it can.
std::string why_unsupported(const Stage& stage, const Shape& shape, bool wants_lse = false);

/// The registered stage of this name. Throws std::invalid_argument if there is none, or if it computes something else.
const Stage& find_stage(std::string_view name);

}  // namespace flashladder::modified_attention
