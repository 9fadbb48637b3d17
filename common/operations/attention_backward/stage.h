// A rung of attention's backward pass: each attention_backward.cu registers itself as one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "harness/stage.h"
#include "operations/attention_backward/problem.h"

namespace flashladder::attention_backward {

/// What a stage can do. What is not said here it refuses.
struct Support {
    std::string stage;         // "15-standard-backward", the name of its folder
    std::string variant = "";  // another form of it, kept to compare; "" for the stage itself
    std::vector<int> head_dims;
    std::vector<DType> dtypes = {DType::f32};  // the first is the one that tables are made in
    bool causal = false;
    bool grouped_query = false;
    bool strides = false;        // any multiples of 16 bytes; else contiguous tensors alone
    bool deterministic = false;  // the same bits in each launch. Else dQ, whose summands come in any order, need not have them
    int compute_capability = 0;  // of the GPU, at least: 90 for sm_90. 0: any. The emulator can do all
    int max_batch_heads = 0;     // 0: any number, with at most 65535 of either
    int max_n_k = 0;             // 0: any number

    std::string name() const { return variant.empty() ? stage : stage + "/" + variant; }
};

/// Its kernels behind the one interface.
class Stage : public flashladder::Stage {
public:
    Stage(Support supports, void (*launch_supported)(const BackwardArgs&),
          std::size_t (*scratch_bytes)(const AttentionShape&));

    Support supports;

    std::size_t scratch_bytes(const AttentionShape& shape) const { return scratch_bytes_(shape); }
    /// Launches its kernels on args.stream; does not wait. Strides that are all 0, and those of dimensions of extent 1,
    /// reach the stage as a contiguous tensor has them. Throws std::invalid_argument with one line that names the
    /// stage, the limit and the value, if the stage cannot do this; CudaError if a launch is refused.
    void launch(const BackwardArgs& args) const;

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
    void (*launch_supported_)(const BackwardArgs&);
    std::size_t (*scratch_bytes_)(const AttentionShape&);
};
using Registration = RegistrationOf<Stage>;

/// What it is launched with, of harness and tools.
BackwardArgs args_of(const DeviceData& data, const AttentionShape& shape);

/// One line that names the stage, the limit and the value, if the stage cannot do this here; "" if it can.
std::string why_unsupported(const Stage& stage, const AttentionShape& shape);
/// The same, whatever GPU there is, of any kernel that supports this.
std::string why_unsupported(const Support& supports, const AttentionShape& shape);

/// Fills in strides as Stage::launch() does, of a shape that is supported. One line that names what is wrong with the
/// tensors, the scale, or a scratch that has to have so many bytes; "" if nothing is.
std::string complete(const Support& supports, BackwardArgs& args, std::size_t scratch_bytes);

/// The registered stage or variant of this name. Throws std::invalid_argument if there is none, or if it computes something
/// else.
const Stage& find_stage(std::string_view name);

}  // namespace flashladder::attention_backward
