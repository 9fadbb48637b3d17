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

/// Strides of a tensor in this layout; `gap` elements behind each row if it is padded.
Strides strides_in(Layout layout, int heads, int rows, int columns, int gap) {
    switch (layout) {
        case Layout::heads_first:
            break;
        case Layout::sequence_first: return {std::int64_t(rows) * heads * columns, columns, std::int64_t(heads) * columns};
        case Layout::padded: return contiguous(heads, rows, columns + gap);
    }
    return contiguous(heads, rows, columns);
}

// As a stride of one tensor differs from that of another, a kernel that confuses them is wrong.
constexpr int Q_gap = 8, K_gap = 16, V_gap = 24, O_gap = 32;

/// Calls visit(index of the row in a contiguous tensor, index of its first element in memory).
template <class Visit>
void for_each_row(int batch, int heads, int rows, const Strides& strides, Visit visit) {
    std::size_t row = 0;
    for (int b = 0; b < batch; ++b)
        for (int h = 0; h < heads; ++h)
            for (int i = 0; i < rows; ++i)
                visit(row++, static_cast<std::size_t>(b * strides.batch + h * strides.head + i * strides.row));
}

/// `values`, contiguous, as they lie in memory: NaN in the gaps.
std::vector<float> spread(const std::vector<float>& values, int batch, int heads, int rows, const Strides& strides) {
    const std::size_t d = values.size() / (std::size_t(batch) * heads * rows);
    std::vector<float> memory(static_cast<std::size_t>(batch * strides.batch), std::numeric_limits<float>::quiet_NaN());
    for_each_row(batch, heads, rows, strides,
                 [&](std::size_t row, std::size_t first) { std::copy_n(&values[row * d], d, &memory[first]); });
    return memory;
}

/// Bytes of a tensor. The batch stride of each layout has all of a batch.
std::size_t bytes_of(const AttentionShape& shape, const Strides& strides) {
    return static_cast<std::size_t>(shape.batch * strides.batch) * bytes_per_element(shape.dtype);
}

}  // namespace

const char* to_string(Layout layout) {
    switch (layout) {
        case Layout::heads_first: return "heads first";
        case Layout::sequence_first: return "sequence first";
        case Layout::padded: return "padded rows";
    }
    return "?";
}

DeviceProblem::DeviceProblem(const Stage& stage, const Inputs& inputs, bool wants_lse, Layout layout)
    : shape(inputs.shape),
      scale(inputs.scale),
      layout(layout),
      Q_strides(strides_in(layout, shape.heads, shape.n_q, shape.head_dim, Q_gap)),
      K_strides(strides_in(layout, shape.kv_heads, shape.n_k, shape.head_dim, K_gap)),
      V_strides(strides_in(layout, shape.kv_heads, shape.n_k, shape.head_dim, V_gap)),
      O_strides(strides_in(layout, shape.heads, shape.n_q, shape.head_dim, O_gap)),
      Q(bytes_of(shape, Q_strides), "Q"),
      K(bytes_of(shape, K_strides), "K"),
      V(bytes_of(shape, V_strides), "V"),
      O(bytes_of(shape, O_strides), "O"),
      lse(wants_lse ? shape.lse_elements() * sizeof(float) : 0, "LSE"),
      scratch(stage.scratch_bytes(shape), "scratch"),
      wants_lse(wants_lse) {
    note_asked({to_string(shape), [&] {
                    // Before there is a copy of them:
                    if (double(shape.n_q) * shape.n_k * shape.heads * shape.batch > most_scores) return std::function<void()>();
                    return std::function([=] { run(stage, inputs, wants_lse, layout); });
                }()});
    const auto upload = [&](DeviceBuffer& buffer, const std::vector<float>& values, int heads, int rows,
                            const Strides& strides) {
        buffer.upload(layout == Layout::heads_first ? values : spread(values, shape.batch, heads, rows, strides),
                      shape.dtype);
    };
    upload(Q, inputs.Q, shape.heads, shape.n_q, Q_strides);
    upload(K, inputs.K, shape.kv_heads, shape.n_k, K_strides);
    upload(V, inputs.V, shape.kv_heads, shape.n_k, V_strides);
    for (DeviceBuffer* buffer : {&O, &lse, &scratch}) buffer->fill(0xFF);
}

ForwardArgs DeviceProblem::args() const {
    ForwardArgs args{shape, Q.data(),       K.data(), V.data(), O.data(), static_cast<float*>(lse.data()),
                     scale, scratch.data(), nullptr};
    if (layout != Layout::heads_first)  // there, as most callers have it: none
        args.Q_strides = Q_strides, args.K_strides = K_strides, args.V_strides = V_strides, args.O_strides = O_strides;
    return args;
}

Outputs DeviceProblem::outputs() const {
    Outputs outputs;
    if (wants_lse) outputs.lse = lse.download(shape.lse_elements(), DType::f32);
    if (layout == Layout::heads_first) {
        outputs.O = O.download(shape.q_elements(), shape.dtype);
        return outputs;
    }
    const std::size_t d = static_cast<std::size_t>(shape.head_dim), element = bytes_per_element(shape.dtype);
    const std::vector<float> memory = O.download(O.bytes() / element, shape.dtype);
    std::vector<unsigned char> bytes(O.bytes());
    check_cuda(cudaMemcpy(bytes.data(), O.data(), bytes.size(), cudaMemcpyDeviceToHost), "download");
    outputs.O.resize(shape.q_elements());
    for_each_row(shape.batch, shape.heads, shape.n_q, O_strides, [&](std::size_t row, std::size_t first) {
        std::copy_n(&memory[first], d, &outputs.O[row * d]);
        std::fill_n(&bytes[first * element], d * element, 0xFF);  // what is left are the gaps
    });
    outputs.written_gap_bytes = static_cast<std::size_t>(
        std::count_if(bytes.begin(), bytes.end(), [](unsigned char byte) { return byte != 0xFF; }));
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
