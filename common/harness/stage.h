// A stage is one rung's kernel behind the one interface. Each attention.cu registers itself; a program has the stages
// that were linked into it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "problem.h"

namespace flashladder {

/// What a stage can do. What is not said here it refuses.
struct Support {
    std::string stage;  // "01-minimal-flash", the name of its folder
    std::vector<int> head_dims;
    std::vector<DType> dtypes = {DType::f32};  // the first is the one that tables are made in
    bool causal = false;
    bool lse = false;
    bool grouped_query = false;
    int max_batch_heads = 0;  // 0: any number
    int max_n_k = 0;          // 0: any number
};

struct Stage {
    Support supports;
    void (*launch)(const ForwardArgs&);
    std::size_t (*scratch_bytes)(const AttentionShape&);

    const std::string& name() const { return supports.stage; }
};

/// Throws std::invalid_argument with one line that names the stage, the limit and the value, if the stage cannot do
/// this.
void require_supported(const Support& supports, const ForwardArgs& args);
/// The same for the shape alone: the line, or "" if the stage can.
std::string why_unsupported(const Support& supports, const AttentionShape& shape, bool wants_lse = false);

/// All registered stages, by name.
std::span<const Stage> stages();

/// The registered stage of this name. Throws std::invalid_argument if there is none.
const Stage& find_stage(const std::string& name);

struct Registration {
    explicit Registration(Stage stage);
};

const char* to_string(DType dtype);
std::size_t bytes_per_element(DType dtype);
/// "B 4 H 16 N 4096 d 64 causal f32"
std::string to_string(const AttentionShape& shape);

}  // namespace flashladder
