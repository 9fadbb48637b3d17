#include "operations/attention_backward/run.h"

#include <functional>
#include <stdexcept>

#include "harness/asked.h"
#include "harness/own_stream.h"
#include "operations/attention_backward/usual_mistakes.h"

namespace flashladder::attention_backward {
namespace {

constexpr double most_scores = 1'000'000;  // that a run may have which is done again to look for races

}  // namespace

DeviceProblem::DeviceProblem(const Stage& stage, const Inputs& inputs)
    : shape(inputs.shape()),
      scale(inputs.forward.scale),
      Q(shape.q_elements() * bytes_per_element(shape.dtype), "Q"),
      K(shape.kv_elements() * bytes_per_element(shape.dtype), "K"),
      V(K.bytes(), "V"),
      O(Q.bytes(), "O"),
      dO(Q.bytes(), "dO"),
      lse(shape.lse_elements() * sizeof(float), "LSE"),
      dQ(Q.bytes(), "dQ"),
      dK(K.bytes(), "dK"),
      dV(K.bytes(), "dV"),
      scratch(stage.scratch_bytes(shape), "scratch") {
    note_asked({attention::to_string(shape), [&] {
                    // Before there is a copy of them:
                    if (double(shape.n_q) * shape.n_k * shape.heads * shape.batch > most_scores) return std::function<void()>();
                    return std::function([=, &stage] { run(stage, inputs); });
                }()});
    Q.upload(inputs.forward.Q, shape.dtype);
    K.upload(inputs.forward.K, shape.dtype);
    V.upload(inputs.forward.V, shape.dtype);
    O.upload(inputs.O, shape.dtype);
    dO.upload(inputs.dO, shape.dtype);
    lse.upload(inputs.lse, DType::f32);
    for (DeviceBuffer* buffer : {&dQ, &dK, &dV, &scratch}) buffer->fill(0xFF);
}

BackwardArgs DeviceProblem::args() const {
    BackwardArgs args;
    args.shape = shape;
    args.Q = Q.data(), args.K = K.data(), args.V = V.data(), args.O = O.data(), args.dO = dO.data();
    args.lse = static_cast<const float*>(lse.data());
    args.dQ = dQ.data(), args.dK = dK.data(), args.dV = dV.data();
    args.scale = scale, args.scratch = scratch.data();
    return args;
}

Outputs DeviceProblem::outputs() const {
    return {dQ.download(shape.q_elements(), shape.dtype), dK.download(shape.kv_elements(), shape.dtype),
            dV.download(shape.kv_elements(), shape.dtype)};
}

Outputs run(const Stage& stage, const Inputs& inputs) {
    if (const std::string why = why_unsupported(stage, inputs.shape()); !why.empty()) throw std::invalid_argument(why);
    const DeviceProblem problem(stage, inputs);
    const OwnStream stream;
    auto args = problem.args();
    args.stream = stream.get();
    stage.launch(args);
    stream.wait(stage.name());
    return problem.outputs();
}

Comparison check(const Stage& stage, const Inputs& inputs, attention::Judge judge, std::size_t most) {
    const Outputs outputs = run(stage, inputs);
    const RowsToCheck rows = rows_to_check(inputs.shape(), 1, most);
    const Gradients reference = reference_gradients(inputs, rows);
    Comparison result = compare(outputs, inputs.shape(), reference, standard_gradients(inputs, rows), judge);
    if (!result.passed) name_usual_mistakes(result, outputs, inputs, reference);
    return result;
}

}  // namespace flashladder::attention_backward
