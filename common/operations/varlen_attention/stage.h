// A kernel of attention of packed sequences: each varlen_attention.cu registers itself as one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "operations/attention/stage.h"
#include "operations/varlen_attention/problem.h"

namespace flashladder::varlen_attention {

class Stage : public flashladder::Stage {
public:
    Stage(attention::Support supports, void (*launch_supported)(const Args&),
          std::size_t (*scratch_bytes)(const Shape&, int sequences));

    attention::Support supports;

    /// In one line why it cannot do this, and "" if it can.
    std::string why_cannot(const Shape& shape, int sequences, bool wants_lse) const;
    std::size_t scratch_bytes(const Shape& shape, int sequences) const {
        return scratch_bytes_(shape, sequences);
    }
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
    std::size_t (*scratch_bytes_)(const Shape&, int sequences);
};
using Registration = RegistrationOf<Stage>;

/// The registered stage or variant of this name. Throws std::invalid_argument if there is none, or if it computes
/// something else.
const Stage& find_stage(std::string_view name);

}  // namespace flashladder::varlen_attention
