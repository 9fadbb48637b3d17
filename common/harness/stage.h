// A stage is one rung's kernel, as harness and tools see it. Its operation has the type that a kernel's file makes; the
// file registers it, and a program has the stages that were linked into it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/operation.h"

namespace flashladder {

class Stage {
public:
    virtual ~Stage() = default;

    /// The name of its folder, "05-warp-partitioning", and of the form of it that is kept to compare, "split-K"; "" for the
    /// stage itself.
    virtual std::string folder() const = 0;
    virtual std::string variant() const = 0;
    /// "05-warp-partitioning", of a variant "05-warp-partitioning/split-K".
    std::string name() const { return variant().empty() ? folder() : folder() + "/" + variant(); }

    virtual const Operation& operation() const = 0;
    /// The first is the one that tables are made in.
    virtual std::vector<DType> dtypes() const = 0;
    /// Of the GPU, at least: 90 for sm_90. 0: any. The emulator can do all.
    virtual int compute_capability() const = 0;
    /// One line that names the stage, the limit and the value, if the stage cannot do this here; "" if it can.
    virtual std::string why_unsupported(const Problem& problem) const = 0;

    virtual std::size_t scratch_bytes(const Problem& problem) const = 0;
    /// Launches its kernels on data.stream; does not wait. Throws std::invalid_argument with one line that names the stage
    /// and what it cannot do; CudaError if a launch is refused.
    virtual void launch(const DeviceData& data) const = 0;
};
using StageRef = std::reference_wrapper<const Stage>;

/// One line that says what GPU the stage needs, if the current one is too old for all that it does; "" if it is not.
std::string why_not_on_this_gpu(const Stage& stage);

/// All registered stages, by name; without their variants.
std::vector<StageRef> stages();
/// All registered variants of stages, by stage, in the order of registration.
std::vector<StageRef> variants();

/// The registered stage or variant of this name. Throws std::invalid_argument if there is none.
const Stage& find_stage(std::string_view name);

/// Of a learner's kernel in a program that has the solution too (`ladder bench NN --mine`): it is among none of the above.
std::vector<StageRef> mine();

void add_stage(std::unique_ptr<const Stage> stage);
void add_mine(std::unique_ptr<const Stage> stage);

/// A global variable of this type in a kernel's file registers a stage, whose type is its operation's.
template <class TypedStage, void (*add)(std::unique_ptr<const Stage>)>
struct RegistrationBy {
    RegistrationBy(TypedStage stage) { add(std::make_unique<const TypedStage>(std::move(stage))); }
};
#ifdef FLASHLADDER_MINE  // the build defines it for a learner's kernel that stands beside the solution
template <class TypedStage>
using RegistrationOf = RegistrationBy<TypedStage, add_mine>;
#else
template <class TypedStage>
using RegistrationOf = RegistrationBy<TypedStage, add_stage>;
#endif

}  // namespace flashladder
