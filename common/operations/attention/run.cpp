#include "operations/attention/run.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "harness/asked.h"
#include "harness/own_stream.h"
#include "launch.h"
#include "operations/attention/usual_mistakes.h"

namespace flashladder::attention {
namespace {

constexpr double most_scores = 1'000'000;  // that a run may have which is done again to look for races

}  // namespace

DeviceProblem::DeviceProblem(const Stage& stage, const Inputs& inputs, bool wants_lse, Layout layout)
    : shape(inputs.shape),
      scale(inputs.scale),
      Q("Q", layout, shape.batch, shape.heads, shape.n_q, shape.head_dim, 8, shape.dtype),
      K("K", layout, shape.batch, shape.kv_heads, shape.n_k, shape.head_dim, 16, shape.dtype),
      V("V", layout, shape.batch, shape.kv_heads, shape.n_k, shape.head_dim, 24, shape.dtype),
      O("O", layout, shape.batch, shape.heads, shape.n_q, shape.head_dim, 32, shape.dtype),
      lse(wants_lse ? shape.lse_elements() * sizeof(float) : 0, "LSE"),
      scratch(stage.scratch_bytes(shape), "scratch"),
      wants_lse(wants_lse) {
    note_asked({to_string(shape), [&] {
                    // Before there is a copy of them:
                    if (double(shape.n_q) * shape.n_k * shape.heads * shape.batch > most_scores) return std::function<void()>();
                    return std::function([=] { run(stage, inputs, wants_lse, layout); });
                }()});
    Q.upload(inputs.Q), K.upload(inputs.K), V.upload(inputs.V);
    O.fill(0xFF), lse.fill(0xFF), scratch.fill(0xFF);
}

ForwardArgs DeviceProblem::args() const {
    ForwardArgs args{shape, Q.data(),       K.data(), V.data(), O.data(), static_cast<float*>(lse.data()),
                     scale, scratch.data(), nullptr};
    args.Q_strides = Q.given_strides(), args.K_strides = K.given_strides();
    args.V_strides = V.given_strides(), args.O_strides = O.given_strides();
    return args;
}

Outputs DeviceProblem::outputs() const {
    Outputs outputs{O.download(), {}};
    if (wants_lse) outputs.lse = lse.download(shape.lse_elements(), DType::f32);
    outputs.written_gap_bytes = O.written_gap_bytes();
    return outputs;
}

Outputs run(const Stage& stage, const Inputs& inputs, bool wants_lse, Layout layout) {
    if (const std::string why = why_unsupported(stage, inputs.shape, wants_lse); !why.empty())
        throw std::invalid_argument(why);
    const DeviceProblem problem(stage, inputs, wants_lse, layout);
    const OwnStream stream;
    auto args = problem.args();
    args.stream = stream.get();
    stage.launch(args);
    stream.wait(stage.name());
    return problem.outputs();
}

Comparison check(const Stage& stage, const Inputs& inputs, Judge judge, bool wants_lse, Layout layout) {
    const Outputs outputs = run(stage, inputs, wants_lse, layout);
    const auto rows = rows_to_check(inputs.shape, 1);
    const AttentionRows reference = reference_attention(inputs, rows), yardstick = standard_attention(inputs, rows);
    Comparison result = compare(outputs, inputs.shape, reference, yardstick, judge);
    if (!result.passed) result.mistake = usual_mistake(outputs, inputs, reference, yardstick);
    return result;
}

}  // namespace flashladder::attention
