// A stage is one rung's kernel behind the one interface. Each attention.cu registers itself; a program has the stages
// that were linked into it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "problem.h"

namespace flashladder {

/// What a stage can do. What is not said here it refuses.
struct Support {
    std::string stage;    // "01-minimal-flash", the name of its folder
    std::string variant = "";  // "split-K": another form of it, kept to compare; "" for the stage itself
    std::vector<int> head_dims;
    std::vector<DType> dtypes = {DType::f32};  // the first is the one that tables are made in
    bool causal = false;
    bool lse = false;
    bool grouped_query = false;
    bool strides = false;  // any multiples of 16 bytes; else contiguous tensors alone
    bool positive_scale = false;  // and no other; else any finite one
    int compute_capability = 0;  // of the GPU, at least: 90 for sm_90. 0: any. The emulator can do all
    int max_batch_heads = 0;  // 0: any number, with at most 65535 of either
    int max_n_k = 0;          // 0: any number

    /// For a variant, which need not do it all: only bf16, and not causal.
    Support for_variant(std::string name) const {
        Support s = *this;
        s.variant = std::move(name), s.dtypes = {DType::bf16}, s.causal = false;
        return s;
    }
    std::string name() const { return variant.empty() ? stage : stage + "/" + variant; }
};

struct Stage {
    Support supports;
    void (*launch_supported)(const ForwardArgs&);
    std::size_t (*scratch_bytes)(const AttentionShape&);

    /// Launches its kernels on args.stream; does not wait. Strides that are all 0, and those of dimensions of extent 1,
    /// reach the stage as a contiguous tensor has them. Throws std::invalid_argument with one line that names the
    /// stage, the limit and the value, if the stage cannot do this; CudaError if a launch is refused.
    void launch(const ForwardArgs& args) const;

    /// "05-warp-partitioning", of a variant "05-warp-partitioning/split-K".
    std::string name() const { return supports.name(); }
};

/// One line that says what GPU the stage needs, if the current one is too old for all that it does; "" if it is not.
std::string why_not_on_this_gpu(const Support& supports);

/// One line that names the stage, the limit and the value, if the stage cannot do this here; "" if it can.
std::string why_unsupported(const Support& supports, const AttentionShape& shape, bool wants_lse = false);

/// All registered stages, by name; without their variants.
std::span<const Stage> stages();
/// All registered variants of stages, by stage, in the order of registration.
std::span<const Stage> variants();

/// The registered stage or variant of this name. Throws std::invalid_argument if there is none.
const Stage& find_stage(std::string_view name);

struct Registration {
    Registration(Stage stage);
};

/// A learner's kernel in a program that has the solution too (`ladder bench NN --mine`): harness/mine.h makes it register
/// itself here, and it is among none of the above.
struct MineRegistration {
    MineRegistration(Stage stage);
};
std::span<const Stage> mine();

const char* to_string(DType dtype);
/// Throws std::invalid_argument with one line that names what is not a dtype.
DType parse_dtype(const std::string& name);
std::size_t bytes_per_element(DType dtype);
/// "B 4 H 16 N 4096 d 64 causal f32"
std::string to_string(const AttentionShape& shape);

}  // namespace flashladder
