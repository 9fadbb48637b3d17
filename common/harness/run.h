// Running a stage on given inputs, and judging what came out.
#pragma once

#include <string>
#include <vector>

#include "harness/stage.h"
#include "reference.h"

namespace flashladder {

/// Device memory that frees itself.
class DeviceBuffer {
public:
    /// `name`: what the emulator's reports call it.
    explicit DeviceBuffer(std::size_t bytes, const char* name = "");
    ~DeviceBuffer();
    DeviceBuffer(const DeviceBuffer&) = delete;
    DeviceBuffer& operator=(const DeviceBuffer&) = delete;

    void* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }
    /// Fills every byte; 0xFF makes NaN of f32, f16 and bf16.
    void fill(int byte);
    /// Copies `values`, rounded to the dtype, to the start of the buffer, and back.
    void upload(const std::vector<float>& values, DType dtype);
    std::vector<float> download(std::size_t elements, DType dtype) const;

private:
    void* data_ = nullptr;
    std::size_t bytes_;
};

/// How the tensors lie in device memory.
enum class Layout {
    heads_first,     // (batch, heads, rows, head_dim)
    sequence_first,  // (batch, rows, heads, head_dim)
    padded,          // heads first, with a gap behind each row, of another size in each tensor
};
const char* to_string(Layout layout);

struct Outputs {
    std::vector<float> O;               // (batch, heads, n_q, head_dim)
    std::vector<float> lse;             // (batch, heads, n_q), empty where it was not asked for
    std::size_t written_gap_bytes = 0;  // of O's memory, not part of any row
};

/// All device memory that one run of a stage needs, and the arguments that point to it.
struct DeviceProblem {
    DeviceProblem(const Stage& stage, const Inputs& inputs, bool wants_lse, Layout layout = Layout::heads_first);
    ForwardArgs args() const;
    /// Brings back what the stage wrote.
    Outputs outputs() const;

    AttentionShape shape;
    float scale;
    Layout layout;
    Strides Q_strides, K_strides, V_strides, O_strides;
    DeviceBuffer Q, K, V, O, lse, scratch;
    bool wants_lse;
};

/// What a stage was last asked to do, so that a test that fails can say it, and do it again.
struct Asked {
    Stage stage;
    Inputs inputs;
    bool wants_lse;
    Layout layout;
};
/// For the last DeviceProblem, or null if there was none since it was forgotten; its inputs are empty if they were
/// huge.
const Asked* last_asked();
void forget_asked();

/// Poisons the outputs, launches the stage once, waits, and brings the results back.
/// Throws std::invalid_argument (unsupported), CudaError (the kernel failed).
Outputs run(const Stage& stage, const Inputs& inputs, bool wants_lse = false, Layout layout = Layout::heads_first);

/// A number that is not what it should be: which of its row or tensor.
struct Wrong {
    std::size_t index = 0;
    double found = 0, expected = 0;
};

/// How far an output is from the reference, against how far it may be.
struct Comparison {
    double error = 0;              // relative Frobenius error over all compared rows
    double allowed_error = 0;      // by dtype
    double worst_row = 0;          // largest relative error of a row
    double allowed_worst_row = 0;  // twice that of standard attention in the same dtype
    std::size_t worst_row_index = 0;
    Wrong furthest;        // the element of that row that is furthest off
    bool with_lse = false;  // it was asked for
    double lse_error = 0;  // largest absolute error over max(1, |LSE|)
    double allowed_lse_error = 0;
    Wrong furthest_lse;
    std::size_t written_gap_bytes = 0;  // none is allowed
    bool passed = false;
    /// What is wrong and where, with found and expected numbers, in one line.
    std::string describe(const AttentionShape& shape) const;
};

enum class Judge {
    both_rules,
    worst_row_only,  // for scores with a large common offset, which cost every method accuracy
};

/// Compares all of `rows`. NaN fails. `yardstick` is standard_attention for the same rows.
Comparison compare(const Outputs& outputs, const AttentionShape& shape, const AttentionRows& reference,
                   const AttentionRows& yardstick, Judge judge = Judge::both_rules);

/// run and compare in one, on the rows of rows_to_check.
Comparison check(const Stage& stage, const Inputs& inputs, Judge judge = Judge::both_rules, bool wants_lse = false,
                 Layout layout = Layout::heads_first);

}  // namespace flashladder
