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

DeviceProblem::DeviceProblem(const Stage& stage, const Inputs& inputs, attention::Layout layout)
    : shape(inputs.shape()),
      scale(inputs.forward.scale),
      Q("Q", layout, shape.batch, shape.heads, shape.n_q, shape.head_dim, 8, shape.dtype),
      K("K", layout, shape.batch, shape.kv_heads, shape.n_k, shape.head_dim, 16, shape.dtype),
      V("V", layout, shape.batch, shape.kv_heads, shape.n_k, shape.head_dim, 24, shape.dtype),
      O("O", layout, shape.batch, shape.heads, shape.n_q, shape.head_dim, 32, shape.dtype),
      dO("dO", layout, shape.batch, shape.heads, shape.n_q, shape.head_dim, 40, shape.dtype),
      dQ("dQ", layout, shape.batch, shape.heads, shape.n_q, shape.head_dim, 48, shape.dtype),
      dK("dK", layout, shape.batch, shape.kv_heads, shape.n_k, shape.head_dim, 56, shape.dtype),
      dV("dV", layout, shape.batch, shape.kv_heads, shape.n_k, shape.head_dim, 64, shape.dtype),
      lse(shape.lse_elements() * sizeof(float), "LSE"),
      scratch(stage.scratch_bytes(shape), "scratch") {
    note_asked({attention::to_string(shape), [&] {
                    // Before there is a copy of them:
                    if (double(shape.n_q) * shape.n_k * shape.heads * shape.batch > most_scores) return std::function<void()>();
                    return std::function([=, &stage] { run(stage, inputs, layout); });
                }()});
    Q.upload(inputs.forward.Q), K.upload(inputs.forward.K), V.upload(inputs.forward.V);
    O.upload(inputs.O), dO.upload(inputs.dO);
    lse.upload(inputs.lse, DType::f32);
    dQ.fill(0xFF), dK.fill(0xFF), dV.fill(0xFF), scratch.fill(0xFF);
}

BackwardArgs DeviceProblem::args() const {
    BackwardArgs args;
    args.shape = shape;
    args.Q = Q.data(), args.K = K.data(), args.V = V.data(), args.O = O.data(), args.dO = dO.data();
    args.lse = static_cast<const float*>(lse.data());
    args.dQ = dQ.data(), args.dK = dK.data(), args.dV = dV.data();
    args.scale = scale, args.scratch = scratch.data();
    args.Q_strides = Q.given_strides(), args.K_strides = K.given_strides(), args.V_strides = V.given_strides();
    args.O_strides = O.given_strides(), args.dO_strides = dO.given_strides();
    args.dQ_strides = dQ.given_strides(), args.dK_strides = dK.given_strides(), args.dV_strides = dV.given_strides();
    return args;
}

Outputs DeviceProblem::outputs() const {
    return {dQ.download(), dK.download(), dV.download(),
            dQ.written_gap_bytes() + dK.written_gap_bytes() + dV.written_gap_bytes()};
}

Outputs run(const Stage& stage, const Inputs& inputs, attention::Layout layout) {
    if (const std::string why = why_unsupported(stage, inputs.shape()); !why.empty()) throw std::invalid_argument(why);
    const DeviceProblem problem(stage, inputs, layout);
    const OwnStream stream;
    auto args = problem.args();
    args.stream = stream.get();
    stage.launch(args);
    stream.wait(stage.name());
    return problem.outputs();
}

Comparison judged(const Outputs& outputs, const Inputs& inputs, attention::Judge judge, std::size_t most) {
    const RowsToCheck rows = rows_to_check(inputs.shape(), 1, most);
    const Gradients reference = reference_gradients(inputs, rows);
    Comparison result = compare(outputs, inputs.shape(), reference, standard_gradients(inputs, rows), judge);
    if (!result.passed) name_usual_mistakes(result, outputs, inputs, reference);
    return result;
}

Comparison check(const Stage& stage, const Inputs& inputs, attention::Judge judge, std::size_t most,
                 attention::Layout layout) {
    return judged(run(stage, inputs, layout), inputs, judge, most);
}

}  // namespace flashladder::attention_backward
