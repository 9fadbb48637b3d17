// How long a stage takes on a GPU.
#pragma once

#include <functional>
#include <vector>

#include "harness/run.h"

namespace flashladder {

/// Milliseconds a launch, measured with CUDA events.
struct Timing {
    double ms = 0;  // median
    double ms_q1 = 0, ms_q3 = 0;  // a quarter of the samples is below, above
    double ms_min = 0, ms_max = 0;
    int samples = 0;
};

/// What lies at `part` of the sorted values: 0.5 is the median. Between two values, what lies on the line between them.
double quantile(std::vector<double> values, double part);

Timing timing_of(const std::vector<double>& ms);

/// How many times as fast as the other: the median of the ratios of the same round, because what the card did to one
/// in that round it did to the other. 0 if there is no such round.
double speed_ratio(const std::vector<double>& ms, const std::vector<double>& other_ms);

/// What the last kernel that a stage launches takes of a multiprocessor.
struct Resources {
    int registers = 0;    // of a thread
    int local_bytes = 0;  // of a thread: spilled registers and arrays
    std::size_t shared_bytes = 0;  // of a block
    int blocks_per_sm = 0;
};

/// How many sets of inputs of so many bytes it takes that, when one is used again, the L2 cache has seen twice its size
/// of others. At least 2, at most 256: tiny inputs stay in the cache.
int sets_past_l2(std::size_t bytes_of_a_set, std::size_t l2_bytes);

/// The tensors of a problem in device memory, as many sets as sets_past_l2() says. All have the same values.
class InputSets {
public:
    /// `inputs` are those of the problem, or of Operation::part_of() it, which then are repeated.
    InputSets(const Data& inputs, const Problem& problem);

    int count() const { return count_; }
    const Problem& problem() const { return problem_; }
    /// Those of set i modulo count().
    DeviceData data(std::size_t i, void* scratch, cudaStream_t stream) const;
    /// Fills the outputs of set 0 with NaN, and brings back what is there: of each output as many elements as `part`, the
    /// problem or a part of it, has.
    void poison();
    Data outputs(const Problem& part) const;

    /// Device memory that they take.
    static std::size_t bytes(const Problem& problem);

private:
    Problem problem_;
    std::map<std::string, double> arguments_;
    std::vector<Tensor> tensors_;
    int count_;
    std::vector<DeviceBuffer> buffers_;  // of tensors_, for all sets
};

/// A stage on one problem.
struct TimedStage {
    Timing timing;
    Resources resources;
    Data outputs;  // of its first launch, into poisoned memory
};

/// Launches a stage once, on set 0, its scratch full of NaN, waits, and brings back the outputs of `part`. Throws what run()
/// throws.
TimedStage first_launch(const Stage& stage, InputSets& sets, DeviceBuffer& scratch, const Problem& part);

/// Puts its i-th launch on a stream: on other inputs than the launch before.
using Launch = std::function<void(std::size_t i, cudaStream_t stream)>;

struct TimingOptions {
    int max_samples = 30;
    int min_samples = 3;
    double seconds = 1;  // a stage and a shape: enough samples are taken to spend this long, within the bounds above
};

/// Milliseconds a launch, by round.
struct Samples {
    std::vector<double> ms;
    int in_a_graph = 1;  // launches between two events
};

/// Takes the time of each: one launch to warm up, then rounds in which each takes its turn, in random order, so that a
/// card that slows down slows all of them. Slow ones leave after fewer rounds. Before a launch that takes less than a
/// millisecond goes one that is not timed, so that the GPU is busy when what is timed arrives. Launches shorter than
/// 50 us are timed as a CUDA graph of several, a multiple of `sets`: so many launches have different inputs.
std::vector<Samples> take_turns(const std::vector<Launch>& launches, int sets, const TimingOptions& options = {});

/// Times each stage on the same inputs, those of the problem or of Operation::part_of() it, which change from launch to
/// launch so that none finds its own in the L2 cache. Throws what run() throws.
std::vector<TimedStage> time_stages(const std::vector<const Stage*>& stages, const Data& inputs, const Problem& problem,
                                    const TimingOptions& options = {});

}  // namespace flashladder
