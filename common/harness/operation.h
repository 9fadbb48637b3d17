// What harness and tools must know of an operation, whatever it computes. Each folder of common/operations/ has one, and
// says the rest there, in its own types.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor.h"

namespace flashladder {

class Operation;

/// A number that tells problems of an operation apart.
struct Size {
    std::string name;     // "n_q", in result files
    std::string option;   // "n", on the command line
    std::string meaning;  // "N, the number of queries"
    std::int64_t value = 1;   // where nobody says it
    std::string same_as = "";  // of the name of another one, whose value it then has
    bool is_flag = false;      // 0 or 1
};
/// Sizes by name, of those that somebody has said.
using GivenSizes = std::map<std::string, std::int64_t>;

/// What a stage is asked to do, but for the numbers in its inputs.
struct Problem {
    const Operation* operation = nullptr;
    std::map<std::string, std::int64_t> sizes;  // all of the operation's, by name
    DType dtype = DType::f32;
    std::set<std::string> extras = {};  // outputs that are wanted, of those that need not be

    std::int64_t at(const std::string& size) const { return sizes.at(size); }
    Problem in(DType other) const;
    bool operator==(const Problem&) const = default;
};
/// "B 4 H 16 N 4096 d 64 causal f32", as the operation has it.
std::string to_string(const Problem& problem);
/// The same without the dtype.
std::string title(const Problem& problem);

/// An array that a stage reads or writes, contiguous.
struct Tensor {
    std::string name;
    std::vector<std::int64_t> extents;
    DType dtype;
    bool is_output = false;
    bool is_extra = false;  // is there only if it is among Problem::extras

    std::size_t elements() const;
    std::size_t bytes() const { return elements() * bytes_per_element(dtype); }
};

/// Numbers on the host: of tensors, as float whatever the dtype, and of arguments that are none, like "scale".
struct Data {
    Problem problem;
    std::map<std::string, std::vector<float>> tensors = {};
    std::map<std::string, double> arguments = {};
};

/// Where the tensors of a problem are in device memory.
struct DeviceData {
    const Problem& problem;
    std::map<std::string, void*> tensors;  // of tensors(problem) alone
    std::map<std::string, double> arguments;
    void* scratch = nullptr;
    cudaStream_t stream = nullptr;
};

/// How far outputs are from the reference. NaN is far.
struct Judgement {
    bool passed = false;
    double error = 0;              // relative, of all
    double worst_row = 0;          // of the row, or of what else the operation looks at one by one, with the largest
    double allowed_worst_row = 0;
    std::string description;       // what is wrong and where, with found and expected numbers, in one line
};

/// The right outputs of some inputs, computed once; to be held against those of many stages.
using Reference = std::function<Judgement(const Data& outputs)>;

/// What a stage must ask of the GPU by the arithmetic of its lesson, to be held against what is counted.
struct ClosedForm {
    double requested_bytes = 0;  // of device memory: what the threads ask for
    double distinct_bytes = 0;   // each byte once a kernel, if it is read, and once, if it is written
    double exponentials = 0;
    double divisions = 0;
};

/// A problem that `./ladder` times on a GPU. `set` names the table that it is for.
struct TimedProblem {
    std::string set;
    Problem problem;           // but for its dtype, which is each stage's own
    std::string lowest_stage;  // of those that take part
};
/// A problem that `./ladder count` counts, on a virtual GPU whose blocks may have so much shared memory; 0: as it has.
struct CountedProblem {
    Problem problem;
    std::size_t shared_bytes = 0;
    std::string stage = "";  // what the names of the stages begin with that are counted; "": all
};

class Operation {
public:
    virtual ~Operation() = default;

    /// That of its folder, and of the files of its kernels: "attention" of solutions/NN-name/attention.cu.
    virtual std::string name() const = 0;
    virtual std::vector<Size> sizes() const = 0;
    virtual std::string title(const Problem& problem) const = 0;

    /// The problem of these sizes, others as sizes() has them. Throws std::invalid_argument, naming it, for a name that is
    /// none of its sizes.
    Problem problem(const GivenSizes& given, DType dtype = DType::f32) const;
    /// The problem that this one would be with these sizes. Throws std::out_of_range for a name that it has not.
    static Problem with(Problem problem, const GivenSizes& given);

    /// All that a stage can be given, outputs that are not wanted among them.
    virtual std::vector<Tensor> all_tensors(const Problem& problem) const = 0;
    /// Those that this problem has.
    std::vector<Tensor> tensors(const Problem& problem) const;

    /// Floating-point operations, as papers count them.
    virtual double flops(const Problem& problem) const = 0;
    /// What exponentials and divisions are counted against: scores, for attention. 0: nothing.
    virtual double units(const Problem&) const { return 0; }
    virtual const char* unit() const { return "unit"; }

    /// Fresh numbers. The same seed gives the same ones on every machine.
    virtual Data inputs(const Problem& problem, std::uint64_t seed) const = 0;
    /// `most`: of what is compared, rows for example, at most about so many.
    virtual Reference reference(const Data& inputs, std::uint64_t seed, std::size_t most) const = 0;

    /// What `./ladder` checks every stage with: names, and inputs.
    virtual std::vector<std::pair<std::string, Data>> checks(DType dtype, std::uint64_t seed) const;
    /// And times on a GPU.
    virtual std::vector<TimedProblem> timed() const { return {}; }
    /// What `./ladder bench` times: its grid, or as much of it as these sizes leave. Throws std::invalid_argument with one
    /// line, naming the value.
    virtual std::vector<Problem> benched(const GivenSizes& given) const = 0;
    /// Whether a stage, by its name, is in the tables of such a problem, where nobody has said sizes: some are made for
    /// problems of one kind.
    virtual bool takes_part(const std::string&, const Problem&) const { return true; }
    /// Whether a stage takes part in this one only if it is named, because it would take minutes.
    virtual bool takes_long(const Problem&, DType) const { return false; }
    /// A problem of the same kind that the emulator, or the reference, is done with soon.
    virtual Problem cut_down(const Problem& problem) const = 0;
    virtual Problem cut_down_more(const Problem& problem) const { return cut_down(problem); }
    /// One whose inputs, repeated, are inputs of the problem, and cost the reference less; the same if there is none.
    virtual Problem part_of(const Problem& problem) const { return problem; }

    /// What docs/results/counts.json has, but for the dtype; and of variants.
    virtual std::vector<CountedProblem> counted() const = 0;
    virtual std::vector<Problem> counted_of_variants() const { return {}; }
    /// Of the stages whose lesson has one.
    virtual std::optional<ClosedForm> closed_form(const std::string&, const CountedProblem&) const { return {}; }
};

/// All that are in common/operations, by name.
std::span<const Operation* const> operations();
/// Throws std::invalid_argument, naming what there is.
const Operation& find_operation(std::string_view name);

}  // namespace flashladder
