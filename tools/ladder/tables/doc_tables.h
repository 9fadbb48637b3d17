// The tables, and the differences of kernels, that stand in README and in the lessons. Made from docs/results and
// solutions/ alone.
#pragma once

#include <string>

namespace flashladder {

/// The text of one generated block: "results rung=01", "diff rung=02" and so on. Result files are those of `project`; ""
/// is this project. Throws std::runtime_error if there is no such block, or a result file is not what it should be.
std::string generated_table(const std::string& request, const std::string& project = "");

}  // namespace flashladder
