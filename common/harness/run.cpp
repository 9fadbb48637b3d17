#include "harness/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "launch.h"

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#endif

namespace flashladder {
namespace {

/// 16-bit patterns of values that are representable already.
std::uint16_t to_bits(DType dtype, float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    if (dtype == DType::bf16) return static_cast<std::uint16_t>(bits >> 16);
    const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
    if (std::isnan(x)) return sign | 0x7E00;
    if (std::isinf(x)) return sign | 0x7C00;
    const float magnitude = std::abs(x);
    if (magnitude < 0x1p-14f) return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(magnitude * 0x1p24f));
    return static_cast<std::uint16_t>(sign | ((bits >> 13 & 0x3FFFF) - (112 << 10)));
}

float from_bits(DType dtype, std::uint16_t bits) {
    if (dtype == DType::bf16) return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
    const float sign = bits & 0x8000 ? -1.0f : 1.0f;
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    if (exponent == 31)
        return fraction ? std::numeric_limits<float>::quiet_NaN() : sign * std::numeric_limits<float>::infinity();
    return sign *
           (exponent == 0 ? std::ldexp(float(fraction), -24) : std::ldexp(float(1024 + fraction), exponent - 25));
}

double frobenius_bound(DType dtype) {
    switch (dtype) {
        case DType::f32: return 1e-5;
        case DType::bf16: return 5e-3;
        case DType::f16: return 1e-3;
    }
    return 0;
}

double epsilon(DType dtype) { return dtype == DType::f32 ? 0x1p-23 : dtype == DType::f16 ? 0x1p-10 : 0x1p-7; }

struct RowErrors {
    double difference = 0, norm = 0;  // sums of squares over all rows
    double worst = 0;
    std::size_t worst_index = 0;
    Wrong furthest;  // in the worst row
};

/// `value(r, x)` is element x of compared row r. A NaN difference counts as infinite.
template <class Value>
RowErrors row_errors(const AttentionRows& reference, Value value) {
    RowErrors errors;
    const std::size_t d = static_cast<std::size_t>(reference.head_dim);
    for (std::size_t r = 0; r < reference.rows.size(); ++r) {
        double difference = 0, norm = 0, furthest = -1;
        Wrong wrong;
        for (std::size_t x = 0; x < d; ++x) {
            const double wanted = reference.O[r * d + x], found = value(r, x), delta = found - wanted;
            difference += delta * delta;
            norm += wanted * wanted;
            if (!std::isnan(furthest) && !(std::abs(delta) <= furthest)) furthest = std::abs(delta), wrong = {x, found, wanted};
        }
        if (std::isnan(difference)) difference = std::numeric_limits<double>::infinity();
        errors.difference += difference;
        errors.norm += norm;
        // A row that must be zero is judged by its absolute error.
        const double error = std::sqrt(norm > 0 ? difference / norm : difference);
        if (error > errors.worst) {
            errors.worst = error;
            errors.worst_index = reference.rows[r];
            errors.furthest = wrong;
        }
    }
    return errors;
}

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

std::optional<Asked> asked;
constexpr std::size_t most_kept = std::size_t(1) << 24;  // elements of a tensor

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

DeviceBuffer::DeviceBuffer(std::size_t bytes, [[maybe_unused]] const char* name) : bytes_(bytes) {
    if (bytes == 0) return;
    check_cuda(cudaMalloc(&data_, bytes), fmt::format("allocating {} bytes", bytes).c_str());
#ifndef FLASHLADDER_GPU
    emulator::name_allocation(data_, name);
#endif
}
DeviceBuffer::~DeviceBuffer() { cudaFree(data_); }

void DeviceBuffer::fill(int byte) {
    if (bytes_ > 0) check_cuda(cudaMemset(data_, byte, bytes_), "filling a buffer");
}

void DeviceBuffer::upload(const std::vector<float>& values, DType dtype) {
    const void* from = values.data();
    std::vector<std::uint16_t> narrow;
    if (dtype != DType::f32) {
        for (float x : values) narrow.push_back(to_bits(dtype, round_to(dtype, x)));
        from = narrow.data();
    }
    check_cuda(cudaMemcpy(data_, from, values.size() * bytes_per_element(dtype), cudaMemcpyHostToDevice), "upload");
}

std::vector<float> DeviceBuffer::download(std::size_t elements, DType dtype) const {
    std::vector<float> values(elements);
    if (dtype == DType::f32) {
        check_cuda(cudaMemcpy(values.data(), data_, elements * sizeof(float), cudaMemcpyDeviceToHost), "download");
        return values;
    }
    std::vector<std::uint16_t> narrow(elements);
    check_cuda(cudaMemcpy(narrow.data(), data_, elements * sizeof(std::uint16_t), cudaMemcpyDeviceToHost), "download");
    for (std::size_t i = 0; i < elements; ++i) values[i] = from_bits(dtype, narrow[i]);
    return values;
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
    asked = {stage, inputs.Q.size() + inputs.K.size() <= most_kept ? inputs : Inputs{}, wants_lse, layout};
    asked->inputs.shape = shape;
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

const Asked* last_asked() { return asked ? &*asked : nullptr; }
void forget_asked() { asked.reset(); }

Outputs run(const Stage& stage, const Inputs& inputs, bool wants_lse, Layout layout) {
    if (const std::string why = why_unsupported(stage.supports, inputs.shape, wants_lse); !why.empty())
        throw std::invalid_argument(why);
    const DeviceProblem problem(stage, inputs, wants_lse, layout);
    stage.launch(problem.args());
    check_cuda(cudaDeviceSynchronize(), stage.name().c_str());
    return problem.outputs();
}

Comparison compare(const Outputs& outputs, const AttentionShape& shape, const AttentionRows& reference,
                   const AttentionRows& yardstick, Judge judge) {
    const std::size_t d = static_cast<std::size_t>(shape.head_dim);
    const RowErrors got = row_errors(
        reference, [&](std::size_t r, std::size_t x) { return double(outputs.O.at(reference.rows[r] * d + x)); });
    const RowErrors standard =
        row_errors(reference, [&](std::size_t r, std::size_t x) { return yardstick.O.at(r * d + x); });

    Comparison result;
    result.error = std::sqrt(got.difference / std::max(got.norm, std::numeric_limits<double>::min()));
    result.allowed_error = frobenius_bound(shape.dtype);
    result.worst_row = got.worst;
    result.worst_row_index = got.worst_index;
    result.furthest = got.furthest;
    // Standard attention can be exact where there is little to add up (one key); nobody need be better than the last
    // place.
    result.allowed_worst_row = 2 * std::max(standard.worst, 2 * epsilon(shape.dtype));
    result.allowed_lse_error = shape.dtype == DType::f32 ? 1e-5 : frobenius_bound(shape.dtype);
    for (std::size_t r = 0; r < outputs.lse.size() && r < reference.rows.size(); ++r) {
        const double wanted = reference.lse[r], value = outputs.lse.at(reference.rows[r]);
        const double off = value == wanted ? 0 : std::abs(value - wanted) / std::max(1.0, std::abs(wanted));
        const double error = std::isnan(off) ? std::numeric_limits<double>::infinity() : off;
        if (error <= result.lse_error) continue;
        result.lse_error = error;
        result.furthest_lse = {reference.rows[r], value, wanted};
    }
    result.with_lse = !outputs.lse.empty();
    result.written_gap_bytes = outputs.written_gap_bytes;
    result.passed = (judge == Judge::worst_row_only || result.error <= result.allowed_error) &&
                    result.worst_row <= result.allowed_worst_row && result.lse_error <= result.allowed_lse_error &&
                    result.written_gap_bytes == 0;
    return result;
}

std::string Comparison::describe(const AttentionShape& shape) const {
    const auto place = [&](std::size_t row) {
        const std::size_t head = row / static_cast<std::size_t>(shape.n_q);
        return fmt::format("batch {} head {} query {}", head / static_cast<std::size_t>(shape.heads),
                           head % static_cast<std::size_t>(shape.heads), row % static_cast<std::size_t>(shape.n_q));
    };
    std::string text = to_string(shape);
    // The first of these says what is wrong, with numbers that the kernel's author can follow.
    if (!(worst_row <= allowed_worst_row) || !(error <= allowed_error))
        text += fmt::format(": O[{}][{}] is {:.6g}, expected {:.6g}", place(worst_row_index), furthest.index,
                            furthest.found, furthest.expected);
    if (!(lse_error <= allowed_lse_error))
        text += fmt::format(": LSE[{}] is {:.6g}, expected {:.6g}", place(furthest_lse.index), furthest_lse.found,
                            furthest_lse.expected);
    if (written_gap_bytes > 0) text += fmt::format(": {} bytes written between rows of O", written_gap_bytes);
    text += fmt::format("; O's relative error is {:.2e} (allowed {:.0e}), its worst row's {:.2e} (allowed {:.2e})", error,
                        allowed_error, worst_row, allowed_worst_row);
    return with_lse ? text + fmt::format(", LSE's {:.1e} (allowed {:.0e})", lse_error, allowed_lse_error) : text;
}

Comparison check(const Stage& stage, const Inputs& inputs, Judge judge, bool wants_lse, Layout layout) {
    const Outputs outputs = run(stage, inputs, wants_lse, layout);
    const auto rows = rows_to_check(inputs.shape, 1);
    return compare(outputs, inputs.shape, reference_attention(inputs, rows), standard_attention(inputs, rows), judge);
}

}  // namespace flashladder
