// A kernel of block-sparse attention: each block_sparse_attention.cu registers itself as one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "operations/attention/stage.h"
#include "operations/block_sparse_attention/problem.h"

namespace flashladder::block_sparse_attention {

class Stage : public flashladder::Stage {
public:
    Stage(attention::Support supports, void (*launch_supported)(const Args&),
          std::size_t (*scratch_bytes)(const AttentionShape&));

    attention::Support supports;

    std::size_t scratch_bytes(const AttentionShape& shape) const { return scratch_bytes_(shape); }
    /// One line that names the stage, the limit and the value, if it cannot do this on the current device; "" if it can.
    std::string why_cannot(const AttentionShape& shape, int list_heads, bool wants_lse) const;
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
    std::size_t (*scratch_bytes_)(const AttentionShape&);
};
using Registration = RegistrationOf<Stage>;

/// The registered stage of this name. Throws std::invalid_argument if there is none, or if it computes something else.
const Stage& find_stage(std::string_view name);

}  // namespace flashladder::block_sparse_attention
