#include "harness/run.h"

#include <stdexcept>

#include "harness/asked.h"
#include "harness/own_stream.h"

namespace flashladder {
namespace {

constexpr double most_flops = 3e8;  // of a run that is done again to look for races

}  // namespace

DeviceProblem::DeviceProblem(const Stage& stage, const Data& inputs)
    : problem_(inputs.problem),
      tensors_(problem_.operation->tensors(problem_)),
      arguments_(inputs.arguments),
      scratch_(stage.scratch_bytes(problem_), "scratch") {
    note_asked({to_string(problem_), problem_.operation->flops(problem_) <= most_flops
                                         ? std::function([&stage, inputs] { run(stage, inputs); })
                                         : std::function<void()>()});
    for (const Tensor& tensor : tensors_) {
        DeviceBuffer& buffer = buffers_.emplace_back(tensor.bytes(), tensor.name.c_str());
        if (tensor.is_output)
            buffer.fill(0xFF);
        else
            buffer.upload(inputs.tensors.at(tensor.name), tensor.dtype);
    }
    scratch_.fill(0xFF);
}

DeviceData DeviceProblem::data(cudaStream_t stream) const {
    DeviceData data{problem_, {}, arguments_, scratch_.data(), stream};
    for (std::size_t i = 0; i < tensors_.size(); ++i) data.tensors[tensors_[i].name] = buffers_[i].data();
    return data;
}

Data DeviceProblem::outputs() const {
    Data outputs{problem_};
    for (std::size_t i = 0; i < tensors_.size(); ++i)
        if (tensors_[i].is_output)
            outputs.tensors[tensors_[i].name] = buffers_[i].download(tensors_[i].elements(), tensors_[i].dtype);
    return outputs;
}

Data run(const Stage& stage, const Data& inputs) {
    if (const std::string why = stage.why_unsupported(inputs.problem); !why.empty()) throw std::invalid_argument(why);
    const DeviceProblem problem(stage, inputs);
    const OwnStream stream;
    stage.launch(problem.data(stream.get()));
    stream.wait(stage.name());
    return problem.outputs();
}

Judgement check(const Stage& stage, const Data& inputs, std::size_t most) {
    const Data outputs = run(stage, inputs);
    return inputs.problem.operation->reference(inputs, 1, most)(outputs);
}

}  // namespace flashladder
