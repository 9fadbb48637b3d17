// A kernel of ring attention: each ring_attention.cu registers itself as one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "operations/attention/stage.h"
#include "operations/ring_attention/problem.h"

namespace flashladder::ring_attention {

class Stage : public flashladder::Stage {
public:
    Stage(attention::Support supports, void (*launch_supported)(const Args&),
          void (*launch_round_supported)(const RoundArgs&));

    attention::Support supports;

    /// In one line why it cannot do this, and "" if it can.
    std::string why_cannot(const AttentionShape& shape, int ranks, bool wants_lse) const;
    /// Of each rank. shape: of the whole sequence.
    std::size_t scratch_bytes(const AttentionShape& shape, int ranks) const;
    /// Of a rank whose K and V somebody else brings.
    std::size_t round_scratch_bytes(const AttentionShape& shard, int ranks) const {
        return bytes_of_state(shard, ranks);
    }
    /// Launches kernels and copies of all ranks, on their streams and others; does not wait. Throws
    /// std::invalid_argument with one line that names the stage, the limit and the value, if the stage cannot do this;
    /// CudaError if a launch is refused.
    void launch(const Args& args) const;
    /// The same of one round of one rank, on the current device.
    void launch_round(const RoundArgs& args) const;

    // As harness and tools see it: all ranks are on the current device, a shard behind the other.
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
    void (*launch_round_supported_)(const RoundArgs&);
};
using Registration = RegistrationOf<Stage>;

/// The registered stage or variant of this name. Throws std::invalid_argument if there is none, or if it computes
/// something else.
const Stage& find_stage(std::string_view name);

}  // namespace flashladder::ring_attention
