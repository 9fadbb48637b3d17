// Running a stage of any operation on given inputs.
#pragma once

#include <vector>

#include "harness/device_buffer.h"
#include "harness/stage.h"

namespace flashladder {

/// All device memory that one run of a stage needs.
class DeviceProblem {
public:
    /// Outputs and scratch are full of NaN. Throws CudaError.
    DeviceProblem(const Stage& stage, const Data& inputs);
    /// What the stage is launched with. Lives as long as this.
    DeviceData data(cudaStream_t stream = nullptr) const;
    /// Brings back what the stage wrote.
    Data outputs() const;

    const std::vector<Tensor>& tensors() const { return tensors_; }

private:
    Problem problem_;
    std::vector<Tensor> tensors_;
    std::map<std::string, double> arguments_;
    std::vector<DeviceBuffer> buffers_;  // of tensors_
    DeviceBuffer scratch_;
};

/// Launches the stage once, waits, and brings the results back. Throws std::invalid_argument (unsupported), CudaError (the
/// kernel failed).
Data run(const Stage& stage, const Data& inputs);

/// run, and compare with the reference. `most`: rows, for example, at most about so many.
Judgement check(const Stage& stage, const Data& inputs, std::size_t most = std::size_t(1) << 20);

}  // namespace flashladder
